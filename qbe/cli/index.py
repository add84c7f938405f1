"""``qbe index``, pack, pull, list, show and tag: an index, its papers, and labels of their sentences."""

import argparse
import json
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import qbe
from qbe.cli import common
from qbe.cli.common import built, refuse
from qbe.cli.parser import parse
from qbe.corpus.bibliography import author_names, entries, reference_of
from qbe.corpus.identity import MERGED_IDS, normalized_title
from qbe.corpus.records import NOTED
from qbe.util.files import atomic_file, check_output
from qbe.util.text import plain, read_ids

if TYPE_CHECKING:
    from qbe.index.source import Execution
    from qbe.index.store import Manifest

NAMED = 20  # how many papers that were kept or deleted are named
WIDEST_ID = 32
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")


def shown(name: str, unit: str = "", total: int | None = None) -> common.Bar:
    """Show a stage of a build on a terminal, which has a bar where it counts something."""
    if not unit and sys.stderr.isatty():
        print(name, file=sys.stderr)
    return common.Bar(name, unit, total)


def main(arguments: list[str]) -> None:
    run(parse("index", arguments, built))


def run(options: argparse.Namespace, build: "Callable[..., Manifest] | None" = None) -> None:
    """Build or change an index as the options say; ``build`` stands in for `qbe.index.build.build`."""
    read = reading(options)
    action = next((name for name in ("append", "update", "sync", "delete") if getattr(options, name)), None)
    settings = build_settings(options) if action is None else None
    told = f"expected --corpus with the papers to {action or 'index'}, found none; add it"
    refuse(not options.corpus and action != "delete", told)

    from qbe.index import build as here
    from qbe.index.source import Execution

    output, started, execution = Path(options.output), time.monotonic(), Execution(options.threads, shown)
    if action is not None:
        _change(output, action, options, read, execution)
        return
    try:
        manifest = (build or here.build)(
            output,
            options.corpus,
            settings,
            reading=read,
            overwrite=options.overwrite,
            resume=options.resume,
            execution=execution,
        )
    except KeyboardInterrupt:
        if here.unfinished_build(output):
            print("interrupted; --resume goes on with what is finished", file=sys.stderr)
        raise
    counts = manifest.corpus
    _say_left_out(output, counts.get("left_out", {}))
    size = sum(entry["bytes"] for entry in manifest.files.values())
    print(
        f"{output}: {counts['papers']:,} papers ({counts['labelled']:,} with facet labels, "
        f"{counts['predicted']:,} predicted), {counts['sentences']:,} sentences, {size / 1e6:,.1f} MB, "
        f"{time.monotonic() - started:.1f} s, digest {manifest.digest[:12]}",
        flush=True,
    )
    if manifest.lucene is not None:
        from qbe.index.jvm import make_class_archive

        make_class_archive(output)


def reading(options: argparse.Namespace) -> "qbe.Reading":
    name, with_columns, text = (options.format or "").partition(":")
    pairs = [pair.partition("=") for pair in text.split(",")] if with_columns else []
    columns = {field.strip(): column.strip() for field, _, column in pairs}
    wrong = not all([*columns, *columns.values()])
    refuse(wrong, f"expected --format such as table:id=key,title=name, found {options.format!r}")
    on_error, _, share = (options.on_error or "").partition(":")
    is_share = share.replace(".", "", 1).isdecimal() and on_error == "skip"
    refuse(share and not is_share, f"expected --on-error such as skip:0.05, found {options.on_error!r}")
    return common.made(
        qbe.Reading,
        options,
        format=name or None,
        columns=columns,
        categories=tuple(options.category or ()),
        on_error=on_error or None,
        max_rejected=float(share) if share else None,
    )


def build_settings(options: argparse.Namespace) -> "qbe.BuildSettings":
    name, _, precision = (options.encoder or "").rpartition(":")
    if precision not in ("int8", "fp16", "fp32"):
        name, precision = options.encoder, ""
    on_gpu = options.device == "cuda" and precision == "int8"
    refuse(on_gpu, "--device cuda encodes in fp16 or fp32, found --encoder in int8; drop one of them")
    store = set(options.store or ())
    both = store >= {"float16", "int8"}
    refuse(both, "expected --store float16 or int8, found both; drop one of them")
    return common.made(
        qbe.BuildSettings,
        options,
        bm25=options.only != "dense",
        dense=options.only != "bm25",
        encoder=name or None,
        precision=precision or None,
        positions="positions" in store,
        docvectors="docvectors" in store,
        stored=next(iter(store & {"float16", "int8"}), None),
    )


def _change(
    output: Path, action: str, options: argparse.Namespace, read: qbe.Reading, execution: "Execution"
) -> None:
    from qbe.index.update import append_papers, delete_papers, sync_papers

    started = time.monotonic()
    if action == "delete":
        found = [read_ids(each[1:]) if each.startswith("@") else [each] for each in options.delete]
        written = delete_papers(output, [paper_id for ids in found for paper_id in ids], execution=execution)
    else:
        named: dict[str, Any] = {"reading": read, "encoder": options.encoder, "tagger": options.tagger}
        named |= {"device": options.device, "execution": execution}
        if action == "sync":
            written = sync_papers(output, options.corpus, overwrite=options.overwrite, **named)
        else:
            written = append_papers(output, options.corpus, update=action == "update", **named)
    _say_left_out(output, written.left_out)
    deleted = [f"{title} [{paper_id}]" for paper_id, title in written.deleted_titles.items()]
    why = "whose records were skipped" if action == "sync" else "which --update or --sync replace"
    for what, papers in ((f"kept as the index has it, {why}", written.kept), ("deleted", deleted)):
        for paper in papers[:NAMED]:
            print(f"{what}: {plain(paper)}")
        if len(papers) > NAMED:
            print(f"{what}: {len(papers) - NAMED:,} more")
    print(f"{output}: {written.summary()}, {time.monotonic() - started:.1f} s")


def _say_left_out(output: Path, left_out: Mapping[str, int]) -> None:
    """Print how many records were left out, by the reason, and what is to be known of others."""
    from qbe.index.build import rejected_file

    listed = f"listed in {rejected_file(output)}"
    for noted in NOTED:
        if count := left_out.get(noted, 0):
            with rejected_file(output).open(encoding="utf-8") as lines:
                found = (each for each in map(json.loads, lines) if each["reason"] == noted)
                ids = [plain(each["paper_id"]) for each in list(found)[-count:] if "paper_id" in each]
            some = f" ({', '.join(ids[:3])}{', ...' * (len(ids) > 3)})" if ids else ""
            what = noted.replace("s", "", 1) if count == 1 else noted  # of papers and files
            print(f"{count:,} {what}{some}, {listed}")
    if reasons := {reason: count for reason, count in left_out.items() if reason not in NOTED}:
        total, each = sum(reasons.values()), (f"{plain(name)}: {count:,}" for name, count in reasons.items())
        print(f"{total:,} {'record' if total == 1 else 'records'} left out ({', '.join(each)}), {listed}")


def pack_main(arguments: list[str]) -> None:
    options = parse("pack", arguments)

    from qbe.index.share import pack_index

    with common.Bar("packing", "B", unit_scale=True) as progress:
        pack, size = pack_index(
            options.index,
            options.file,
            license=options.license,
            source=options.source,
            abstracts=not options.without_abstracts,
            overwrite=options.overwrite,
            threads=options.threads,
            progress=progress,
        )
    _tell(options.file, pack, f"{size / 1e6:,.1f} MB (the index {pack.bytes / 1e6:,.1f})")


def pull_main(arguments: list[str]) -> None:
    options = parse("pull", arguments)

    from qbe.index.share import pull

    with common.Bar("pulling", "B", unit_scale=True) as progress:
        folder, pack, was_there = pull(
            options.address, options.output, overwrite=options.overwrite, progress=progress
        )
    _tell(folder, pack, f"{pack.bytes / 1e6:,.1f} MB{', was there' if was_there else ''}")


def _tell(name: object, pack: Any, size: str) -> None:
    without = "" if pack.abstracts else ", abstracts not included"
    about = f"license {pack.license or 'not stated'}, digest {pack.digest[:12]}"
    print(plain(f"{name}: {pack.papers:,} papers{without}, {size}, {about}"))


def list_main(arguments: list[str]) -> None:
    options = parse("list", arguments)

    from qbe.cli.search import filter_of
    from qbe.search.filters import FilterCache
    from qbe.search.present import line
    from qbe.search.writers import described

    paper_filter = filter_of(options)
    reader = qbe.open_index(options.index, threads=1).reader
    selection = None if paper_filter is None else FilterCache(reader).of(paper_filter).selection
    passing = reader if selection is None else (reader.papers[row] for row in selection.rows.tolist())
    width = min(max(map(len, reader.papers.ids)), WIDEST_ID)
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    written = _write(
        _having(passing, options.word),
        options.format,
        lambda paper: line(paper, width)[:columns],
        lambda paper: {"paper_id": paper.paper_id, **described(paper)},
    )
    if not written:
        raise qbe.PaperNotFoundError(
            f"expected papers of {options.index} with all of the words and conditions, found none of its "
            f"{len(reader):,}; give fewer"
        )


def show_main(arguments: list[str]) -> None:
    options = parse("show", arguments)

    from qbe.search.present import line
    from qbe.search.writers import paper_record

    words = options.id
    reader = qbe.open_index(options.index, threads=1).reader
    # Where none of the words is an id, all of them may be words of one title.
    ids = [] if any(word in reader for word in words) else reader.names.find(" ".join(words))
    if len(ids) > 1:
        width = max(map(len, ids))
        sys.stdout.writelines(f"{line(reader.paper(paper_id), width)}\n" for paper_id in ids)
        raise qbe.PaperNotFoundError(
            f"expected words of the title of one paper, found {len(ids):,} papers with them; give an id, "
            "or more words"
        )
    if not ids:
        known = any(word in reader or reader.names.find(word) for word in words)
        names = words if known else [" ".join(words)]
        ids = [reader.find(name).paper_id for name in names]
    papers = map(reader.paper, dict.fromkeys(ids))
    _write(papers, options.format, _text, lambda paper: paper_record(paper, inside=True))


def _text(paper: "qbe.Paper") -> str:
    from qbe.search.present import columns, label_of

    reference = reference_of(paper)
    rows = [
        ("title", reference.title or "untitled"),
        ("authors", ", ".join(reference.authors)),
        ("year", reference.year),
        ("venue", reference.venue),
        *((name, ", ".join(values)) for name, values in _tags_of(paper).items()),
        ("id", paper.paper_id),
        ("file", reference.file),
        *reference.links.items(),
    ]
    rows = [(name, plain(value)) for name, value in rows if value]
    sentences = [
        (label_of(paper, position, None) or ("other" if paper.labelled else "-"), plain(sentence.text))
        for position, sentence in enumerate(paper.sentences)
    ]
    width = min(shutil.get_terminal_size((100, 24)).columns, 120)
    return "\n".join([*columns(rows, width), "", *columns(sentences, width), ""])


def _having(papers: "Iterable[qbe.Paper]", words: Sequence[str]) -> "Iterator[qbe.Paper]":
    """Papers whose title, authors or ids have all words, each perhaps only begun, case and accents apart."""
    folded = [normalized_title(word) or word for word in words]  # ??? is in no title
    # Chinese, Japanese and Thai have no blanks between words.
    patterns = [each if _UNSPACED.search(each) else f" {each}" for each in folded]
    for paper in papers:
        metadata = paper.metadata
        ids = metadata.get("ids")
        names = [metadata.get("doi"), metadata.get("key"), *(ids.values() if isinstance(ids, dict) else ())]
        names.extend(metadata.get(MERGED_IDS) or ())
        texts = [paper.paper_id, paper.title, *author_names(metadata.get("authors")), *map(str, names)]
        text = " ".join(f" {normalized_title(each)}" for each in texts) if words else ""
        if all(pattern in text for pattern in patterns):
            yield paper


def _tags_of(paper: "qbe.Paper") -> dict[str, list[str]]:
    lists = {name: paper.metadata.get(name) for name in ("tags", "collections")}
    return {name: list(map(str, value)) if isinstance(value, list) else [] for name, value in lists.items()}


def _write(
    papers: "Iterable[qbe.Paper]",
    form: str,
    as_text: "Callable[[qbe.Paper], str]",
    as_record: "Callable[[qbe.Paper], Any]",
) -> bool:
    texts: Iterable[str]
    if form == "table":
        texts = map(as_text, papers)
    elif form == "json":
        records = ({**as_record(paper), **_tags_of(paper)} for paper in papers)
        texts = (json.dumps(record, ensure_ascii=False) for record in records)
    else:
        texts = entries(papers, form)
    found = False
    for text in texts:
        found = True
        sys.stdout.write(f"{text}\n")
    return found


def tag_main(arguments: list[str]) -> None:
    options = parse("tag", arguments)

    output = Path(options.output)
    if options.output != "-":
        is_same = output.is_file() and Path(options.input).is_file() and output.samefile(options.input)
        refuse(is_same, f"expected an `output` other than the `input`, found {output} as both")
        check_output(output, options.overwrite)

    from qbe.models.cards import DEFAULT_TAGGER
    from qbe.models.tagger import Tagger, TaggingEncoder, open_trunk, tag_stream

    tagger = Tagger.open(options.tagger or DEFAULT_TAGGER)
    tagging = TaggingEncoder(open_trunk(tagger, options.threads), tagger, options.facets)
    opened = nullcontext(sys.stdout.buffer) if options.output == "-" else atomic_file(output)
    with common.Bar("tagging", "papers") as advance, opened as stream:
        tag_stream(options.input, stream, tagging, advance, probabilities=options.probabilities)

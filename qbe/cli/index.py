"""``qbe index``: build an index from a corpus of papers, and keep it up to date."""

from __future__ import annotations

import argparse
import sys

import qbe
from qbe.cli import common
from qbe.cli.common import Parser, refuse
from qbe.cli.defaults import built
from qbe.corpus import FORMAT_NAMES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from typing import Any

    from qbe.index.source import Execution, Progress
    from qbe.index.store import Manifest

PROGRAM = "qbe index"
ABOUT = """\
Build an index from a corpus of papers: Lucene postings, contextual sentence vectors in FAISS, the papers \
with their sentences' facets, and a manifest. It appears at --output whole or not at all. With --append, \
--update, --sync or --delete update the index at --output in one step: open readers keep what they read, a \
second writer is refused, and when anything fails the index is unchanged."""
OPTIONS = f"""
--corpus SOURCE...  files or folders of papers, plain or compressed (.gz, .xz, .zst, .zip), - for standard
  input, or an address such as s3://...: JSON lines with paper_id, title, abstract (a string or a list of
  sentences) and optionally pred_labels, metadata, or another --format; or a Hugging Face dataset
  hf:NAME[:CONFIG][:SPLIT] or a folder of one, or a Zotero library: zotero, or zotero:FOLDER
--output DIR!  the index to create or to update
{common.THREADS}\
--overwrite  replace what is at --output; with --sync delete as many papers as it takes
--resume  go on with an interrupted build
# what is read of the corpus
--format NAME[:FIELD=COLUMN,...]  of the files: {", ".join(FORMAT_NAMES)} (default: recognized, each file by
  itself); of a table perhaps its columns, as in table:id=key,title=name,abstract=text (default: by their
  usual names)
--category PATTERN...  keep only papers that have one of these categories, such as 'cs.*'
--on-error stop|skip[:SHARE]  at a record that cannot be used: stop, or skip it, listed with the reason in
  OUTPUT.rejected.jsonl, and fail where more than this share of at least 100 records had to be skipped
  (default: stop; skip:0.01 for files of more than 256 MB)
--keep-without-abstract  keep papers that have a title alone; it stands for the abstract
--dedupe title|doi  merge papers that repeat the title, year and first author, or the DOI, of one before into
  it
--limit N  read only the first N papers, to try things out
# changes of an index; without any of these one is built
? --append  add the papers of --corpus that the index lacks, with the index's own settings
? --update  the same, and replace papers that --corpus has with other content under the same ids
? --sync  make the index equal to --corpus, an export of a library: add, replace and delete; papers that did
  not change are left alone (--overwrite: also where more than a tenth would be deleted)
? --delete ID...  delete papers; @FILE: those of the file, one id a line
# what is built
--only bm25|dense  bm25: no vectors; dense: no Lucene postings (needs no Java) (default: both)
--encoder NAME[:int8|:fp16|:fp32]  name in the registry, a folder, or a hub name, and its precision, for
  papers and later for queries (default: facet-encoder; int8, on a GPU fp16)
--device cpu|cuda|auto  what runs encoder and tagger: cuda is one NVIDIA GPU, through onnxruntime-gpu; auto is
  a GPU that can be used, else the CPU (default: cpu)
--facets given|predicted  given: keep the labels that the corpus brings, and predict those of papers without;
  predicted: predict all (default: given)
--tagger NAME_OR_FOLDER  what predicts facets (default: facet-tagger)
--store positions|docvectors|float16|int8...  positions, docvectors: keep term positions, term vectors in
  Lucene, for other programs; float16, int8: how vectors are stored, int8 in half the space, with a scale a
  vector (default: float16 up to 200,000 sentences, int8 above)
--faiss auto|FACTORY  how FAISS finds candidates, which stored vectors then score exactly: a string of FAISS's
  index factory, such as IVF1024,PQ128x4fs (lists of short codes), HNSW32,SQfp16 (a graph) or SQfp16 (all
  sentences are compared) (default: auto, SQfp16 up to 200,000 sentences, lists of short codes above)
"""
PARSER = Parser(PROGRAM, ABOUT, OPTIONS)
NAMED = 20  # how many papers that were kept or deleted are named


def bars() -> Progress:
    """Progress on a terminal."""
    from qbe.index.source import Progress

    class Bars(Progress):
        def papers(self, papers: Any, share_read: Any) -> Iterator[qbe.Paper]:
            with common.Bar("reading", "papers") as bar:
                for count, paper in enumerate(papers, start=1):
                    if count % 500 == 0:
                        bar(count, round(count / (share_read() or 1.0)))
                    yield paper

        def steps(self, name: str, unit: str, total: int) -> common.Bar:
            return common.Bar(name, unit, total)

        def stage(self, name: str) -> None:
            if sys.stderr.isatty():
                print(name, file=sys.stderr)

    return Bars()


def main(arguments: list[str]) -> None:
    run(PARSER.parse_args(built(PARSER, arguments)))


def run(options: argparse.Namespace, build: Callable[..., Manifest] | None = None) -> None:
    """Build or change an index as the options say; ``build`` does what `qbe.index.build.build` does in
    another place.
    """
    threads = common.threads(options.threads)
    read, given = reading(options), vars(options)
    action = next((name for name in ("append", "update", "sync", "delete") if given[name]), None)
    settings = build_settings(options) if action is None else None
    if action is not None:
        more = {"sync": ["limit"], "delete": ["corpus"]}.get(action, [])
        for name in ("only", "facets", "store", "faiss", "resume", *more):
            refuse(given[name], f"--{name} is of no use with --{action}; drop one of them")
    told = f"expected --corpus with the papers to {action or 'index'}, found none; add it"
    refuse(not options.corpus and action != "delete", told)

    import time
    from pathlib import Path

    from qbe.index import build as here
    from qbe.index.source import Execution

    output, started, execution = Path(options.output), time.monotonic(), Execution(threads, bars())
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


def reading(options: argparse.Namespace) -> qbe.Reading:
    """How the corpus is read; raises UsageError for values that are not possible."""
    name, with_columns, text = (options.format or "").partition(":")
    pairs = [pair.partition("=") for pair in text.split(",")] if with_columns else []
    columns = {field.strip(): column.strip() for field, _, column in pairs}
    wrong = not all([*columns, *columns.values()])
    refuse(wrong, f"expected --format such as table:id=key,title=name, found {options.format!r}")
    on_error, _, share = (options.on_error or "").partition(":")
    is_share = share.replace(".", "", 1).isdecimal()
    refuse(
        share and not (is_share and on_error == "skip"),
        f"expected --on-error such as skip:0.05, found {options.on_error!r}",
    )
    return common.made(
        qbe.Reading,
        options,
        format=name or None,
        columns=columns,
        categories=tuple(options.category or ()),
        on_error=on_error or None,
        max_rejected=float(share) if share else None,
    )


def build_settings(options: argparse.Namespace) -> qbe.BuildSettings:
    """The settings of a build; raises UsageError for values that are not possible."""
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
    output: Path, action: str, options: argparse.Namespace, read: qbe.Reading, execution: Execution
) -> None:
    """Carry out a change, and print what it did."""
    import time

    from qbe.index.update import append_papers, delete_papers, sync_papers
    from qbe.util.text import plain, read_ids

    started = time.monotonic()
    if action == "delete":
        found = [read_ids(each[1:]) if each.startswith("@") else [each] for each in options.delete]
        written = delete_papers(output, [paper_id for ids in found for paper_id in ids], execution=execution)
    else:
        named: dict[str, Any] = {"reading": read, "encoder": options.encoder, "tagger": options.tagger}
        named |= {"device": options.device, "execution": execution}
        if action == "sync":
            confirm = (lambda _: True) if options.overwrite else _confirm
            written = sync_papers(output, options.corpus, confirm=confirm, **named)
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


def _confirm(question: str) -> bool:
    """Ask on a terminal; False without one."""
    from qbe.util.text import plain

    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    print(f"{plain(question)} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _say_left_out(output: Path, left_out: Mapping[str, int]) -> None:
    """Print how many records were left out, by the reason, and what is to be known of others."""
    from qbe.corpus.rejected import NOTED
    from qbe.index.build import rejected_file
    from qbe.util.text import plain

    listed = f"listed in {rejected_file(output)}"
    for noted in NOTED:
        if count := left_out.get(noted, 0):
            print(f"{count:,} {noted}, {listed}")
    if reasons := {reason: count for reason, count in left_out.items() if reason not in NOTED}:
        total, each = sum(reasons.values()), (f"{plain(name)}: {count:,}" for name, count in reasons.items())
        print(f"{total:,} {'record' if total == 1 else 'records'} left out ({', '.join(each)}), {listed}")

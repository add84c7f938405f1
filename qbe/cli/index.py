"""``qbe index``: build an index from a corpus of papers, and keep it up to date."""

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import qbe
from qbe.cli import common
from qbe.cli.common import built, refuse
from qbe.cli.parser import parse
from qbe.corpus.records import NOTED
from qbe.util.text import plain, read_ids

if TYPE_CHECKING:
    from qbe.index.source import Execution
    from qbe.index.store import Manifest

NAMED = 20  # how many papers that were kept or deleted are named


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

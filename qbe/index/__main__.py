"""``python -m qbe.index``: build an index from a corpus of papers, and keep it up to date."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from qbe import _cli
from qbe.errors import UsageError
from qbe.files import write_text
from qbe.types import Paper


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    parser = argparse.ArgumentParser(
        prog="python -m qbe.index",
        description="Build an index from a corpus of papers: Lucene postings, contextual sentence vectors "
        "in FAISS, the papers with their sentences' facets, and a manifest. It appears at --output whole or "
        "not at all. With --append, --update, --delete or --compact change the index there: at once, for "
        "whoever opens it later. Other readers go on, a second writer is refused, and when anything fails "
        "the index is as it was.",
    )
    parser.add_argument(
        "--corpus",
        nargs="+",
        metavar="SOURCE",
        help="JSON lines with paper_id, title, abstract (a string or a list of sentences) and optionally "
        "pred_labels, metadata (.gz, .xz, .zst are read too; - is standard input); or a Hugging Face dataset "
        "hf:NAME[:CONFIG][:SPLIT] or a folder of one",
    )
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="the index to create")
    change = parser.add_mutually_exclusive_group()
    change.add_argument(
        "--append", action="store_true", help="add the papers of --corpus, with the index's own settings"
    )
    change.add_argument(
        "--update", action="store_true", help="add the papers of --corpus, in place of those of the same ids"
    )
    change.add_argument(
        "--delete", nargs="+", metavar="ID", help="delete papers; @FILE: those of the file, one id a line"
    )
    change.add_argument(
        "--compact",
        action="store_true",
        help="make what was added and what is left one again, as a build would (nothing is encoded)",
    )
    side = parser.add_mutually_exclusive_group()
    side.add_argument("--bm25-only", action="store_true", help="no vectors")
    side.add_argument("--dense-only", action="store_true", help="no Lucene postings (needs no Java)")
    parser.add_argument(
        "--encoder", help="name in the registry, a folder, or a hub name (default: facet-encoder)"
    )
    parser.add_argument(
        "--precision", choices=("int8", "fp32"), default="int8", help="of the encoder (default: %(default)s)"
    )
    parser.add_argument(
        "--facets",
        choices=("given", "predicted"),
        help="given: keep the labels that the corpus brings, and predict those of papers without; predicted: "
        "predict all (default: given)",
    )
    parser.add_argument(
        "--tagger", metavar="NAME_OR_FOLDER", help="what predicts facets (default: facet-tagger)"
    )
    parser.add_argument("--store-positions", action="store_true", help="keep term positions in Lucene")
    parser.add_argument("--store-docvectors", action="store_true", help="keep term vectors in Lucene")
    parser.add_argument("--threads", type=int, help="default: all processors this process may use")
    parser.add_argument("--overwrite", action="store_true", help="replace the index at --output")
    parser.add_argument("--resume", action="store_true", help="go on with an interrupted build")
    parser.add_argument(
        "--timings", type=Path, metavar="FILE", help="write the seconds of each stage and the peak of memory"
    )
    return parser


class Bars:
    """Progress on a terminal."""

    def papers(self, papers: Iterable[Paper]) -> Iterator[Paper]:
        return _cli.progress(papers, "reading", "papers")

    def encoding(self, total: int) -> contextlib.AbstractContextManager[Callable[[int], Any]]:
        return _cli.counter("encoding", "papers", total)

    def stage(self, name: str) -> None:
        if sys.stderr.isatty():
            print(name, file=sys.stderr)


def main(argv: list[str]) -> None:
    from qbe.index.requests import request

    options = parser().parse_args(argv)
    threads = _cli.threads(options.threads)
    asked = request(options, parser())
    if asked is not None:
        _change(asked, options, threads)
        return
    for option in ("encoder", "facets", "tagger"):
        if options.bm25_only and getattr(options, option):
            raise UsageError(f"--{option} is of no use with --bm25-only; drop one of them")
    from qbe.index.build import build_index
    from qbe.index.settings import BuildSettings
    from qbe.index.timings import Timings
    from qbe.models.registry import DEFAULT_ENCODER, DEFAULT_TAGGER

    settings = BuildSettings(
        corpus=tuple(options.corpus),
        bm25=not options.dense_only,
        dense=not options.bm25_only,
        encoder=options.encoder or DEFAULT_ENCODER,
        precision=options.precision,
        facets=options.facets or "given",
        tagger=options.tagger or DEFAULT_TAGGER,
        positions=options.store_positions,
        docvectors=options.store_docvectors,
        threads=threads,
    )
    started, timings = time.monotonic(), Timings()
    try:
        manifest = build_index(
            options.output,
            settings,
            overwrite=options.overwrite,
            resume=options.resume,
            progress=Bars(),
            timings=timings,
        )
    except KeyboardInterrupt:
        print("interrupted; --resume goes on with what is finished", file=sys.stderr)
        raise
    counts = manifest.corpus
    if options.timings:
        write_text(options.timings, timings.report(counts["papers"], counts["sentences"]))
    size = sum(entry["bytes"] for entry in manifest.files.values())
    print(
        f"{options.output}: {counts['papers']:,} papers ({counts['labelled']:,} with facet labels, "
        f"{counts['predicted']:,} predicted), {counts['sentences']:,} sentences, {size / 1e6:,.1f} MB, "
        f"{time.monotonic() - started:.1f} s, digest {manifest.digest[:12]}"
    )


def _change(asked: str, options: argparse.Namespace, threads: int) -> None:
    """Change an index that exists."""
    from qbe.index.compaction import compact
    from qbe.index.live import append_papers, delete_papers
    from qbe.index.requests import ids

    started = time.monotonic()
    if asked == "delete":
        done = delete_papers(options.output, ids(options.delete))
    elif asked == "compact":
        merged = compact(options.output, threads=threads, progress=Bars())
        if merged is None:
            print(f"{options.output}: nothing to compact: one segment, no paper deleted")
            return
        done = merged
    else:
        done = append_papers(
            options.output,
            options.corpus,
            update=asked == "update",
            encoder=options.encoder,
            tagger=options.tagger,
            threads=threads,
            progress=Bars(),
        )
    segments = "1 segment" if done.segments == 1 else f"{done.segments} segments"
    print(
        f"{options.output}: {done.added:,} papers added, {done.replaced:,} replaced, {done.deleted:,} "
        f"deleted, now {done.papers:,} in {segments}, generation {done.generation}, "
        f"{time.monotonic() - started:.1f} s"
    )


if __name__ == "__main__":
    _cli.run("qbe.index", main)

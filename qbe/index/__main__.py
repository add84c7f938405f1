"""``python -m qbe.index``: build an index from a corpus of papers, and keep it up to date."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from qbe import _cli
from qbe.files import write_text
from qbe.index.options import parser
from qbe.index.requests import ann_settings, ids, part_numbers, precision, request
from qbe.types import Paper

if TYPE_CHECKING:
    from qbe.index.building.settings import BuildSettings
    from qbe.index.building.timings import Timings
    from qbe.index.manifest import Manifest
    from qbe.index.parts.part import PartMetadata
    from qbe.index.parts.source import PartsSource


CHANGES = ("append", "update", "delete", "compact")
"""Requests that change an index."""


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
    options = parser().parse_args(argv)
    threads = _cli.threads(options.threads)
    asked = request(options)
    if asked in CHANGES:
        _change(asked, options, threads)
        return
    from qbe.index.building.timings import Timings

    started, timings = time.monotonic(), Timings()
    try:
        counts, built = _build(options, threads, timings)
    except KeyboardInterrupt:
        print("interrupted; --resume goes on with what is finished", file=sys.stderr)
        raise
    if options.timings:
        write_text(options.timings, timings.report(counts["papers"], counts["sentences"]))
    size = sum(entry["bytes"] for entry in built.files.values())
    print(
        f"{options.output}: {counts['papers']:,} papers ({counts['labelled']:,} with facet labels, "
        f"{counts['predicted']:,} predicted), {counts['sentences']:,} sentences, {size / 1e6:,.1f} MB, "
        f"{time.monotonic() - started:.1f} s, digest {built.digest[:12]}"
    )


def _build(
    options: argparse.Namespace, threads: int, timings: Timings
) -> tuple[Mapping[str, Any], Manifest | PartMetadata]:
    """Build what the options ask for: what it holds, and what it states of itself."""
    conduct = {
        "overwrite": options.overwrite,
        "resume": options.resume,
        "progress": Bars(),
        "timings": timings,
    }
    if options.merge:
        from qbe.index.parts.merge import merge_parts
        from qbe.index.parts.source import PartsSource

        parts = PartsSource(options.merge)
        merged = merge_parts(options.output, parts, _merged_settings(options, parts, threads), **conduct)
        return merged.corpus, merged
    settings = _settings(options, threads)
    if options.part:
        from qbe.index.parts.build import build_part
        from qbe.index.parts.part import BuildShard

        card = build_part(options.output, settings, BuildShard(*part_numbers(options.part)), **conduct)
        return card.counts, card
    from qbe.index.building.build import build_index

    manifest = build_index(options.output, settings, **conduct)
    return manifest.corpus, manifest


def _settings(options: argparse.Namespace, threads: int) -> BuildSettings:
    from qbe.index.building.settings import BuildSettings
    from qbe.models.registry import DEFAULT_ENCODER, DEFAULT_TAGGER

    return BuildSettings(
        corpus=tuple(options.corpus),
        bm25=not options.dense_only,
        dense=not options.bm25_only,
        encoder=options.encoder or DEFAULT_ENCODER,
        precision=precision(options),
        facets=options.facets or "given",
        tagger=options.tagger or DEFAULT_TAGGER,
        positions=options.store_positions,
        docvectors=options.store_docvectors,
        ann=ann_settings(options),
        stored=options.stored or "auto",
        threads=threads,
        device=options.device or "cpu",
    )


def _merged_settings(options: argparse.Namespace, parts: PartsSource, threads: int) -> BuildSettings:
    """Those of the parts, but for what is done when they are joined."""
    from qbe.index.building.settings import BuildSettings

    own = parts.settings
    return BuildSettings(
        corpus=tuple(own["corpus"]),
        bm25=not options.dense_only,
        encoder=options.encoder or own["encoder"],
        precision=own["precision"],
        facets=own["facets"],
        tagger=options.tagger or own["tagger"],
        positions=options.store_positions,
        docvectors=options.store_docvectors,
        ann=ann_settings(options),
        stored=options.stored or "auto",
        threads=threads,
    )


def _change(asked: str | None, options: argparse.Namespace, threads: int) -> None:
    """Change an index that exists."""
    from qbe.index.live.changes import append_papers, delete_papers
    from qbe.index.live.compaction import compact

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
            device=options.device,
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

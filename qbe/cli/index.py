"""``qbe index``: build an index from a corpus of papers, and keep it up to date."""

from __future__ import annotations

from qbe.cli import common as _cli
from qbe.cli import index_options
from qbe.cli.index_options import parser

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    import contextlib
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path
    from typing import Any

    from qbe.index.source import Execution
    from qbe.index.store import Manifest
    from qbe.index.update import Written
    from qbe.types import Paper

    Build = Callable[[Path, Execution], Manifest]

PROGRAM = "qbe index"
OPTIONS = {
    "folder": "--output",
    "categories": "--category",
    "columns": "--format",
}

CHANGES = ("append", "update", "sync", "delete")
"""Actions that update an index."""

NAMED = 20
"""How many papers that were kept or deleted are named."""


class Bars:
    """Progress on a terminal (a `qbe.index.source.Progress`)."""

    def papers(self, papers: Iterable[Paper], share_read: Callable[[], float | None]) -> Iterator[Paper]:
        return _cli.progress_by_share(papers, "reading", "papers", share_read)

    def steps(
        self, name: str, unit: str, total: int
    ) -> contextlib.AbstractContextManager[Callable[[int], Any]]:
        return _cli.counter(name, unit, total)

    def stage(self, name: str) -> None:
        import sys

        if sys.stderr.isatty():
            print(name, file=sys.stderr)


def main(arguments: list[str]) -> None:
    """Parse the options and build, or change, an index."""
    run(parser().parse_args(arguments))


def run(options: argparse.Namespace, build: Build | None = None) -> None:
    """Build or change an index as the options say; ``build`` builds one of a corpus in another place."""
    threads = _cli.threads(options.threads)
    action = index_options.action(options)

    import sys
    import time
    from pathlib import Path

    from qbe.index.build import unfinished_build
    from qbe.index.source import Execution

    output, started, execution = Path(options.output), time.monotonic(), Execution(threads, Bars())
    if action in CHANGES:
        written = _change(output, action, options, execution)
        _say_left_out(output, written.left_out)
        _say_papers(written, action)
        print(f"{output}: {written.summary()}, {time.monotonic() - started:.1f} s")
        return
    try:
        built = _build(output, options, execution) if build is None else build(output, execution)
    except KeyboardInterrupt:
        if unfinished_build(output):
            print("interrupted; --resume goes on with what is finished", file=sys.stderr)
        raise
    counts = built.corpus
    _say_left_out(output, counts.get("left_out", {}))
    size = sum(entry["bytes"] for entry in built.files.values())
    print(
        f"{output}: {counts['papers']:,} papers ({counts['labelled']:,} with facet labels, "
        f"{counts['predicted']:,} predicted), {counts['sentences']:,} sentences, {size / 1e6:,.1f} MB, "
        f"{time.monotonic() - started:.1f} s, digest {built.digest[:12]}",
        flush=True,
    )
    if built.lucene is not None:
        from qbe.index.jvm import make_class_archive

        make_class_archive(output)


def _say_left_out(output: Path, left_out: Mapping[str, int]) -> None:
    """Say how many records were left out, by the reason, and what is to be known of others."""
    from qbe.corpus.rejected import NOTED
    from qbe.index.build import rejected_file
    from qbe.util.text import plain

    left_out, listed = dict(left_out), f"listed in {rejected_file(output)}"
    for noted in NOTED:
        if count := left_out.pop(noted, 0):
            print(f"{count:,} {noted}, {listed}")
    if left_out:
        reasons = ", ".join(f"{plain(reason)}: {count:,}" for reason, count in left_out.items())
        total = sum(left_out.values())
        noun = "record" if total == 1 else "records"
        print(f"{total:,} {noun} left out ({reasons}), {listed}")


def _say_papers(written: Written, action: str | None) -> None:
    """Name papers that stay although the corpus has others in their place, and those that were deleted."""
    from qbe.util.text import plain

    deleted = [f"{title} [{paper_id}]" for paper_id, title in written.deleted_titles.items()]
    why = "whose records were skipped" if action == "sync" else "which --update or --sync replace"
    for what, papers in ((f"kept as the index has it, {why}", written.kept), ("deleted", deleted)):
        for paper in papers[:NAMED]:
            print(f"{what}: {plain(paper)}")
        if len(papers) > NAMED:
            print(f"{what}: {len(papers) - NAMED:,} more")


def _confirm(question: str) -> bool:
    """Whether a person on a terminal says yes; False without a terminal."""
    import sys

    from qbe.util.text import plain

    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    print(f"{plain(question)} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _build(output: Path, options: argparse.Namespace, execution: Execution) -> Manifest:
    """Build an index."""
    from qbe.index.build import build

    return build(
        output,
        options.corpus,
        index_options.build_settings(options),
        reading=index_options.reading(options),
        overwrite=options.overwrite,
        resume=options.resume,
        execution=execution,
    )


def _change(output: Path, action: str | None, options: argparse.Namespace, execution: Execution) -> Written:
    """Update an index."""
    if action == "delete":
        from qbe.index.update import delete_papers

        return delete_papers(output, index_options.ids(options.delete), execution=execution)
    from functools import partial

    from qbe.index.update import append_papers, sync_papers

    change = partial(append_papers, update=action == "update")
    if action == "sync":
        change = partial(sync_papers, confirm=(lambda _: True) if options.overwrite else _confirm)
    return change(
        output,
        options.corpus,
        reading=index_options.reading(options),
        encoder=options.encoder,
        tagger=options.tagger,
        device=options.device,
        execution=execution,
    )


if __name__ == "__main__":
    _cli.run(PROGRAM, main, OPTIONS)

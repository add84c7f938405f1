"""``qbe harvest``: fetch the records of arXiv that are new or changed, and update an index with them."""

from __future__ import annotations

from qbe.cli import common as _cli
from qbe.feeds.harvest import ARXIV, FORMATS, INTERVAL_S

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from qbe.feeds.harvest.harvest import Harvested

PROGRAM = "qbe harvest"
OPTIONS = {
    "sets": "--set",
    "first_date": "--from",
    "form": "--format",
    "folder": "--index",
    "workers": "--threads",
}
EPILOG = """\
Run the same command again, every day for instance: it fetches what changed since the last time, and goes on
with a harvest that was interrupted. docs/watching.md has the lines for cron and systemd.
"""


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    parser = _cli.parser(
        PROGRAM,
        "Fetch the records of arXiv by OAI-PMH into a corpus file that has the newest version of each paper "
        "once, and with --index add, replace and delete in an index what changed. One request in three "
        "seconds is made, and the server's pauses are kept.",
    )
    parser.epilog = EPILOG
    parser.add_argument("--output", required=True, metavar="FILE", help="the corpus, JSON lines")
    parser.add_argument(
        "--set",
        nargs="+",
        default=[],
        metavar="NAME",
        help="of arXiv such as cs, physics:hep-th or cs:cs:CL (default: everything)",
    )
    parser.add_argument(
        "--from",
        dest="first_date",
        default="",
        metavar="DATE",
        help="records that were added or changed since then, such as 2026-11-01 (default: all; later runs "
        "begin where the last one ended)",
    )
    parser.add_argument("--index", metavar="DIR", help="an index to update with what changed")
    parser.add_argument(
        "--address", default=ARXIV, help="of a repository with arXiv's formats (default: %(default)s)"
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default=FORMATS[0],
        help="of the records: arXiv takes authors apart, but lacks the date of the first version (default: "
        "%(default)s)",
    )
    parser.add_argument(
        "--interval",
        type=float,
        default=INTERVAL_S,
        metavar="SECONDS",
        help="between two requests (default: %(default)g, as arXiv asks)",
    )
    parser.add_argument(
        "--threads", type=int, help="for --index; default: all processors this process may use"
    )
    return parser


def main(arguments: list[str]) -> None:
    """Parse the options, harvest, and update the index."""
    options = parser().parse_args(arguments)
    threads = _cli.threads(options.threads)

    import sys
    import time

    from qbe.feeds.harvest.harvest import Asked, harvest
    from qbe.feeds.harvest.repository import Repository

    if options.index is not None:
        from qbe.index.opening import open_index

        open_index(options.index).close()  # before hours of harvesting
    asked = Asked(options.address, tuple(options.set), options.format, options.first_date)
    repository, started = Repository(options.address, options.interval), time.monotonic()
    try:
        with _cli.counter("harvesting", "records", None) as advance:
            harvested = harvest(options.output, asked, repository, advance)
    except KeyboardInterrupt:
        print("interrupted; the same command goes on", file=sys.stderr)
        raise
    print(f"{options.output}: {_describe(harvested)}, {time.monotonic() - started:.1f} s", flush=True)
    if options.index is None:
        return
    from qbe.cli.index import Bars
    from qbe.feeds.harvest.update import update_index
    from qbe.index.building.settings import Execution

    started = time.monotonic()
    written = update_index(options.output, options.index, Execution(threads, Bars()))
    print(f"{options.index}: {written.summary()}, {time.monotonic() - started:.1f} s")


def _describe(harvested: Harvested) -> str:
    from qbe.util.text import plain

    left_out = "".join(
        f"; left out: {plain(reason)}: {count:,}" for reason, count in harvested.left_out.items()
    )
    return (
        f"{harvested.added:,} papers added, {harvested.replaced:,} replaced, {harvested.deleted:,} deleted, "
        f"{harvested.unchanged:,} unchanged, now {harvested.papers:,}, as of {harvested.date}{left_out}"
    )


if __name__ == "__main__":
    _cli.run(PROGRAM, main, OPTIONS)

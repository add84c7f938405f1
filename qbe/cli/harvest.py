"""``qbe harvest``: fetch the records of arXiv that are new or changed, and update an index with them."""

from __future__ import annotations

from qbe.cli import common as _cli
from qbe.feeds import ARXIV, FORMATS, INTERVAL_S

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from qbe.feeds.harvest import Place

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
        "Fetch the records of arXiv that are new or changed by OAI-PMH, and with --index add, replace and "
        "delete papers of an index accordingly. One request in three seconds is made, and the server's "
        "pauses are kept.",
    )
    parser.epilog = EPILOG
    parser.add_argument(
        "--output", required=True, metavar="FILE", help="records that no index has yet, and where to go on"
    )
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
    parser.add_argument("--index", metavar="DIR", help="an index to update, or to build, with what came")
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
    from pathlib import Path

    from qbe.feeds.harvest import HarvestSpec, harvest
    from qbe.feeds.oai import Repository

    if options.index is not None and Path(options.index).exists():
        from qbe.index.opening import open_index

        open_index(options.index).close()  # before hours of harvesting
    asked = HarvestSpec(options.address, tuple(options.set), options.format, options.first_date)
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
    from qbe.feeds.harvest import update_index
    from qbe.index.building.settings import Execution

    started = time.monotonic()
    written = update_index(options.output, options.index, Execution(threads, Bars()))
    print(f"{options.index}: {written.summary()}, {time.monotonic() - started:.1f} s")


def _describe(harvested: Place) -> str:
    from qbe.util.text import plain

    left_out = "".join(
        f"; left out: {plain(reason)}: {count:,}" for reason, count in harvested.left_out.items()
    )
    records = f"{harvested.records:,} records, {harvested.deleted:,} of deleted papers"
    return f"{records}, as of {harvested.date}{left_out}"


if __name__ == "__main__":
    _cli.run(PROGRAM, main, OPTIONS)

"""``qbe harvest``: fetch the records of arXiv that are new or changed, and update an index with them."""

import sys
import time
from pathlib import Path

import qbe
from qbe.cli import common
from qbe.cli.index import shown
from qbe.cli.parser import parse
from qbe.util.text import plain


def main(arguments: list[str]) -> None:
    options = parse("harvest", arguments)

    from qbe.feeds.harvest import HarvestSpec, harvest, update_index
    from qbe.feeds.oai import Repository
    from qbe.index.source import Execution

    if options.index is not None and Path(options.index).exists():
        qbe.open_index(options.index).close()  # before hours of harvesting
    since = vars(options)["from"] or ""
    asked = HarvestSpec(options.address, tuple(options.set or ()), options.format, since)
    repository, started = Repository(options.address, options.interval), time.monotonic()
    try:
        with common.Bar("harvesting", "records") as advance:
            done = harvest(options.output, asked, repository, advance)
    except KeyboardInterrupt:
        print("interrupted; the same command goes on", file=sys.stderr)
        raise
    left_out = "".join(f"; left out: {plain(reason)}: {count:,}" for reason, count in done.left_out.items())
    print(
        f"{options.output}: {done.records:,} records, {done.deleted:,} of deleted papers, as of "
        f"{done.date}{left_out}, {time.monotonic() - started:.1f} s",
        flush=True,
    )
    if options.index is not None:
        started = time.monotonic()
        written = update_index(options.output, options.index, Execution(options.threads, shown))
        print(f"{options.index}: {written.summary()}, {time.monotonic() - started:.1f} s")

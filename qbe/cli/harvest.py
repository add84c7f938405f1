"""``qbe harvest``: fetch the records of arXiv that are new or changed, and update an index with them."""

from __future__ import annotations

import sys

import qbe
from qbe.cli import common
from qbe.feeds import ARXIV, FORMATS, INTERVAL_S

ABOUT = """\
Fetch the records of arXiv that are new or changed by OAI-PMH, and with --index add, replace and delete \
papers of an index accordingly. One request in three seconds is made, and the server's pauses are kept."""
OPTIONS = f"""
--output FILE!  records that no index has yet, and where to go on
--set NAME...  of arXiv such as cs, physics:hep-th or cs:cs:CL (default: everything)
--from DATE  records that were added or changed since then, such as 2026-11-01 (default: all; later runs begin
  where the last one ended)
--index DIR  an index to update, or to build, with what came
--address ADDRESS ({ARXIV})  of a repository with arXiv's formats
--format {"|".join(FORMATS)} ({FORMATS[0]})  of the records: arXiv takes authors apart, but lacks the date of
  the first version
--interval SECONDS ({INTERVAL_S:g})  between two requests (default: {INTERVAL_S:g}, as arXiv asks)
--threads N  for --index; default: all processors this process may use
"""
EPILOG = """\
Run the same command again, every day for instance: it fetches what changed since the last time, and goes on
with a harvest that was interrupted. docs/watching.md has the lines for cron and systemd.
"""
PARSER = common.Parser("qbe harvest", ABOUT, OPTIONS, EPILOG)


def main(arguments: list[str]) -> None:
    options = PARSER.parse_args(arguments)
    threads = common.threads(options.threads)

    import time
    from pathlib import Path

    from qbe.cli.index import bars
    from qbe.feeds.harvest import HarvestSpec, harvest, update_index
    from qbe.feeds.oai import Repository
    from qbe.index.source import Execution
    from qbe.util.text import plain

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
        written = update_index(options.output, options.index, Execution(threads, bars()))
        print(f"{options.index}: {written.summary()}, {time.monotonic() - started:.1f} s")

"""``python -m benchmarks.alive``: a harvest with faults, an update of a large index, watched searches.

A server that speaks OAI-PMH as arXiv's does gives 10,000 invented records with every fault of
`benchmarks.repository`. The index is copied; the copy gets 500 new papers (texts of the index under other
ids), 20 replaced and 5 deleted ones from the server, while a process that opened it before goes on searching.
Then 100 searches by papers of the index, which were kept before, are run over the 500 new papers, and what
they report is compared with the grades of all pairs, computed one by one.
"""

import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.common import parsed
from benchmarks.repository import FAULTS, Record, paper, repository
from qbe.cli import common as _cli
from qbe.feeds.harvest import HarvestSpec, Journal, harvest, update_index
from qbe.feeds.oai import Repository
from qbe.feeds.watches import Watches, find, watch_of, watch_session
from qbe.index.index import open_index
from qbe.index.source import Execution
from qbe.query import Query
from qbe.search.request import SearchForm, SearchRequest
from qbe.types import Facet, Hit, Paper

RECORDS, PAGE = 10_000, 500
NEW, REPLACED, DELETED, SEARCHES = 500, 20, 5, 100


def check_harvest(folder: Path) -> str:
    """Harvest over a faulty server; what came, in words. Raises SystemExit where something is missing."""
    output = folder / "papers.jsonl"
    faults = [each for fault in FAULTS for each in (fault, fault, "")]
    with repository([paper(number) for number in range(RECORDS)], PAGE, faults) as served:
        begin = time.perf_counter()
        harvest(output, HarvestSpec(served.address), Repository(served.address, 0, pause=0.01))
        seconds, requests = time.perf_counter() - begin, len(served.asked)
        expected = sorted(served.papers)
    newest, _ = Journal.read(output).newest()
    if sorted(newest) != expected:
        sys.exit(f"expected {RECORDS} papers, found {len(newest)}")
    return f"{RECORDS:,} records, all; {requests} requests, {seconds:.1f} s without pauses"


def as_served(original: Paper, paper_id: str, **changes: object) -> Record:
    """A paper of the index as a record of the server."""
    abstract = original.abstract
    return paper(1, id=paper_id, title=original.title, abstract=abstract, datestamp="2026-11-25", **changes)


@contextmanager
def searching(index: Path, query: str) -> Iterator[list[bool]]:
    """Search an index that was opened before, over and over; whether each answer was that of the first."""
    same: list[bool] = []
    ended = threading.Event()
    with open_index(index, threads=1) as opened, watch_session(opened) as session:
        request = SearchRequest(Query(opened.paper(query), Facet.METHOD))
        first = session.search(request).hits

        def search() -> None:
            while not ended.is_set():
                same.append(session.search(request).hits == first)
                time.sleep(0.05)

        thread = threading.Thread(target=search)
        thread.start()
        try:
            yield same
        finally:
            ended.set()
            thread.join()


def main(arguments: list[str]) -> None:
    given = {"required": True, "help": "as of `make whole`"}
    threads = {"default": 2, "help": "default: 2"}
    options = parsed(
        "alive", __doc__, arguments, index=given, seed={"type": int, "default": 1}, threads=threads
    )
    chance = random.Random(options.seed)
    with tempfile.TemporaryDirectory(dir=options.index.parent) as work:
        folder = Path(work)
        print(f"harvest: {check_harvest(folder)}", flush=True)
        index = folder / "index"
        shutil.copytree(options.index, index)
        watches = Watches()
        with open_index(index, threads=options.threads) as opened:
            ids = list(opened.papers.ids)
            counts = NEW, REPLACED, DELETED, SEARCHES
            chosen = iter(chance.sample(ids, sum(counts)))
            new, replaced, deleted, queries = (list(islice(chosen, count)) for count in counts)
            served = [as_served(opened.paper(each), f"n{number}") for number, each in enumerate(new)]
            served += [as_served(opened.paper(each), each, authors=[("Ek", "Bo")]) for each in replaced]
            served += [paper(1, id=each, datestamp="2026-11-25", deleted=True) for each in deleted]
            watches.known = list(ids)
            facets = (*(str(facet) for facet in Facet), None)
            for number, each in enumerate(queries):
                asked: dict[str, Any] = {"paper_ids": [each], "facet": facets[number % 4]}
                watches.add(watch_of(each, SearchForm(**asked)))
        print(f"update: {_update(folder, index, served, queries[0], options.threads)}", flush=True)
        print(f"watch: {_watch(index, watches, options.threads)}", flush=True)


def _update(folder: Path, index: Path, served: list[Record], query: str, threads: int) -> str:
    corpus = folder / "changes.jsonl"
    with repository(served, PAGE) as server, searching(index, query) as same:
        begin, processor = time.perf_counter(), time.process_time()
        harvest(corpus, HarvestSpec(server.address), Repository(server.address, 0))
        written = update_index(corpus, index, Execution(threads))
        seconds, processor = time.perf_counter() - begin, time.process_time() - processor
    found = written.added, written.replaced, written.deleted
    if found != (NEW, REPLACED, DELETED) or not same or not all(same):
        sys.exit(
            f"expected {(NEW, REPLACED, DELETED)} papers and all hits as they were, found {found}, "
            f"{same.count(False)} of {len(same)} with others"
        )
    return (
        f"{written.summary()}; {seconds:.1f} s with the harvest ({processor:.1f} s of processor time, with "
        f"searches); {len(same)} searches beside it, all the same"
    )


def _watch(index: Path, watches: Watches, threads: int) -> str:
    begin = time.perf_counter()
    with open_index(index, threads=threads) as opened, watch_session(opened) as session:
        problems = find(watches, session)
        seconds = time.perf_counter() - begin
        reported = {(watch.name, each.paper_id) for watch in watches.watches.values() for each in watch.found}
        expected = set()
        for watch in watches.watches.values():
            facet = watch.search.get("facet")
            query = Query(opened.paper(watch.name), Facet(facet) if facet else None)
            for hit in session.grade(query, [Hit(f"n{number}", 0.0) for number in range(NEW)]):
                grades = dict(hit.grades or {})
                if (grades.get(facet, 0.0) if facet else max(grades.values())) >= watch.grade:
                    expected.add((watch.name, hit.paper_id))
        find(watches, session)
        again = sum(len(watch.found) for watch in watches.watches.values())
    if problems or reported != expected or again != len(reported):
        sys.exit(
            f"expected {len(expected)} reports, found {len(reported)}, {again} after another run; {problems}"
        )
    facets = Counter(
        str(watch.search.get("facet")) for watch in watches.watches.values() for _ in watch.found
    )
    by_facet = ", ".join(f"{name}: {count}" for name, count in sorted(facets.items()))
    return (
        f"{len(watches.watches)} searches over {NEW} new papers in {seconds:.1f} s, opening it included;"
        f" {len(reported)} papers reported ({by_facet}), as graded one by one; nothing more by another run"
    )


if __name__ == "__main__":
    _cli.run("benchmarks.alive", main)

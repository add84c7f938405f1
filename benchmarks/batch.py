"""``python -m benchmarks.batch``: many queries at a time against the same ones one by one, stage by stage.

Both sides give the same hits, which is checked. Wall-clock seconds and the processor's are told apart: on a
machine that does other work only the latter compare well.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.common import collection_options, machine, positive, spread, table
from qbe import _cli
from qbe.search.batch import BLOCK

if TYPE_CHECKING:
    from qbe.query import Query
    from qbe.search.contracts import AnySearcher
    from qbe.types import Hit, Pools

PACKAGES = ("onnxruntime", "faiss-cpu", "pyserini", "numpy")
HITS = 1000


class Seconds(NamedTuple):
    """Of the wall clock, and of the processor."""

    wall: float
    processor: float


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.batch", description=__doc__.split("\n\n")[0])
    collection_options(parser)
    parser.add_argument("--rounds", type=positive, default=3, help="default: %(default)s")
    parser.add_argument(
        "--reranked", type=int, default=10, help="queries of the reranked row (default: %(default)s)"
    )
    parser.add_argument("--threads", type=int, help="default: all processors this process may use")
    return parser


def main(argv: list[str]) -> None:
    options = parser().parse_args(argv)
    threads = _cli.threads(options.threads)
    print(machine(threads, PACKAGES))

    from qbe.index.index import Index
    from qbe.rerank.open import open_reranker
    from qbe.search.queries import queries_from_topics
    from qbe.search.reranking import RerankingSearcher
    from qbe.search.searcher import FIRST_STAGES, Searcher
    from qbe.trec import read_pools

    pools = read_pools(options.pool)
    with Index(options.index, threads=threads) as index:
        queries = [query for _, query in queries_from_topics(index, options.topics, None)]
        own = [pools[query.query_id] for query in queries]
        print(f"{len(queries)} queries, {BLOCK} at a time; {len(index)} papers; {options.rounds} rounds\n")
        rows = []
        for name in FIRST_STAGES:
            searcher = Searcher(index, name)
            rows.append(
                _row(f"{name}, whole index", searcher, queries, [None] * len(queries), options.rounds)
            )
            rows.append(_row(f"{name}, pools", searcher, queries, own, options.rounds))
        if options.reranked:
            reranked = RerankingSearcher(Searcher(index), index, open_reranker(threads=threads))
            few = slice(options.reranked)
            rows.append(_row("fused, reranked, pools", reranked, queries[few], own[few], options.rounds))
    header = ("stage", "one by one, processor ms a query", "one by one / many, processor", "the same, wall")
    print(table(header, rows))


def _row(
    name: str, searcher: AnySearcher, queries: Sequence[Query], pools: Pools, rounds: int
) -> tuple[str, str, str, str]:
    one = functools.partial(_one_by_one, searcher, queries, pools)
    many = functools.partial(_many, searcher, queries, pools)
    assert one() == many(), name
    runs = [(_timed(one), _timed(many)) for _ in range(rounds)]
    alone = statistics.median(first.processor for first, _ in runs) / len(queries)
    processor = [first.processor / second.processor for first, second in runs]
    wall = [first.wall / second.wall for first, second in runs]
    return name, f"{1e3 * alone:.1f}", spread(processor, "{:.2f}"), spread(wall, "{:.2f}")


def _one_by_one(searcher: AnySearcher, queries: Sequence[Query], pools: Pools) -> list[list[Hit]]:
    pairs = zip(queries, pools, strict=True)
    return [searcher.search(query, HITS, pool, matches=False) for query, pool in pairs]


def _many(searcher: AnySearcher, queries: Sequence[Query], pools: Pools) -> list[list[Hit]]:
    found: list[list[Hit]] = []
    for first in range(0, len(queries), BLOCK):
        block = slice(first, first + BLOCK)
        found += searcher.batch_search(queries[block], HITS, pools[block], matches=False)
    return found


def _timed(action: Callable[[], object]) -> Seconds:
    wall, processor = time.perf_counter(), time.process_time()
    action()
    return Seconds(time.perf_counter() - wall, time.process_time() - processor)


if __name__ == "__main__":
    _cli.run("benchmarks.batch", main)

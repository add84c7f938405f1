"""``python -m benchmarks.batch``: many queries at a time against the same ones one by one, stage by stage.

Both sides give the same hits, which is checked. Wall-clock time and processor time are measured: on a machine
that does other work only the latter compare well.
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
from qbe.search.output import BLOCK

if TYPE_CHECKING:
    from qbe.query import Query
    from qbe.search.pipeline import Pipeline
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

    from qbe.index.opening import open_index
    from qbe.search.pipeline import Pipeline
    from qbe.search.queries import queries_of, topics_of
    from qbe.search.stages import FIRST_STAGES, CrossEncoder
    from qbe.topics import read_pools

    pools_by_query = read_pools(options.pool)
    with open_index(options.index, threads=threads) as index:
        queries = queries_of(index, topics_of(index, options.topics))
        pools = [pools_by_query[query.query_id] for query in queries]
        print(f"{len(queries)} queries, {BLOCK} at a time; {len(index)} papers; {options.rounds} rounds\n")
        rows = []
        for name, stage in FIRST_STAGES.items():
            with Pipeline(index, stage()) as pipeline:
                whole = [None] * len(queries)
                rows.append(_row(f"{name}, whole index", pipeline, queries, whole, options.rounds))
                rows.append(_row(f"{name}, pools", pipeline, queries, pools, options.rounds))
        if options.reranked:
            few = slice(options.reranked)
            with Pipeline(index, reranker=CrossEncoder()) as pipeline:
                rows.append(
                    _row("fused, reranked, pools", pipeline, queries[few], pools[few], options.rounds)
                )
    header = ("stage", "one by one, processor ms a query", "one by one / many, processor", "the same, wall")
    print(table(header, rows))


def _row(
    name: str, pipeline: Pipeline, queries: Sequence[Query], pools: Pools, rounds: int
) -> tuple[str, str, str, str]:
    singly = functools.partial(_one_by_one, pipeline, queries, pools)
    together = functools.partial(_many, pipeline, queries, pools)
    assert singly() == together(), name
    runs = [(_timed(singly), _timed(together)) for _ in range(rounds)]
    milliseconds = statistics.median(first.processor for first, _ in runs) / len(queries)
    processor = [first.processor / second.processor for first, second in runs]
    wall = [first.wall / second.wall for first, second in runs]
    return name, f"{1e3 * milliseconds:.1f}", spread(processor, "{:.2f}"), spread(wall, "{:.2f}")


def _one_by_one(pipeline: Pipeline, queries: Sequence[Query], pools: Pools) -> list[list[Hit]]:
    pairs = zip(queries, pools, strict=True)
    return [pipeline.search(query, HITS, pool, matches=False) for query, pool in pairs]


def _many(pipeline: Pipeline, queries: Sequence[Query], pools: Pools) -> list[list[Hit]]:
    hits: list[list[Hit]] = []
    for first in range(0, len(queries), BLOCK):
        block = slice(first, first + BLOCK)
        hits += pipeline.batch_search(queries[block], HITS, pools[block], matches=False)
    return hits


def _timed(action: Callable[[], object]) -> Seconds:
    wall, processor = time.perf_counter(), time.process_time()
    action()
    return Seconds(time.perf_counter() - wall, time.process_time() - processor)


if __name__ == "__main__":
    _cli.run("benchmarks.batch", main)

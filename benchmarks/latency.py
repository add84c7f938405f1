"""``python -m benchmarks.latency``: milliseconds per query, by stage, over the whole index and in pools.

Everything is warm: each stage has run on every query once before it is timed. A round times one stage for
all queries, then the next stage, so that a change of the machine's load affects all stages equally.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarks.common import Stage, collection_options, machine, median_p95, positive, table, time_stages
from qbe import _cli
from qbe.query import Query

if TYPE_CHECKING:
    from qbe.index.index import Index

PACKAGES = ("onnxruntime", "faiss-cpu", "pyserini", "numpy")
TABLE_HITS = 10


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.latency", description=__doc__.split("\n\n")[0])
    collection_options(parser)
    parser.add_argument(
        "--hits", type=positive, default=1000, help="of a whole search (default: %(default)s)"
    )
    parser.add_argument(
        "--rounds", type=positive, default=5, help="runs of each query (default: %(default)s)"
    )
    parser.add_argument("--threads", type=int, help="default: all processors this process may use")
    return parser


def main(argv: list[str]) -> None:
    options = parser().parse_args(argv)
    threads = _cli.threads(options.threads)
    print(machine(threads, PACKAGES))

    from benchmarks.peers import compare
    from qbe.index.index import Index
    from qbe.search.queries import queries_from_topics
    from qbe.trec import read_pools

    pools = read_pools(options.pool)
    with Index(options.index, threads=threads) as index:
        queries = [query for _, query in queries_from_topics(index, options.topics, None)]
        size = sum(len(pools[query.query_id]) for query in queries) / len(queries)
        sentences = len(index.sentence_vectors)
        print(
            f"{len(queries)} queries, {options.rounds} rounds; {len(index)} papers, {sentences} sentences; "
            f"{size:.0f} papers per pool; {options.hits} hits\n"
        )
        corpus = time_stages([_stages(index, query, options.hits, None) for query in queries], options.rounds)
        pooled = [_stages(index, query, options.hits, pools[query.query_id]) for query in queries]
        in_pool = time_stages(pooled, options.rounds)
        rows = [
            (name, *median_p95(runs), *(median_p95(in_pool[name]) if name in in_pool else ("", "")))
            for name, runs in corpus.items()
        ]
        print(table(("ms per query", "index: median", "p95", "pool: median", "p95"), rows), "\n")
        compare(index, queries, options.hits, threads, options.rounds)
        _floors(index, queries)


def _stages(index: Index, query: Query, hits: int, pool: list[str] | None) -> dict[str, Stage]:
    """The steps of a search, each with the results of the previous steps as input, and whole searches."""
    import numpy as np
    from qbe.search.searcher import FIRST_STAGES, Searcher

    from qbe.search.bm25 import BM25Searcher
    from qbe.search.dense import DenseSearcher, QueryVectors
    from qbe.search.fusion import EQUAL_WEIGHTS, weighted_sum

    dense, bm25 = DenseSearcher(index), BM25Searcher(index)
    vectors = QueryVectors(index, query)
    rows = dense.rows(pool) if pool is not None else next(dense.candidates([vectors], hits))
    ranking = Searcher(index, "fused").search(query, hits, pool, matches=False)
    paper_ids = [hit.paper_id for hit in ranking]
    scores = {name: np.random.default_rng(0).random(len(rows)) for name in EQUAL_WEIGHTS}
    stages: dict[str, Stage] = {}
    if pool is None:
        outside = dataclasses.replace(query, paper=dataclasses.replace(query.paper, paper_id="query"))
        stages["read the query paper"] = functools.partial(index.paper, query.paper.paper_id)
        stages["query vectors, stored"] = functools.partial(QueryVectors, index, query)
        stages["query vectors, encoded"] = functools.partial(QueryVectors, index, outside)
        stages["FAISS candidates"] = lambda: next(dense.candidates([vectors], hits))
    stages["BM25"] = functools.partial(bm25.search, query, hits, pool)
    stages["exact scores"] = functools.partial(dense.scores, vectors, rows)
    facets = [None, query.facet]
    stages["exact scores, all and facet"] = functools.partial(dense.scores_within, vectors, rows, facets)
    stages["exact scores, whole papers"] = functools.partial(dense.whole_scores, vectors, rows)
    stages["fusion"] = functools.partial(weighted_sum, scores, EQUAL_WEIGHTS)
    stages[f"matches of {TABLE_HITS} hits"] = functools.partial(dense.matches, query, paper_ids[:TABLE_HITS])
    stages["matches of all hits"] = functools.partial(dense.matches, query, paper_ids)
    for name in FIRST_STAGES:
        search = functools.partial(Searcher(index, name).search, query, hits, pool, matches=False)
        stages[f"search: {name}"] = search
    stages[f"search: fused, {TABLE_HITS} hits, matches"] = functools.partial(
        Searcher(index).search, query, TABLE_HITS, pool
    )
    return stages


def _floors(index: Index, queries: Sequence[Query]) -> None:
    from qbe.encode.selection import selected_positions

    from benchmarks import floors

    sentences, dimension = index.sentence_vectors.shape
    chosen = sum(len(selected_positions(query)) for query in queries) / len(queries)
    size, work = sentences * dimension * 2, 2 * sentences * dimension * chosen
    read, rate = floors.read_rate(), floors.numpy_rate()
    print(
        f"\nexact scan of all sentences, {chosen:.1f} query sentences: {size / 1e6:.1f} MB of fp16, "
        f"{1e3 * size / read:.2f} ms to read once at the measured {read / 1e9:.0f} GB/s; "
        f"{work / 1e9:.3f} GFLOP, {1e3 * work / rate:.2f} ms at the {rate / 1e9:.0f} GFLOP/s of numpy"
    )


if __name__ == "__main__":
    _cli.run("benchmarks.latency", main)

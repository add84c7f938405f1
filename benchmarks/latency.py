"""``python -m benchmarks.latency``: milliseconds per query, by stage, over the whole index and in pools.

Everything is warm: each stage has run on every query once before it is timed. A round times one stage for
all queries, then the next stage, so that a change of the machine's load affects all stages equally.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.common import Stage, collection_options, machine, median_p95, positive, table, time_stages
from qbe import _cli
from qbe.query import Query

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from qbe.encode.aspect import EncodedAspect
    from qbe.index.index import Index
    from qbe.index.reader import IndexReader
    from qbe.query import Aspect
    from qbe.search.first_stages import BM25Stage, DenseStage
    from qbe.search.pipeline import Pipeline
    from qbe.types import Facet

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


@dataclass(frozen=True)
class Opened:
    """An index, its stages by themselves, and whole searches by the name of their first stage."""

    index: Index
    reader: IndexReader
    bm25: BM25Stage
    dense: DenseStage
    pipelines: Mapping[str, Pipeline]


def main(argv: list[str]) -> None:
    options = parser().parse_args(argv)
    threads = _cli.threads(options.threads)
    print(machine(threads, PACKAGES))

    from benchmarks.peers import compare
    from qbe.index.opening import open_index
    from qbe.parallel import Workers
    from qbe.search.first_stages import BM25Stage, DenseStage
    from qbe.search.pipeline import Pipeline
    from qbe.search.queries import queries_of, topics_of
    from qbe.search.stages import FIRST_STAGES
    from qbe.topics import read_pools

    pools = read_pools(options.pool)
    with open_index(options.index, threads=threads) as index, index.reading() as reader:
        queries = queries_of(index, topics_of(index, options.topics))
        size = sum(len(pools[query.query_id]) for query in queries) / len(queries)
        sentences = len(index.sentence_vectors)
        print(
            f"{len(queries)} queries, {options.rounds} rounds; {len(index)} papers, {sentences} sentences; "
            f"{size:.0f} papers per pool; {options.hits} hits\n"
        )
        pipelines = {name: Pipeline(index, stage()) for name, stage in FIRST_STAGES.items()}
        workers = Workers(threads)
        opened = Opened(index, reader, BM25Stage(reader, workers), DenseStage(reader, workers), pipelines)
        whole = [_stages(opened, query, options.hits, None) for query in queries]
        times = time_stages(whole, options.rounds)
        pooled = [_stages(opened, query, options.hits, pools[query.query_id]) for query in queries]
        in_pool = time_stages(pooled, options.rounds)
        rows = [
            (name, *median_p95(runs), *(median_p95(in_pool[name]) if name in in_pool else ("", "")))
            for name, runs in times.items()
        ]
        print(table(("ms per query", "index: median", "p95", "pool: median", "p95"), rows), "\n")
        encoded = [_encoded(index, query) for query in queries]
        compare(reader, opened.bm25, opened.dense, encoded, options.hits, threads, options.rounds)
        _floors(index, queries)


def _encoded(index: Index, query: Query) -> EncodedAspect:
    """The only aspect of a query, with the vectors of its sentences and of its whole paper."""
    (aspect,) = query.aspects
    return _with_vectors(index, aspect)


def _with_vectors(index: Index, aspect: Aspect) -> EncodedAspect:
    from qbe.encode.aspect import EncodedAspect

    return EncodedAspect.of(aspect, index.vectors(aspect.paper))


def _stages(opened: Opened, query: Query, hits: int, pool: list[str] | None) -> dict[str, Stage]:
    """The steps of a search, each with the results of the previous steps as input, and whole searches."""
    import numpy as np

    from qbe.parallel import Workers
    from qbe.search.fusion import weighted_sum
    from qbe.search.matches import add_matches
    from qbe.search.stages import EQUAL_WEIGHTS

    index, pipelines = opened.index, opened.pipelines
    (aspect,) = query.aspects
    encoded = _with_vectors(index, aspect)
    rows = _candidates(index, encoded, hits)
    if pool is not None:
        rows = np.unique([index.papers.row(paper_id) for paper_id in pool])
    ranking = pipelines["fused"].search(query, hits, pool, matches=False)
    scores = {name: np.random.default_rng(0).random(len(rows)) for name in EQUAL_WEIGHTS}
    _check_scores(opened.dense, index, encoded, rows)
    stages: dict[str, Stage] = {}
    if pool is None:
        outside = dataclasses.replace(aspect, paper=dataclasses.replace(aspect.paper, paper_id="query"))
        stages["read the query paper"] = functools.partial(index.paper, aspect.paper.paper_id)
        stages["query vectors, stored"] = functools.partial(_with_vectors, index, aspect)
        stages["query vectors, encoded"] = functools.partial(_with_vectors, index, outside)
        stages["FAISS candidates"] = functools.partial(_candidates, index, encoded, hits)
    stages["BM25"] = functools.partial(opened.bm25.batch_search, [encoded], hits, [pool])
    stages["exact scores"] = functools.partial(_exact_scores, index, encoded, rows, [None])
    facets = [None, aspect.facet]
    stages["exact scores, all and facet"] = functools.partial(_exact_scores, index, encoded, rows, facets)
    stages["exact scores, whole papers"] = functools.partial(_whole_scores, index, encoded, rows)
    stages["fusion"] = functools.partial(weighted_sum, scores, EQUAL_WEIGHTS)
    add = functools.partial(add_matches, opened.reader, Workers(), [[encoded]])
    stages[f"matches of {TABLE_HITS} hits"] = functools.partial(add, [ranking[:TABLE_HITS]])
    stages["matches of all hits"] = functools.partial(add, [ranking])
    for name, pipeline in pipelines.items():
        stages[f"search: {name}"] = functools.partial(pipeline.search, query, hits, pool, matches=False)
    stages[f"search: fused, {TABLE_HITS} hits, matches"] = functools.partial(
        pipelines["fused"].search, query, TABLE_HITS, pool
    )
    return stages


def _candidates(index: Index, encoded: EncodedAspect, hits: int) -> NDArray[np.int64]:
    assert encoded.sentences is not None
    return next(iter(index.candidate_source().nearest([encoded.sentences], hits)))


def _exact_scores(
    index: Index, encoded: EncodedAspect, rows: NDArray[np.int64], facets: Sequence[Facet | None]
) -> list[NDArray[np.float32]]:
    """Scores (papers,) of sentences for each facet, as `qbe.search.first_stages.DenseStage` computes them."""
    from qbe.index.dense.scoring import COMPARISONS, best_per_paper, mean_max, restrict

    assert encoded.sentences is not None
    block = index.vector_store.gather(rows)
    similarities = COMPARISONS[index.similarity](encoded.sentences, block.vectors)
    scores = []
    for facet in facets:
        counted = similarities
        if facet is not None:
            counted = restrict(similarities, block.starts, index.facet_mask(facet)[block.rows])
        scores.append(mean_max(best_per_paper(counted, block.starts)))
    return scores


def _whole_scores(index: Index, encoded: EncodedAspect, rows: NDArray[np.int64]) -> NDArray[np.float32]:
    """Similarities (papers,) of whole papers, likewise."""
    from qbe.index.dense.scoring import COMPARISONS

    assert encoded.whole is not None
    scores: NDArray[np.float32] = COMPARISONS[index.similarity](
        encoded.whole[None], index.vector_store.whole(rows)
    )[0]
    return scores


def _check_scores(dense: DenseStage, index: Index, encoded: EncodedAspect, rows: NDArray[np.int64]) -> None:
    """Raise AssertionError unless the steps that are timed give the scores of the stage."""
    by_stage = dense.scores(encoded, rows, None)
    facet = encoded.aspect.facet
    by_sentences = _exact_scores(index, encoded, rows, [None] if facet is None else [None, facet])
    by_steps = [_whole_scores(index, encoded, rows), *by_sentences]
    for name, scores in zip(("whole", "sentences", "facet"), by_steps, strict=False):
        assert (by_stage[name] == scores).all(), name


def _floors(index: Index, queries: Sequence[Query]) -> None:
    from benchmarks import floors

    sentences, dimension = index.sentence_vectors.shape
    counts = [len(aspect.selected_positions()) for query in queries for aspect in query.aspects]
    chosen = sum(counts) / len(queries)
    size, work = sentences * dimension * 2, 2 * sentences * dimension * chosen
    read, rate = floors.read_rate(), floors.numpy_rate()
    print(
        f"\nexact scan of all sentences, {chosen:.1f} query sentences: {size / 1e6:.1f} MB of fp16, "
        f"{1e3 * size / read:.2f} ms to read once at the measured {read / 1e9:.0f} GB/s; "
        f"{work / 1e9:.3f} GFLOP, {1e3 * work / rate:.2f} ms at the {rate / 1e9:.0f} GFLOP/s of numpy"
    )


if __name__ == "__main__":
    _cli.run("benchmarks.latency", main)

"""``python -m benchmarks.latency``: milliseconds per query, by stage, over the whole index and in pools.

Everything is warm: each stage has run on every query once before it is timed. A round times one stage for
all queries, then the next stage, so that a change of the machine's load affects all stages equally.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.common import (
    Stage,
    collection_options,
    machine,
    median_p95,
    positive,
    spread,
    table,
    time_stages,
)
from qbe.cli import common as _cli
from qbe.query import Query

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from qbe.index.index import Index, IndexReader
    from qbe.models.pooling import EncodedAspect
    from qbe.query import Aspect
    from qbe.search.first_stages import BM25Stage, DenseStage
    from qbe.search.session import Pipeline

PACKAGES = ("onnxruntime", "faiss-cpu", "pyserini", "numpy")
OURS, PEER = "BM25", "pyserini LuceneSearcher"
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

    from qbe.index.index import open_index
    from qbe.runs import read_pools
    from qbe.search.first_stages import BM25Stage, DenseStage
    from qbe.search.queries import queries_of, topics_of
    from qbe.search.session import Pipeline
    from qbe.search.stages import FIRST_STAGES, Fused, Grades, Projections
    from qbe.util.work import Workers

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
        pipelines["fused, projections"] = Pipeline(index, Fused() >> Projections())
        pipelines["fused, grades"] = Pipeline(index, Fused() >> Grades())
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
        encoded = [_with_vectors(index, aspect) for query in queries for aspect in query.aspects]
        _compare(reader, opened.bm25, encoded, options.hits, options.rounds)


def _with_vectors(index: Index, aspect: Aspect) -> EncodedAspect:
    from qbe.models.pooling import EncodedAspect

    return EncodedAspect.of(aspect, index.vectors(aspect.paper))


def _stages(opened: Opened, query: Query, hits: int, pool: list[str] | None) -> dict[str, Stage]:
    """The steps of a search, each with the results of the previous steps as input, and whole searches."""
    import numpy as np

    from qbe.search.explain import add_matches
    from qbe.search.fusion import weighted_sum
    from qbe.search.stages import EQUAL_WEIGHTS
    from qbe.util.work import Workers

    index, pipelines = opened.index, opened.pipelines
    (aspect,) = query.aspects
    encoded = _with_vectors(index, aspect)
    rows = _candidates(index, encoded, hits)
    if pool is not None:
        rows = np.unique([index.papers.row(paper_id) for paper_id in pool])
    ranking = pipelines["fused"].search(query, hits, pool, matches=False)
    scores = {name: np.random.default_rng(0).random(len(rows)) for name in EQUAL_WEIGHTS}
    stages: dict[str, Stage] = {}
    if pool is None:
        outside = dataclasses.replace(aspect, paper=dataclasses.replace(aspect.paper, paper_id="query"))
        stages["read the query paper"] = functools.partial(index.paper, aspect.paper.paper_id)
        stages["query vectors, stored"] = functools.partial(_with_vectors, index, aspect)
        stages["query vectors, encoded"] = functools.partial(_with_vectors, index, outside)
        stages["FAISS candidates"] = functools.partial(_candidates, index, encoded, hits)
    stages["BM25"] = functools.partial(opened.bm25.batch_search, [encoded], hits, [pool])
    stages["exact scores"] = functools.partial(opened.dense.scores, encoded, rows, None)
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


def _compare(
    reader: IndexReader, bm25: BM25Stage, queries: Sequence[EncodedAspect], hits: int, rounds: int
) -> None:
    """Print the times of BM25 and of Pyserini's searcher on the same postings, timed in turn.

    Raises AssertionError unless both give the same papers and scores.
    """
    from qbe.search.first_stages import query_text

    searcher = _pyserini(reader)
    stages: list[dict[str, Stage]] = []
    for query in queries:
        peer = functools.partial(_pyserini_hits, searcher, query_text(query), hits)
        (ranked,) = bm25.batch_search([query], hits, [None])
        assert [(hit.paper_id, hit.score) for hit in ranked] == peer(), query.aspect.paper.paper_id
        stages.append({OURS: functools.partial(bm25.batch_search, [query], hits, [None]), PEER: peer})
    times = time_stages(stages, rounds)
    pairs = zip(_totals(times[PEER], rounds), _totals(times[OURS], rounds), strict=True)
    medians = [median_p95(times[side])[0] for side in (OURS, PEER)]
    row = (f"{OURS} / {PEER}", *medians, spread([peer / ours for peer, ours in pairs], "{:.2f}"))
    print(table(("qbe / peer, whole index", "qbe, ms", "peer, ms", "peer / qbe"), [row]))
    print("the same papers with the same scores on both sides, for every query")


def _totals(runs: Sequence[float], rounds: int) -> list[float]:
    """Return the seconds of each round over all queries."""
    size = len(runs) // rounds
    return [sum(runs[first : first + size]) for first in range(0, len(runs), size)]


def _pyserini(reader: IndexReader) -> Any:
    """Pyserini's searcher on the same postings; its import needs a key of a service that is not used here."""
    os.environ.setdefault("OPENAI_API_KEY", "unused")
    from pyserini.search.lucene import LuceneSearcher

    searcher = LuceneSearcher(str(reader.folder / "lucene"))
    assert reader.manifest.lucene is not None
    searcher.set_bm25(reader.manifest.lucene["k1"], reader.manifest.lucene["b"])
    return searcher


def _pyserini_hits(searcher: Any, text: str, hits: int) -> list[tuple[str, float]]:
    return [(hit.docid, hit.score) for hit in searcher.search(text, hits)]


if __name__ == "__main__":
    _cli.run("benchmarks.latency", main)

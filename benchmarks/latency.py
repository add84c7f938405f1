"""``python -m benchmarks.latency``: milliseconds per query, by stage, over the whole index and in pools.

Everything is warm: each stage has run on every query once before it is timed. A round times one stage for
all queries, then the next stage, so that a change of the machine's load affects all stages equally.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.common import (
    Stage,
    machine,
    median_p95,
    parsed,
    spread,
    table,
    time_stages,
)
from qbe.cli import common as _cli
from qbe.query import Query

if TYPE_CHECKING:
    from qbe.index.index import IndexReader
    from qbe.models.pooling import EncodedAspect
    from qbe.search.first_stages import BM25Stage

PACKAGES = ("onnxruntime", "faiss-cpu", "pyserini", "numpy")
OURS, PEER = "BM25", "pyserini LuceneSearcher"
FEW_HITS = 10


def main(argv: list[str]) -> None:
    own: dict[str, Any] = {"index": {}, "topics": {}, "pool": {}, "threads": {}}
    options = parsed("latency", __doc__, argv, hits=1000, rounds=5, **own)
    threads = _cli.threads(options.threads)
    print(machine(threads, PACKAGES))

    from qbe.index.several import open_index
    from qbe.models.pooling import EncodedAspect
    from qbe.runs import read_pools
    from qbe.search.first_stages import BM25Stage
    from qbe.search.pipeline import Pipeline
    from qbe.search.queries import queries_of, topics_of
    from qbe.search.stages import FIRST_STAGES, Fused, Grades, Projections
    from qbe.util.work import Workers

    pools = read_pools(options.pool)
    with open_index(options.index, threads=threads) as index, index.reading() as reader:
        queries = queries_of(index, topics_of(index, options.topics))
        size = sum(len(pools[query.query_id]) for query in queries) / len(queries)
        print(
            f"{len(queries)} queries, {options.rounds} rounds; {len(index)} papers, "
            f"{len(index.sentence_vectors)} sentences; {size:.0f} papers per pool; {options.hits} hits\n"
        )
        pipelines = {name: Pipeline(index, stage()) for name, stage in FIRST_STAGES.items()}
        pipelines["fused, projections"] = Pipeline(index, Fused() >> Projections())
        pipelines["fused, grades"] = Pipeline(index, Fused() >> Grades())

        def stages(query: Query, pool: list[str] | None) -> dict[str, Stage]:
            (aspect,) = query.aspects
            outside = dataclasses.replace(aspect.paper, paper_id="query")
            steps = {"query vectors, stored": aspect.paper, "query vectors, encoded": outside}
            found: dict[str, Stage] = {name: partial(index.vectors, each) for name, each in steps.items()}
            if pool is not None:
                found = {}
            for name, pipeline in pipelines.items():
                search = partial(pipeline.search, query, pool=pool)
                found[f"search: {name}"] = partial(search, options.hits, matches=False)
                found[f"search: {name}, {FEW_HITS} hits, matches"] = partial(search, FEW_HITS)
            return found

        whole = time_stages([stages(query, None) for query in queries], options.rounds)
        in_pool = time_stages([stages(query, pools[query.query_id]) for query in queries], options.rounds)
        rows = [
            (name, *median_p95(runs), *(median_p95(in_pool[name]) if name in in_pool else ("", "")))
            for name, runs in whole.items()
        ]
        print(table(("ms per query", "index: median", "p95", "pool: median", "p95"), rows), "\n")
        encoded = [
            EncodedAspect.of(aspect, index.vectors(aspect.paper))
            for query in queries
            for aspect in query.aspects
        ]
        _compare(reader, BM25Stage(reader, Workers(threads)), encoded, options.hits, options.rounds)


def _compare(
    reader: IndexReader, bm25: BM25Stage, queries: Sequence[EncodedAspect], hits: int, rounds: int
) -> None:
    """Print times of BM25 and of Pyserini's searcher on the same postings, whose scores must agree."""
    os.environ.setdefault("OPENAI_API_KEY", "unused")  # pyserini's import needs it
    from pyserini.search.lucene import LuceneSearcher

    from qbe.index.store import current
    from qbe.search.first_stages import query_text

    searcher = LuceneSearcher(str(current(reader.folder) / "lucene"))
    assert reader.manifest.lucene is not None
    searcher.set_bm25(reader.manifest.lucene["k1"], reader.manifest.lucene["b"])

    def theirs(text: str) -> list[tuple[str, float]]:
        return [(hit.docid, hit.score) for hit in searcher.search(text, hits)]

    stages: list[Mapping[str, Stage]] = []
    for query in queries:
        (ranked,) = bm25.batch_search([query], hits, [None])
        text = query_text(query)
        assert [(hit.paper_id, hit.score) for hit in ranked] == theirs(text), query.aspect.paper.paper_id
        stages.append({OURS: partial(bm25.batch_search, [query], hits, [None]), PEER: partial(theirs, text)})
    times: dict[str, Any] = time_stages(stages, rounds)
    size = len(queries)
    ours, peers = (
        [sum(times[side][first : first + size]) for first in range(0, size * rounds, size)]
        for side in (OURS, PEER)
    )
    ratios = [peer / our for peer, our in zip(peers, ours, strict=True)]
    row = (
        f"{OURS} / {PEER}",
        *(median_p95(times[side])[0] for side in (OURS, PEER)),
        spread(ratios, "{:.2f}"),
    )
    print(table(("qbe / peer, whole index", "qbe, ms", "peer, ms", "peer / qbe"), [row]))
    print("the same papers with the same scores on both sides, for every query")


if __name__ == "__main__":
    _cli.run("benchmarks.latency", main)

"""The steps of a search with other tools: Pyserini, flat FAISS, plain numpy."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.common import Stage, median_p95, spread, table, time_stages
from qbe.query import Query

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from qbe.index.index import Index
    from qbe.search.dense import QueryVectors

TOP = 10
"""Number of best papers in which two implementations of dense search are compared."""


def compare(index: Index, queries: Sequence[Query], hits: int, threads: int, rounds: int) -> None:
    """Print the times of each step and of the same step with another tool, timed in turn."""
    import faiss
    import numpy as np

    from qbe.search.bm25 import BM25Searcher, query_text
    from qbe.search.dense import DenseSearcher, QueryVectors

    bm25, dense, pyserini = BM25Searcher(index), DenseSearcher(index), _pyserini(index)
    single = np.asarray(index.sentence_vectors).astype(np.float32)
    flat = faiss.IndexFlatIP(single.shape[1])
    flat.add(single)
    faiss.omp_set_num_threads(threads)
    sentences = index.candidate_source().sentences
    count, starts, same = max(sentences.min_candidates, 2 * hits), index.layout.starts[:-1], 0
    stages: list[dict[str, Stage]] = []
    for query in queries:
        text = query_text(query, "title+facet")
        expected = _pyserini_hits(pyserini, text, hits)
        assert [(hit.paper_id, hit.score) for hit in bm25.search(query, hits)] == expected, query.query_id
        vectors = QueryVectors(index, query)
        (best,) = dense.search_rows([vectors], TOP)
        same += set(best) == set(_scan(single, starts, vectors, hits)[:TOP])
        stages.append(
            {
                "BM25": functools.partial(bm25.search, query, hits),
                "pyserini LuceneSearcher": functools.partial(_pyserini_hits, pyserini, text, hits),
                "FAISS, fp16": functools.partial(sentences.nearest, vectors.sentences, count),
                "FAISS IndexFlatIP, fp32": functools.partial(flat.search, vectors.sentences, count),
                "numpy, all sentences, fp32": functools.partial(_scan, single, starts, vectors, hits),
                "search: dense": functools.partial(dense.search, query, hits),
            }
        )
    times = time_stages(stages, rounds)
    rows = []
    for name, peer in (
        ("BM25", "pyserini LuceneSearcher"),
        ("FAISS, fp16", "FAISS IndexFlatIP, fp32"),
        ("search: dense", "numpy, all sentences, fp32"),
    ):
        pairs = zip(_totals(times[peer], rounds), _totals(times[name], rounds), strict=True)
        rows.append(
            (
                f"{name} / {peer}",
                median_p95(times[name])[0],
                median_p95(times[peer])[0],
                spread([peer_seconds / seconds for peer_seconds, seconds in pairs], "{:.2f}"),
            )
        )
    print(table(("qbe / peer, whole index", "qbe, ms", "peer, ms", "peer / qbe"), rows))
    print("BM25: the same papers with the same scores on both sides, for every query")
    print(f"dense: the same first {TOP} papers on both sides for {same} of {len(queries)} queries")


def _totals(runs: Sequence[float], rounds: int) -> list[float]:
    """Return the seconds of each round over all queries."""
    size = len(runs) // rounds
    return [sum(runs[first : first + size]) for first in range(0, len(runs), size)]


def _scan(
    sentences: NDArray[np.float32], starts: NDArray[np.int64], query: QueryVectors, hits: int
) -> NDArray[np.int64]:
    """Dense search without an index: every sentence scored by one product, papers ranked by mean-max."""
    import numpy as np

    similarities = query.sentences @ sentences.T
    scores = np.maximum.reduceat(similarities, starts, axis=1).mean(axis=0)
    return np.argsort(-scores, kind="stable")[:hits]


def _pyserini(index: Index) -> Any:
    """Pyserini's searcher on the same postings; its import needs a key of a service that is not used here."""
    os.environ.setdefault("OPENAI_API_KEY", "unused")
    from pyserini.search.lucene import LuceneSearcher

    searcher = LuceneSearcher(str(index.folder / "lucene"))
    assert index.manifest.lucene is not None
    searcher.set_bm25(index.manifest.lucene["k1"], index.manifest.lucene["b"])
    return searcher


def _pyserini_hits(searcher: Any, text: str, hits: int) -> list[tuple[str, float]]:
    return [(hit.docid, hit.score) for hit in searcher.search(text, hits)]

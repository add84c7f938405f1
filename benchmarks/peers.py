"""The steps of a search with other tools: Pyserini, flat FAISS, plain numpy."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.common import Stage, median_p95, spread, table, time_stages

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from qbe.encode.aspect import EncodedAspect
    from qbe.index.reader import IndexReader
    from qbe.search.first_stages import BM25Stage, DenseStage

TOP = 10
"""Number of best papers in which two implementations of dense search are compared."""


def compare(
    reader: IndexReader,
    bm25: BM25Stage,
    dense: DenseStage,
    queries: Sequence[EncodedAspect],
    hits: int,
    threads: int,
    rounds: int,
) -> None:
    """Print the times of each step and of the same step with another tool, timed in turn."""
    import faiss
    import numpy as np

    from qbe.index.dense.faiss_candidates import FaissCandidates
    from qbe.search.first_stages import query_text

    pyserini = _pyserini(reader)
    single = np.asarray(reader.sentence_vectors).astype(np.float32)
    flat = faiss.IndexFlatIP(single.shape[1])
    flat.add(single)
    faiss.omp_set_num_threads(threads)
    source = reader.candidate_source()
    assert isinstance(source, FaissCandidates)
    sentences = source.sentences
    count, starts, same = max(sentences.min_candidates, 2 * hits), reader.layout.starts[:-1], 0
    stages: list[dict[str, Stage]] = []
    for query in queries:
        assert query.sentences is not None
        text = query_text(query)
        expected = _pyserini_hits(pyserini, text, hits)
        (ranked,) = bm25.batch_search([query], hits, [None])
        assert [(hit.paper_id, hit.score) for hit in ranked] == expected, query.aspect.paper.paper_id
        (candidates,) = dense.batch_candidates([query], TOP)
        same += set(candidates.rows) == set(_scan(single, starts, query, hits)[:TOP])
        stages.append(
            {
                "BM25": functools.partial(bm25.batch_search, [query], hits, [None]),
                "pyserini LuceneSearcher": functools.partial(_pyserini_hits, pyserini, text, hits),
                "FAISS, fp16": functools.partial(sentences.nearest, query.sentences, count),
                "FAISS IndexFlatIP, fp32": functools.partial(flat.search, query.sentences, count),
                "numpy, all sentences, fp32": functools.partial(_scan, single, starts, query, hits),
                "search: dense": functools.partial(dense.batch_search, [query], hits, [None]),
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
    sentences: NDArray[np.float32], starts: NDArray[np.int64], query: EncodedAspect, hits: int
) -> NDArray[np.int64]:
    """Dense search without an index: every sentence scored by one product, papers ranked by mean-max."""
    import numpy as np

    assert query.sentences is not None
    similarities = query.sentences @ sentences.T
    scores = np.maximum.reduceat(similarities, starts, axis=1).mean(axis=0)
    return np.argsort(-scores, kind="stable")[:hits]


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

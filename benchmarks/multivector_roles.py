"""The sides of `benchmarks.multivector`: each a process of its own, that answers queries by sentence vectors.

A role is started with a folder of arrays and a number of threads; it builds or opens its index, and then
answers every line that it reads with a round of all queries.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.answering import memory, say, timed

HITS = 20
SENTENCES = 1000  # nearest sentences that flat FAISS is asked for, of each of a query's

# Best papers, as rows, of the vectors of a query and the row of its paper.
Search = Callable[[np.ndarray, int], Any]


def of_qbe(folder: Path, threads: int) -> tuple[Search, int]:
    """The dense first stage of the index itself, whatever kind it is of."""
    from benchmarks.drawn import draw_queries, faceted_queries
    from qbe.index.index import open_index
    from qbe.search.pipeline import Pipeline
    from qbe.search.stages import Dense

    index = open_index((folder / "index").read_text(), threads=threads)
    pipeline = Pipeline(index, Dense())
    papers = np.load(folder / "papers.npy").tolist()
    rows = {paper_id: row for row, paper_id in enumerate(index.papers.ids)}
    queries = dict(zip(papers, faceted_queries(index, draw_queries(index.layout, len(papers))), strict=True))

    def search(_: np.ndarray, paper: int) -> list[int]:
        return [rows[hit.paper_id] for hit in pipeline.search(queries[paper], HITS, matches=False)]

    manifest = index.manifest.files.items()
    return search, sum(entry["bytes"] for name, entry in manifest if name.startswith(("faiss", "vectors")))


def of_flat(folder: Path, threads: int) -> tuple[Search, int]:
    """Flat FAISS in fp32: papers of the nearest sentences, by the mean of each query sentence's best.

    A paper that is not among the nearest of a sentence counts there as far as the last of them.
    """
    import faiss

    faiss.omp_set_num_threads(threads)
    vectors, starts = np.load(folder / "vectors.npy"), np.load(folder / "starts.npy")
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    paper_of = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    del vectors

    def search(query: np.ndarray, paper: int) -> list[int]:
        scores, sentences = index.search(query, min(SENTENCES, index.ntotal))
        papers = paper_of[sentences]
        candidates = np.unique(papers)
        best = np.repeat(scores.min(axis=1)[:, None], len(candidates), axis=1)
        for row, (sentence_papers, near) in enumerate(zip(papers, scores, strict=True)):
            np.maximum.at(best[row], np.searchsorted(candidates, sentence_papers), near)
        order = np.argsort(-best.mean(axis=0), kind="stable")
        return [int(row) for row in candidates[order][: HITS + 1] if row != paper][:HITS]

    return search, index.ntotal * index.d * 4


ROLES = {"qbe": of_qbe, "flat": of_flat}


def main(role: str, place: str, threads: str) -> None:
    folder = Path(place)
    queries, starts = np.load(folder / "queries.npy"), np.load(folder / "query_starts.npy")
    papers = np.load(folder / "papers.npy").tolist()
    query_vectors = [queries[first:last] for first, last in itertools.pairwise(starts)]
    begin = time.perf_counter()
    search, size = ROLES[role](folder, int(threads))
    say(build=time.perf_counter() - begin, bytes=size)
    for _ in sys.stdin:
        seconds, ranked = timed(search, zip(query_vectors, papers, strict=True))
        say(ranked=ranked, seconds=seconds, **memory())


if __name__ == "__main__":
    main(*sys.argv[1:])

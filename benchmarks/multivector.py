"""``python -m benchmarks.multivector``: search by sentence vectors, against flat FAISS.

Both sides get the vectors of one index and the same faceted queries, drawn by seed, and rank papers by the
mean of each query sentence's best match; they answer in turn. "Same top 20" compares with the exhaustive
ranking of the vectors as the index stores them.
"""

import math
from functools import partial
from typing import TYPE_CHECKING

from benchmarks import floors
from benchmarks.common import interleaved, machine, median_p95, parsed, table
from benchmarks.drawn import best_rows, draw_queries, same_places, shared_papers
from qbe.cli import common as _cli
from qbe.util.work import thread_count

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from qbe.index.index import Index

HITS = 20  # papers
SENTENCES = 1000  # nearest sentences that flat FAISS is asked for, of each of a query's
OURS, FLAT = "qbe", "flat FAISS, fp32, 1,000 sentences"


def flat_faiss(index: "Index", threads: int) -> "Callable[[np.ndarray, int], list[int]]":
    """Papers of the nearest sentences, by the mean of each query sentence's best; one that is not among the
    nearest of a sentence counts there as far as the last of them.
    """
    import faiss
    import numpy as np

    faiss.omp_set_num_threads(threads)
    starts, stored = index.layout.starts, index.sentence_vectors
    flat = faiss.IndexFlatIP(stored.shape[1])
    for first in range(0, len(stored), 1 << 16):
        flat.add(stored[first : first + (1 << 16)].astype(np.float32))
    paper_of = np.repeat(np.arange(len(starts) - 1), np.diff(starts))

    def search(query: np.ndarray, paper: int) -> list[int]:
        scores, sentences = flat.search(query, min(SENTENCES, flat.ntotal))
        papers = paper_of[sentences]
        candidates = np.unique(papers)
        best = np.repeat(scores.min(axis=1)[:, None], len(candidates), axis=1)
        for row, (sentence_papers, near) in enumerate(zip(papers, scores, strict=True)):
            np.maximum.at(best[row], np.searchsorted(candidates, sentence_papers), near)
        order = np.argsort(-best.mean(axis=0), kind="stable")
        return [int(row) for row in candidates[order][: HITS + 1] if row != paper][:HITS]

    return search


def main(argv: list[str]) -> None:
    import numpy as np

    from qbe import Dense, Pipeline, open_index

    options = parsed("multivector", __doc__, argv, index={}, queries=200, rounds=5, threads={})
    threads = thread_count(options.threads)
    print(machine(threads, ("faiss-cpu", "numpy")))
    with open_index(options.index, threads=threads) as index, Pipeline(index, Dense()) as pipeline:
        drawn, flat = draw_queries(index, options.queries), flat_faiss(index, threads)
        best = best_rows(index, drawn, HITS)
        print(f"{len(index)} papers, {len(index.sentence_vectors)} sentences, {len(best)} queries")
        size = math.prod(index.sentence_vectors.shape)
        print(floors.reading("a scan in fp32", 4 * size), "\n")
        rows = {paper_id: row for row, paper_id in enumerate(index.papers.ids)}
        ours = [partial(pipeline.search, query, HITS, matches=False) for query, _, _ in drawn]
        peer = [
            partial(flat, index.sentence_vectors[sentences].astype(np.float32), paper)
            for _, paper, sentences in drawn
        ]
        times = interleaved({OURS: ours, FLAT: peer}, options.rounds)
        ranked = {
            OURS: [[rows[hit.paper_id] for hit in search()] for search in ours],
            FLAT: [search() for search in peer],
        }
        files = index.manifest.files.items()
        stored = sum(entry["bytes"] for name, entry in files if name.startswith(("faiss", "vectors")))
        cells = [
            (
                name,
                f"{bytes_ / 1e6:,.0f}",
                " / ".join(median_p95(times[name])),
                f"{sum(times[name]) / sum(times[OURS]):.2f}",
                f"{100 * same_places(ranked[name], best):.2f}",
                f"{100 * shared_papers(ranked[name], best):.2f}",
            )
            for name, bytes_ in ((OURS, stored), (FLAT, 4 * size))
        ]
    header = "side", "index, MB", "ms a query / p95", "time / qbe", "same top 20, %", "shared papers, %"
    print(table(header, cells))


if __name__ == "__main__":
    _cli.run("benchmarks.multivector", main)

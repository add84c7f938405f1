"""``python -m benchmarks.multivector``: search by sentence vectors, against flat FAISS.

Both sides get the vectors of one index and the same faceted queries, drawn by seed, and rank papers by the
mean of each query sentence's best match. Each is a process of its own; they answer in turn. "Same top 20"
compares with the exhaustive ranking of the vectors as the index stores them.
"""

from __future__ import annotations

import math
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import floors
from benchmarks.common import machine, parsed, table
from benchmarks.drawn import DrawnQueries, best_rows, draw_queries, same_places, shared_papers
from benchmarks.roles import HITS
from benchmarks.sides import Side, in_turn
from qbe.cli import common as _cli

if TYPE_CHECKING:
    from qbe.index.index import Index

PACKAGES = ("faiss-cpu", "numpy")
ROLES = "benchmarks.roles"
NAMES = {"dense": "qbe", "flat": "flat FAISS, fp32, 1,000 sentences"}
BLOCK = 1 << 16  # vectors converted at a time


def lay_out(index: Index, folder: Path, queries: DrawnQueries) -> None:
    """Write the arrays that the sides read."""
    import numpy as np

    vectors, starts = index.sentence_vectors, index.layout.starts
    np.save(folder / "starts.npy", starts)
    np.save(folder / "papers.npy", queries.papers)
    np.save(folder / "query_starts.npy", np.append(queries.starts, sum(map(len, queries.sentences))))
    chosen = [vectors[rows].astype(np.float32) for rows in queries.sentences]
    np.save(folder / "queries.npy", np.concatenate(chosen))
    single = np.lib.format.open_memmap(folder / "vectors.npy", "w+", np.float32, vectors.shape)
    for first in range(0, len(vectors), BLOCK):
        single[first : first + BLOCK] = vectors[first : first + BLOCK].astype(np.float32)
    (folder / "index").write_text(str(index.folder.resolve()))


def row(name: str, side: Side, baseline: Side, best: list[list[int]]) -> list[str]:
    """The table's row of a side."""
    last = side.rounds[-1]
    ranked = last["ranked"]
    return [
        NAMES[name],
        f"{side.ready['build']:.1f}",
        f"{side.ready['bytes'] / 1e6:,.0f}",
        f"{last['resident']:.2f} ({last['anonymous']:.2f})",
        side.latency(),
        side.slower_than(baseline),
        f"{100 * same_places(ranked, best):.2f}",
        f"{100 * shared_papers(ranked, best):.2f}",
    ]


HEADER = [
    *("side", "index built or opened, s", "index, MB", "memory, GB (anonymous)", "ms a query (p95)"),
    *("time / qbe", "same top 20, %", "shared papers, %"),
]


def main(argv: list[str]) -> None:
    from qbe.index.several import open_index

    options = parsed("multivector", __doc__, argv, index={}, queries=200, rounds=5, work={}, threads={})
    threads = _cli.threads(options.threads)
    print(machine(threads, PACKAGES))
    with tempfile.TemporaryDirectory(prefix="qbe-", dir=options.work) as work:
        folder = Path(work)
        with open_index(options.index, threads=threads) as index:
            queries = draw_queries(index.layout, options.queries)
            lay_out(index, folder, queries)
            best = best_rows(index, queries, HITS)
            print(f"{len(index)} papers, {len(index.sentence_vectors)} sentences, {len(best)} queries")
            print(floors.reading("a scan in fp32", 4 * math.prod(index.sentence_vectors.shape)), "\n")
        sides = {role: Side([sys.executable, "-m", ROLES, role, str(folder), str(threads)]) for role in NAMES}
        in_turn([*sides.values()], options.rounds)
        print(table(HEADER, [row(name, side, sides["dense"], best) for name, side in sides.items()]))
        for side in sides.values():
            side.close()


if __name__ == "__main__":
    _cli.run("benchmarks.multivector", main)

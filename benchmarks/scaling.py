"""``python -m benchmarks.scaling``: what dense search costs, and how exact it is, as the corpus grows.

For each size an index is made out of a real one (`benchmarks.synthetic`), in a process of its own; another
opens and searches it: faceted queries and queries of four sentences, all warm. Then the best 20 papers of the
faceted ones are compared, place by place, with exhaustive search over the same stored vectors.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import multiprocessing
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks import floors
from benchmarks.common import machine, median_p95, parsed, positive, table
from benchmarks.drawn import best_rows, draw_queries, faceted_queries, same_places
from benchmarks.roles import memory, timed
from qbe.cli import common as _cli

PACKAGES = ("faiss-cpu", "numpy")
TOP = 20
SIZES = (10_000, 100_000, 800_000)


def build(options: argparse.Namespace, folder: Path, papers: int) -> dict[str, Any]:
    """Make the index; seconds and peak of memory of each stage; that of FAISS runs qbe's code only."""
    from benchmarks.synthetic import Timings, write_synthetic
    from qbe.index.several import open_index

    timings = Timings()
    with open_index(options.index) as source:
        write_synthetic(source, folder, papers, 0, options.threads, timings)
    peaks = {name: peak / 1e9 for name, peak in timings.peaks.items()}
    return {"seconds": dict(timings.seconds), "peaks": peaks, "peak": peaks["faiss"]}


def search(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Milliseconds a query, memory, and the best papers of each faceted query."""
    from qbe.index.several import open_index
    from qbe.query import Query
    from qbe.search.pipeline import Pipeline
    from qbe.search.stages import Dense

    with open_index(folder, threads=options.threads) as index, Pipeline(index, Dense()) as pipeline:
        faceted = faceted_queries(index, draw_queries(index.layout, options.queries))
        search_dense = functools.partial(pipeline.search, matches=False)
        papers = [aspect.paper for query in faceted for aspect in query.aspects]
        four = [Query(paper, positions=(0, 1, 2, 3)) for paper in papers if len(paper.sentences) > 3]
        runs = {"facet": (faceted, TOP), "four": (four, TOP), "deep": (faceted[:50], 1000)}
        results: dict[str, Any] = {"seconds": {}}
        for name, (queries, hits) in runs.items():
            for query in queries:
                search_dense(query, hits)
            results["seconds"][name], ranked = timed(search_dense, [(query, hits) for query in queries])
            if name == "facet":
                results["best"] = [[hit.paper_id for hit in each] for each in ranked]
            if name == "four":
                results |= memory()
        return results


def exactness(options: argparse.Namespace, folder: Path, best: list[list[str]]) -> float:
    """The share of places of the best papers that hold the paper of exhaustive search."""
    from qbe.index.several import open_index

    with open_index(folder) as index:
        rows = {paper_id: row for row, paper_id in enumerate(index.papers.ids)}
        ranked = [[rows[paper_id] for paper_id in paper_ids] for paper_ids in best]
        return same_places(ranked, best_rows(index, draw_queries(index.layout, options.queries), TOP))


def in_new_process(function: Any, *arguments: Any) -> Any:
    """The result of a function, called in a process of its own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def row(options: argparse.Namespace, folder: Path, papers: int, rate: float) -> tuple[list[str], int, float]:
    """The table's row of a size, its sentences, and the median seconds of a faceted query.

    The floor is the time to read, at ``rate``, the share of FAISS's lists that a query is compared with.
    """
    from qbe.index.params import FaissParams
    from qbe.index.store import read_manifest

    built = in_new_process(build, options, folder, papers)
    searched = in_new_process(search, options, folder)
    same = in_new_process(exactness, options, folder, searched["best"])
    manifest = read_manifest(folder)
    sizes = {name: entry["bytes"] / 1e6 for name, entry in manifest.files.items()}
    assert manifest.dense is not None
    sentences, ann = manifest.corpus["sentences"], manifest.dense["ann"]
    memory = {name: round(searched[name], 3) for name in ("peak", "resident", "anonymous")}
    print(json.dumps({"papers": papers, "ann": ann, "built": built, "memory": memory}))
    seconds = searched["seconds"]
    cells = [f"{papers:,}", f"{sentences:,}", ann["factory"]]
    cells += [f"{built['seconds'][stage]:.0f}" for stage in ("papers", "vectors", "faiss", "files")]
    read, *others = (
        sum(size for name, size in sizes.items() if name.startswith(part))
        for part in ("faiss", "vectors", "whole")
    )
    cells += [f"{size:,.0f}" for size in (read, *others)]
    cells += [f"{100 * same:.2f}"]
    cells += [" / ".join(median_p95(seconds[name])) for name in ("facet", "four", "deep")]
    nlist = FaissParams.read(manifest.dense).nlist
    read *= ann["nprobe"] / nlist if nlist else 1
    cells += [f"{1e3 * read * 1e6 / rate:.2f}"]
    cells += [f"{searched['peak']:.2f} ({searched['anonymous']:.2f})", f"{built['peak']:.2f}"]
    return cells, sentences, sorted(seconds["facet"])[len(seconds["facet"]) // 2]


def exponent(points: list[tuple[int, float]]) -> float:
    """The slope of log seconds over log sentences, by least squares."""
    logs = [(math.log(size), math.log(seconds)) for size, seconds in points]
    middle = [sum(column) / len(logs) for column in zip(*logs, strict=True)]
    spread = sum((x - middle[0]) ** 2 for x, _ in logs)
    return float(sum((x - middle[0]) * (y - middle[1]) for x, y in logs) / spread)


HEADER = [
    "papers",
    "sentences",
    "FAISS",
    *("papers, s", "vectors, s", "FAISS, s", "files, s"),
    *("FAISS, MB", "stored, MB", "whole, MB"),
    "same top 20, %",
    *("facet, ms / p95", "4 sentences, ms / p95", "1,000 hits, ms / p95", "floor, ms"),
    *("search, peak GB (anonymous)", "FAISS stage, peak GB"),
]


def main(argv: list[str]) -> None:
    index: dict[str, Any] = {"required": True, "help": "of real papers, by cosine"}
    sizes: dict[str, Any] = {"type": positive, "nargs": "+", "default": SIZES, "help": "papers of each"}
    options = parsed("scaling", __doc__, argv, index=index, sizes=sizes, queries=200, work={}, threads={})
    options.threads = _cli.threads(options.threads)
    print(machine(options.threads, PACKAGES))
    rate = floors.read_rate()
    print(f"reads {rate / 1e9:.0f} GB/s\n")
    rows, points = [], []
    for papers in options.sizes:
        with tempfile.TemporaryDirectory(prefix="qbe-scaling-", dir=options.work) as work:
            cells, sentences, seconds = row(options, Path(work, "index"), papers, rate)
        rows.append(cells)
        points.append((sentences, seconds))
    print(table(HEADER, rows))
    if len(points) > 1:
        print(f"milliseconds of a faceted query grow with sentences to the power of {exponent(points):.2f}")


if __name__ == "__main__":
    _cli.run("benchmarks.scaling", main)

"""``python -m benchmarks.stages``: the latency of each stage of a search as the corpus grows.

For each size an index with postings and vectors is made out of a real one (`benchmarks.synthetic`); faceted
queries of its papers are searched by each stage, warm, one by one.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.answering import timed
from benchmarks.charts import Chart, Line, write_chart
from benchmarks.common import machine, median_p95, positive, table
from benchmarks.drawn import drawn, faceted_queries
from benchmarks.synthetic import write_searchable
from qbe import BM25, CrossEncoder, Dense, Fused, Pipeline, Projections, Stages, _cli, open_index
from qbe.plots import check_plot
from qbe.types import Paper

HITS = 20
STAGES: Mapping[str, Stages] = {
    "bm25": Stages(BM25()),
    "dense": Stages(Dense()),
    "fused": Stages(Fused()),
    "fused, projections": Fused() >> Projections(),
    "fused, cross-encoders": Fused() >> CrossEncoder(),
}
SLOW = ("fused, cross-encoders",)
"""Stages that read papers again: timed with a tenth of the queries."""


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.stages", description=__doc__.split("\n\n")[0])
    parser.add_argument("--index", type=Path, required=True, metavar="DIR", help="of real papers, by cosine")
    parser.add_argument("--sizes", type=positive, nargs="+", default=(10_000, 50_000, 200_000), help="papers")
    parser.add_argument("--queries", type=positive, default=100, help="default: %(default)s")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="latency by papers, as .svg or .png")
    parser.add_argument("--work", type=Path, metavar="DIR", help="where indexes are made (default: $TMPDIR)")
    return parser


def measured(folder: Path, queries: int) -> dict[str, list[float]]:
    """Seconds of each query by stage, over one index."""
    seconds = {}
    with open_index(folder) as index:
        searches = [(query, HITS) for query in faceted_queries(index, drawn(index, queries))]
        for name, stages in STAGES.items():
            some = searches[: max(3, len(searches) // 10)] if name in SLOW else searches
            with Pipeline(index, stages) as pipeline:
                timed(pipeline.search, some[:3])
                seconds[name], _ = timed(pipeline.search, some)
    return seconds


def chart(sizes: Sequence[int], seconds: Sequence[Mapping[str, list[float]]]) -> Chart:
    """The median latency of each stage by the number of papers."""
    lines = [Line(name, [1e3 * statistics.median(each[name]) for each in seconds]) for name in STAGES]
    return Chart("Latency by stage", "papers", "ms a query", [f"{size:,}" for size in sizes], lines, True)


def _unchanged(papers: Iterator[Paper]) -> Iterator[Paper]:
    return papers


def main(argv: list[str]) -> None:
    options = parser().parse_args(argv)
    if options.plot:
        check_plot(options.plot)
    threads = _cli.threads(None)
    print(machine(threads, ("faiss-cpu", "numpy", "onnxruntime", "pyserini")) + "\n")
    work = Path(tempfile.mkdtemp(prefix="qbe-stages-", dir=options.work))
    seconds = []
    try:
        with open_index(options.index, threads=threads) as source:
            for size in options.sizes:
                write_searchable(source, work / str(size), size, "auto", threads, _unchanged)
                seconds.append(measured(work / str(size), options.queries))
                shutil.rmtree(work / str(size))
    finally:
        shutil.rmtree(work, ignore_errors=True)
    rows = [[name, *(" / ".join(median_p95(each[name])) for each in seconds)] for name in STAGES]
    print(table(["ms a query / p95", *(f"{size:,} papers" for size in options.sizes)], rows))
    if options.plot:
        write_chart(options.plot, chart(options.sizes, seconds))


if __name__ == "__main__":
    _cli.run("benchmarks.stages", main)

"""``python -m benchmarks.cluster --corpus FILE --work DIR``: several indexes beside one over the same papers.

It builds BM25 indexes of all papers and of every n-th, and prints the share of the first 20 and 100 hits that
both have. Dense scores are exact, and so the same.
"""

import dataclasses
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.common import parsed
from qbe.cli import common as _cli
from qbe.index.build import build
from qbe.index.index import open_index
from qbe.index.source import BuildSettings, Source, open_corpus
from qbe.query import Query
from qbe.search.pipeline import Pipeline
from qbe.search.stages import BM25
from qbe.types import Paper

DEPTHS = (20, 100)


def part(source: Source, *bounds: int | None) -> Source:
    """The papers of a source from start to stop by a step."""
    read: Callable[..., Iterator[Paper]] = source.papers
    return dataclasses.replace(source, papers=lambda *given: islice(read(*given), *bounds))


def main(argv: list[str]) -> None:
    corpus: dict[str, Any] = {"type": Path, "required": True, "metavar": "FILE"}
    options = parsed("cluster", __doc__, argv, corpus=corpus, work={}, shards=4, papers=180_000, queries=100)
    count, several = options.papers, [options.work / str(number) for number in range(options.shards)]
    source = open_corpus(str(options.corpus))
    parts = {options.work / "one": part(source, count)}
    parts |= {folder: part(source, first, count, options.shards) for first, folder in enumerate(several)}
    for folder, papers in parts.items():
        if not folder.exists():
            build(folder, papers, BuildSettings(dense=False))
    shared = dict.fromkeys(DEPTHS, 0.0)
    with open_index(options.work / "one") as whole, open_index([*map(str, several)]) as shards:
        ids = whole.papers.ids[:: max(1, len(whole) // options.queries)][: options.queries]
        pipelines = [Pipeline(index, BM25()) for index in (whole, shards)]
        for query in (Query(whole.paper(paper_id)) for paper_id in ids):
            expected, found = (each.search(query, k=max(DEPTHS), matches=False) for each in pipelines)
            for depth in DEPTHS:
                both = {hit.paper_id for hit in expected[:depth]} & {hit.paper_id for hit in found[:depth]}
                shared[depth] += len(both) / min(depth, len(expected)) / len(ids)
    print(", ".join(f"{share:.3f} of the first {depth}" for depth, share in shared.items()))


if __name__ == "__main__":
    _cli.run("benchmarks.cluster", main)

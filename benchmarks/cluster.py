"""How the hits of several indexes differ from those of one over the same papers.

``python -m benchmarks.cluster CORPUS WORK`` builds BM25 indexes of all papers and of every n-th, and prints
the share of the first 20 and 100 hits that both have. ``--dense ONE SEVERAL...`` compares the scores of built
indexes with vectors instead, and fused hits.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from qbe.index.build import build
from qbe.index.index import Index
from qbe.index.several import open_index
from qbe.index.source import BuildSettings, Source, open_corpus
from qbe.query import Query
from qbe.search.pipeline import Pipeline
from qbe.search.stages import BM25, Dense, Fused
from qbe.types import Paper

DEPTHS = (20, 100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path, help="a corpus; with --dense one index")
    parser.add_argument("work", type=Path, nargs="+", help="folder for indexes; with --dense several indexes")
    parser.add_argument("--dense", action="store_true")
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--papers", type=int, default=180_000)
    parser.add_argument("--queries", type=int, default=100)
    options = parser.parse_args()
    if options.dense:
        stages: list[BM25 | Dense | Fused] = [Dense(), Fused()]
        one, several = options.corpus, options.work
    else:
        work = options.work[0]
        stages = [BM25()]
        one, several = work / "one", [work / str(n) for n in range(options.shards)]
        _build(options.corpus, one, several, options.papers)
    with open_index(one) as whole, open_index([str(each) for each in several]) as parts:
        ids = whole.papers.ids[:: max(1, len(whole) // options.queries)][: options.queries]
        for stage in stages:
            _compare(stage, whole, parts, ids)


def _build(corpus: Path, one: Path, several: Sequence[Path], count: int) -> None:
    source = open_corpus(str(corpus))
    shares = [(None, count, None), *((first, count, len(several)) for first in range(len(several)))]
    for folder, share in zip([one, *several], shares, strict=True):
        if not folder.exists():
            started = time.monotonic()
            papers = functools.partial(_some, source, share)
            built = build(folder, dataclasses.replace(source, papers=papers), BuildSettings(dense=False))
            print(
                f"{folder}: {built.corpus['papers']:,} papers, {time.monotonic() - started:.0f} s", flush=True
            )


def _some(source: Source, share: tuple[int | None, int, int | None], *arguments: Any) -> Iterator[Paper]:
    return itertools.islice(source.papers(*arguments), *share)


def _compare(stage: BM25 | Dense | Fused, whole: Index, parts: Index, ids: Sequence[str]) -> None:
    shared, difference = dict.fromkeys(DEPTHS, 0.0), 0.0
    with Pipeline(whole, stage) as one, Pipeline(parts, stage) as several:
        for paper_id in ids:
            query = Query(whole.paper(paper_id))
            expected, found = (each.search(query, k=max(DEPTHS), matches=False) for each in (one, several))
            for depth in DEPTHS:
                both = {hit.paper_id for hit in expected[:depth]} & {hit.paper_id for hit in found[:depth]}
                shared[depth] += len(both) / min(depth, len(expected)) / len(ids)
            scores = {hit.paper_id: hit.score for hit in expected}
            common = [abs(hit.score - scores[hit.paper_id]) for hit in found if hit.paper_id in scores]
            difference = max([difference, *common])
    overlaps = ", ".join(f"{share:.3f} of the first {depth}" for depth, share in shared.items())
    print(f"{type(stage).__name__}: {overlaps}; largest difference of scores {difference:g}")


if __name__ == "__main__":
    main()

"""``python -m benchmarks.cluster --corpus FILE --work DIR``: several indexes beside one over the same papers.

It builds BM25 indexes of all papers and of every n-th, and prints the share of the first 20 and 100 hits that
both have. Dense scores are exact, and so the same.
"""

import dataclasses
import itertools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import parsed
from qbe.cli import common as _cli
from qbe.index.build import build
from qbe.index.index import Index, open_index
from qbe.index.source import BuildSettings, open_corpus
from qbe.query import Query
from qbe.search.pipeline import Pipeline
from qbe.search.stages import BM25
from qbe.types import Paper

DEPTHS = (20, 100)


def main(argv: list[str]) -> None:
    corpus: dict[str, Any] = {"type": Path, "required": True, "metavar": "FILE"}
    options = parsed("cluster", __doc__, argv, corpus=corpus, work={}, shards=4, papers=180_000, queries=100)
    one, several = options.work / "one", [options.work / str(n) for n in range(options.shards)]
    _build(options.corpus, one, several, options.papers)
    with open_index(one) as whole, open_index([str(each) for each in several]) as parts:
        ids = whole.papers.ids[:: max(1, len(whole) // options.queries)][: options.queries]
        _compare(whole, parts, ids)


def _build(corpus: Path, one: Path, several: Sequence[Path], count: int) -> None:
    source = open_corpus(str(corpus))
    shares = [(None, count, None), *((first, count, len(several)) for first in range(len(several)))]
    for folder, share in zip([one, *several], shares, strict=True):
        if not folder.exists():
            started = time.monotonic()

            def papers(*given: Any, share: tuple[int | None, ...] = share) -> Iterator[Paper]:
                return itertools.islice(source.papers(*given), *share)

            built = build(folder, dataclasses.replace(source, papers=papers), BuildSettings(dense=False))
            print(
                f"{folder}: {built.corpus['papers']:,} papers, {time.monotonic() - started:.0f} s", flush=True
            )


def _compare(whole: Index, parts: Index, ids: Sequence[str]) -> None:
    shared = dict.fromkeys(DEPTHS, 0.0)
    with Pipeline(whole, BM25()) as one, Pipeline(parts, BM25()) as several:
        for paper_id in ids:
            query = Query(whole.paper(paper_id))
            expected, found = (each.search(query, k=max(DEPTHS), matches=False) for each in (one, several))
            for depth in DEPTHS:
                both = {hit.paper_id for hit in expected[:depth]} & {hit.paper_id for hit in found[:depth]}
                shared[depth] += len(both) / min(depth, len(expected)) / len(ids)
    print(", ".join(f"{share:.3f} of the first {depth}" for depth, share in shared.items()))


if __name__ == "__main__":
    _cli.run("benchmarks.cluster", main)

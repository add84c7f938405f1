"""``python -m benchmarks.seeds``: what several papers as a query find, against one.

    QBE_DATA=... python -m benchmarks.seeds --index indexes/citations --qrels data/citations/train.qrels

Of the bibliographies in qrels with ten papers or more some are drawn. Five papers of each are the query, the
others are to be found: recall of the first 20, by whole abstracts, for ways of combining the five rankings.
The first row is the mean over the five papers as queries by themselves; `best place` is the place among the
five, in random order, whose papers are the best queries by themselves.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import positive, table
from qbe import _cli
from qbe.search.fusion import z_normalize

if TYPE_CHECKING:
    from qbe.search.pipeline import Pipeline

Doubles = NDArray[np.float64]

SEEDS, DEPTH, LEAST = 5, 20, 10
SEED = 1
RRF_K = 60


def _best(count: int) -> Callable[[Doubles], Doubles]:
    return lambda scores: np.sort(scores, axis=0)[-count:].mean(axis=0)


def _reciprocal_ranks(scores: Doubles) -> Doubles:
    ranks = np.argsort(np.argsort(-scores, axis=1), axis=1) + 1
    return np.asarray((1 / (RRF_K + ranks)).sum(axis=0))


COMBINATIONS: Mapping[str, Callable[[Doubles], Doubles]] = {
    "best one": _best(1),
    "mean of the best two": _best(2),
    "mean of the best three": _best(3),
    "mean of all": _best(SEEDS),
    "reciprocal rank fusion": _reciprocal_ranks,
}
"""One score (papers,) of z-normalized scores (seeds, papers)."""


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.seeds", description=__doc__.split("\n\n")[0])
    parser.add_argument("--index", type=Path, required=True, metavar="DIR", help="of the collection's papers")
    parser.add_argument("--qrels", type=Path, required=True, metavar="FILE", help="who cites whom, of train")
    parser.add_argument("--bibliographies", type=positive, default=150, help="default: %(default)s")
    parser.add_argument("--threads", type=int, help="default: all processors this process may use")
    return parser


def recall(scores: Doubles, never: Sequence[int], wanted: frozenset[int]) -> float:
    """The share of the wanted rows among the first DEPTH, of scores (papers,) by row.

    >>> recall(np.array([3.0, 2.0, 1.0]), [0], frozenset({1, 5}))
    0.5
    """
    scores = scores.copy()
    scores[list(never)] = -np.inf
    first = np.argsort(-scores, kind="stable")[:DEPTH]
    return len(wanted.intersection(first.tolist())) / len(wanted)


def scores_of(pipeline: Pipeline, row: int) -> Doubles:
    """Fused scores (papers,) of all papers of the index for one of them as a query, z-normalized."""
    from qbe.query import Query

    papers = pipeline.index.papers
    others = [paper_id for paper_id in papers.ids if paper_id != papers.ids[row]]
    hits = pipeline.search(Query(papers[row]), len(others), others, matches=False)
    scores = np.full(len(papers), np.nan)
    scores[[papers.row(hit.paper_id) for hit in hits]] = [hit.score for hit in hits]
    scores[row] = np.nanmean(scores)
    return z_normalize(scores)


def main(argv: list[str]) -> None:
    from qbe.index.opening import open_index
    from qbe.search.pipeline import Pipeline
    from qbe.search.stages import Fused
    from qbe.trec import read_qrels

    options = parser().parse_args(argv)
    random = np.random.default_rng(SEED)
    by_seed: list[list[float]] = []
    figures: dict[str, list[float]] = {name: [] for name in COMBINATIONS}
    with (
        open_index(options.index, threads=_cli.threads(options.threads)) as index,
        Pipeline(index, Fused(background_penalty=0)) as pipeline,
    ):
        qrels = {query: cited for query, cited in read_qrels(options.qrels).items() if len(cited) >= LEAST}
        drawn = random.permutation(sorted(qrels))[: options.bibliographies]
        for query in drawn.tolist():
            cited = [index.papers.row(paper_id) for paper_id in random.permutation(sorted(qrels[query]))]
            seeds, wanted = cited[:SEEDS], frozenset(cited[SEEDS:])
            never = [*seeds, index.papers.row(query)]
            scores = np.stack([scores_of(pipeline, row) for row in seeds])
            by_seed.append([recall(each, never, wanted) for each in scores])
            for name, combine in COMBINATIONS.items():
                figures[name].append(recall(combine(scores), never, wanted))
    places = np.array(by_seed).mean(axis=0)
    single = {"one paper": float(places.mean()), "one paper, best place": float(places.max())}
    rows = {**single, **{name: float(np.mean(values)) for name, values in figures.items()}}
    best = single["one paper, best place"]
    print(f"{len(drawn)} bibliographies, {SEEDS} papers known of each\n")
    cells = [[name, f"{value:.3f}", f"{100 * (value / best - 1):+.0f} %"] for name, value in rows.items()]
    print(table(["query", f"recall@{DEPTH}", "against the best place"], cells))


if __name__ == "__main__":
    _cli.run("benchmarks.seeds", main)

"""Rank correlation of scores with the grades of graded lists: of rerankers, and of matchings of vectors."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.stats import permutation_test, spearmanr

from qbe.encode.aspect import EncodedAspect
from qbe.encode.encoder import Encoder
from qbe.encode.pooling import Floats
from qbe.errors import CorpusError
from qbe.graded_pairs import GradedLists
from qbe.models.encoder_format import COSINE
from qbe.query import Aspect
from qbe.rerank.matching import MATCHINGS, VectorMatching
from qbe.rerank.reranker import Reranker, RerankRequest
from qbe.types import Facet, Paper

FIRST_STAGE = "mean-max"
"""The matching of the dense first stage."""

SAMPLES = 100_000
"""Random permutations of the significance test."""


def spearman(scores: Sequence[float], grades: Sequence[float]) -> float | None:
    """Spearman's rank correlation; None where all grades are equal, 0 where only all scores are.

    >>> spearman([0.1, 0.3, 0.2], [1, 3, 2])
    1.0
    """
    if len(set(grades)) < 2:
        return None
    return float(spearmanr(scores, grades).statistic) if len(set(scores)) > 1 else 0.0


def mean_correlation(values: Collection[float]) -> float:
    """The mean over queries of their correlations; NaN where there is none (`check_dev` prevents that).

    >>> mean_correlation([0.5, 0.25]), mean_correlation([])
    (0.375, nan)
    """
    return float(np.mean([*values])) if values else math.nan


def facet_correlations(lists: Iterable[tuple[Floats, Sequence[Sequence[float]]]]) -> list[float]:
    """For each facet the mean over lists of the correlation of scores (candidates, 3) and grades.

    Lists whose grades for a facet are all equal are left out there.

    >>> scores, grades = np.array([[0.1, 3.0, 0.5], [0.3, 2.0, 0.0]]), [(1, 1, 2), (3, 2, 2)]
    >>> np.round(facet_correlations([(scores, grades)]), 6).tolist()
    [1.0, -1.0, nan]
    """
    values: list[list[float]] = [[] for _ in Facet]
    for scores, grades in lists:
        for of_facet, column, truth in zip(values, scores.T, zip(*grades, strict=True), strict=True):
            correlation = spearman(column.tolist(), truth)
            if correlation is not None:
                of_facet.append(correlation)
    return [mean_correlation(of_facet) for of_facet in values]


def check_dev(lists: GradedLists, source: Path) -> None:
    """Check that scores can be compared with the grades of lists from the file ``source``, by each facet.

    Raises CorpusError where no list has two different grades for a facet.

    >>> from qbe.graded_pairs import GradedPair
    >>> lists = {"q": [GradedPair("a", (3, 1, 0)), GradedPair("b", (1, 2, 0))]}
    >>> check_dev(lists, Path("dev.tsv"))
    Traceback (most recent call last):
    ...
    qbe.errors.CorpusError: dev.tsv: expected a query with two different grades for each facet, found none for
    result; give more pairs as `dev`
    """
    check_grades(([pair.grades for pair in pairs] for pairs in lists.values()), source)


def check_grades(lists: Iterable[Sequence[Sequence[float]]], source: Path) -> None:
    """`check_dev` of lists that are given by their grades alone, (candidates, 3) each."""
    ordered = {
        place
        for grades in lists
        for place in range(len(Facet))
        if len({of_candidate[place] for of_candidate in grades}) > 1
    }
    missing = [str(facet) for place, facet in enumerate(Facet) if place not in ordered]
    if missing:
        raise CorpusError(
            f"{source}: expected a query with two different grades for each facet, found none for "
            f"{', '.join(missing)}; give more pairs as `dev`"
        )


def rank_correlations(
    reranker: Reranker,
    papers: Mapping[str, Paper],
    lists: GradedLists,
    vectors: Mapping[str, Floats] | None = None,
) -> list[dict[str, float]]:
    """For each facet the correlation (see `spearman`) of scores and grades by query.

    Queries whose grades for a facet are all equal are left out there. The reranker scores as in a search;
    ``vectors`` are those of the papers' sentences (sentences, dimension), for rerankers that need them.
    """
    facets: list[dict[str, float]] = []
    for number, facet in enumerate(Facet):
        correlations: dict[str, float] = {}
        for query, pairs in lists.items():
            aspect = Aspect(papers[query], facet)
            positions = aspect.selected_positions()
            sentences = None if vectors is None else vectors[query][list(positions)]
            candidates = [papers[pair.paper_id] for pair in pairs]
            request = RerankRequest(EncodedAspect(aspect, positions, sentences), candidates)
            (scores,) = reranker.batch_score([request])
            grades = [pair.grades[number] for pair in pairs]
            correlation = spearman([entry.score for entry in scores], grades)
            if correlation is not None:
                correlations[query] = correlation
        facets.append(correlations)
    return facets


class Figures(NamedTuple):
    """Spearman's correlations with the grades of dev.

    ``means`` has the mean over queries by matching and facet; ``queries`` the mean over facets by query,
    for the matching of the dense first stage.
    """

    means: Mapping[str, Sequence[float]]
    queries: Sequence[float]


def encode_sentences(encoder: Encoder, papers: Mapping[str, Paper]) -> dict[str, Floats]:
    """Vectors (sentences, dimension) float32 of papers by id."""
    encoded = zip(papers, encoder.encode(papers.values()), strict=True)
    return {paper_id: vectors.sentences for paper_id, vectors in encoded}


def measure(
    vectors: Mapping[str, Floats], papers: Mapping[str, Paper], lists: GradedLists, similarity: str = COSINE
) -> Figures:
    """Correlations of each matching of sentence vectors, compared by ``similarity``.

    Queries whose grades for a facet are all equal are left out there.
    """
    correlations = {
        name: rank_correlations(
            VectorMatching(name, lambda paper: vectors[paper.paper_id], similarity=similarity),
            papers,
            lists,
            vectors,
        )
        for name in MATCHINGS
    }
    means = {
        name: [mean_correlation(by_query.values()) for by_query in facets]
        for name, facets in correlations.items()
    }
    first_stage = correlations[FIRST_STAGE]
    rows = [[by_query[query] for by_query in first_stage if query in by_query] for query in lists]
    return Figures(means, [float(np.mean(row)) if row else 0.0 for row in rows])


def significance(figures: Figures, other: Figures) -> float:
    """Two-sided p of the paired randomization test over queries, on the mean of `Figures.queries`.

    All patterns of signs are counted where there are at most SAMPLES, else so many at random.

    >>> significance(Figures({}, [0.5, 0.25, 0.5]), Figures({}, [0.0, 0.0, 0.0]))  # 2 of 8 patterns of signs
    0.25
    """
    differences = np.array(figures.queries) - np.array(other.queries)
    result = permutation_test(
        (differences,), np.mean, permutation_type="samples", n_resamples=SAMPLES, rng=np.random.default_rng(0)
    )
    return float(result.pvalue)

"""Rank correlation with graded lists of each way to match the sentence vectors of an encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import permutation_test

from qbe.encode.encoder import Encoder
from qbe.encode.hooks import Floats
from qbe.graded_pairs import GradedLists
from qbe.models.encoder_format import COSINE
from qbe.rerank.matching import MATCHINGS, VectorMatching
from qbe.train.reranker.correlation import mean_correlation, rank_correlations
from qbe.types import Paper

FIRST_STAGE = "mean-max"
"""The matching of the dense first stage."""

SAMPLES = 100_000
"""Random permutations of the significance test."""


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

    A query whose grades are all equal for a facet does not count there.
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

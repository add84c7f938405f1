"""How well the vectors of an encoder, matched in each way, order the candidates of graded lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import permutation_test

from qbe.encode.encoder import Encoder
from qbe.encode.hooks import Floats
from qbe.models.encoder_format import COSINE
from qbe.rerank.vector_matching import MATCHINGS, VectorMatching
from qbe.train.graded_pairs import GradedLists
from qbe.train.reranker.agreement import agreement
from qbe.types import Paper

FIRST_STAGE = "mean-max"
"""The matching of the dense first stage."""

SAMPLES = 100_000


class Figures(NamedTuple):
    """Spearman's correlations with the grades of dev.

    ``means`` has the mean over queries by matching and facet; ``queries`` the mean over facets by query,
    for the matching that the dense stage uses.
    """

    means: Mapping[str, Sequence[float]]
    queries: Sequence[float]


def read_vectors(encoder: Encoder, papers: Mapping[str, Paper]) -> dict[str, Floats]:
    """Vectors (sentences, dimension) float32 of papers by id."""
    found = zip(papers, encoder.encode(papers.values()), strict=True)
    return {identity: vectors.sentences for identity, vectors in found}


def measure(
    vectors: Mapping[str, Floats], papers: Mapping[str, Paper], lists: GradedLists, similarity: str = COSINE
) -> Figures:
    """How well each matching of sentence vectors, compared by ``similarity``, orders the candidates of lists.

    A query whose grades are all alike for a facet does not count there.
    """
    found = {
        name: agreement(
            VectorMatching(name, lambda paper: vectors[paper.paper_id], similarity=similarity), papers, lists
        )
        for name in MATCHINGS
    }
    means = {
        name: [float(np.mean([*values.values()])) for values in facets] for name, facets in found.items()
    }
    by_query = [[values[query] for values in found[FIRST_STAGE] if query in values] for query in lists]
    return Figures(means, [float(np.mean(each)) if each else 0.0 for each in by_query])


def significance(ours: Figures, other: Figures) -> float:
    """Two-sided p of the paired randomization test over queries."""
    differences = np.array(ours.queries) - np.array(other.queries)
    found = permutation_test(
        (differences,), np.mean, permutation_type="samples", n_resamples=SAMPLES, rng=np.random.default_rng(0)
    )
    return float(found.pvalue)

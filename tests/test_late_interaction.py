"""Late interaction, worked by hand on vectors of two dimensions."""

import numpy as np
import pytest

from qbe.rerank.facet_cross_encoder import FEATURES, Vectors, features, score, similarities
from qbe.train.reranker.network import FEATURES as LEARNED

pytestmark = pytest.mark.slow


def vectors(
    sentences: list, mean: list, whole: list, tokens: list, shares: list, facet: list[bool]
) -> Vectors:
    rows = (np.array(rows, np.float32) for rows in (sentences, mean, whole, tokens, shares))
    return Vectors(*rows, np.array(facet))  # type: ignore[call-arg]


QUERY = vectors(
    sentences=[[1, 0], [0, 1], [0.6, 0.8]],
    mean=[0, 1],
    whole=[1, 0],
    tokens=[[1, 0], [0, 1], [-1, 0]],
    shares=[0.25, 0.75, 0],
    facet=[True, False, True],
)
CANDIDATE = vectors(
    sentences=[[0.8, 0.6], [0, 1]],
    mean=[-0.6, 0.8],
    whole=[0.6, -0.8],
    tokens=[[0.6, 0.8], [-1, 0]],
    shares=[0.5, 0.5],
    facet=[False, True],
)
EXPECTED = {
    "sentences": (0.8 + 0.96) / 2,
    "facet": (0 + 0.8) / 2,
    "whole": 0.6,
    "mean": 0.8,
    "tokens": 0.25 * 0.6 + 0.75 * 0.8,  # the third token, which counts for nothing, would find a cosine of 1
}


def test_features():
    np.testing.assert_allclose(similarities(QUERY, CANDIDATE), [[0.8, 0], [0.96, 0.8]], rtol=0, atol=1e-6)
    found = features(QUERY, CANDIDATE)
    assert found.dtype == np.float32
    assert dict(zip(FEATURES, found.tolist(), strict=True)) == pytest.approx(EXPECTED, abs=1e-6)
    assert FEATURES == LEARNED == tuple(EXPECTED)  # in the order of the learned weights


def test_a_score_is_their_weighted_sum():
    weights = [1.0, -2.0, 3.0, 4.0, 0.5]
    expected = 0.88 - 2 * 0.4 + 3 * 0.6 + 4 * 0.8 + 0.5 * 0.75
    assert score(QUERY, CANDIDATE, weights) == pytest.approx(expected, abs=1e-6)
    assert type(score(QUERY, CANDIDATE, weights)) is float


def test_no_digit_depends_on_the_order_of_sums():
    """What BLAS computes in blocks (whose sizes depend on its threads) is what each pair by itself gives."""
    rng = np.random.default_rng(0)

    def unit(count: int) -> np.ndarray:
        rows = rng.normal(size=(count, 384))
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)

    def paper(sentences: int, tokens: int) -> Vectors:
        shares = np.full(tokens, 1 / tokens, np.float32)
        return Vectors(
            unit(sentences), unit(1)[0], unit(1)[0], unit(tokens), shares, np.ones(sentences, np.bool_)
        )

    query, candidate = paper(3, 83), paper(9, 211)
    exact = query.tokens.astype(np.longdouble) @ candidate.tokens.astype(np.longdouble).T
    nearest = exact.astype(np.float32).max(axis=1).astype(np.longdouble)
    assert features(query, candidate)[-1] == np.float32(nearest @ query.shares.astype(np.longdouble))
    exact = query.sentences.astype(np.longdouble) @ candidate.sentences.astype(np.longdouble).T
    np.testing.assert_array_equal(similarities(query, candidate), exact.astype(np.float32))

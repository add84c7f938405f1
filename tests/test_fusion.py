"""Fusion of scores: worked by hand in fractions, and what must hold for any scores."""

from fractions import Fraction

import numpy as np
import pytest

from qbe.search.fusion import weighted_sum, z_normalize


def array(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float64)


def test_z_normalize():
    # mean 5, variance (9 + 1 + 1 + 1 + 0 + 0 + 4 + 16) / 8 = 4
    assert z_normalize(array(2, 4, 4, 4, 5, 5, 7, 9)).tolist() == [-1.5, -0.5, -0.5, -0.5, 0, 0, 1, 2]


@pytest.mark.parametrize("value", [0.0, 1.0, -0.1, 1e9, 0.1 + 0.2])
def test_scores_that_do_not_differ_are_zero(value):
    for count in (1, 2, 3, 7, 1000):
        assert z_normalize(np.full(count, value)).tolist() == [0.0] * count
    assert z_normalize(array()).tolist() == []


COMPONENTS = {"bm25": array(9, 1, 5), "whole": array(0, 2, 1), "facet": array(4, 4, 4)}


def test_weighted_sum():
    # The first two normalize to (1, -1, 0) and (-1, 1, 0) times the root of 3/2, the third to 0.
    root = (3 / 2) ** 0.5
    for weights, expected in (
        ({"bm25": 1, "whole": 1, "facet": 1}, (Fraction(0), Fraction(0), Fraction(0))),
        ({"bm25": 2, "whole": 1, "facet": 0}, (Fraction(1, 3), Fraction(-1, 3), Fraction(0))),
        ({"bm25": 2, "whole": 1, "facet": 1}, (Fraction(1, 4), Fraction(-1, 4), Fraction(0))),
        ({"bm25": 1}, (Fraction(1), Fraction(-1), Fraction(0))),
        ({"bm25": 1, "sentences": 7}, (Fraction(1), Fraction(-1), Fraction(0))),  # a component not there
        ({}, (Fraction(0), Fraction(0), Fraction(0))),
    ):
        found = weighted_sum(COMPONENTS, weights)
        np.testing.assert_allclose(found, [float(value) * root for value in expected], atol=1e-12)

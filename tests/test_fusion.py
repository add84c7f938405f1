"""Fusion of scores: worked by hand in fractions, and what must hold for any scores."""

import numpy as np
import pytest

from qbe.search.first_stages import weighted_sum, z_normalize


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
    for weights, first in (
        ({"bm25": 1, "whole": 1, "facet": 1}, 0),
        ({"bm25": 2, "whole": 1, "facet": 0}, 1 / 3),
        ({"bm25": 2, "whole": 1, "facet": 1}, 1 / 4),
        ({"bm25": 1}, 1),
        ({"bm25": 1, "sentences": 7}, 1),  # a component not there
        ({}, 0),
    ):
        found = weighted_sum(COMPONENTS, weights)
        np.testing.assert_allclose(found, [first * root, -first * root, 0], atol=1e-12)

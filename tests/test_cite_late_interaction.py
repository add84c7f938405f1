"""Late interaction of projected vectors against both sides projected and compared one by one."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from support.citing import mean_max

from qbe.cite.projected import MeasuredPapers, TransformedQuery, lengths, terms, transformed


@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.integers(1, 5),
    query=st.integers(1, 3),
    counts=st.lists(st.integers(1, 4), min_size=1, max_size=4),
)
def test_terms_are_the_cosines_of_both_sides_projected(seed, size, query, counts):
    random = np.random.default_rng(seed)
    matrices = random.standard_normal((2, size, size))
    own, own_whole = random.standard_normal((query, size)), random.standard_normal((1, size))
    sentences, whole = (
        random.standard_normal((sum(counts), size)),
        random.standard_normal((len(counts), size)),
    )
    starts = np.cumsum([0, *counts[:-1]])
    papers = MeasuredPapers(
        sentences, lengths(sentences, matrices[0]), whole, lengths(whole, matrices[1]), starts
    )
    actual = terms(
        TransformedQuery(transformed(own, matrices[0]), transformed(own_whole, matrices[1])), papers
    )
    projected = [rows @ matrices[0].T for rows in np.split(sentences, starts[1:])]
    query_side = own @ matrices[0].T
    expected = [
        [mean_max(query_side, paper) for paper in projected],
        [mean_max(own_whole @ matrices[1].T, row[None] @ matrices[1].T) for row in whole],
        [mean_max(paper, query_side) for paper in projected],
    ]
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-9)


def test_vectors_that_a_projection_removes_are_like_nothing():
    matrix, row = np.diag([1.0, 0.0]), np.array([[0.0, 1.0]])
    assert lengths(row, matrix).tolist() == [1e-12]
    assert transformed(row, matrix).tolist() == [[0.0, 0.0]]

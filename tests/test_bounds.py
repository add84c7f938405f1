"""Which papers can be among the best, by the similarities of some nearest sentences."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbe.index.scoring import TOLERANCE, best_per_paper, may_be_best, mean_max


def nearest(similarities: np.ndarray, paper_of: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The similarities (queries, count) of each query sentence's nearest sentences, and their papers."""
    order = np.argsort(-similarities, axis=1, kind="stable")[:, :count]
    return np.take_along_axis(similarities, order, axis=1), paper_of[order]


@st.composite
def problems(draw):
    """Similarities (queries, sentences), where papers begin, how many are wanted, and how many sentences."""
    counts = np.array(draw(st.lists(st.integers(1, 4), min_size=1, max_size=12)))
    seed = draw(st.integers(0, 2**32 - 1))
    random = np.random.default_rng(seed)
    similarities = random.uniform(-1, 1, (draw(st.integers(1, 4)), counts.sum())).round(2).astype(np.float32)
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    return similarities, starts, draw(st.integers(1, 14)), draw(st.integers(1, int(counts.sum())))


@settings(max_examples=40)
@given(problem=problems())
def test_the_best_are_never_left_out(problem):
    """Where all that can be among the best are known, the best papers of all are among them."""
    similarities, starts, k, count = problem
    total = len(starts)
    paper_of = np.repeat(np.arange(total), np.diff(np.append(starts, similarities.shape[1])))
    scores = mean_max(best_per_paper(similarities, starts))
    near, papers = nearest(similarities, paper_of, count)
    best, are_all = may_be_best(near, papers, total, k)
    assert best.tolist() == sorted(set(best.tolist()))
    assert {*best.tolist()} <= {*papers.flatten().tolist()}
    enough = np.sort(scores)[-k] if k <= total else -np.inf
    wanted = np.flatnonzero(scores >= enough)
    seen = set(wanted.tolist()) & set(papers.flatten().tolist())
    assert seen <= {*best.tolist()}
    if are_all:
        assert {*wanted.tolist()} <= {*best.tolist()}


OFF = 0.501 - np.array([0, 1.9, 2.1]) * TOLERANCE  # each similarity may be off by the tolerance
# Paper 1 is found for one of two query sentences: at most (0.8 + 0.2) / 2 below, at least (0.8 - 1) / 2.
CASES = [
    ([[0.9, 0.6, 0.5, 0.1]], [[3, 0, 3, 2]], 5, 1, [3], True),
    ([[0.9, 0.6, 0.5, 0.1]], [[3, 0, 3, 2]], 5, 2, [0, 3], True),
    ([[0.9, 0.6, 0.5, 0.1]], [[3, 0, 3, 2]], 5, 3, [0, 2, 3], False),
    ([[*OFF, 0.1]], [[0, 1, 2, 3]], 4, 1, [0, 1], True),
    ([[0.8, 0.7], [0.6, 0.2]], [[1, 0], [0, 0]], 3, 1, [0], True),  # (0.7 + 0.6) / 2
    ([[0.8, 0.3], [0.6, 0.4]], [[1, 0], [0, 0]], 3, 1, [0, 1], True),  # 0.45, at most 0.6
]


@pytest.mark.parametrize(("near", "papers", "total", "k", "rows", "are_all"), CASES)
def test_what_can_be_among_the_best_by_hand(near, papers, total, k, rows, are_all):
    best, alone = may_be_best(np.array(near, np.float32), np.array(papers), total, k)
    assert (best.tolist(), alone) == (rows, are_all)

"""The chain of labels: marginals against a sum over all label sequences, and against the training's own."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from qbe.models.tagger import marginals

LABELS = 3


def by_enumeration(scores, begin, end, transitions) -> np.ndarray:
    """The marginals as they are defined, in time exponential in the number of sentences."""
    paths = list(itertools.product(range(scores.shape[1]), repeat=len(scores)))
    logs = np.array(
        [
            begin[path[0]]
            + end[path[-1]]
            + sum(scores[i, label] for i, label in enumerate(path))
            + sum(transitions[pair] for pair in itertools.pairwise(path))
            for path in paths
        ]
    )
    weights = np.exp(logs - logs.max())
    shares = np.zeros_like(scores)
    for path, weight in zip(paths, weights / weights.sum(), strict=True):
        shares[range(len(path)), path] += weight
    return shares


def doubles(limit: float, *shape: int) -> st.SearchStrategy[np.ndarray]:
    return arrays(np.float64, shape, elements=st.floats(-limit, limit))


CHAIN = st.tuples(doubles(8, LABELS), doubles(8, LABELS), doubles(8, LABELS, LABELS))
MILD = st.integers(1, 5).flatmap(lambda count: doubles(30, count, LABELS))
EXTREME = st.integers(1, 5).flatmap(
    lambda count: arrays(np.float64, (count, LABELS), elements=st.sampled_from([-1e4, -745.0, 0.0, 1e4]))
)


def random_chain(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    return random.standard_normal(5), random.standard_normal(5), random.standard_normal((5, 5))


@given(st.one_of(MILD, EXTREME), CHAIN)
def test_marginals_are_sums_over_all_sequences(scores, chain):
    shares = marginals(scores, *chain)
    assert shares.shape == scores.shape
    np.testing.assert_allclose(shares, by_enumeration(scores, *chain), rtol=0, atol=1e-11)


# Training has its own, in log space, over padded batches of papers.


@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_marginals_are_those_that_training_computes_whatever_the_padding(scale):
    import torch

    from qbe.train.tagger_network import Chain

    lengths = (1, 4, 9)
    scores = scale * np.random.default_rng(5).standard_normal((len(lengths), max(lengths), 5))
    present = np.arange(max(lengths)) < np.array(lengths)[:, None]
    chain, given = Chain().double(), random_chain(6)
    for parameter, values in zip((chain.begin, chain.end, chain.transitions), given, strict=True):
        parameter.data = torch.from_numpy(values)
    with torch.inference_mode():
        together = chain.log_marginals(torch.from_numpy(scores), torch.from_numpy(present)).exp().numpy()
    for rows, shares, length in zip(scores, together, lengths, strict=True):
        expected = marginals(rows[:length], *given)
        np.testing.assert_allclose(shares[:length], expected, rtol=0, atol=1e-12)

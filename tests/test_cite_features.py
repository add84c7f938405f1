"""Features of candidates by what is known, of ages and of citations, and the network, worked by hand."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from qbe.cite.links import Evidence
from qbe.cite.projected import lengths, transformed
from qbe.cite.scoring import FEATURE_SETS, LINKS, SCORES, SEED_LINKS, SEEDS, TEXT, FeatureSet, text_features
from qbe.models.heads import Head


def test_what_is_known_decides_the_features():
    assert [known.key for known in FEATURE_SETS] == ["text", "links", "seeds", "links+seeds"]
    assert [known.names for known in FEATURE_SETS] == [
        TEXT,
        (*TEXT, *LINKS),
        (*TEXT, *SEEDS),
        (*TEXT, *LINKS, *SEEDS, *SEED_LINKS),
    ]
    assert FeatureSet(links=True, seeds=False).key == "links"


def test_ages_are_cut_at_both_ends():
    """A paper that is younger than the query is as old as it; beyond twenty years all are alike."""
    features = text_features(dict.fromkeys(SCORES, np.zeros(5)), np.array([-3.0, 1.0, 2.0, 20.0, 300.0]))
    assert features["age"].tolist() == [0.0, 0.1, 0.2, 2.0, 2.0]
    assert features["recency"].tolist() == pytest.approx([-math.log(1 + age) for age in (0, 1, 2, 20, 20)])
    assert features["new"].tolist() == [1.0, 1.0, 0.0, 0.0, 0.0]
    unknown = text_features(dict.fromkeys(SCORES, np.zeros(2)), np.array([np.nan, 1.0]))
    assert [np.isnan(unknown[name]).tolist() for name in ("age", "recency", "new")] == [[True, False]] * 3


def test_a_head_is_linear_in_features_and_hidden_units():
    """Features (5, 1) become (2, -2); the hidden unit is tanh(2 * 0.5 - 2 * 0.25 + 0.5) = tanh(1)."""
    head = Head(
        mean=np.array([1.0, 3.0]),
        scale=np.array([2.0, 1.0]),
        hidden=np.array([[0.5], [0.25]]),
        bias=np.array([0.5]),
        direct=np.array([3.0, 1.0]),
        out=np.array([10.0]),
    )
    scores = head.scores(np.array([[5.0, 1.0], [1.0, 3.0], [np.nan, 1.0]]))
    expected = [4 + 10 * math.tanh(1.0), 10 * math.tanh(0.5), -2 + 10 * math.tanh(0.0)]
    assert scores.tolist() == pytest.approx(expected)
    assert head.scores(np.zeros((0, 2))).tolist() == []


def test_vectors_that_a_projection_removes_are_like_nothing():
    matrix, row = np.diag([1.0, 0.0]), np.array([[0.0, 1.0]])
    assert lengths(row, matrix).tolist() == [1e-12]
    assert transformed(row, matrix).tolist() == [[0.0, 0.0]]


def rows(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def test_metadata_names_papers_by_id():
    """Ids that are unknown, a paper's own, repeated or no text, and lists that are none, do not count."""
    ids = {"a": 0, "b": 1, "c": 2}
    metadata = [{}, {"cites": ["a", "b", "x", "a", 7, None]}, {"cites": "a"}, {"cites": ["b", "a"]}]
    papers = SimpleNamespace(read_metadata=lambda: metadata, find=ids.get)
    links = Evidence(SimpleNamespace(papers=papers))
    assert [links.cited_by(rows(number)).tolist() for number in range(4)] == [[], [0], [], [0, 1]]

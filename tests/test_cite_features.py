"""Features of candidates: of any graph, of projected vectors and of ages, and the network, worked by hand."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.citing import mean_max

from qbe.cite.links import CitationLinks, Neighbours
from qbe.cite.projected import MeasuredPapers, TransformedQuery, lengths, terms, transformed
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
    sentences, whole = (random.standard_normal((count, size)) for count in (sum(counts), len(counts)))
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


def rows(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def test_metadata_names_papers_by_id():
    """Ids that are unknown, a paper's own, repeated or no text, and lists that are none, do not count."""
    ids = {"a": 0, "b": 1, "c": 2}
    metadata = [{}, {"cites": ["a", "b", "x", "a", 7, None]}, {"cites": "a"}, {"cites": ["b", "a"]}]
    links = CitationLinks.of(metadata, ids.get)
    assert [links.cited_by(rows(number)).tolist() for number in range(4)] == [[], [0], [], [0, 1]]


GRAPHS = st.integers(1, 7).flatmap(
    lambda size: st.lists(st.sets(st.integers(0, size - 1)).map(sorted), min_size=size, max_size=size).map(
        lambda cites: [[row for row in each if row != place] for place, each in enumerate(cites)]
    )
)


@settings(max_examples=40)
@given(cites=GRAPHS, seed=st.integers(0, 999))
def test_any_graph_is_counted_as_its_pairs_are(cites, seed):
    random = np.random.default_rng(seed)
    papers = range(len(cites))
    links = CitationLinks(cites)
    known = random.random(len(cites)) < 0.5
    near = Neighbours(random.permutation(len(cites))[: 1 + seed % 3], np.zeros(0))
    near = near._replace(weights=random.random(len(near.rows)))
    weights = dict(zip(near.rows.tolist(), near.weights.tolist(), strict=True))
    seeds = near.rows
    everything = np.arange(len(cites))
    assert len(links) == sum(map(len, cites))
    assert links.cited_by(everything).tolist() == [row for each in cites for row in each]
    assert sorted(links.citing(everything).tolist()) == sorted(i for i in papers for j in cites[i])
    assert links.popularity(everything, known).tolist() == [
        sum(j in cites[i] and bool(known[i]) for i in papers) for j in papers
    ]
    assert links.share_citing(near, everything).tolist() == pytest.approx(
        [sum(weight for i, weight in weights.items() if j in cites[i]) for j in papers]
    )
    assert links.share_cited(near, everything).tolist() == pytest.approx(
        [sum(weight for i, weight in weights.items() if i in cites[j]) for j in papers]
    )
    assert links.cocited(seeds, everything, known).tolist() == [
        sum(known[i] and j in cites[i] and seed in cites[i] for i in papers for seed in seeds.tolist())
        for j in papers
    ]
    citing = [{i for i in papers if known[i] and j in cites[i]} for j in papers]
    assert links.cocitation_cosines(seeds, everything, known).tolist() == pytest.approx(
        [
            sum(
                len(citing[j] & citing[seed]) / math.sqrt(len(citing[j]) * len(citing[seed]))
                for seed in seeds.tolist()
                if citing[j] and citing[seed]
            )
            for j in papers
        ]
    )

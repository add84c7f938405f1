"""Who cites whom: small graphs by hand, and any graph against pairs counted one by one."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbe.cite.links import CitationLinks, Neighbours

CITES = [[], [0], [0, 1], [0, 2], [3]]
"""Paper 0 is cited by 1, 2 and 3; 1 by 2; 2 by 3; 3 by 4."""

ALL = np.ones(5, bool)


@pytest.fixture
def links():
    return CitationLinks(CITES)


def rows(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def test_citations_are_counted(links):
    assert len(links) == 6
    assert len(CitationLinks([[], []])) == 0


def test_what_papers_cite_and_who_cites_them(links):
    assert links.cited_by(rows(2, 3)).tolist() == [0, 1, 0, 2]
    assert links.citing(rows(0, 3)).tolist() == [1, 2, 3, 4]
    assert links.cited_by(rows()).tolist() == links.citing(rows(4)).tolist() == []


def test_popularity_counts_known_papers_only(links):
    assert links.popularity(rows(0, 1, 4), ALL).tolist() == [3, 1, 0]
    assert links.popularity(rows(0, 1, 4), ALL & (np.arange(5) != 2)).tolist() == [2, 0, 0]


def test_shares_are_the_weights_of_neighbours(links):
    near = Neighbours(rows(2, 3), np.array([0.75, 0.25]))
    assert links.share_citing(near, rows(0, 1, 2, 4)).tolist() == [1.0, 0.75, 0.25, 0.0]
    assert links.share_cited(near, rows(3, 4, 0)).tolist() == [0.75, 0.25, 0.0]


def test_cocitations_are_counted_for_each_seed(links):
    """Papers 2 and 3 cite 0 together with a seed; 2 also cites 1, which is one."""
    assert links.cocited(rows(1), rows(0, 2), ALL).tolist() == [1, 0]
    assert links.cocited(rows(1, 2), rows(0, 3), ALL).tolist() == [2, 0]
    assert links.cocited(rows(1, 2), rows(0), ALL & (np.arange(5) != 3)).tolist() == [1]


def test_cocitation_cosines_are_over_how_often_both_are_cited(links):
    """Paper 0 is cited three times, 1 once and 2 once; 1 and 0 together once, and so 2 and 0."""
    assert links.cocitation_cosines(rows(1, 2), rows(0, 1, 4), ALL).tolist() == pytest.approx(
        [2 / math.sqrt(3), 1, 0]
    )
    known = ALL & (np.arange(5) != 3)
    assert links.cocitation_cosines(rows(1, 2), rows(0), known).tolist() == pytest.approx([1 / math.sqrt(2)])


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

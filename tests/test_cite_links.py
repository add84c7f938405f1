"""Who cites whom: any graph against pairs counted one by one."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbe.cite.links import CitationLinks, Neighbours


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

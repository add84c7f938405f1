"""The background penalty: similarity to the query's background lowers scores, by method and result."""

import numpy as np
import pytest
from support.rerankers import ByHand
from support.searching import first_stage, reranked

from qbe import Dense, Facet, Fused, Hit, Query
from qbe.index.index import Index
from qbe.search.first_stages import EXPONENTS, z_normalize

POOL = ["s001", "s007", "s013", "s031", "s051", "s080"]


@pytest.fixture(scope="module")
def paper(index):
    return index.paper("s024")


def search(index: Index, query: Query, penalty: float) -> list[Hit]:
    """The pool, in the order of its ids."""
    pipeline = first_stage(index, background_penalty=penalty)
    hits = pipeline.search(query, len(POOL), POOL, matches=False, explain=True)
    return sorted(hits, key=lambda hit: hit.paper_id)


def background_match(index: Index, query: Query) -> np.ndarray:
    """The mean-max match of the background sentences with each paper of the pool, in plain numpy."""
    paper = query.aspects[0].paper
    own = index.vectors(paper).sentences[list(paper.positions(Facet.BACKGROUND))]
    return np.array([(own @ index.vectors(index.paper(name)).sentences.T).max(1).mean() for name in POOL])


@pytest.mark.parametrize("facet", [Facet.METHOD, Facet.RESULT])
def test_fused_scores_are_lowered(index, paper, facet):
    query = Query(paper, facet)
    before, after = (np.array([hit.score for hit in search(index, query, share)]) for share in (0.0, 0.75))
    background = background_match(index, query)
    expected = z_normalize(before) - 0.75 ** EXPONENTS[facet] * z_normalize(background)
    assert after == pytest.approx(expected, abs=1e-3)
    shown = [hit.component_scores["background"] for hit in search(index, query, 0.75)]
    assert shown == pytest.approx(background.tolist(), abs=1e-3)
    assert all("background" not in hit.component_scores for hit in search(index, query, 0.0))


@pytest.mark.parametrize("aspect", [{"facet": Facet.BACKGROUND}, {"positions": [1]}, {}])
def test_other_queries_keep_their_scores(index, paper, aspect):
    query = Query(paper, **aspect)
    assert search(index, query, 0.0) == search(index, query, 1.0)


@pytest.mark.parametrize("first", [Fused(), Dense()])
def test_rerankers_are_lowered_whatever_the_first_stage(index, paper, first):
    """With the reranker alone (weight 1) the score is its lowered score, normalized again."""
    by_hand = {name: float(place) for place, name in enumerate(POOL)}
    query = Query(paper, Facet.METHOD)
    pipeline = reranked(index, ByHand(by_hand), first, weight=1.0, background_penalty=0.5)
    lowered = z_normalize(np.array([*by_hand.values()])) - 0.5 * z_normalize(background_match(index, query))
    scores = {hit.paper_id: hit.score for hit in pipeline.search(query, len(POOL), POOL, matches=False)}
    assert [scores[name] for name in POOL] == pytest.approx(z_normalize(lowered).tolist(), abs=1e-3)

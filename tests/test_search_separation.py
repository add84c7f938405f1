"""Separation of facets: likeness to the background counts against a paper, for other facets."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from qbe.search.config import SEPARATE, SearchConfig
from qbe.search.separation import EXPONENTS
from support.rerankers import ByHand
from support.searching import first_stage, reranked

from qbe.encode.aspect import EncodedAspect
from qbe.errors import UsageError
from qbe.index.index import Index
from qbe.query import Aspect, Query
from qbe.search.fusion import separate, z_normalize
from qbe.types import Facet, Hit

POOL = ["s001", "s007", "s013", "s031", "s051", "s080"]


@pytest.fixture(scope="module")
def index(tiny_index) -> Iterator[Index]:
    with Index(tiny_index) as index:
        yield index


@pytest.fixture(scope="module")
def paper(index):
    return index.paper("s024")


def search(index: Index, query: Query, share: float, **parameters: object) -> list[Hit]:
    """The pool, in the order of its ids."""
    pipeline = first_stage(index, separate=share, **parameters)
    hits = pipeline.search(query, len(POOL), POOL, matches=False, explain=True)
    return sorted(hits, key=lambda hit: hit.paper_id)


def background_match(index: Index, query: Query) -> np.ndarray:
    """The mean-max match of the background sentences with each paper of the pool, in plain numpy."""
    paper = query.aspects[0].paper
    own = index.vectors(paper).sentences[list(paper.positions(Facet.BACKGROUND))]
    return np.array([(own @ index.vectors(index.paper(name)).sentences.T).max(1).mean() for name in POOL])


def test_by_hand():
    # z-scores of (0, 1, 2) are (-a, 0, a), and of (2, 1, 0) the reverse, a being the root of 1.5.
    separated = separate(np.array([0.0, 1.0, 2.0]), np.array([2.0, 1.0, 0.0]), 0.5)
    assert separated == pytest.approx(np.array([-1.5, 0, 1.5]) * np.sqrt(1.5))


@given(st.lists(st.integers(-50, 50), min_size=2, max_size=8), st.floats(0, 1))
def test_a_constant_background_changes_no_order(scores, strength):
    values = np.array(scores, dtype=np.float64)
    separated = separate(values, np.full(len(values), 0.5), strength)
    assert separated == pytest.approx(z_normalize(values))


@pytest.mark.parametrize("facet", [Facet.METHOD, Facet.RESULT])
def test_fused_scores_are_separated(index, paper, facet):
    query = Query(paper, facet)
    before, after = (np.array([hit.score for hit in search(index, query, share)]) for share in (0.0, 0.75))
    background = background_match(index, query)
    expected = separate(before, background, 0.75 ** EXPONENTS[facet])
    assert after == pytest.approx(expected, abs=1e-3)
    shown = [hit.component_scores["background"] for hit in search(index, query, 0.75)]
    assert shown == pytest.approx(background.tolist(), abs=1e-3)
    assert all("background" not in hit.component_scores for hit in search(index, query, 0.0))


@pytest.mark.parametrize("aspect", [{"facet": Facet.BACKGROUND}, {"positions": [1]}, {}])
def test_other_queries_keep_their_scores(index, paper, aspect):
    query = Query(paper, **aspect)
    assert search(index, query, 0.0) == search(index, query, 1.0)


def test_rrf_is_separated_too(index, paper):
    query = Query(paper, Facet.METHOD)
    before, after = (
        np.array([hit.score for hit in search(index, query, share, fusion="rrf")]) for share in (0.0, 1.0)
    )
    assert after == pytest.approx(separate(before, background_match(index, query), 1.0), abs=1e-3)


def test_rerankers_are_separated(index, paper):
    """With the reranker alone (weight 1) the score is its separated score, normalized again."""
    by_hand = {name: float(place) for place, name in enumerate(POOL)}
    query = Query(paper, Facet.METHOD)
    pipeline = reranked(index, ByHand(by_hand), SearchConfig(separate=0.5), weight=1.0)
    hits = pipeline.search(query, len(POOL), POOL, matches=False)
    separated = separate(np.array([*by_hand.values()]), background_match(index, query), 0.5)
    scores = {hit.paper_id: hit.score for hit in hits}
    assert [scores[name] for name in POOL] == pytest.approx(z_normalize(separated).tolist(), abs=1e-3)


def test_matchings_are_as_in_aspire(index, paper):
    """They rank by themselves, whatever separates the first stage."""
    query = Query(paper, Facet.METHOD)
    scores = []
    for share in (0.0, 1.0):
        pipeline = first_stage(index, separate=share)
        matching = type(pipeline).open(index, SearchConfig(separate=share, rerank="mean-max"))
        hits = matching.search(query, len(POOL), POOL, matches=False)
        scores.append({hit.paper_id: round(hit.score, 5) for hit in hits})
    assert scores[0] == scores[1]


def test_the_aspect_brings_its_background(index, paper):
    vectors = index.vectors(paper)
    of_background = list(paper.positions(Facet.BACKGROUND))
    encoded = EncodedAspect.of(Aspect(paper, Facet.METHOD), vectors)
    assert encoded.background.tolist() == vectors.sentences[of_background].tolist()
    assert EncodedAspect.of(Aspect(paper, Facet.BACKGROUND), vectors).background is None
    assert EncodedAspect.of(Aspect(paper), vectors).background is None


def test_the_parameter():
    assert SearchConfig().first_stage_settings.separate == SEPARATE
    assert SearchConfig().rerank_settings.separate == SEPARATE
    assert SearchConfig(first_stage="bm25").rerank_settings.separate == 0
    assert SearchConfig(rerank="none").first_stage_settings.separate == 0
    assert SearchConfig(rerank="none", separate=0.5).first_stage_settings.separate == 0.5
    assert SearchConfig(rerank="transport").first_stage_settings.separate == 0
    assert SearchConfig(separate=0).record() != SearchConfig().record()
    with pytest.raises(UsageError, match="`separate` is not read with `first_stage` dense"):
        SearchConfig(first_stage="dense", separate=0.5)
    with pytest.raises(UsageError, match=r"expected `separate` from 0 to 1, found 1\.5"):
        SearchConfig(separate=1.5)
    with pytest.raises(TypeError, match="expected a number as `separate`, found 'much'"):
        SearchConfig(separate="much")

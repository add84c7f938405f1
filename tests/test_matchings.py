"""Matchings of sentence vectors: worked by hand, and over an index."""

import math

import numpy as np
import pytest
from support.papers import Papers
from support.rerankers import score

from qbe.errors import IndexFormatError
from qbe.index.build import build
from qbe.index.source import BuildSettings
from qbe.models.encoding import PaperVectors
from qbe.query import Query
from qbe.search.matching import VectorMatching, attention, marginals, mean_max, single_match, transport
from qbe.search.present import to_table
from qbe.search.rank import RerankScore
from qbe.search.writers import Result, to_record
from qbe.types import Hit, Match, Paper, Sentence, TransportEntry

NAN = math.nan
DISTANCES = np.array([[[0.5, 1, 2], [1.5, 0.25, 1]], [[1, 3, NAN], [2, 4, NAN]]])
"""Of two sentences to those of two papers, one of three and one of two; padding is no number."""
COLUMNS = np.array([[True, True, True], [True, True, False]])


@pytest.mark.parametrize(
    "match",
    [
        single_match,
        attention,
        mean_max,
        lambda *pairs: transport(*pairs, temperature=0.5)[0],
        lambda *pairs: marginals(*pairs, temperature=0.5)[0],
    ],
)
def test_neither_padding_nor_other_pairs_change_anything(match):
    together = match(DISTANCES, COLUMNS)
    assert together[:1] == pytest.approx(match(DISTANCES[:1], COLUMNS[:1]), rel=1e-9)
    assert together[1:] == pytest.approx(match(DISTANCES[1:, :, :2], COLUMNS[1:, :2]), rel=1e-9)


def test_transport_by_hand():
    scores, plans = transport(DISTANCES[:1], COLUMNS[:1], temperature=1e9, regularization=1e4)
    # At such a lambda the plan is the unregularized one. Of two sentences the second, closer to the last
    # column, fills it, and shares the middle one with the first.
    assert plans[0] == pytest.approx(np.array([[1 / 3, 1 / 6, 0], [0, 1 / 6, 1 / 3]]), abs=1e-8)
    assert scores == pytest.approx([-(0.5 / 3 + 1 / 6 + 0.25 / 6 + 1 / 3)])


# The reranker.

VECTORS = {"asked": [[1, 0], [0, 1], [3, 0]], "a": [[0, 2], [0.6, 0.8]], "b": [[0, 1], [0.8, 0.6], [1, 0]]}
ASKED, A, B = (
    Paper(name, name, tuple(Sentence(f"{name} {place}.") for place in range(len(rows))))
    for name, rows in VECTORS.items()
)


def by_hand(name: str, **options) -> VectorMatching:
    return VectorMatching(name, lambda paper: vectors(paper).sentences, similarity="cosine", **options)


def vectors(paper: Paper) -> PaperVectors:
    rows = np.array(VECTORS[paper.paper_id], np.float32)
    return PaperVectors(rows, rows[0])


def scores_by_hand(matching: VectorMatching, query: Query, papers: list[Paper]) -> list[RerankScore]:
    return score(matching, query, papers, vectors=vectors)


def test_only_the_query_is_selected_from():
    query = Query(ASKED, positions=(1,))
    judged = scores_by_hand(by_hand("single-match"), query, [A, B])
    assert judged[0].score == pytest.approx(-math.sqrt(0.6**2 + 0.2**2))
    assert judged[0].match == pytest.approx(Match(1, 1, 0.8))
    assert judged[1] == RerankScore(0.0, Match(1, 0, 1.0))
    assert scores_by_hand(by_hand("mean-max"), query, [A, B]) == [RerankScore(1.0, Match(1, 0, 1.0))] * 2


def test_a_plan_names_sentences_and_leaves_out_the_negligible():
    matching = by_hand("transport", temperature=1e9, regularization=500.0)
    (judged,) = scores_by_hand(matching, Query(ASKED, positions=(1, 0)), [B])
    # Each goes to its equal, and half as much to the sentence between them; 4 of 6 masses are not negligible.
    moved = {(one.query_position, one.position): one.mass for one in judged.plan}
    expected = {(0, 2): 1 / 3, (1, 0): 1 / 3, (0, 1): 1 / 6, (1, 1): 1 / 6}
    assert moved == pytest.approx(expected, abs=1e-8)
    assert set(list(moved)[:2]) == {(0, 2), (1, 0)}
    assert judged.score == pytest.approx(-(math.sqrt(0.8**2 + 0.4**2) + math.sqrt(0.2**2 + 0.6**2)) / 6)
    assert judged.match.score == 1


def test_the_temperature_follows_the_query():
    whole, part = Query(ASKED), Query(ASKED, positions=(0, 1, 2))
    of_whole, of_part = (scores_by_hand(by_hand("transport"), query, [A]) for query in (whole, part))
    assert of_whole == scores_by_hand(by_hand("transport", temperature=5000), part, [A])
    assert of_part == scores_by_hand(by_hand("transport", temperature=0.5), whole, [A])
    assert of_part != of_whole


QUESTION = Paper("asked", "A question", (Sentence("We ask."), Sentence("We know.")))
ANSWERING = Paper("answer", "An answer", (Sentence("They tell."), Sentence("They do.")))
PLAN = (TransportEntry(1, 0, 0.75), TransportEntry(0, 1, 0.2456789), TransportEntry(0, 0, 0.004))
HIT = Hit("answer", 1.5, (), {"bm25": 12.5, "first_stage": 0.75, "reranker": -2.0}, Match(1, 0, 0.25), PLAN)


def test_the_plan_is_shown():
    table = to_table(Papers(ANSWERING).paper, Query(QUESTION), [HIT], 100, explain=True)
    assert table.splitlines()[4:] == [
        "Searched with the sentences marked *; ~3 below is the match of sentence 3, with its similarity. >3",
        "is the pair of sentences that contributed most to the reranker's score. 3→0 0.20 is the mass that",
        "went from sentence 3 to the paper's sentence 0.",
        "",
        "   1   1.5000 An answer  [answer]",
        "              bm25 12.5000, first stage 0.7500, reranker -2.0000",
        "              transport 1→0 0.75, 0→1 0.25",
        "  >1   0.2500 no label: They tell.",
    ]
    (hit,) = to_record(Papers(ANSWERING).paper, Result("q", Query(QUESTION), [HIT]), explain=True)["hits"]
    assert hit["plan"] == [
        {"query_position": 1, "position": 0, "mass": 0.75},
        {"query_position": 0, "position": 1, "mass": 0.245679},
        {"query_position": 0, "position": 0, "mass": 0.004},
    ]


def test_an_index_without_vectors_is_refused(search, sample, tmp_path):
    build(tmp_path / "bm25", [str(sample / "corpus.jsonl")], BuildSettings(dense=False))
    arguments = ("--paper", "s024", "--first-stage", "bm25", "--rerank", "matching")
    with pytest.raises(
        IndexFormatError, match=r"expected an index with vectors, .* another `first_stage` or"
    ):
        search(*arguments, folder=tmp_path / "bm25")

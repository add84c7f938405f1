"""A query and a candidate in one row of tokens: layout, budgets, what is cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from qbe.rerank.pairs import candidate_room, check_budgets, closed, pair, query_room, side

from qbe.encode.windows import SpecialTokens
from qbe.errors import UsageError

CLS, SEP, UNK = SPECIAL = SpecialTokens(2, 3, 1)
TOKENS = st.lists(st.integers(10, 99), max_size=12)
SENTENCES = st.lists(TOKENS, max_size=6)


def test_both_sides_share_one_row():
    laid = pair([10, 20, 21], [30, 40], SPECIAL)
    assert laid.ids == [CLS, 10, 20, 21, SEP, 30, 40, SEP]
    assert laid.types == [0, 0, 0, 0, 0, 1, 1, 1]


def test_a_side_is_its_title_and_its_sentences_cut_at_the_end():
    assert side([10, 11], [[20, 21], [30]], 9) == [10, 11, 20, 21, 30]
    assert side([10, 11], [[20, 21], [30]], 5) == [10, 11, 20, 21, 30]
    assert side([10, 11], [[20, 21], [30]], 3) == [10, 11, 20]
    assert side([10, 11], [[20, 21], [30]], 2) == [10, 11]
    assert side([10, 11], [[20, 21], [30]], 1) == [10]
    assert side([], [[], [30]], 4) == [30]


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("Ranking papers", "Ranking papers."),
        ("Ranking papers. ", "Ranking papers."),
        ("Why rank?", "Why rank?"),
        ("Rank!", "Rank!"),
        ("Part one:", "Part one:"),
        ("  ", ""),
        ("", ""),
    ],
)
def test_a_title_ends_as_a_sentence_does(title, expected):
    assert closed(title) == expected


@given(
    query=st.tuples(TOKENS, SENTENCES),
    candidate=st.tuples(TOKENS, SENTENCES),
    query_tokens=st.integers(3, 40),
    candidate_tokens=st.integers(2, 40),
)
def test_budgets_hold_and_nothing_but_the_end_is_lost(query, candidate, query_tokens, candidate_tokens):
    rooms = query_room(query_tokens), candidate_room(candidate_tokens)
    sides = [side(*texts, room) for texts, room in zip((query, candidate), rooms, strict=True)]
    for found, (title, sentences), room in zip(sides, (query, candidate), rooms, strict=True):
        everything = [*title, *(token for sentence in sentences for token in sentence)]
        assert everything[: len(found)] == found
        assert len(found) == min(len(everything), room)
        assert found[: len(title)] == title[:room]
    laid = pair(*sides, SPECIAL)
    assert laid.types == sorted(laid.types)
    first = [token for token, kind in zip(*laid, strict=True) if kind == 0]
    second = [token for token, kind in zip(*laid, strict=True) if kind == 1]
    assert first == [CLS, *sides[0], SEP]
    assert second == [*sides[1], SEP]
    assert len(first) <= query_tokens
    assert len(second) <= candidate_tokens


@pytest.mark.parametrize("budgets", [(2, 100), (100, 1), (0, 0), (-5, 100)])
def test_a_side_without_room_is_refused(budgets):
    with pytest.raises(UsageError, match=f"at least 3 query tokens and 2 .*, found {budgets[0]} and"):
        check_budgets(*budgets, 512)


def test_more_than_a_model_reads_is_refused():
    check_budgets(3, 2, 5)
    check_budgets(256, 256, 512)
    with pytest.raises(UsageError, match="into the 512 that the reranker reads, found 256 and 257; give"):
        check_budgets(256, 257, 512)

"""Titles that are nearly the same."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbe.corpus.titles import MAX_JACCARD, TitleIndex, title_words


@pytest.mark.parametrize(
    ("title", "held"),
    [
        ("One, TWO: three-four five six; seven (eight)!", True),  # all of 8 words
        ("one two three four five six", True),  # 6 of 8
        ("one two three four five", False),  # 5 of 8
        ("one two three four five six seven nine ten", False),  # 7 of 10: as much as MAX_JACCARD, not more
        ("one two three four five six seven eight nine ten eleven", True),  # 8 of 11
        ("one one one", False),
        ("", False),
        ("?!", False),
    ],
)
def test_titles_that_are_nearly_the_same(title, held):
    index = TitleIndex(["Another title", "", "One two three four five six seven eight", "--"])
    assert index.holds(title) is held


TITLES = st.lists(st.sampled_from(["a", "b", "C", "c", "d", "e-f", "(g)", "."]), max_size=9).map(" ".join)


@settings(max_examples=50)
@given(st.lists(TITLES, max_size=6), TITLES)
def test_titles_against_a_plain_comparison(titles, title):
    words = title_words(title)
    jaccards = [len(words & other) / max(1, len(words | other)) for other in map(title_words, titles)]
    assert TitleIndex(titles).holds(title) is any(jaccard > MAX_JACCARD for jaccard in jaccards)

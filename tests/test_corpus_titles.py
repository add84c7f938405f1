"""Titles that are nearly the same."""

import re

from hypothesis import example, given, settings
from hypothesis import strategies as st

from qbe.corpus.identity import MAX_JACCARD, TitleIndex

TITLES = st.lists(st.sampled_from(["a", "b", "C", "c", "d", "e-f", "(g)", "."]), max_size=9).map(" ".join)


@settings(max_examples=50)
@given(st.lists(TITLES, max_size=6), TITLES)
@example(["one two three four five six seven eight"], "one two three four five six seven nine ten")  # 7 of 10
@example(["", "--"], "")
def test_titles_against_a_plain_comparison(titles, title):
    words, *others = (set(re.findall(r"\w+", each.lower())) for each in (title, *titles))
    jaccards = [len(words & other) / max(1, len(words | other)) for other in others]
    assert TitleIndex(titles).holds(title) is any(jaccard > MAX_JACCARD for jaccard in jaccards)

"""Papers blended of several, and the choice of lists with many crossed pairs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbe.errors import UsageError
from qbe.evaluate.crossed import FACET_PAIRS, crossed_pairs
from qbe.graded_pairs import GradedPair
from qbe.train.graded_pairs import count_crossed, most_crossed
from qbe.train.reranker.blending import SIMILAR, blend, with_blends
from qbe.train.reranker.recipe import Recipe, Schedule
from qbe.types import Facet, Paper, Sentence

BACKGROUND, METHOD, RESULT = Facet


def paper(name: str, *facets: Facet) -> Paper:
    """A paper with a sentence for each facet, which names both."""
    sentences = tuple(Sentence(f"{facet} of {name}.", facet) for facet in facets or Facet)
    return Paper(name, f"Title of {name}", sentences)


PAPERS = {name: paper(name) for name in ("q", "a", "b", "r", "c", "d")}
LISTS = {
    "q": [GradedPair("a", (0.0, 2.5, 0.0)), GradedPair("b", (3.0, 0.0, 1.5))],
    "r": [GradedPair("c", (1.0, 1.0, 1.0)), GradedPair("d", (0.0, 0.0, 0.0))],
}


def test_a_blend_keeps_the_order_of_facets():
    mixed = blend({RESULT: PAPERS["c"], BACKGROUND: PAPERS["a"], METHOD: PAPERS["b"]})
    assert mixed.paper_id == "a+b+c"
    assert mixed.title == "Title of a"
    assert mixed.abstract == "background of a. method of b. result of c."
    assert [sentence.facet for sentence in mixed.sentences] == list(Facet)


def test_each_facet_of_a_similar_candidate_is_blended():
    lists, papers = with_blends(LISTS, PAPERS, 1.0)
    by_background, by_method = sorted(lists["q"][2:], reverse=True, key=lambda pair: pair.grades)
    assert lists["q"][:2] == LISTS["q"]
    assert by_background.grades == (3.0, 0.0, 0.0)
    assert by_method.grades == (0.0, 2.5, 0.0)
    assert papers[by_background.paper_id].abstract.startswith("background of b. method of ")
    assert "method of a." in papers[by_method.paper_id].abstract
    # What is graded 0 comes from papers of other lists; b's result, 1.5, is less than similar.
    for pair in (by_background, by_method):
        lent = pair.paper_id.split("+")
        assert sum(name in {"c", "d"} for name in lent) == 2
    assert SIMILAR == 2
    assert lists["r"] == LISTS["r"]  # none of its candidates is similar


def test_papers_that_lack_a_facet_do_not_lend_it():
    papers = PAPERS | {"a": paper("a", BACKGROUND), "c": paper("c", METHOD)}
    lists, blended = with_blends(LISTS, papers, 1.0)
    (pair,) = lists["q"][2:]  # a's method is not there to be lent
    assert pair.grades == (3.0, 0.0, 0.0)
    assert blended[pair.paper_id].abstract.endswith("result of d.")


def test_a_share_of_the_lists_is_blended():
    lists = {f"q{number}": LISTS["q"] for number in range(200)} | {"r": LISTS["r"]}
    papers = PAPERS | {name: paper(name) for name in lists}
    assert with_blends(lists, papers, 0.0).lists == lists
    longer = [query for query, pairs in with_blends(lists, papers, 0.25).lists.items() if len(pairs) > 2]
    assert 30 <= len(longer) <= 70
    assert with_blends(lists, papers, 0.25) == with_blends(lists, papers, 0.25)
    assert with_blends(lists, papers, 0.25, seed=1) != with_blends(lists, papers, 0.25)


GRADES = st.tuples(*[st.integers(0, 6).map(lambda number: number / 2)] * 3)


@given(st.lists(GRADES, min_size=1, max_size=6))
def test_crossed_pairs_are_counted_as_they_are_evaluated(grades):
    pairs = [GradedPair(str(number), row) for number, row in enumerate(grades)]
    by_facet = {"q": {pair.paper_id: dict(zip(Facet, pair.grades, strict=True)) for pair in pairs}}
    expected = sum(len(crossed_pairs(by_facet, first, second)) for first, second in FACET_PAIRS)
    assert count_crossed(pairs) == expected


def test_lists_with_the_most_crossed_pairs_come_first():
    crossed, plain = LISTS["q"], LISTS["r"]
    assert list(most_crossed({"z": plain, "y": crossed, "x": plain, "w": crossed}, 3)) == ["w", "y", "x"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Recipe(lists=0), "expected `lists` of at least 1, found 0"),
        (lambda: Recipe(blended=1.5), r"expected `blended` from 0 to 1, found 1\.5"),
        (lambda: Schedule(crossed=-1.0), "expected `crossed` of 0 or more, found -1"),
        (lambda: Schedule(crossed=1.0, loss="listwise"), r"over pairs \(logistic, margin\) with `crossed`"),
    ],
)
def test_recipes_that_are_refused(make, message):
    with pytest.raises(UsageError, match=message):
        make()

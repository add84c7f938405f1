"""Technique words: terms of texts, features by hand, words in common, the file, and what titles teach."""

import numpy as np
import pytest

from qbe.models.words import NAMES, PapersTerms, TechniqueWords, shipped_words
from qbe.types import TEXT_NOT_INCLUDED, Facet, FacetProbabilities, Paper, Sentence

BACKGROUND, METHOD = Facet.BACKGROUND, Facet.METHOD
WORDS = TechniqueWords(
    ["graph", "kernel", "graph kernel", "traffic"], np.array([1.0, 2.0, 4.5, 3.0]), np.array([0, 5, 6, -5.0])
)


def paper(title: str, *sentences: tuple[str, Facet | None]) -> Paper:
    return Paper(title, title, tuple(Sentence(text, facet) for text, facet in sentences), labelled=True)


def of(one: Paper) -> PapersTerms:
    return WORDS.of_papers([one])


QUERY = paper(
    "Graph kernels for traffic", ("We use graph kernels.", METHOD), ("Traffic is slow.", BACKGROUND)
)
SAME_METHOD = paper("Molecules", ("Graph kernels compare molecules.", METHOD))
SAME_PROBLEM = paper("On traffic", ("Traffic is everywhere.", BACKGROUND), ("We count.", METHOD))


def test_terms_stand_in_sentences_of_a_facet():
    _, numbers, shares, _ = of(
        paper("A graph", ("Kernels of a graph", METHOD), ("A graph kernel", BACKGROUND))
    )
    assert numbers.tolist() == [0, 1, 2]
    # A title counts as background and method; "kernels of a graph" is no pair.
    assert shares.tolist() == [[1, 1, 1], [1, 1, 0], [0.5, 0, 0], [1, 1, 1]]


def test_shares_are_the_taggers_probabilities():
    probabilities = FacetProbabilities(background=0.2, objective=0.1, method=0.6, result=0.1, other=0.0)
    tagged = Paper("p", "", (Sentence("Kernels", METHOD, probabilities),), labelled=True)
    assert of(tagged).shares[:, 0].tolist() == pytest.approx([0.3, 0.6, 0.1, 0.6])


def test_a_pair_of_words_stands_in_one_sentence_and_a_text_not_included_has_none():
    assert of(paper("", ("A graph.", METHOD), ("Kernel methods", METHOD))).numbers.tolist() == [0, 1]
    words = TechniqueWords(["text", "kernel"], np.ones(2), np.zeros(2))
    left_out = paper("", (TEXT_NOT_INCLUDED, METHOD), ("A kernel", METHOD))
    assert words.of_papers([left_out]).numbers.tolist() == [1]


def test_features_by_hand():
    """By all words of method the query has graph, kernel and their pair with weights 1/2, 1 and 9/4 of title
    and sentence; traffic of the title weighs 3/2.
    """
    candidates = [SAME_METHOD, SAME_PROBLEM, paper("Fish", ("They swim.", METHOD))]
    values = WORDS.compare(QUERY, WORDS.of_papers(candidates))
    feature = dict(zip(NAMES, values.T, strict=True))
    # Weights are idf / 2 where all words count alike.
    assert feature["words.1.all.share"] == pytest.approx([3.75 / 5.25, 1.5 / 5.25, 0], abs=1e-5)
    assert feature["words.1.all.cosine"] == pytest.approx(
        [3.75 / (5.25 * 3.75) ** 0.5, 1.5 / (5.25 * 1.5) ** 0.5, 0], abs=1e-5
    )
    assert feature["words.1.technique.cosine"][0] > 0.9 > 0.1 > feature["words.1.technique.cosine"][1]
    assert feature["words.0.problem.cosine"][1] > 0.9 > 0.1 > feature["words.0.problem.cosine"][0]
    best = [feature[f"words.1.strong technique.{place}"][0] for place in range(3)]
    assert best == pytest.approx([4.5, 2, 0.5], abs=0.02)


def test_words_in_common_are_techniques_and_queries_repeat_what_tells_the_facet():
    assert WORDS.in_common(QUERY, [SAME_METHOD, SAME_PROBLEM]) == [("graph kernel",), ()]
    assert WORDS.query_text(QUERY, METHOD) == "graph graph kernel kernel kernel kernel"
    assert WORDS.query_text(QUERY, BACKGROUND) == "graph graph traffic traffic traffic traffic"


def test_the_words_that_ship_tell_techniques_from_problems():
    words = shipped_words()
    lean = dict(zip(words.terms, words.lean.tolist(), strict=True))
    techniques = "variational inference", "neural network", "optimal transport", "reinforcement learning"
    assert all(lean[each] > 0 for each in techniques)
    assert all(lean[each] < 0 for each in ("machine translation", "sentiment", "traffic", "parsing"))

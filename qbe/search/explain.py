"""Labels of sentences in words: given or predicted, how probable, and where a best guess is used instead."""

from __future__ import annotations

from typing import NamedTuple

from qbe.query import Aspect
from qbe.types import Facet, Paper, Sentence


class ExplainedSentence(NamedTuple):
    """A sentence of a query.

    ``label`` is the predicted one of the five labels of CSAbstruct and ``probability`` that of the facet
    (of ``other`` where it has none); both are None where the facet was given. ``selected`` is True where the
    aspect searches with it, ``guess`` where it does so as a best guess.
    """

    position: int
    text: str
    facet: str | None
    label: str | None
    probability: float | None
    selected: bool
    guess: bool


def explain_query(aspect: Aspect) -> list[ExplainedSentence]:
    """All sentences of an aspect's paper, in order; raises what `Aspect.selected_positions` does.

    >>> for sentence in explain_query(Aspect(index.paper("s036"), Facet.METHOD)):
    ...     print(sentence.position, sentence.facet, sentence.selected)
    0 background False
    1 background False
    2 method True
    3 method True
    4 result False
    """
    selected, guess = aspect.selected_positions(), aspect.is_guess
    return [
        ExplainedSentence(
            position,
            sentence.text,
            sentence.facet.value if sentence.facet else None,
            sentence.probabilities.label if sentence.probabilities else None,
            facet_probability(sentence),
            position in selected,
            guess and position in selected,
        )
        for position, sentence in enumerate(aspect.paper.sentences)
    ]


def facet_probability(sentence: Sentence) -> float | None:
    """The probability of a predicted sentence's facet (of ``other`` where it has none), to four decimals;
    None where the facet was given.

    >>> from qbe.types import FacetProbabilities
    >>> probabilities = FacetProbabilities(background=0.5, objective=0.25, method=0.25, result=0.0, other=0.0)
    >>> facet_probability(Sentence("Stone is hard.", Facet.BACKGROUND, probabilities))
    0.75
    """
    probabilities = sentence.probabilities
    if probabilities is None:
        return None
    return round(probabilities.of(sentence.facet) if sentence.facet else probabilities.other, 4)


def stands_in(paper: Paper, position: int, facet: Facet | None) -> bool:
    """Whether a sentence is its paper's best guess for a facet (see `qbe.types.Paper.facet_positions`).

    >>> from qbe.types import FacetProbabilities
    >>> probabilities = FacetProbabilities(background=0.5, objective=0.25, method=0.25, result=0.0, other=0.0)
    >>> sentence = Sentence("Stone is hard.", Facet.BACKGROUND, probabilities)
    >>> stands_in(Paper("1", "On stone", (sentence,), labelled=True), 0, Facet.METHOD)
    True
    """
    return facet is not None and paper.facet_positions(facet) == ((position,), True)


def describe(paper: Paper, position: int, facet: Facet | None) -> str:
    """A sentence's label, with its probability or as given: ``method 0.93``, ``method given``, ``no label``;
    where it is the best guess for the facet searched for, ``background 0.62, best guess for method 0.31``.

    >>> from qbe.types import FacetProbabilities
    >>> probabilities = FacetProbabilities(background=0.5, objective=0.25, method=0.25, result=0.0, other=0.0)
    >>> sentence = Sentence("Stone is hard.", Facet.BACKGROUND, probabilities)
    >>> describe(Paper("1", "On stone", (sentence,), labelled=True), 0, Facet.METHOD)
    'background 0.75, best guess for method 0.25'
    """
    if not paper.labelled:
        return "no label"
    sentence = paper.sentences[position]
    name = str(sentence.facet or "other")
    probability = facet_probability(sentence)
    if probability is None:
        return f"{name} given"
    described = f"{name} {probability:.2f}"
    if facet is not None and sentence.probabilities and stands_in(paper, position, facet):
        described += f", best guess for {facet} {sentence.probabilities.of(facet):.2f}"
    return described

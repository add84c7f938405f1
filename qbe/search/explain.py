"""What is said of sentences: their labels in words, and the best one of a hit."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from qbe.query import Aspect, Query
from qbe.types import Facet, Hit, Match, Paper, Sentence


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


def techniques_in_common(query: Query, papers: Sequence[Paper]) -> list[list[str]]:
    """The words of techniques that each paper shares with the papers that a query likes, at most three of
    each, the most telling first (`qbe.models.words`).

    >>> techniques_in_common(Query(index.paper("s036"), Facet.METHOD), [index.paper("s051")])[0][:1]
    ['masking']
    """
    from qbe.models.words import shipped_words

    liked = {id(aspect.paper): aspect.paper for aspect in query.aspects if aspect.weight > 0}
    shared = [shipped_words().in_common(each, papers) for each in liked.values()]
    together = (chain.from_iterable(each[place] for each in shared) for place in range(len(papers)))
    return [list(dict.fromkeys(words)) for words in together]


def describe(paper: Paper, position: int, facet: Facet | None) -> str:
    """A sentence's label, with its probability or as given: ``method 0.93``, ``method given``, ``no label``;
    where it is the best guess for the facet searched for, ``background 0.62, best guess for method 0.31``. An
    ``aim`` is an objective (`qbe.types.Sentence.label`), which counts as background.

    >>> from qbe.types import FacetProbabilities
    >>> probabilities = FacetProbabilities(background=0.5, objective=0.25, method=0.25, result=0.0, other=0.0)
    >>> sentence = Sentence("Stone is hard.", Facet.BACKGROUND, probabilities)
    >>> describe(Paper("1", "On stone", (sentence,), labelled=True), 0, Facet.METHOD)
    'background 0.75, best guess for method 0.25'
    """
    if not paper.labelled:
        return "no label"
    sentence = paper.sentences[position]
    probability = facet_probability(sentence)
    if probability is None:
        return f"{sentence.label} given"
    described = f"{sentence.label} {probability:.2f}"
    if facet is not None and sentence.probabilities and _stands_in(paper, position, facet):
        described += f", best guess for {facet} {sentence.probabilities.of(facet):.2f}"
    return described


class Shown(NamedTuple):
    """A pair of sentences, and the label of the paper's sentence (see `label_of`)."""

    match: Match
    label: str

    @property
    def carries_facet(self) -> bool:
        """Whether the sentence carries the facet, if only as a best guess, or none was searched for."""
        return not self.label.startswith("(")

    @property
    def prefix(self) -> str:
        """What stands before the sentence, such as "method: "."""
        if not self.label:
            return ""
        return f"{self.label}: " if self.carries_facet else f"{self.label} "


def shown(query: Query, paper: Paper, hit: Hit) -> Shown | None:
    """The best pair of a hit whose sentence carries the facet that its aspect searches for, else the best
    pair; None for a hit without matches.

    Best is the pair that contributed most to a reranker's score, then the closest. Pairs of aspects with a
    negative weight count only where there are no others.

    >>> query = Query(index.paper("s036"), Facet.METHOD)
    >>> matches = Match(2, 0, 0.75), Match(2, 2, 0.5)
    >>> shown(query, index.paper("s051"), Hit("s051", 1.5, matches))
    Shown(match=Match(query_position=2, position=2, score=0.5, aspect=0), label='method')
    >>> shown(query, index.paper("s051"), Hit("s051", 1.5, matches[:1])).label
    '(labelled background)'
    """
    pairs = [*([hit.driven_by] if hit.driven_by else []), *hit.matches]
    pairs = [pair for pair in pairs if query.aspects[pair.aspect].weight > 0] or pairs
    candidates = [
        Shown(pair, label_of(paper, pair.position, query.aspects[pair.aspect].facet)) for pair in pairs
    ]
    return next((each for each in candidates if each.carries_facet), candidates[0] if candidates else None)


def label_of(paper: Paper, position: int, facet: Facet | None) -> str:
    """What is said of a sentence that is shown for a facet: the facet, with a question mark where the
    sentence is a best guess, and in parentheses what it is labelled where that is not the facet.

    Where none is searched for it is the sentence's own label, '' if it has none.

    >>> paper = index.paper("s036")
    >>> [label_of(paper, position, Facet.METHOD) for position in (1, 2)], label_of(paper, 1, None)
    (['(labelled background)', 'method'], 'background')
    """
    sentence = paper.sentences[position]
    if facet is None or sentence.facet is facet:
        return sentence.label if sentence.facet else ""
    if _stands_in(paper, position, facet):
        return f"{facet}?"
    return f"(labelled {sentence.label})" if paper.labelled else "(not labelled)"


def _stands_in(paper: Paper, position: int, facet: Facet) -> bool:
    """Whether a sentence is its paper's best guess for a facet."""
    return paper.facet_positions(facet) == ((position,), True)

"""The reasons of a hit: pairs of closest sentences, labels in words, and the sentence to show."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from qbe.index.papers import rows_of
from qbe.query import Aspect, Query
from qbe.types import Facet, Hit, Match, Paper, Sentence

if TYPE_CHECKING:
    from qbe.index.index import IndexReader
    from qbe.models.pooling import EncodedAspect
    from qbe.util.work import Workers


def add_matches(
    reader: IndexReader,
    workers: Workers,
    queries: Sequence[Sequence[EncodedAspect]],
    hits: Sequence[Sequence[Hit]],
) -> list[list[Hit]]:
    """Add to each query's hits, for every sentence of every aspect, the closest sentence of the paper, best
    pair first. ``queries`` are the encoded aspects of each query.

    >>> from qbe.models.pooling import EncodedAspect
    >>> from qbe.util.work import Workers
    >>> paper = index.paper("s036")
    >>> query = EncodedAspect.of(Aspect(paper, Facet.METHOD), index.vectors(paper))
    >>> with index.reading() as reader:
    ...     ((hit,),) = add_matches(reader, Workers(), [[query]], [[Hit("s051", 1.0)]])
    >>> [(match.query_position, match.position) for match in hit.matches]
    [(3, 2), (2, 2)]
    """

    def matched(number: int) -> list[Hit]:
        rows = rows_of(reader.papers, (hit.paper_id for hit in hits[number]))
        if not len(rows):
            return []
        vectors = [aspect.sentence_vectors for aspect in queries[number]]
        compared = reader.vector_store.compare(np.concatenate(vectors), rows, None)
        by_aspect = np.split(compared.similarities, np.cumsum([len(each) for each in vectors])[:-1])
        ends = [*compared.starts[1:].tolist(), len(compared.rows)]
        found = []
        for hit, start, end in zip(hits[number], compared.starts.tolist(), ends, strict=True):
            pairs = []
            for place, (aspect, similarities) in enumerate(zip(queries[number], by_aspect, strict=True)):
                of_paper = similarities[:, start:end]
                closest = of_paper.argmax(axis=1)
                pairs += [
                    Match(position, int(best), float(of_paper[i, best]), place)
                    for i, (position, best) in enumerate(zip(aspect.positions, closest, strict=True))
                ]
            found.append(hit._replace(matches=tuple(sorted(pairs, key=lambda pair: -pair.score))))
        return found

    return list(workers.map(matched, range(len(queries))))


class ExplainedSentence(NamedTuple):
    """A sentence of a query.

    ``label`` is the predicted one of CSAbstruct's five and ``probability`` that of the facet (of ``other``
    where it has none), both None where the facet was given. ``selected`` sentences are searched with, as a
    best guess where ``guess`` is True.
    """

    position: int
    text: str
    facet: str | None
    label: str | None
    probability: float | None
    selected: bool
    guess: bool


def explain_query(aspect: Aspect) -> list[ExplainedSentence]:
    """Describe all sentences of an aspect's paper, in order; raises what `Aspect.selected_positions` does.

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
    """The probability of a predicted facet (``other`` for none), to four decimals; None for a given one."""
    probabilities = sentence.probabilities
    if probabilities is None:
        return None
    return round(probabilities.of(sentence.facet) if sentence.facet else probabilities.other, 4)


def techniques_in_common(query: Query, papers: Sequence[Paper]) -> list[list[str]]:
    """The words of techniques that each paper shares with the papers that a query likes, at most three of
    each of these, the most telling first (`qbe.models.words`).

    >>> techniques_in_common(Query(index.paper("s036"), Facet.METHOD), [index.paper("s051")])[0][:1]
    ['masking']
    """
    from qbe.models.words import shipped_words

    liked = {id(aspect.paper): aspect.paper for aspect in query.aspects if aspect.weight > 0}
    shared = [shipped_words().in_common(each, papers) for each in liked.values()]
    together = (chain.from_iterable(each[place] for each in shared) for place in range(len(papers)))
    return [list(dict.fromkeys(words)) for words in together]


def describe(paper: Paper, position: int, facet: Facet | None) -> str:
    """Describe a sentence's label: ``method 0.93``, ``method given``, ``no label``, or where it is the best
    guess for the facet searched for, ``background 0.62, best guess for method 0.31``.

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
    """The best pair of a hit whose sentence carries the facet searched for, else the best pair; None without
    matches.

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
    """The label to show with a sentence for a facet: the facet, with a question mark for a best guess, and in
    parentheses another label; for no facet the sentence's own label, '' if it has none.

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
    """True if a sentence is its paper's best guess for a facet."""
    return paper.facet_positions(facet) == ((position,), True)

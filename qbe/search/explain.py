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
    from qbe.index.reader import IndexReader
    from qbe.models.pooling import EncodedAspect
    from qbe.util.work import Workers


def add_matches(
    reader: IndexReader,
    workers: Workers,
    queries: Sequence[Sequence[EncodedAspect]],
    hits: Sequence[Sequence[Hit]],
) -> list[list[Hit]]:
    """Add to each query's hits the closest sentence to every sentence of every aspect, best pair first."""

    def matched(number: int) -> list[Hit]:
        rows = rows_of(reader.papers, (hit.paper_id for hit in hits[number]))
        if not len(rows):
            return []
        aspects = queries[number]
        positions = [position for each in aspects for position in each.positions]
        places = [place for place, each in enumerate(aspects) for _ in each.positions]
        compared = reader.compare(np.concatenate([each.sentence_vectors for each in aspects]), rows)
        by_paper = np.split(compared.similarities, compared.starts[1:], axis=1)
        found = []
        for hit, of_paper in zip(hits[number], by_paper, strict=True):
            closest, scores = of_paper.argmax(axis=1).tolist(), of_paper.max(axis=1).tolist()
            pairs = map(Match, positions, closest, scores, places)
            found.append(hit._replace(matches=tuple(sorted(pairs, key=lambda pair: -pair.score))))
        return found

    return list(workers.map(matched, range(len(queries))))


class ExplainedSentence(NamedTuple):
    """A sentence of a query, perhaps searched with; ``label`` and ``probability`` are None where given."""

    position: int
    text: str
    facet: str | None
    label: str | None
    probability: float | None
    selected: bool
    guess: bool


def explain_query(aspect: Aspect) -> list[ExplainedSentence]:
    """Describe all sentences of an aspect's paper, in order."""
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
    """Return the probability of a predicted facet (``other`` for none); None for a given one."""
    probabilities = sentence.probabilities
    if probabilities is None:
        return None
    return round(probabilities.of(sentence.facet) if sentence.facet else probabilities.other, 4)


def techniques_in_common(query: Query, papers: Sequence[Paper]) -> list[list[str]]:
    """Return the words of techniques that papers share with the query's liked ones, most telling first."""
    from qbe.models.words import shipped_words

    shared = [shipped_words().in_common(each, papers) for each in query.liked.values()]
    together = (chain.from_iterable(each[place] for each in shared) for place in range(len(papers)))
    return [list(dict.fromkeys(words)) for words in together]


def describe(paper: Paper, position: int, facet: Facet | None) -> str:
    """Describe a label: ``method 0.93``, ``background 0.62, best guess for method 0.31``."""
    if not paper.labelled:
        return "no label"
    sentence = paper.sentences[position]
    probability = facet_probability(sentence)
    if probability is None:
        return f"{sentence.label} given"
    described = f"{sentence.label} {probability:.2f}"
    if facet and sentence.probabilities and paper.facet_positions(facet) == ((position,), True):
        described += f", best guess for {facet} {sentence.probabilities.of(facet):.2f}"
    return described


def shown(query: Query, paper: Paper, hit: Hit) -> tuple[Match, str] | None:
    """Return the best pair of a hit whose sentence carries the facet searched for, else the best pair, and
    the paper's sentence after its label, such as "method: We cut it.", to show.
    """
    pairs = [*([hit.driven_by] if hit.driven_by else []), *hit.matches]
    pairs = [pair for pair in pairs if query.aspects[pair.aspect].weight > 0] or pairs
    labels = [label_of(paper, pair.position, query.aspects[pair.aspect].facet) for pair in pairs]
    if not pairs:
        return None
    best = next((place for place, label in enumerate(labels) if not label.startswith("(")), 0)
    label, text = labels[best], paper.sentences[pairs[best].position].text
    return pairs[best], f"{label}{'' if label.startswith('(') else ':'} {text}" if label else text


def label_of(paper: Paper, position: int, facet: Facet | None) -> str:
    """Return the label to show for a facet: a best guess has a question mark, another label parentheses."""
    sentence = paper.sentences[position]
    if facet is None or sentence.facet is facet:
        return sentence.label if sentence.facet else ""
    if paper.facet_positions(facet) == ((position,), True):
        return f"{facet}?"
    return f"(labelled {sentence.label})" if paper.labelled else "(not labelled)"

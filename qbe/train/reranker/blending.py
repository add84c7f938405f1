"""Blended papers: the background of one, the method of another and the result of a third.

After FaBle (Do et al., 2025), which recomposes documents of facet units so that facets disagree in training;
its units are written by a language model, those here are sentences of real papers. A blend is graded like
the papers that it is made of: by a list's own grade where a candidate lends a facet, and 0 where a paper of
another list does.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from qbe.graded_pairs import GradedLists, GradedPair
from qbe.types import Facet, Paper

SIMILAR = 2.0
"""The smallest grade of a candidate that lends a facet."""


class Blended(NamedTuple):
    """Lists with blended candidates, and all papers, the blended among them, by id."""

    lists: dict[str, Sequence[GradedPair]]
    papers: dict[str, Paper]


def blend(parts: Mapping[Facet, Paper]) -> Paper:
    """A paper of each facet's sentences in ``parts``, in the order of the facets, under the title of the one
    that lends the background.

    >>> from qbe.types import Sentence
    >>> background = Sentence("Ice is slippery.", Facet.BACKGROUND)
    >>> method = Sentence("By sand.", Facet.METHOD)
    >>> winter, desert = Paper("w", "On ice", (background,)), Paper("d", "On sand", (method,))
    >>> mixed = blend({Facet.BACKGROUND: winter, Facet.METHOD: desert})
    >>> mixed.paper_id, mixed.title, mixed.abstract
    ('w+d', 'On ice', 'Ice is slippery. By sand.')
    """
    ordered = [(facet, parts[facet]) for facet in Facet if facet in parts]
    sentences = tuple(
        paper.sentences[position] for facet, paper in ordered for position in paper.positions(facet)
    )
    paper_id = "+".join(paper.paper_id for _, paper in ordered)
    return Paper(paper_id, parts[Facet.BACKGROUND].title, sentences)


def with_blends(lists: GradedLists, papers: Mapping[str, Paper], share: float, seed: int = 0) -> Blended:
    """The lists, a ``share`` of them with up to three more candidates, one for each facet.

    Such a candidate has that facet of a candidate that is graded SIMILAR or more for it (one at random), and
    the others of random papers of other lists. Papers lack facets: only those that have a sentence of a facet
    lend it. What is drawn depends on the seed and the query.
    """
    everyone = sorted({pair.paper_id for pairs in lists.values() for pair in pairs})
    lenders = {
        facet: [paper_id for paper_id in everyone if papers[paper_id].positions(facet)] for facet in Facet
    }
    blended, more = dict(lists), {}
    for query in sorted(lists):
        rng = random.Random(f"{seed}-{query}")
        if rng.random() >= share:
            continue
        listed = {query, *(pair.paper_id for pair in lists[query])}
        for number, facet in enumerate(Facet):
            similar = [
                pair
                for pair in lists[query]
                if pair.grades[number] >= SIMILAR and papers[pair.paper_id].positions(facet)
            ]
            others = {other: _stranger(lenders[other], listed, rng) for other in Facet if other is not facet}
            if not similar or None in others.values():
                continue
            chosen = rng.choice(similar)
            names = others | {facet: chosen.paper_id}
            paper = blend({each: papers[name] for each, name in names.items() if name is not None})
            more[paper.paper_id] = paper
            grades = tuple(grade if place == number else 0.0 for place, grade in enumerate(chosen.grades))
            blended[query] = [*blended[query], GradedPair(paper.paper_id, grades)]
    return Blended(blended, {**papers, **more})


def _stranger(lenders: Sequence[str], excluded: set[str], rng: random.Random) -> str | None:
    """A random paper of other lists; None where a few draws give none."""
    for _ in range(10):
        if lenders and (name := rng.choice(lenders)) not in excluded:
            return name
    return None

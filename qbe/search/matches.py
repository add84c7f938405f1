"""Queries compared with papers by stored vectors: the pairs of closest sentences, the background penalty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.index.reader import IndexReader
from qbe.index.scoring import best_per_paper, mean_max
from qbe.index.views import rows_of
from qbe.models.pooling import EncodedAspect
from qbe.search.contracts import Rows, Scores
from qbe.search.fusion import penalized
from qbe.types import Facet, Hit, Match
from qbe.util.parallel import Workers

Floats = NDArray[np.float32]


def add_matches(
    reader: IndexReader,
    workers: Workers,
    queries: Sequence[Sequence[EncodedAspect]],
    hits: Sequence[Sequence[Hit]],
) -> list[list[Hit]]:
    """Each query's hits with, for every sentence of every aspect, the closest sentence of the paper, best
    pair first. ``queries`` has the encoded aspects of each query, with their vectors.

    >>> from qbe import Facet
    >>> from qbe.query import Aspect
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
        aspects = list(zip(queries[number], by_aspect, strict=True))
        ends = [*compared.starts[1:].tolist(), len(compared.rows)]
        return [
            hit._replace(matches=_matches(aspects, slice(start, end)))
            for hit, start, end in zip(hits[number], compared.starts.tolist(), ends, strict=True)
        ]

    return list(workers.map(matched, range(len(queries))))


def _matches(
    aspects: Sequence[tuple[EncodedAspect, NDArray[np.float32]]], sentences: slice
) -> tuple[Match, ...]:
    """The matches of one paper, whose ``sentences`` are columns of each aspect's similarities."""
    pairs = []
    for number, (aspect, similarities) in enumerate(aspects):
        of_paper = similarities[:, sentences]
        closest = of_paper.argmax(axis=1)
        pairs += [
            Match(position, int(best), float(of_paper[i, best]), number)
            for i, (position, best) in enumerate(zip(aspect.positions, closest, strict=True))
        ]
    return tuple(sorted(pairs, key=lambda pair: -pair.score))


EXPONENTS: Mapping[Facet, int] = {Facet.METHOD: 1, Facet.RESULT: 3}
"""The power of the penalty that applies to each facet. What was found depends on the problem more than how it
was found: the default is close to 0 for results, and a penalty of 1 is the same for both."""


class Penalized(NamedTuple):
    """Scores (papers,), and the similarity to the query's ``background`` (papers,) that lowered them; None
    where nothing did.
    """

    scores: Scores
    background: Scores | None


def penalize_background(
    reader: IndexReader, query: EncodedAspect, rows: Rows, scores: Scores, penalty: float
) -> Penalized:
    """Subtract the normalized background similarity from the ``scores`` (papers,) of the papers at ``rows``
    (negative feedback on scores, after Rocchio, 1971); ``penalty`` is from 0 (scores as they are) to 1.

    Papers that are similar in method or result are mostly similar in their problem too, and so are sentence
    vectors in the context of their abstracts: scores for a method or a result follow the problem where the
    two disagree. A score becomes ``z(score) - strength * z(background)``, both z-normalized over the papers
    that are scored, where ``background`` is the mean-max match of the query's background sentences with all
    sentences of the paper, by stored vectors. ``strength`` is the penalty for a method, and its third power
    for a result (EXPONENTS). Scores stay as they are for other aspects, and for papers without other
    background sentences.

    >>> from qbe.query import Aspect
    >>> paper = index.paper("s036")
    >>> query = EncodedAspect.of(Aspect(paper, Facet.METHOD), index.vectors(paper))
    >>> with index.reading() as reader:
    ...     rows = np.array([reader.papers.row("s031"), reader.papers.row("s051")])
    ...     scores, background = penalize_background(reader, query, rows, np.array([0.5, 0.75]), 0.25)
    >>> np.allclose(background, [0.52, 0.27], atol=0.015)  # by the int8 of the processor
    True
    >>> scores.tolist()
    [-1.25, 1.25]
    """
    exponent = None if query.aspect.facet is None else EXPONENTS.get(query.aspect.facet)
    strength = 0.0 if exponent is None else float(penalty**exponent)
    if not strength or query.background is None:
        return Penalized(scores, None)
    background = np.zeros(0)
    if len(rows):
        compared = reader.vector_store.compare(query.background, rows)
        best = best_per_paper(compared.similarities, compared.starts)
        background = mean_max(best).astype(np.float64)
    return Penalized(penalized(scores, background, strength), background)

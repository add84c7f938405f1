"""Aspects of queries compared with papers at once, and the pairs of closest sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.encode.aspect import EncodedAspect
from qbe.index.dense.vectors import Compared, VectorStore
from qbe.index.reader import IndexReader
from qbe.index.views import rows_of
from qbe.parallel import Workers
from qbe.search.contracts import Rows
from qbe.types import Hit, Match

Floats = NDArray[np.float32]


class ComparedAspects(NamedTuple):
    """Papers compared with the sentences of several aspects: ``together`` with all of them, and the rows of
    its similarities that each aspect has, ``by_aspect``, each (sentences of the aspect, sentences).
    """

    together: Compared
    by_aspect: Sequence[Floats]


def compare_aspects(
    vectors: VectorStore, aspects: Sequence[EncodedAspect], rows: Rows, whole: Floats | None = None
) -> ComparedAspects:
    """Compare the sentences of at least one aspect, and a ``whole`` paper (dimension,), with the papers at
    ``rows``, which are in ascending order.

    >>> from qbe import Facet
    >>> from qbe.query import Aspect
    >>> paper = index.paper("s036")
    >>> aspects = [EncodedAspect.of(Aspect(paper, facet), index.vectors(paper)) for facet in Facet]
    >>> with index.reading() as reader:
    ...     compared = compare_aspects(reader.vector_store, aspects, np.array([reader.papers.row("s051")]))
    >>> [len(similarities) for similarities in compared.by_aspect] == [len(a.positions) for a in aspects]
    True
    """
    of_aspects = [aspect.sentence_vectors for aspect in aspects]
    together = vectors.compare(np.concatenate(of_aspects), rows, whole)
    ends = np.cumsum([len(each) for each in of_aspects])[:-1]
    return ComparedAspects(together, np.split(together.similarities, ends))


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
        compared, by_aspect = compare_aspects(reader.vector_store, queries[number], rows)
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

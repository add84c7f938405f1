"""The pairs of closest sentences of a query and its hits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qbe.encode.aspect import EncodedAspect
from qbe.index.dense.compare import COMPARISONS
from qbe.index.reader import IndexReader
from qbe.parallel import Workers
from qbe.types import Hit, Match


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
        return [hit._replace(matches=_matches(reader, queries[number], hit.paper_id)) for hit in hits[number]]

    return list(workers.map(matched, range(len(queries))))


def _matches(reader: IndexReader, aspects: Sequence[EncodedAspect], paper_id: str) -> tuple[Match, ...]:
    block = reader.vector_store.gather(np.array([reader.papers.row(paper_id)], dtype=np.int64))
    compare = COMPARISONS[reader.similarity]
    pairs = []
    for number, encoded in enumerate(aspects):
        assert encoded.sentences is not None
        similarities = compare(encoded.sentences, block.vectors)
        closest = similarities.argmax(axis=1)
        pairs += [
            Match(position, int(best), float(similarities[i, best]), number)
            for i, (position, best) in enumerate(zip(encoded.positions, closest, strict=True))
        ]
    return tuple(sorted(pairs, key=lambda pair: -pair.score))

"""Labels and vectors of queries: computed once, before the stages that need them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from qbe.encode.aspect import EncodedAspect
from qbe.encode.encoder import PaperVectors
from qbe.index.index import Index, LabelledPaper
from qbe.index.reader import IndexReader
from qbe.parallel import Workers
from qbe.query import Aspect, Query
from qbe.types import Paper


class PreparedQuery(NamedTuple):
    """A query whose papers are labelled as its aspects need, and its aspects with what is computed of them.

    ``by_labelling`` has, for each aspect, the vectors that came out of the encoder while its paper was
    labelled; None where nothing was labelled.
    """

    query: Query
    aspects: Sequence[EncodedAspect]
    by_labelling: Sequence[PaperVectors | None]


def prepare_queries(
    index: Index,
    queries: Sequence[Query | PreparedQuery],
    workers: Workers,
    *,
    facets: str,
    explain: bool,
) -> list[PreparedQuery]:
    """See `qbe.search.pipeline.Pipeline.prepare`. Papers are labelled as many at a time as there are threads.

    Raises TypeError for what is no query, and what `qbe.query.Aspect.selected_positions` does.

    >>> from qbe import Facet
    >>> queries = [Query(index.paper("s036"), Facet.METHOD)]
    >>> (prepared,) = prepare_queries(index, queries, Workers(), facets="given", explain=False)
    >>> prepared.aspects[0].positions, prepared.aspects[0].sentences
    ((2, 3), None)
    """
    for query in queries:
        if not isinstance(query, Query | PreparedQuery):
            raise TypeError(
                f"expected a qbe.Query, found {type(query).__name__}; make one with qbe.Query(paper)"
            )

    def label(aspect: Aspect) -> LabelledPaper:
        if aspect.facet is None and not explain:
            return LabelledPaper(aspect.paper, None)
        return index.label_and_encode(aspect.paper, facets)

    aspects = [aspect for query in queries if isinstance(query, Query) for aspect in query.aspects]
    labelled = workers.map(label, aspects)
    prepared = []
    for query in queries:
        if isinstance(query, PreparedQuery):
            prepared.append(query)
            continue
        papers = [next(labelled) for _ in query.aspects]
        relabelled = [
            dataclasses.replace(aspect, paper=paper.paper)
            for aspect, paper in zip(query.aspects, papers, strict=True)
        ]
        prepared.append(
            PreparedQuery(
                Query.of(*relabelled),
                [EncodedAspect.of(aspect) for aspect in relabelled],
                [paper.vectors for paper in papers],
            )
        )
    return prepared


def encode_queries(
    index: Index, reader: IndexReader, prepared: Sequence[PreparedQuery], workers: Workers
) -> list[PreparedQuery]:
    """Queries with the vectors of their aspects: the stored ones for a paper of the index, those that
    labelling brought, or new ones. Aspects that have vectors keep them.

    >>> queries = [Query(index.paper("s036"), positions=[1, 2])]
    >>> prepared = prepare_queries(index, queries, Workers(), facets="given", explain=False)
    >>> with index.reading() as reader:
    ...     (encoded,) = encode_queries(index, reader, prepared, Workers())
    >>> encoded.aspects[0].sentences.shape, encoded.aspects[0].whole.shape
    ((2, 384), (384,))
    """

    def encode(work: tuple[EncodedAspect, PaperVectors | None]) -> EncodedAspect:
        encoded, by_labelling = work
        if encoded.sentences is not None:
            return encoded
        paper: Paper = encoded.aspect.paper
        vectors = reader.stored_vectors(paper) or by_labelling or index.encoder.encode_paper(paper)
        return EncodedAspect.of(encoded.aspect, vectors)

    works = [work for query in prepared for work in zip(query.aspects, query.by_labelling, strict=True)]
    aspects = workers.map(encode, works)
    return [query._replace(aspects=[next(aspects) for _ in query.aspects]) for query in prepared]

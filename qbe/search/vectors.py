"""Labels and vectors of queries: computed once, before the stages that need them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from qbe.encode.aspect import EncodedAspect
from qbe.encode.encoder import PaperVectors
from qbe.errors import FacetNotFoundError
from qbe.index.index import Index, LabelledPaper
from qbe.index.reader import IndexReader
from qbe.parallel import Workers
from qbe.query import Aspect, Query
from qbe.types import Facet, Paper


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
    """See `qbe.search.pipeline.Pipeline.prepare`. Each paper is labelled once, as many at a time as there are
    threads.

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

    aspects = [aspect for query in queries if isinstance(query, Query) for aspect in query.aspects]
    papers = {id(aspect.paper): aspect.paper for aspect in aspects if _needs_labels(aspect, explain)}
    results = workers.map(lambda paper: index.label_and_encode(paper, facets), papers.values())
    labelled = dict(zip(papers, results, strict=True))
    return [
        query if isinstance(query, PreparedQuery) else _prepared(query, labelled, explain=explain)
        for query in queries
    ]


def _needs_labels(aspect: Aspect, explain: bool) -> bool:
    """Whether the paper of an aspect is to be labelled: only facets need labels, and explanations."""
    return explain or aspect.facet is not None


def _prepared(query: Query, labelled: Mapping[int, LabelledPaper], *, explain: bool) -> PreparedQuery:
    """A query with the papers that its aspects need ``labelled``, by the identity of the paper given."""
    aspects = [
        dataclasses.replace(aspect, paper=labelled[id(aspect.paper)].paper)
        if _needs_labels(aspect, explain)
        else aspect
        for aspect in query.aspects
    ]
    results = [labelled.get(id(aspect.paper)) for aspect in query.aspects]
    return PreparedQuery(
        Query.of(*aspects),
        [EncodedAspect.of(aspect) for aspect in aspects],
        [None if result is None else result.vectors for result in results],
    )


def by_every_facet(prepared: PreparedQuery) -> PreparedQuery:
    """The query's papers, each by every facet that it has sentences of; raises FacetNotFoundError for a paper
    that has none.

    >>> from qbe import Facet
    >>> query = Query.by_facets(index.paper("s036"), {Facet.METHOD: 1, Facet.RESULT: -1})
    >>> (prepared,) = prepare_queries(index, [query], Workers(), facets="given", explain=False)
    >>> [str(encoded.aspect.facet) for encoded in by_every_facet(prepared).aspects]
    ['background', 'method', 'result']
    """
    papers: dict[str, tuple[Paper, PaperVectors | None]] = {}
    for encoded, by_labelling in zip(prepared.aspects, prepared.by_labelling, strict=True):
        papers.setdefault(encoded.aspect.paper.paper_id, (encoded.aspect.paper, by_labelling))
    pairs = [
        (Aspect(paper, facet), by_labelling)
        for paper, by_labelling in papers.values()
        for facet in Facet
        if paper.facet_positions(facet)[0]
    ]
    for paper_id in papers.keys() - {aspect.paper.paper_id for aspect, _ in pairs}:
        raise FacetNotFoundError(
            f"expected paper {paper_id} to have sentences of a facet to be graded by, found none; have them "
            "predicted (`facets` predicted)"
        )
    aspects = [aspect for aspect, _ in pairs]
    return PreparedQuery(
        Query.of(*aspects), [EncodedAspect.of(aspect) for aspect in aspects], [each for _, each in pairs]
    )


def encode_queries(
    index: Index, reader: IndexReader, prepared: Sequence[PreparedQuery], workers: Workers
) -> list[PreparedQuery]:
    """Queries with the vectors of their aspects: the stored ones for a paper of the index, those that
    labelling brought, or new ones, computed once for all aspects of a paper. Aspects that have vectors keep
    them.

    >>> queries = [Query(index.paper("s036"), positions=[1, 2])]
    >>> prepared = prepare_queries(index, queries, Workers(), facets="given", explain=False)
    >>> with index.reading() as reader:
    ...     (encoded,) = encode_queries(index, reader, prepared, Workers())
    >>> encoded.aspects[0].sentences.shape, encoded.aspects[0].whole.shape
    ((2, 384), (384,))
    """

    def encode(work: tuple[Paper, PaperVectors | None]) -> PaperVectors:
        paper, by_labelling = work
        return reader.stored_vectors(paper) or by_labelling or index.encoder.encode_paper(paper)

    works = {
        id(encoded.aspect.paper): (encoded.aspect.paper, by_labelling)
        for query in prepared
        for encoded, by_labelling in zip(query.aspects, query.by_labelling, strict=True)
        if encoded.sentences is None
    }
    vectors = dict(zip(works, workers.map(encode, works.values()), strict=True))
    return [
        query._replace(
            aspects=[
                encoded
                if encoded.sentences is not None
                else EncodedAspect.of(encoded.aspect, vectors[id(encoded.aspect.paper)])
                for encoded in query.aspects
            ]
        )
        for query in prepared
    ]

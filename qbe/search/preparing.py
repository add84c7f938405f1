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

LABEL_SOURCES = ("given", "predicted")
"""Where the facets of a query's sentences come from: its own labels, or the tagger."""


class PreparedQuery(NamedTuple):
    """A query whose papers are labelled as its aspects need, and its aspects with what is computed of them.

    ``vectors`` are those of its papers, by the identity of the paper, as far as they are computed: labelling
    brings them, or `encode_queries`.
    """

    query: Query
    aspects: Sequence[EncodedAspect]
    vectors: Mapping[int, PaperVectors]


def prepare_queries(
    index: Index,
    queries: Sequence[Query],
    workers: Workers,
    *,
    labels: str = "given",
    label_all: bool = False,
) -> list[PreparedQuery]:
    """Queries whose papers have the facet labels that their aspects need, or all if they are to be explained
    or graded (``label_all``). Each paper is labelled once, as many at a time as there are threads.

    ``labels`` is one of LABEL_SOURCES: those ``given`` (predicted where a paper brings none), or always
    ``predicted`` ones. Raises what `qbe.query.Aspect.selected_positions` does.

    >>> from qbe import Facet
    >>> (prepared,) = prepare_queries(index, [Query(index.paper("s036"), Facet.METHOD)], Workers())
    >>> prepared.aspects[0].positions, prepared.aspects[0].sentences
    ((2, 3), None)
    """
    aspects = [aspect for query in queries for aspect in query.aspects]
    papers = {id(aspect.paper): aspect.paper for aspect in aspects if label_all or aspect.facet is not None}
    results = workers.map(lambda paper: index.label_and_encode(paper, labels), papers.values())
    labelled = dict(zip(papers, results, strict=True))
    return [_prepared(query, labelled, label_all=label_all) for query in queries]


def _prepared(query: Query, labelled: Mapping[int, LabelledPaper], *, label_all: bool) -> PreparedQuery:
    """A query with the papers that its aspects need ``labelled``, by the identity of the paper given."""
    aspects = [
        dataclasses.replace(aspect, paper=labelled[id(aspect.paper)].paper)
        if label_all or aspect.facet is not None
        else aspect
        for aspect in query.aspects
    ]
    results = [labelled.get(id(aspect.paper)) for aspect in query.aspects]
    vectors = {
        id(aspect.paper): result.vectors
        for aspect, result in zip(aspects, results, strict=True)
        if result is not None and result.vectors is not None
    }
    return PreparedQuery(Query.of(*aspects), [EncodedAspect.of(aspect) for aspect in aspects], vectors)


def by_every_facet(prepared: PreparedQuery) -> list[dict[Facet, EncodedAspect]]:
    """Each paper of an encoded query by every facet that it has sentences of; raises FacetNotFoundError for a
    paper that has none.

    >>> from qbe import Facet
    >>> query = Query.by_facets(index.paper("s036"), {Facet.METHOD: 1, Facet.RESULT: -1})
    >>> prepared = prepare_queries(index, [query], Workers())
    >>> with index.reading() as reader:
    ...     (encoded,) = encode_queries(index, reader, prepared, Workers())
    >>> [str(facet) for facet in by_every_facet(encoded)[0]]
    ['background', 'method', 'result']
    """
    papers: dict[str, Paper] = {}
    for encoded in prepared.aspects:
        papers.setdefault(encoded.aspect.paper.paper_id, encoded.aspect.paper)
    by_paper = []
    for paper in papers.values():
        facets = [facet for facet in Facet if paper.facet_positions(facet)[0]]
        if not facets:
            raise FacetNotFoundError(
                f"expected paper {paper.paper_id} to have sentences of a facet to be graded by, found none; "
                "have them predicted (`labels` predicted)"
            )
        vectors = prepared.vectors[id(paper)]
        by_paper.append({facet: EncodedAspect.of(Aspect(paper, facet), vectors) for facet in facets})
    return by_paper


def encode_queries(
    index: Index, reader: IndexReader, prepared: Sequence[PreparedQuery], workers: Workers
) -> list[PreparedQuery]:
    """Queries with the vectors of their aspects: the stored ones for a paper of the index, those that
    labelling brought, or new ones, computed once for all aspects of a paper.

    >>> prepared = prepare_queries(index, [Query(index.paper("s036"), positions=[1, 2])], Workers())
    >>> with index.reading() as reader:
    ...     (encoded,) = encode_queries(index, reader, prepared, Workers())
    >>> encoded.aspects[0].sentences.shape, encoded.aspects[0].whole.shape
    ((2, 384), (384,))
    """

    def encode(work: tuple[Paper, PaperVectors | None]) -> PaperVectors:
        paper, by_labelling = work
        return reader.stored_vectors(paper) or by_labelling or index.encoder.encode_paper(paper)

    works = {
        id(encoded.aspect.paper): (encoded.aspect.paper, query.vectors.get(id(encoded.aspect.paper)))
        for query in prepared
        for encoded in query.aspects
    }
    vectors = dict(zip(works, workers.map(encode, works.values()), strict=True))
    return [
        PreparedQuery(
            query.query,
            [EncodedAspect.of(each.aspect, vectors[id(each.aspect.paper)]) for each in query.aspects],
            {id(each.aspect.paper): vectors[id(each.aspect.paper)] for each in query.aspects},
        )
        for query in prepared
    ]

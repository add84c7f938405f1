"""What is asked of a search, whoever asks."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from qbe.errors import FacetNotFoundError, UsageError, check_count
from qbe.index.index import Index, LabelledPaper
from qbe.index.reader import IndexReader
from qbe.models.pooling import EncodedAspect, PaperVectors
from qbe.query import PLAIN, Query, Variety
from qbe.search.filters import PaperFilter
from qbe.types import Facet, Paper
from qbe.util.parallel import Workers

if TYPE_CHECKING:
    from qbe.search.rerank.graded import GradedQuery


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A search: the ``query``; the number of hits ``k``; a ``pool`` of paper ids to rank (None: the whole
    index), of either only the papers that pass the ``filter``.

    ``labels`` says where the facets of the query's sentences come from: ``given`` (predicted where a paper
    brings none) or ``predicted``. ``matches`` adds the pairs of closest sentences to each hit, where the
    index has vectors; ``explain`` the scores of its components; ``grades`` its grade in each facet, from
    0 to 3, where the index's encoder has a grade model. ``variety`` says how the list is put together
    (`qbe.query.Variety`); a mix needs a query of the facets of `Variety.weights`.

    Raises TypeError for values of another type, UsageError for ``k`` below 1 and for other labels.

    >>> SearchRequest(Query(index.paper("s036")), k=0)
    Traceback (most recent call last):
    ...
    qbe.errors.UsageError: expected `k` of at least 1, found 0
    """

    query: Query
    k: int = 10
    pool: Sequence[str] | None = None
    filter: PaperFilter | None = None
    labels: str = "given"
    matches: bool = True
    explain: bool = False
    grades: bool = False
    variety: Variety = PLAIN

    def __post_init__(self) -> None:
        if not isinstance(self.query, Query):
            raise TypeError(
                f"expected a qbe.Query, found {type(self.query).__name__}; make one with qbe.Query(paper)"
            )
        check_count("k", self.k)
        check_pool(self.pool)
        check_filter(self.filter)
        if self.labels not in LABEL_SOURCES:
            raise UsageError(f"expected `labels` of {', '.join(LABEL_SOURCES)}, found {self.labels!r}")
        if not isinstance(self.variety, Variety):
            raise TypeError(f"expected a qbe.Variety as `variety`, found {self.variety!r:.60}")
        facets = {aspect.facet for aspect in self.query.aspects}
        if self.variety.mix and not (self.query.is_by_facets and self.variety.weights.keys() <= facets):
            raise UsageError(
                "expected a query of the facets of a `mix`, found another; make it with "
                "qbe.Query.by_facets(paper, variety.weights)"
            )


def check_pool(pool: Sequence[object] | None) -> None:
    """Raise TypeError for a pool that is no list of ids."""
    if pool is not None and (isinstance(pool, str) or not isinstance(pool, Collection)):
        raise TypeError(
            f"expected a pool as a list of paper ids, found the {type(pool).__name__} {pool!r:.60}"
        )
    for paper_id in pool or ():
        if not isinstance(paper_id, str):
            raise TypeError(
                f"expected a pool of paper ids (str), found {paper_id!r:.60} ({type(paper_id).__name__})"
            )


def check_filter(value: object) -> None:
    """Raise TypeError for what is neither a `PaperFilter` nor None.

    >>> check_filter("cs.CL")
    Traceback (most recent call last):
    ...
    TypeError: expected a qbe.PaperFilter as `filter`, found 'cs.CL' (str)
    """
    if value is not None and not isinstance(value, PaperFilter):
        raise TypeError(
            f"expected a qbe.PaperFilter as `filter`, found {value!r:.60} ({type(value).__name__})"
        )


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


def graded_papers(prepared: PreparedQuery) -> list[GradedQuery]:
    """Each paper of an encoded query with its vectors; raises FacetNotFoundError for a paper without a
    sentence of any facet.

    >>> from qbe import Facet
    >>> query = Query.by_facets(index.paper("s036"), {Facet.METHOD: 1, Facet.RESULT: -1})
    >>> prepared = prepare_queries(index, [query], Workers())
    >>> with index.reading() as reader:
    ...     (encoded,) = encode_queries(index, reader, prepared, Workers())
    >>> [each.paper.paper_id for each in graded_papers(encoded)]
    ['s036']
    """
    papers = {each.aspect.paper.paper_id: each.aspect.paper for each in reversed(prepared.aspects)}
    for paper in papers.values():
        if not any(paper.facet_positions(facet)[0] for facet in Facet):
            raise FacetNotFoundError(
                f"expected paper {paper.paper_id} to have sentences of a facet to be graded by, found none; "
                "have them predicted (`labels` predicted)"
            )
    from qbe.search.rerank.graded import GradedQuery

    return [GradedQuery(paper, prepared.vectors[id(paper)]) for paper in reversed(papers.values())]


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

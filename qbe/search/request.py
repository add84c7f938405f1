"""A search as every front end states it, checked."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from qbe.errors import UsageError, check_count
from qbe.query import PLAIN, Query, Variety
from qbe.search.filters import PaperFilter, check_filter

LABEL_SOURCES = ("given", "predicted")
"""Where the facets of a query's sentences come from: its own labels, or the tagger."""

BLOCK = 64
"""Queries of a run that are searched together."""


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A search for the best ``k`` papers of the index, or of a ``pool`` of ids, that pass the ``filter``.

    ``labels`` of the query's sentences are ``given`` (predicted where a paper brings none) or ``predicted``.
    ``matches`` adds the pairs of closest sentences to each hit, where the index has vectors; ``explain`` the
    scores of its components; ``grades`` its grade in each facet, from 0 to 3, where the index's encoder has a
    grade model. ``variety`` says how the list is put together; a mix needs a query of the facets of
    `Variety.weights`.

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
        pool = self.pool
        if pool is not None and (isinstance(pool, str) or not isinstance(pool, Collection)):
            raise TypeError(
                f"expected a pool as a list of paper ids, found the {type(pool).__name__} {pool!r:.60}"
            )
        for paper_id in pool or ():
            if not isinstance(paper_id, str):
                raise TypeError(
                    f"expected a pool of paper ids (str), found {paper_id!r:.60} ({type(paper_id).__name__})"
                )
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

    @property
    def labels_all(self) -> bool:
        """True if all sentences of the query's papers need labels, not only those of its facets."""
        return self.explain or self.grades or bool(self.variety.bounds)

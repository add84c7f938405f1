"""What is asked of a search, whoever asks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qbe.errors import UsageError
from qbe.query import Query
from qbe.search.filters import PaperFilter
from qbe.search.preparing import LABEL_SOURCES


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A search: the ``query``; the number of hits ``k``; a ``pool`` of paper ids to rank (None: the whole
    index), of either only the papers that pass the ``filter``.

    ``labels`` says where the facets of the query's sentences come from: ``given`` (predicted where a paper
    brings none) or ``predicted``. ``matches`` adds the pairs of closest sentences to each hit, where the
    index has vectors; ``explain`` the scores of its components; ``grades`` its grade in each facet, from
    0 to 3, where the index's encoder has a grade model.

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

    def __post_init__(self) -> None:
        if not isinstance(self.query, Query):
            raise TypeError(
                f"expected a qbe.Query, found {type(self.query).__name__}; make one with qbe.Query(paper)"
            )
        check_k(self.k)
        check_pool(self.pool)
        check_filter(self.filter)
        if self.labels not in LABEL_SOURCES:
            raise UsageError(f"expected `labels` of {', '.join(LABEL_SOURCES)}, found {self.labels!r}")


def check_k(k: object) -> None:
    """Raise TypeError for what is no number of hits, UsageError for one below 1."""
    if not isinstance(k, int) or isinstance(k, bool):
        raise TypeError(f"expected an int as `k`, found {k!r} ({type(k).__name__})")
    if k < 1:
        raise UsageError(f"expected `k` of at least 1, found {k}")


def check_pool(pool: Sequence[object] | None) -> None:
    """Raise TypeError for a pool that is no list of ids."""
    if isinstance(pool, str):
        raise TypeError(f"expected a pool as a list of paper ids, found the str {pool!r:.60}")
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

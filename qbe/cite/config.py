"""What a recommendation is configured with, checked in one place for every caller."""

from __future__ import annotations

from dataclasses import dataclass

from qbe.errors import UsageError
from qbe.search.filters import PaperFilter
from qbe.search.stages import CrossEncoder

RUN_TAG = "qbe-cite"
QUERIES = ("abstract", "title", "keyterms")  # words of the BM25 query


@dataclass(frozen=True, slots=True, kw_only=True)
class CiteConfig:
    """Configure a recommendation.

    The citation model scores ``depth`` candidates of the first stage; ``query`` are the words of its BM25
    query: ``abstract`` (and title), ``title`` or ``keyterms``. ``links`` uses citations among the
    papers of the index, where metadata have ``cites``. ``model`` is the folder of another citation model.
    ``rerank`` scores the best papers again, such as ``CrossEncoder("my-reranker", depth=50)`` from `qbe train
    citation-pairs`. ``filter`` selects the papers that may be found.

    Raises TypeError for a parameter of another type, UsageError for a value out of range.

    >>> CiteConfig(depth=20, query="title").links
    True
    """

    depth: int = 1000
    query: str = QUERIES[0]
    links: bool = True
    model: str | None = None
    rerank: CrossEncoder | None = None
    filter: PaperFilter | None = None

    def __post_init__(self) -> None:
        if self.depth < 1:
            raise UsageError(f"expected `depth` of at least 1, found {self.depth}")
        if self.query not in QUERIES:
            raise UsageError(f"expected `query` of {', '.join(QUERIES)}, found {self.query!r}")

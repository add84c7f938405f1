"""What a recommendation is configured with, checked in one place for every caller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from qbe.errors import UsageError
from qbe.search.filters import PaperFilter

CITATION, BM25, DENSE, FUSED = "citation", "bm25", "dense", "fused"
FIRST_STAGES = (CITATION, BM25, DENSE, FUSED)
NO_RERANKING = "none"
RERANKINGS = (CITATION, NO_RERANKING)


@dataclass(frozen=True, slots=True, kw_only=True)
class CiteConfig:
    """All parameters of a recommendation.

    ``first_stage`` finds ``depth`` candidates: ``citation`` (default) fuses BM25 and vectors projected for
    citation; ``bm25``, ``dense`` and ``fused`` are the first stages of a search, by title
    and abstract. ``rerank`` is ``citation`` (default: the citation model scores all candidates) or ``none``.
    With ``links`` (default) citations among the papers of the index are used as well, where its metadata have
    ``cites``. ``model`` is the folder of another citation model. ``filter`` says which papers may be found.

    Raises TypeError for a parameter of another type, UsageError for a value out of range.

    >>> CiteConfig(first_stage="bm25", rerank="none").run_tag
    'qbe-cite-bm25'
    """

    first_stage: str = CITATION
    depth: int = 1000
    rerank: str = CITATION
    links: bool = True
    model: str | None = None
    filter: PaperFilter | None = None

    def __post_init__(self) -> None:
        choices = (("first_stage", FIRST_STAGES), ("rerank", RERANKINGS))
        for name, allowed in choices:
            value = getattr(self, name)
            if value not in allowed:
                raise UsageError(f"expected `{name}` of {', '.join(allowed)}, found {value!r}")
        if not isinstance(self.depth, int) or isinstance(self.depth, bool):
            raise TypeError(f"expected an int as `depth`, found {self.depth!r} ({type(self.depth).__name__})")
        if self.depth < 1:
            raise UsageError(f"expected `depth` of at least 1, found {self.depth}")
        if not isinstance(self.links, bool):
            raise TypeError(f"expected a bool as `links`, found {self.links!r} ({type(self.links).__name__})")
        if self.model is not None and not isinstance(self.model, str):
            raise TypeError(f"expected a str as `model`, found {self.model!r} ({type(self.model).__name__})")
        if self.filter is not None and not isinstance(self.filter, PaperFilter):
            raise TypeError(f"expected a qbe.PaperFilter as `filter`, found {type(self.filter).__name__}")
        if not self.links and self.rerank != CITATION:
            raise UsageError("`links` is not read without reranking; drop it, or choose `rerank` citation")

    @property
    def run_tag(self) -> str:
        """The tag of runs: ``qbe-cite-`` and the first stage, then ``+rerank``."""
        return f"qbe-cite-{self.first_stage}" + ("" if self.rerank == NO_RERANKING else "+rerank")

    def record(self) -> dict[str, Any]:
        """All parameters as JSON holds them: what distinguishes it from another."""
        return {
            "first_stage": self.first_stage,
            "depth": self.depth,
            "rerank": self.rerank,
            "links": self.links,
            "filter": None if self.filter is None else self.filter.record(),
        }

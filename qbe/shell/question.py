"""What is asked for at the moment, as the commands have put it together."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from qbe.errors import UsageError
from qbe.service.requests import RecommendationRequest, SearchRequest
from qbe.shell.parsing import ANY, Years


@dataclass(frozen=True, slots=True)
class Counted:
    """What of the query counts: one of these, or nothing, which is the whole abstract."""

    facet: str | None = None
    sentences: tuple[int, ...] = ()
    like: tuple[str, ...] = ()
    unlike: tuple[str, ...] = ()
    explore: str | None = None

    def __str__(self) -> str:
        if self.sentences:
            return f"sentences {','.join(map(str, self.sentences))}"
        if self.like:
            return " unlike ".join(" ".join(names) for names in (("like", *self.like), self.unlike) if names)
        return self.facet or self.explore or "the whole abstract"


@dataclass(frozen=True, slots=True)
class Question:
    """A search that commands change step by step.

    >>> question = Question(paper_ids=("s036",), counted=Counted(facet="method"))
    >>> question.request(start=0, rerank=False).facet
    'method'
    """

    paper_ids: tuple[str, ...] = ()
    text: str | None = None
    title: str = ""
    counted: Counted = field(default_factory=Counted)
    not_paper_ids: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()
    years: Years = ANY
    categories: tuple[str, ...] = ()
    k: int = 10

    @property
    def is_there(self) -> bool:
        """Whether there is something to search with."""
        return bool(self.paper_ids) or self.text is not None

    def of_papers(self, paper_ids: tuple[str, ...]) -> Question:
        """The same, starting from other papers."""
        return self._from_others(paper_ids=paper_ids, text=None, title="")

    def of_text(self, text: str, title: str) -> Question:
        """The same, starting from a text."""
        return self._from_others(paper_ids=(), text=text, title=title)

    def _from_others(self, **changes: Any) -> Question:
        """Sentences, and what was not wanted, were of what it started from before."""
        counted = Counted() if self.counted.sentences else self.counted
        return replace(self, counted=counted, not_paper_ids=(), **changes)

    def request(self, start: int, *, rerank: bool) -> SearchRequest:
        """The request for a page of hits; raises ValidationError, and UsageError where nothing is asked."""
        counted = self.counted
        return SearchRequest(
            **self._source(start),
            not_paper_ids=list(self.not_paper_ids),
            facet=counted.facet,  # type: ignore[arg-type]  # pydantic checks it
            sentences=list(counted.sentences) or None,
            like=list(counted.like),
            unlike=list(counted.unlike),
            explore=counted.explore,  # type: ignore[arg-type]
            rerank=rerank,
        )

    def recommendation(self, start: int) -> RecommendationRequest:
        """The request for a page of papers to cite; raises as `request` does."""
        return RecommendationRequest(**self._source(start))

    def _source(self, start: int) -> dict[str, Any]:
        if not self.is_there:
            raise UsageError("expected something to search with; begin with paper ID or text")
        return {
            "paper_ids": list(self.paper_ids),
            "text": self.text,
            "title": self.title,
            "exclude": list(self.seen),
            "year_from": self.years.first,
            "year_to": self.years.last,
            "categories": list(self.categories),
            "k": self.k,
            "start": start,
        }

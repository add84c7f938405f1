"""The tools that answer with rankings: search, and recommendation of citations."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from qbe.mcp.answers import SHORT, FoundPapers, Hits, clipped
from qbe.mcp.arguments import Paged, PaperOrText
from qbe.mcp.cutting import fitting_hits
from qbe.mcp.records import hit_of
from qbe.service.records import Record
from qbe.service.requests import (
    DEEPEST,
    MOST_PAPERS,
    MOST_SEEN,
    FacetName,
    PaperId,
    RecommendationRequest,
    SearchRequest,
    Shape,
)
from qbe.service.service import SearchService

_FACET_WEIGHT = "each background, method or result, with a weight if wanted, such as method:0.5"


class SearchPapers(Paged, PaperOrText):
    """The arguments of ``search_papers``."""

    facet: FacetName | None = Field(
        default=None,
        description="What hits should have in common with the query: background (the problem), method or "
        "result (the findings). Without it the whole abstract counts.",
    )
    like: list[PaperId] = Field(
        default_factory=list,
        max_length=3,
        description=f"Instead of facet: several facets to have in common, {_FACET_WEIGHT}.",
    )
    unlike: list[PaperId] = Field(
        default_factory=list,
        max_length=3,
        description=f"With like: facets in which hits should differ from the query, {_FACET_WEIGHT}.",
    )
    explore: Shape | None = Field(
        default=None,
        description="Instead of facet, like and unlike, by name: same-problem-other-method (like "
        "background, unlike method), same-method-other-problem (the reverse), competitors (like both).",
    )
    year_from: int | None = Field(default=None, ge=1, le=9999, description="The first year of hits.")
    year_to: int | None = Field(default=None, ge=1, le=9999, description="The last year of hits.")
    categories: list[PaperId] = Field(
        default_factory=list,
        max_length=MOST_PAPERS,
        description="Only papers of one of these categories of the corpus, such as cs.CL, or cs for all "
        "below it.",
    )
    authors: list[PaperId] = Field(
        default_factory=list,
        max_length=MOST_PAPERS,
        description="Only papers by one of these; all words of a name must occur.",
    )

    @model_validator(mode="after")
    def _counts_one_thing(self) -> Self:
        given = {
            "facet": self.facet is not None,
            "explore": self.explore is not None,
            "like with unlike": bool(self.like or self.unlike),
        }
        named = [name for name, is_given in given.items() if is_given]
        if len(named) > 1:
            raise ValueError(f"expected at most one of {', '.join(given)}, found {' and '.join(named)}")
        return self

    def answer(self, service: SearchService) -> FoundPapers:
        """Search, and rerank the best hits."""
        request = SearchRequest(
            **self.source,
            **self.page,
            facet=self.facet,
            like=self.like,
            unlike=self.unlike,
            explore=self.explore,
            year_from=self.year_from,
            year_to=self.year_to,
            categories=self.categories,
            authors=self.authors,
        )
        record = service.search(request)
        hits = _hits(record)
        papers = FoundPapers(**hits.model_dump(), stage=record["stage"], searched_papers=record["passing"])
        return fitting_hits(papers, self.start)


class RecommendCitations(Paged, PaperOrText):
    """The arguments of ``recommend_citations``."""

    cited: list[PaperId] = Field(
        default_factory=list,
        max_length=MOST_SEEN,
        description="Ids of papers that it cites already: they help to find others, and are not recommended.",
    )
    year_to: int | None = Field(
        default=None, ge=1, le=9999, description="The last year of what is recommended."
    )

    def answer(self, service: SearchService) -> Hits:
        """Recommend."""
        request = RecommendationRequest(**self.source, **self.page, cited=self.cited, year_to=self.year_to)
        return fitting_hits(_hits(service.recommend(request)), self.start)


def _hits(record: Record) -> Hits:
    """A page of a ranking; the last one that can be asked for is the last."""
    next_start = record["next_start"]
    has_more = next_start is not None and next_start < DEEPEST
    return Hits(
        heading=clipped(record["query"]["heading"], SHORT),
        notes=[clipped(note, SHORT) for note in record["notes"]],
        hits=[hit_of(hit) for hit in record["hits"]],
        has_more=has_more,
        next_start=next_start if has_more else None,
    )

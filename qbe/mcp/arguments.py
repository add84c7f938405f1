"""What the arguments of all tools have in common."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field, model_validator

from qbe.mcp.answers import Answer
from qbe.service.requests import (
    DEEPEST,
    MOST_HITS,
    Abstract,
    Given,
    PaperId,
    Title,
)
from qbe.service.service import SearchService

HITS = 10
"""Hits in an answer, unless more are asked for: about as many as fit in with their abstracts."""


class Arguments(Given):
    """The arguments of a call."""

    def answer(self, service: SearchService) -> Answer:
        """The answer, within its limit of length; raises QbeError, ValidationError."""
        raise NotImplementedError


class PaperOrText(Arguments):
    """A paper of the index, or a text."""

    text: Abstract | None = Field(
        default=None,
        description="An abstract, or a few sentences in its style, in English. Give this or paper_id.",
    )
    paper_id: PaperId | None = Field(
        default=None, description="The id of a paper of the index. Give this or text."
    )
    title: Title = Field(default="", description="The title that goes with text, if there is one.")

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if (self.paper_id is None) == (self.text is None):
            actual = "neither" if self.text is None else "both"
            raise ValueError(f"expected either text or paper_id, found {actual}")
        if self.title and self.text is None:
            raise ValueError("expected title with text only, found it with paper_id; leave title out")
        return self

    @property
    def source(self) -> dict[str, Any]:
        """The same as the fields of a request."""
        if self.paper_id is not None:
            return {"paper_ids": [self.paper_id]}
        return {"text": self.text, "title": self.title}


class Paged(Arguments):
    """Which places of a ranking."""

    k: int = Field(
        default=HITS,
        ge=1,
        le=MOST_HITS,
        description="How many hits at most. Abstracts fit into an answer for about ten.",
    )
    start: int = Field(
        default=0,
        ge=0,
        lt=DEEPEST,
        description="How many hits to skip: next_start of the answer before, with all else the same.",
    )

    @property
    def page(self) -> dict[str, Any]:
        """The same as the fields of a request; a page ends where rankings do."""
        return {"k": min(self.k, DEEPEST - self.start), "start": self.start}

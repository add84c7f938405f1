"""What tools answer: models that describe themselves as JSON schemas."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from qbe.service.requests import FacetName

MOST_AUTHORS = 10
SHORT, LONG = 300, 600
"""Characters of titles and names, and of sentences that explain a hit."""

LONGEST_SENTENCE = 3000
LONGEST_LINK = 300
ELLIPSIS = "…"


class Answer(BaseModel):
    """An answer; ``cut`` says in one sentence what was left out, and how to get it."""

    model_config = ConfigDict(extra="forbid")

    cut: str | None = Field(
        default=None,
        description="Null, or what was left out to keep the answer below 20 kB, and how to get it.",
    )


class Described(BaseModel):
    """What is said of each paper."""

    model_config = ConfigDict(extra="forbid")

    paper_id: str = Field(description="Its id in this index, which all tools take.")
    title: str
    year: int | None
    authors: list[str] = Field(description=f"The first {MOST_AUTHORS} of them.")
    author_count: int
    venue: str | None
    links: dict[str, str] = Field(description="Addresses by name: arxiv, doi, url.")


class Why(BaseModel):
    """The closest pair of sentences."""

    model_config = ConfigDict(extra="forbid")

    query_sentence: str
    sentence: str = Field(description="The sentence of the hit that is closest to query_sentence.")
    facet: FacetName | None = Field(description="What the hit's sentence is about.")
    similarity: float = Field(description="Cosine similarity; 1 is the same sentence.")


class Grades(BaseModel):
    """How alike two papers are in each facet, from 0 (not) to 3 (nearly the same), estimated."""

    model_config = ConfigDict(extra="forbid")

    background: float
    method: float
    result: float


class Hit(Described):
    """A paper that was found."""

    rank: int = Field(description="Its place, from 1; goes on from page to page.")
    score: float = Field(description="For comparison within this ranking only.")
    grades: Grades | None
    why: Why | None
    abstract: str | None = Field(description="Null where it was left out; cut says so then.")


class Hits(Answer):
    """A page of a ranking."""

    heading: str = Field(description="What was searched for, in words.")
    notes: list[str]
    hits: list[Hit]
    has_more: bool = Field(description="Whether the ranking goes on.")
    next_start: int | None = Field(description="The start of the next page; null at the end.")


class FoundPapers(Hits):
    """The hits of a search."""

    stage: Literal["first-stage", "reranked"] = Field(
        description="reranked: the best hundred candidates were read again by a cross-encoder."
    )
    searched_papers: int = Field(description="Papers of the index that pass years, categories, authors.")


class LabelledSentence(BaseModel):
    """A sentence of an abstract."""

    model_config = ConfigDict(extra="forbid")

    position: int = Field(description="Its place in the abstract, from 0.")
    facet: FacetName | None = Field(description="What it is about; null: none of these.")
    text: str


class Sentences(Answer):
    """The sentences of an abstract, in order."""

    title: str
    sentences: list[LabelledSentence]
    has_more: bool = Field(description="Whether there are further sentences; seldom true.")
    next_start: int | None = Field(description="The start that gives them; null at the end.")


class FullPaper(Described, Sentences):
    """A paper with its abstract, sentence by sentence."""


class Alike(BaseModel):
    """How alike two papers are in one facet."""

    model_config = ConfigDict(extra="forbid")

    grade: float | None = Field(
        description="From 0 (not alike) to 3 (nearly the same), estimated; null where the index cannot tell."
    )
    sentence_a: str | None = Field(description="Of a: the facet's sentence that is closest to one of b.")
    sentence_b: str | None
    similarity: float | None = Field(description="Cosine similarity of the two sentences.")


class ComparedPaper(BaseModel):
    """One of the papers compared."""

    model_config = ConfigDict(extra="forbid")

    paper_id: str
    title: str
    year: int | None


class Compared(Answer):
    """Two papers, compared in each facet."""

    a: ComparedPaper
    b: ComparedPaper
    background: Alike
    method: Alike
    result: Alike


class Exported(Answer):
    """Papers as (a part of) a file."""

    format: Literal["bibtex", "ris", "csv", "markdown", "json"]
    papers: int = Field(description="How many papers are in text.")
    text: str = Field(description="The content of the file, or its next part.")
    has_more: bool
    next_start: int | None = Field(description="The start that gives the next part; null at the end.")


def clipped(text: str, longest: int) -> str:
    """A text, shortened where it is longer.

    >>> clipped("Fish swim fast.", 10)
    'Fish swim…'
    """
    return text if len(text) <= longest else text[: longest - 1].rstrip() + ELLIPSIS

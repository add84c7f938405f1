"""What tools answer: the records of the service without what agents do not need, cut to a size."""

from __future__ import annotations

import json
from itertools import accumulate
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field

from qbe.serve.service.records import Record
from qbe.serve.service.requests import FacetName, Format
from qbe.util.text import plain

LIMIT = 20_000
"""Bytes of an answer, as JSON."""

RESERVED = 300
"""Of these for the sentence that says what was left out."""

MOST_AUTHORS, LONGEST_LINK = 10, 300
"""Authors that an answer has, and characters of a link that it has."""

AnswerT = TypeVar("AnswerT", bound="Answer")


def clipped(text: str, longest: int) -> str:
    """A text as one harmless line, shortened where it is longer.

    >>> clipped("Fish swim fast.", 10)
    'Fish swim…'
    """
    text = plain(text)
    return text if len(text) <= longest else text[: longest - 1].rstrip() + "…"


def _year(value: Any) -> int | None:
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() else None


def _authors(names: list[str]) -> list[str]:
    return names if len(names) <= MOST_AUTHORS else [*names[:MOST_AUTHORS], "et al."]


def _links(links: dict[str, str]) -> dict[str, str]:
    return {name: link for name, link in links.items() if len(link) <= LONGEST_LINK}


def _closest(matches: list[Record]) -> list[Record]:
    """The closest pair of the first aspect, whose weight is positive."""
    matches = [each for each in matches if each.get("aspect", 0) == 0] or matches
    return sorted(matches, key=lambda match: -float(match["score"]))[:1]


Short = Annotated[str, AfterValidator(lambda text: clipped(text, 300))]
SentenceText = Annotated[str, AfterValidator(lambda text: clipped(text, 600))]
Score = Annotated[float, AfterValidator(lambda score: round(score, 6))]
Grade = Annotated[float, Field(description="from 0 (not alike) to 3 (nearly the same), estimated")]


class Answer(BaseModel):
    """An answer that may go on; ``cut`` says in one sentence what was left out, and how to get it."""

    cut: str | None = Field(default=None, description="what was left out to keep the answer below 20 kB")
    has_more: bool = False
    next_start: int | None = Field(default=None, description="the start of the next page; null at the end")


class Described(BaseModel):
    """A paper."""

    paper_id: str
    title: Short
    year: Annotated[int | None, BeforeValidator(_year)]
    authors: Annotated[list[Short], BeforeValidator(_authors)]
    venue: Short
    links: Annotated[dict[str, str], BeforeValidator(_links)]


class Pair(BaseModel):
    """The closest pair of sentences."""

    query_sentence: SentenceText
    sentence: SentenceText = Field(description="the sentence of the hit that is closest to query_sentence")
    facet: FacetName | None = Field(description="what the hit's sentence is about")
    score: float = Field(description="cosine similarity")


class Hit(Described):
    """A paper of a ranking."""

    rank: int
    score: Score = Field(description="comparable within this ranking only")
    grades: dict[FacetName, Grade] | None = None
    corner: str | None = Field(default=None, description="of a mixed list, what the hit is there for")
    matches: Annotated[list[Pair], BeforeValidator(_closest)]
    abstract: str | None = Field(description="null where it was left out; cut says so then")


class Searched(BaseModel):
    """What was searched for."""

    heading: Short = Field(description="what was searched for, in words")


class Hits(Answer):
    """A page of a ranking, best first."""

    query: Searched
    notes: list[Short]
    hits: list[Hit]
    stage: str = Field(default="citations", description="what ranked the hits")
    passing: int | None = Field(default=None, description="how many papers pass the filters")


class Sentence(BaseModel):
    """A sentence of an abstract."""

    position: int
    facet: FacetName | None
    text: Annotated[str, AfterValidator(lambda text: clipped(text, 3000))]


class Sentences(Answer):
    """The sentences of an abstract, in order."""

    title: Short
    sentences: list[Sentence]


class FullPaper(Described, Sentences):
    """A paper with its abstract, sentence by sentence."""


class ComparedPair(BaseModel):
    """The closest pair of sentences of a facet."""

    sentence: SentenceText
    other_sentence: SentenceText
    score: float = Field(description="cosine similarity")


class FacetComparison(BaseModel):
    """How alike two papers are in one facet."""

    grade: Grade | None
    pair: ComparedPair | None


class Compared(BaseModel):
    """Two papers, compared in each facet."""

    paper: Described
    other: Described
    facets: dict[FacetName, FacetComparison]


class Exported(Answer):
    """Papers as (a part of) a file."""

    format: Format
    papers: int = Field(description="how many papers are in text")
    text: str = Field(description="the content of the file, or its next part")


def size_of(value: BaseModel | str) -> int:
    """The bytes of a model or a text as JSON."""
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, str) else value.model_dump_json()
    return len(text.encode())


def fitting(answer: AnswerT, name: str, start: int) -> AnswerT:
    """An answer within the limit: with as many items of a list as fit, at least one. ``start`` is the number
    of the first one.
    """
    if size_of(answer) <= LIMIT:
        return answer
    items = getattr(answer, name)
    room = LIMIT - RESERVED - size_of(answer.model_copy(update={name: []}))
    kept = max(1, sum(size <= room for size in accumulate(size_of(item) + 1 for item in items)))
    end = start + kept
    left_out = f"{name} from {end} on were left out (call again with start={end})"
    return answer.model_copy(
        update={name: items[:kept], "has_more": True, "next_start": end, "cut": _cut(answer, left_out)}
    )


def fitting_hits(answer: Hits, start: int) -> Hits:
    """A page of a ranking within the limit: without the abstracts of the last hits, then without these hits.

    >>> record = {"paper_id": "7", "title": "On fish", "year": "", "authors": [], "venue": "", "links": {},
    ...           "rank": 1, "score": 1.0, "matches": [], "abstract": "Fish swim. " * 1000}
    >>> page = {"query": {"heading": ""}, "notes": [], "hits": [record, record]}
    >>> fitting_hits(Hits.model_validate(page), 0).cut
    'To stay below 20 kB, abstracts from hit 2 on were left out (get_paper gives them).'
    """
    excess, kept = size_of(answer) - LIMIT, len(answer.hits)
    if excess <= 0:
        return answer
    while kept and excess > -RESERVED:
        kept -= 1
        excess -= size_of(answer.hits[kept].abstract or "")
    bare = [hit.model_copy(update={"abstract": None}) for hit in answer.hits[kept:]]
    left_out = f"abstracts from hit {start + kept + 1} on were left out (get_paper gives them)"
    update = {"hits": answer.hits[:kept] + bare, "cut": _cut(answer, left_out)}
    return fitting(answer.model_copy(update=update), "hits", start)


def _cut(answer: Answer, left_out: str) -> str:
    if answer.cut:
        return f"{answer.cut.removesuffix('.')}; {left_out}."
    return f"To stay below {LIMIT // 1000} kB, {left_out}."

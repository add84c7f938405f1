"""The tools: functions of a service and of a request, whose docstrings and fields are what agents read."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from itertools import accumulate
from typing import Annotated, Any, NamedTuple, TypeVar, get_type_hints

import anyio.to_thread
from fastmcp.exceptions import ToolError
from fastmcp.tools.base import Tool, ToolResult
from mcp_types import ToolAnnotations
from pydantic import BaseModel, Field, ValidationError

from qbe.errors import PaperNotFoundError, QbeError, UsageError
from qbe.serve.mcp import answers
from qbe.serve.mcp.answers import (
    Compared,
    Exported,
    FullPaper,
    Hits,
    Sentences,
    fitting,
    fitting_hits,
    size_of,
)
from qbe.serve.service.requests import (
    MOST_SEEN,
    Body,
    Comparison,
    Export,
    K,
    PaperId,
    PastedText,
    RecommendationBody,
    SearchBody,
    problem_in_words,
)
from qbe.serve.service.service import SearchService
from qbe.util.text import one_line

log = logging.getLogger("qbe.serve.mcp")

SentencesT = TypeVar("SentencesT", bound=Sentences)

HITS = 10
"""Hits in an answer, unless more are asked for: about as many as fit in with their abstracts."""

FACETS = (
    "A facet is what a sentence of an abstract is about: background (the problem, its context, the "
    "objective), method (what was done), result (what was found)."
)
IDS = (
    "A paper of the index is named by its paper_id, as search_papers and recommend_citations give it, or by "
    "its DOI, arXiv id, ACL id, title, or words of the title that no other paper has."
)
PAGES = (
    "Where has_more is true, call again with start=next_start and all else the same for the next part. An "
    "answer stays below 20 kB; cut says what was left out, and how to get it."
)

FirstSentence = Annotated[int, Field(ge=0, description="the first sentence to give; only where cut says so")]


class Search(SearchBody):
    """A search."""

    k: K = HITS


class Draft(RecommendationBody):
    """A paper that is being written."""

    k: K = HITS


class OnePaper(Body):
    """A paper, or the rest of it."""

    paper_id: PaperId = Field(description="a paper of the index, by paper_id or another name")
    start: FirstSentence = 0


class Abstract(PastedText):
    """An abstract, or the rest of it."""

    start: FirstSentence = 0


class ExportPart(Export):
    """Papers to export, or the rest of them."""

    start: int = Field(default=0, ge=0, lt=MOST_SEEN, description="how many of paper_ids to skip")


def search_papers(service: SearchService, body: Search) -> Hits:
    """Find papers that are like a paper: for its problem, method or findings, or its whole abstract.

    Start from text (an abstract with its title, a few sentences that could stand in one, or a question or
    phrase such as "graph networks for traffic forecasting"), or from paper_ids. facet says what hits should
    have in common with the query.
    like and unlike combine facets: the same problem solved by another method is like=[background],
    unlike=[method]; explore names the three usual combinations, and several of these names in like make
    a list mixed of them. Give at most one of facet, explore, and like with unlike. diversity keeps hits
    from resembling each other.

    Hits are best first. matches has the closest pair of sentences; grades say how alike the papers
    are in each facet, from 0 to 3.
    """
    return fitting_hits(Hits.model_validate(service.search(body)), body.start)


def get_paper(service: SearchService, body: OnePaper) -> FullPaper:
    """Read a paper of the index: title, authors, year, venue, links, sentences with their facets."""
    return _sentences(FullPaper.model_validate(service.paper(body.paper_id)), body.start)


def label_facets(service: SearchService, body: Abstract) -> Sentences:
    """Split an abstract into sentences and say of each which facet it has.

    Nothing is searched. This shows what search_papers would match of the same text by each facet.
    """
    return _sentences(Sentences.model_validate(service.label(body)), body.start)


def compare_papers(service: SearchService, body: Comparison) -> Compared:
    """Say how alike two papers of the index are in each facet.

    That is an estimated grade from 0 (not alike) to 3 (nearly the same), and the closest sentences.
    """
    return Compared.model_validate(service.compare(body))


def recommend_citations(service: SearchService, body: Draft) -> Hits:
    """Find papers of the index that a paper, or a draft of one, should cite, best first.

    Start from text (the abstract of the draft) or from paper_ids with one id. Name what it cites already
    in cited: that helps, and these are not recommended. year_to keeps out what is younger than the draft.
    """
    return fitting_hits(Hits.model_validate(service.recommend(body)), body.start)


def export_citations(service: SearchService, body: ExportPart) -> Exported:
    """Give papers of the index as the content of a file: BibTeX, RIS, CSV, Markdown or JSON.

    All but Markdown have abstracts. A long file comes in parts, which joined are the file.
    """
    parts = service.export_parts(body)
    parts = parts[_within(body.start, len(parts), "papers") :]
    room = answers.LIMIT - answers.RESERVED
    kept = sum(size <= room for size in accumulate(size_of(part) for part in parts))
    if not kept:
        paper_id = list(dict.fromkeys(body.paper_ids))[body.start]
        raise UsageError(
            f"expected papers whose {body.format} is below {answers.LIMIT // 1000} kB, found {paper_id} "
            "longer; leave it out, or choose markdown as format"
        )
    exported = Exported(format=body.format, papers=kept, text="".join(parts[:kept]))
    if kept < len(parts):
        end = body.start + kept
        exported.has_more, exported.next_start = True, end
        exported.cut = (
            f"To stay below {answers.LIMIT // 1000} kB, the last {len(parts) - kept} papers were left "
            f"out (call again with start={end}; the texts joined are the file)."
        )
    return exported


class _About(NamedTuple):
    """A title for people, what is said in addition to the docstring, and fields that are not offered."""

    title: str
    notes: tuple[str, ...]
    left_out: frozenset[str] = frozenset()


TOOLS: dict[Callable[..., BaseModel], _About] = {
    search_papers: _About(
        "Search papers by example",
        (FACETS, PAGES, IDS),
        frozenset({"not_paper_ids", "sentences", "labels", "exclude", "where", "first_stage", "rerank"}),
    ),
    get_paper: _About("Read a paper", (FACETS, IDS)),
    label_facets: _About("Label the sentences of an abstract", (FACETS,)),
    compare_papers: _About("Compare two papers", (FACETS, IDS), frozenset({"text", "title"})),
    recommend_citations: _About(
        "Recommend papers to cite",
        (PAGES, IDS),
        frozenset({"exclude", "year_from", "categories", "authors", "where"}),
    ),
    export_citations: _About("Export citations", (PAGES, IDS)),
}
"""All tools."""


class ServiceTool(Tool):
    """A tool: answers a request, after moving to the newest commit of the index. An error of the caller is a
    ToolError of one line.
    """

    answer: Callable[[dict[str, Any]], BaseModel] = Field(exclude=True)

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        """Answer a call; the text is the JSON of the answer's fields."""
        try:
            answer = await anyio.to_thread.run_sync(self.answer, arguments)
        except ValidationError as error:
            message = problem_in_words(error.errors(include_url=False))
        except PaperNotFoundError as error:
            message = str(error).removesuffix("; check it") + "; search_papers gives ids that are valid"
        except QbeError as error:
            message = str(error)
        else:
            return ToolResult(answer.model_dump_json(), answer.model_dump(mode="json"))
        raise ToolError(one_line(message), log_level=logging.DEBUG)


def tools_of(service: SearchService) -> list[Tool]:
    """All tools over a service."""
    return [_tool(service, function, about) for function, about in TOOLS.items()]


def _tool(service: SearchService, function: Callable[..., BaseModel], about: _About) -> ServiceTool:
    types = get_type_hints(function)
    body: type[Body] = types["body"]

    def answer(arguments: dict[str, Any]) -> BaseModel:
        _refresh(service)
        return function(service, body.model_validate(arguments))

    schema = body.model_json_schema()
    properties = {name: each for name, each in schema["properties"].items() if name not in about.left_out}
    return ServiceTool(
        name=function.__name__,
        title=about.title,
        description="\n\n".join([inspect.cleandoc(function.__doc__ or ""), *about.notes]),
        parameters={**schema, "description": about.title, "properties": properties},
        output_schema=types["return"].model_json_schema(),
        annotations=ToolAnnotations(
            title=about.title,
            read_only_hint=True,
            destructive_hint=False,
            idempotent_hint=True,
            open_world_hint=False,
        ),
        answer=answer,
    )


def _refresh(service: SearchService) -> None:
    """Move to the newest commit of the index; where that cannot be read, the one that is open goes on."""
    try:
        service.index.refresh()
    except QbeError as error:
        log.warning("the newest commit of the index was not opened: %s", error)


def _within(start: int, count: int, things: str) -> int:
    if start and start >= count:
        raise UsageError(f"expected `start` below the number of {things}, {count}, found {start}")
    return start


def _sentences(answer: SentencesT, start: int) -> SentencesT:
    """The sentences from ``start`` on, as many as fit."""
    start = _within(start, len(answer.sentences), "sentences")
    return fitting(answer.model_copy(update={"sentences": answer.sentences[start:]}), "sentences", start)

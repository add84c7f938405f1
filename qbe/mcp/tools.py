"""The tools: plain functions over a service, whose types and docstrings are what agents read."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable
from itertools import accumulate
from typing import Annotated, Any, ParamSpec, TypeVar

import anyio.to_thread
from fastmcp.exceptions import ToolError
from fastmcp.exceptions import ValidationError as ArgumentError
from fastmcp.server.middleware import Middleware, MiddlewareContext
from fastmcp.tools import Tool
from fastmcp.tools.base import ToolResult
from mcp_types import ToolAnnotations
from pydantic import BaseModel, Field, ValidationError

from qbe.errors import PaperNotFoundError, QbeError, UsageError
from qbe.mcp import answers
from qbe.mcp.answers import Compared, Exported, FullPaper, Hits, Sentences, fitting, fitting_hits, size_of
from qbe.plain import one_line
from qbe.service import requests
from qbe.service.requests import MOST_SEEN, PaperId, normalized, problem_in_words
from qbe.service.service import SearchService

log = logging.getLogger("qbe.mcp")

P = ParamSpec("P")
AnswerT = TypeVar("AnswerT", bound=BaseModel)
SentencesT = TypeVar("SentencesT", bound=Sentences)

HITS = 10
"""Hits in an answer, unless more are asked for: about as many as fit in with their abstracts."""

FACETS = (
    "A facet is what a sentence of an abstract is about: background (the problem, its context, the "
    "objective), method (what was done), result (what was found)."
)
IDS = (
    "Valid ids are those of this index alone, as search_papers and recommend_citations give them in "
    "paper_id; a DOI or a title is none."
)
PAGES = (
    "Where has_more is true, call again with start=next_start and all else the same for the next part. An "
    "answer stays below 20 kB; cut says what was left out, and how to get it."
)

FirstSentence = Annotated[int, Field(ge=0, description="the first sentence to give; only where cut says so")]


class Tools:
    """The tools over a service. An error of the caller is a ToolError of one line."""

    def __init__(self, service: SearchService) -> None:
        self._service = service

    def search_papers(
        self,
        text: requests.Abstract | None = None,
        title: requests.Title = "",
        paper_ids: requests.PaperIds | None = None,
        facet: requests.FacetField | None = None,
        like: requests.Like | None = None,
        unlike: requests.Unlike | None = None,
        explore: requests.Explore | None = None,
        year_from: requests.YearFrom | None = None,
        year_to: requests.YearTo | None = None,
        categories: requests.Categories | None = None,
        authors: requests.Authors | None = None,
        k: requests.K = HITS,
        start: requests.Start = 0,
    ) -> Hits:
        """Find papers that are like a paper: for its problem, method or findings, or its whole abstract.

        Start from text (an abstract, or a few sentences that could stand in one; single keywords find
        little), with its title, or from paper_ids. facet says what hits should have in common with the query.
        like and unlike combine facets: the same problem solved by another method is like=[background],
        unlike=[method]; explore names the three usual combinations. Give at most one of facet, explore, and
        like with unlike.

        Hits are best first. matches has the closest pair of sentences; grades say how alike the papers
        are in each facet, from 0 to 3.
        """
        given = {name: value for name, value in locals().items() if name != "self"}
        record = self._service.search(requests.SearchBody.model_validate(given))
        return fitting_hits(Hits.model_validate(record), start)

    def get_paper(
        self,
        paper_id: Annotated[PaperId, Field(description="the id of a paper of the index")],
        start: FirstSentence = 0,
    ) -> FullPaper:
        """Read a paper of the index: title, authors, year, venue, links, sentences with their facets."""
        return _sentences(FullPaper.model_validate(self._service.paper(paper_id)), start)

    def label_facets(
        self,
        text: Annotated[requests.Abstract, Field(min_length=1)],
        title: requests.Title = "",
        start: FirstSentence = 0,
    ) -> Sentences:
        """Split an abstract into sentences and say of each which facet it has.

        Nothing is searched. This shows what search_papers would match of the same text by each facet.
        """
        record = self._service.label(requests.PastedText(text=text, title=title))
        return _sentences(Sentences.model_validate(record), start)

    def compare_papers(
        self,
        paper_id: Annotated[PaperId, Field(description="the id of a paper of the index")],
        other_id: Annotated[PaperId, Field(description="the id of the paper to compare it with")],
    ) -> Compared:
        """Say how alike two papers of the index are in each facet.

        That is an estimated grade from 0 (not alike) to 3 (nearly the same), and the closest sentences.
        """
        record = self._service.compare(requests.Comparison(paper_id=paper_id, other_id=other_id))
        return Compared.model_validate(record)

    def recommend_citations(
        self,
        text: requests.Abstract | None = None,
        title: requests.Title = "",
        paper_ids: requests.PaperIds | None = None,
        cited: requests.Cited | None = None,
        year_to: requests.YearTo | None = None,
        k: requests.K = HITS,
        start: requests.Start = 0,
    ) -> Hits:
        """Find papers of the index that a paper, or a draft of one, should cite, best first.

        Start from text (the abstract of the draft) or from paper_ids with one id. Name what it cites already
        in cited: that helps, and these are not recommended. year_to keeps out what is younger than the draft.
        """
        given = {name: value for name, value in locals().items() if name != "self"}
        record = self._service.recommend(requests.RecommendationBody.model_validate(given))
        return fitting_hits(Hits.model_validate(record), start)

    def export_citations(
        self,
        paper_ids: Annotated[
            list[PaperId],
            Field(min_length=1, max_length=MOST_SEEN, description="ids of papers of the index, in order"),
        ],
        format: Annotated[requests.Format, Field(description="json: a line a paper")] = "bibtex",
        start: Annotated[int, Field(ge=0, lt=MOST_SEEN, description="how many of paper_ids to skip")] = 0,
    ) -> Exported:
        """Give papers of the index as the content of a file: BibTeX, RIS, CSV, Markdown or JSON.

        All but Markdown have abstracts. A long file comes in parts, which joined are the file.
        """
        parts = self._service.export_parts(requests.Export(paper_ids=paper_ids, format=format))
        parts = parts[_within(start, len(parts), "papers") :]
        room = answers.LIMIT - answers.RESERVED
        sizes = accumulate(size_of(part) for part in parts)
        kept = sum(size <= room for size in sizes)
        if not kept:
            paper_id = list(dict.fromkeys(paper_ids))[start]
            raise UsageError(
                f"expected papers whose {format} is below {answers.LIMIT // 1000} kB, found {paper_id} "
                "longer; leave it out, or choose markdown as format"
            )
        exported = Exported(format=format, papers=kept, text="".join(parts[:kept]))
        if kept < len(parts):
            exported.has_more, exported.next_start = True, start + kept
            exported.cut = (
                f"To stay below {answers.LIMIT // 1000} kB, the last {len(parts) - kept} papers were left "
                f"out (call again with start={start + kept}; the texts joined are the file)."
            )
        return exported


TOOLS = {
    "search_papers": ("Search papers by example", FACETS, PAGES, IDS),
    "get_paper": ("Read a paper", FACETS, IDS),
    "label_facets": ("Label the sentences of an abstract", FACETS),
    "compare_papers": ("Compare two papers", FACETS, IDS),
    "recommend_citations": ("Recommend papers to cite", PAGES, IDS),
    "export_citations": ("Export citations", PAGES, IDS),
}
"""The tools, each with a title for people, and what is said of it in addition to its docstring."""


def tools_of(service: SearchService) -> list[Tool]:
    """All tools over a service."""
    tools = Tools(service)
    return [
        Tool.from_function(
            _answered(getattr(tools, name)),
            title=title,
            description="\n\n".join([inspect.cleandoc(getattr(Tools, name).__doc__), *notes]),
            annotations=ToolAnnotations(
                title=title,
                read_only_hint=True,
                destructive_hint=False,
                idempotent_hint=True,
                open_world_hint=False,
            ),
        )
        for name, (title, *notes) in TOOLS.items()
    ]


def _answered(tool: Callable[P, AnswerT]) -> Callable[P, AnswerT]:
    """A tool whose errors are one line, and whose text is the JSON of its answer."""

    @functools.wraps(tool)
    def answered(*args: P.args, **kwargs: P.kwargs) -> Any:
        try:
            answer = tool(*args, **kwargs)
        except ValidationError as error:
            message = problem_in_words(error.errors(include_url=False))
        except PaperNotFoundError as error:
            message = str(error).removesuffix("; check it") + "; search_papers gives ids that are valid"
        except QbeError as error:
            message = str(error)
        else:
            return ToolResult(answer.model_dump_json(), answer.model_dump(mode="json"))
        raise ToolError(one_line(message), log_level=logging.DEBUG)

    return answered


class Calls(Middleware):
    """Reads arguments as clients mean them, and moves to the newest commit of the index before each call."""

    def __init__(self, service: SearchService, tools: list[Tool]) -> None:
        self._service = service
        self._fields = {tool.name: tool.parameters["properties"] for tool in tools}
        self._lists = {
            tool: [name for name, schema in fields.items() if "'array'" in str(schema)]
            for tool, fields in self._fields.items()
        }

    async def on_call_tool(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        """Call a tool; raises ToolError for arguments that it does not take."""
        await anyio.to_thread.run_sync(self._refresh)
        message, fields = context.message, self._fields.get(context.message.name)
        try:
            if fields is not None:
                arguments = normalized(message.arguments or {}, fields, self._lists[message.name])
                message = message.model_copy(update={"arguments": arguments})
            return await call_next(context.copy(message=message))
        except ArgumentError as error:
            cause = error.__cause__
            problem = problem_in_words(cause.errors()) if isinstance(cause, ValidationError) else str(error)
        except ValueError as error:  # of `normalized`
            problem = str(error)
        raise ToolError(one_line(problem), log_level=logging.DEBUG)

    def _refresh(self) -> None:
        """Move to the newest commit of the index; where that cannot be read, the one that is open goes on."""
        try:
            self._service.refresh()
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

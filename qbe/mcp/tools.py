"""The tools: their names, what agents read of them, and how a call is answered."""

from __future__ import annotations

import logging
import re
from functools import partial
from typing import Any, NamedTuple

import anyio.to_thread
from fastmcp.exceptions import ToolError
from fastmcp.tools.base import Tool, ToolResult
from mcp_types import ToolAnnotations
from pydantic import PrivateAttr, ValidationError

from qbe.errors import PaperNotFoundError, QbeError
from qbe.mcp.answers import Answer, Compared, Exported, FoundPapers, FullPaper, Hits, Sentences
from qbe.mcp.arguments import Arguments
from qbe.mcp.exporting import ExportCitations
from qbe.mcp.reading import ComparePapers, GetPaper, LabelFacets
from qbe.mcp.searching import RecommendCitations, SearchPapers
from qbe.plain import one_line
from qbe.service.requests import problem_in_words
from qbe.service.service import SearchService

log = logging.getLogger("qbe.mcp")

_FACETS = (
    "A facet is what a sentence of an abstract is about: background (the problem, its context, the "
    "objective), method (what was done), result (what was found)."
)
_IDS = (
    "Valid ids are those of this index alone, as search_papers and recommend_citations give them in "
    "paper_id; a DOI or a title is none."
)
_PAGES = (
    "Where has_more is true, call again with start=next_start and all else the same for the next page. An "
    "answer stays below 20 kB; cut says what was left out, and how to get it."
)


class Described(NamedTuple):
    """A tool: its name and title, what agents read of it, and the models of its arguments and its answer."""

    name: str
    title: str
    description: str
    arguments: type[Arguments]
    answer: type[Answer]


TOOLS = (
    Described(
        "search_papers",
        "Search papers by example",
        "Find scientific papers that are like a paper: for its problem, its method, its findings, or the "
        "whole of its abstract. Start from text (an abstract, or a few sentences that could stand in one; "
        "single keywords find little) or from paper_id.\n\n"
        f"{_FACETS} facet says what hits should have in common with the query. like and unlike combine "
        "facets: the same problem solved by another method is like=[background], unlike=[method]; explore "
        "names the three usual combinations. Give at most one of facet, explore, and like with unlike.\n\n"
        "Hits are best first. why is the pair of sentences that are closest; grades say how alike the papers "
        "are in each facet, from 0 to 3. The best hits are read again by a cross-encoder, which takes a few "
        f"seconds. {_PAGES} {_IDS}",
        SearchPapers,
        FoundPapers,
    ),
    Described(
        "get_paper",
        "Read a paper",
        "Read one paper of the index: title, authors, year, venue, links, and its abstract sentence by "
        f"sentence, each with its facet. {_FACETS} {_IDS}",
        GetPaper,
        FullPaper,
    ),
    Described(
        "label_facets",
        "Label the sentences of an abstract",
        f"Split an abstract into sentences and say of each which facet it has. {_FACETS} Nothing is "
        "searched. This shows what search_papers would match of the same text by each facet.",
        LabelFacets,
        Sentences,
    ),
    Described(
        "compare_papers",
        "Compare two papers",
        "Say how alike two papers of the index are in each facet: an estimated grade from 0 (not alike) to 3 "
        f"(nearly the same), and the closest pair of sentences. {_FACETS} {_IDS}",
        ComparePapers,
        Compared,
    ),
    Described(
        "recommend_citations",
        "Recommend papers to cite",
        "Find papers of the index that a paper, or a draft of one, should cite, best first. Start from text "
        "(the abstract of the draft) or from paper_id. Name what it cites already in cited: that helps, and "
        "these are not recommended. year_to keeps out what is younger than the draft. "
        f"{_PAGES} {_IDS}",
        RecommendCitations,
        Hits,
    ),
    Described(
        "export_citations",
        "Export citations",
        "Give papers of the index as the content of a file: BibTeX, RIS, CSV, Markdown or JSON. A long file "
        "comes in parts: where has_more is true, call again with the same paper_ids and format and "
        f"start=next_start. {_IDS}",
        ExportCitations,
        Exported,
    ),
)


class ServiceTool(Tool):
    """A tool that a service answers. What is wrong with a call is an error of one line."""

    _service: SearchService = PrivateAttr()
    _arguments: type[Arguments] = PrivateAttr()

    @classmethod
    def over(cls, service: SearchService, described: Described) -> ServiceTool:
        """The tool that is described, over a service."""
        tool = cls(
            name=described.name,
            title=described.title,
            description=described.description,
            parameters=_without_titles(described.arguments.model_json_schema()),
            output_schema=_without_titles(described.answer.model_json_schema(mode="serialization")),
            annotations=ToolAnnotations(
                title=described.title,
                read_only_hint=True,
                destructive_hint=False,
                idempotent_hint=True,
                open_world_hint=False,
            ),
        )
        tool._service, tool._arguments = service, described.arguments
        return tool

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        """Answer a call in a thread of its own; raises ToolError."""
        return await anyio.to_thread.run_sync(partial(self._answer, arguments))

    def _answer(self, arguments: dict[str, Any]) -> ToolResult:
        _refresh(self._service)
        try:
            answer = self._arguments.model_validate(arguments).answer(self._service)
        except ValidationError as error:
            message = in_words_of_tools(problem_in_words(error.errors(include_url=False)))
        except QbeError as error:
            message = in_words_of_tools(str(error))
            if isinstance(error, PaperNotFoundError):
                message = message.removesuffix("; check it") + "; search_papers gives ids that are valid"
        else:
            return ToolResult(answer.model_dump_json(), answer.model_dump(mode="json"))
        raise ToolError(message, log_level=logging.DEBUG)


def _refresh(service: SearchService) -> None:
    """Move to the newest commit of the index; where that cannot be read, go on with the one that is open."""
    try:
        service.refresh()
    except QbeError as error:
        log.warning("the index was not opened anew: %s", error)


def in_words_of_tools(message: str) -> str:
    """A message in one line, in which options of the command line are arguments.

    >>> in_words_of_tools("expected a weight above 0, found 'x'; check --like")
    "expected a weight above 0, found 'x'; check like"
    """
    return re.sub(r"--([a-z]+)", r"\1", one_line(message))


def _without_titles(schema: Any) -> Any:
    """A JSON schema without the titles that repeat names in other letters; agents read all of it."""
    if isinstance(schema, list):
        return [_without_titles(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: _without_titles(value)
        for name, value in schema.items()
        if not (name == "title" and isinstance(value, str))
    }

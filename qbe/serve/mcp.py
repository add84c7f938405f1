"""Tools for agents over an index, by the Model Context Protocol (MCP)."""

import inspect
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from itertools import accumulate
from typing import Annotated, Any, TypeVar, get_type_hints

from fastmcp import FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.tools.base import Tool, ToolResult
from mcp_types import ToolAnnotations
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field
from starlette.middleware import Middleware
from starlette.types import ASGIApp

from qbe.errors import PaperNotFoundError, QbeError, UsageError
from qbe.search.queries import distinct_papers
from qbe.search.request import MAX_HITS, MAX_SEEN, CitationForm, FacetName, SearchForm
from qbe.search.writers import Record, export_parts
from qbe.serve.guard import LOCAL, MAX_MESSAGE, Guard, ServeSettings
from qbe.serve.service import Abstract, Format, PaperId, PaperIds, SearchService, Title, bound, form_of
from qbe.util.text import one_line, plain

log = logging.getLogger("qbe.serve.mcp")

PATH = "/mcp"
LIMIT, RESERVED = 20_000, 300  # bytes of an answer as JSON, and of these to say what was left out
CUT = f"To stay below {LIMIT // 1000} kB,"
MAX_AUTHORS, MAX_LINK = 10, 300  # authors of a paper, and characters of a link, in an answer
HITS = 10  # in an answer by default: about as many as fit in with their abstracts
FACETS = (
    "A facet is what a sentence of an abstract is about: background (the problem, its context, the "
    "objective), method (what was done), result (what was found)."
)
IDS = (
    "A paper of the index is named by its paper_id, as search_papers and recommend_citations give it, or by "
    "its DOI, arXiv id, ACL id"
)
TITLES = ", title, or words of the title that no other paper has."
PAGES = (
    "Where has_more is true, call again with start=next_start and all else the same for the next part. An "
    "answer stays below 20 kB; cut says what was left out, and how to get it."
)


def _clipped(longest: int) -> AfterValidator:
    """A text as one printable line, shortened where it is longer."""

    def clip(text: str) -> str:
        text = plain(text)
        return text if len(text) <= longest else text[: longest - 1].rstrip() + "…"

    return AfterValidator(clip)


def _closest(matches: list[Record]) -> list[Record]:
    """The closest pair of the first aspect, whose weight is positive."""
    matches = [each for each in matches if each.get("aspect", 0) == 0] or matches
    return sorted(matches, key=lambda match: -float(match["score"]))[:1]


Links = Annotated[
    dict[str, str],
    BeforeValidator(lambda links: {name: link for name, link in links.items() if len(link) <= MAX_LINK}),
]
Year = Annotated[int | None, BeforeValidator(lambda year: int(year) if str(year).isdecimal() else None)]
Short = Annotated[str, _clipped(300)]
Authors = Annotated[
    list[Short],
    BeforeValidator(lambda each: each if len(each) <= MAX_AUTHORS else [*each[:MAX_AUTHORS], "et al."]),
]
SentenceText = Annotated[str, _clipped(600)]
Score = Annotated[float, AfterValidator(lambda score: round(score, 6))]
Grade = Annotated[float, Field(description="from 0 (not alike) to 3 (nearly the same), estimated")]


class Answer(BaseModel):
    """An answer that may go on; ``cut`` says in one sentence what was left out, and how to get it."""

    cut: str | None = Field(default=None, description="what was left out to keep the answer below 20 kB")
    has_more: bool = False
    next_start: int | None = Field(default=None, description="the start of the next page; null at the end")


class Described(BaseModel):
    paper_id: str | None = Field(description="null for a text that was sent")
    title: Short
    year: Year
    authors: Authors
    venue: Short
    links: Links


class Pair(BaseModel):
    query_sentence: SentenceText
    sentence: SentenceText = Field(description="the sentence of the hit that is closest to query_sentence")
    facet: FacetName | None = Field(description="what the hit's sentence is about")
    score: float = Field(description="cosine similarity")


class Hit(Described):
    rank: int
    score: Score = Field(description="comparable within this ranking only")
    grades: dict[FacetName, Grade] | None = None
    corner: str | None = Field(default=None, description="of a mixed list, what the hit is there for")
    matches: Annotated[list[Pair], BeforeValidator(_closest)]
    abstract: Annotated[str, _clipped(3000)]


class Searched(BaseModel):
    heading: Short = Field(description="what was searched for, in words")


class Hits(Answer):
    query: Searched
    language_note: Short = Field(default="", description="said where the text does not look like English")
    notes: list[Short]
    hits: list[Hit]
    stage: str = Field(default="citations", description="what ranked the hits")
    passing: int | None = Field(default=None, description="how many papers pass the filters")


class Sentence(BaseModel):
    position: int
    facet: FacetName | None
    text: Annotated[str, _clipped(3000)]


class Sentences(Answer):
    title: Short
    sentences: list[Sentence]


class FullPaper(Described, Sentences):
    """A paper with its abstract, sentence by sentence."""


class ComparedPair(BaseModel):
    sentence: SentenceText
    other_sentence: SentenceText
    score: float = Field(description="cosine similarity")


class FacetComparison(BaseModel):
    grade: Grade | None
    pair: ComparedPair | None


class Compared(BaseModel):
    paper: Described
    other: Described
    facets: dict[FacetName, FacetComparison]


class Exported(Answer):
    format: Format
    papers: int = Field(description="how many papers are in text")
    text: str = Field(description="the content of the file, or its next part")


AnswerT = TypeVar("AnswerT", bound=Answer)


def size_of(value: BaseModel | str) -> int:
    """The bytes of a model or a text as JSON."""
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, str) else value.model_dump_json()
    return len(text.encode())


def fitting(answer: AnswerT, name: str, start: int) -> AnswerT:
    """Cut a list of an answer, whose first item has number ``start``, to LIMIT; one item stays."""
    items = getattr(answer, name)
    if size_of(answer) <= LIMIT:
        return answer
    room = LIMIT - RESERVED - size_of(answer.model_copy(update={name: []}))
    kept = max(1, sum(size <= room for size in accumulate(size_of(item) + 1 for item in items)))
    end = start + kept
    cut = f"{CUT} {name} from {end} on were left out (call again with start={end})."
    return answer.model_copy(update={name: items[:kept], "has_more": True, "next_start": end, "cut": cut})


K = Annotated[int, Field(ge=1, le=MAX_HITS, description="how many hits, at most")]
FirstSentence = Annotated[int, Field(ge=0, description="the first sentence to give; only where cut says so")]
FirstPaper = Annotated[int, Field(ge=0, lt=MAX_SEEN, description="how many of paper_ids to skip")]


@dataclass(frozen=True, kw_only=True)
class Search(SearchForm):
    k: K = HITS


@dataclass(frozen=True, kw_only=True)
class Draft(CitationForm):
    k: K = HITS


def search_papers(service: SearchService, form: Search) -> Hits:
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
    return fitting(Hits.model_validate(service.search(form)), "hits", form.start)


def get_paper(service: SearchService, paper_id: PaperId, start: FirstSentence = 0) -> FullPaper:
    """Read a paper of the index: title, authors, year, venue, links, sentences with their facets."""
    paper = FullPaper.model_validate(service.paper(service.index.find(paper_id).paper_id))
    paper.sentences = paper.sentences[_within(start, len(paper.sentences), "sentences") :]
    return fitting(paper, "sentences", start)


def label_facets(
    service: SearchService, text: Abstract, title: Title = "", start: FirstSentence = 0
) -> Sentences:
    """Split an abstract into sentences and say of each which facet it has.

    Nothing is searched. This shows what search_papers would match of the same text by each facet.
    """
    labelled = Sentences.model_validate(service.label(text, title))
    labelled.sentences = labelled.sentences[_within(start, len(labelled.sentences), "sentences") :]
    return fitting(labelled, "sentences", start)


def compare_papers(
    service: SearchService,
    other_id: PaperId,
    paper_id: PaperId | None = None,
    text: Abstract | None = None,
    title: Title = "",
) -> Compared:
    """Say how alike a paper of the index, or text (the abstract of a draft), and another are in each facet.

    That is an estimated grade from 0 (not alike) to 3 (nearly the same), and the closest sentences.
    """
    compared = service.compare(other_id=other_id, paper_id=paper_id, text=text, title=title)
    return Compared.model_validate(compared)


def recommend_citations(service: SearchService, form: Draft) -> Hits:
    """Find papers of the index that a paper, or a draft of one, should cite, best first.

    Start from text (the abstract of the draft) or from paper_ids with one id. Name what it cites already
    in cited: that helps, and these are not recommended. year_to keeps out what is younger than the draft.
    """
    return fitting(Hits.model_validate(service.recommend(form)), "hits", form.start)


def export_citations(
    service: SearchService, paper_ids: PaperIds, format: Format = "bibtex", start: FirstPaper = 0
) -> Exported:
    """Give papers of the index as the content of a file: BibTeX, RIS, CSV, Markdown or JSON.

    All but Markdown have abstracts. A long file comes in parts, which joined are the file.
    """
    parts = export_parts(distinct_papers(service.index, paper_ids, titles=False), format)
    parts = parts[_within(start, len(parts), "papers") :]
    kept = sum(size <= LIMIT - RESERVED for size in accumulate(size_of(part) for part in parts))
    if not kept:
        paper_id = list(dict.fromkeys(paper_ids))[start]
        raise UsageError(
            f"expected papers whose {format} is below {LIMIT // 1000} kB, found {paper_id} longer; leave it "
            "out, or choose markdown as format"
        )
    exported = Exported(format=format, papers=kept, text="".join(parts[:kept]))
    if kept < len(parts):
        end, left = start + kept, f"the last {len(parts) - kept} papers were left out"
        exported.has_more, exported.next_start = True, end
        exported.cut = f"{CUT} {left} (call again with start={end}; the texts joined are the file)."
    return exported


def _within(start: int, count: int, things: str) -> int:
    if start and start >= count:
        raise UsageError(f"expected `start` below the number of {things}, {count}, found {start}")
    return start


# Agents read the docstrings of these functions, and the fields of their arguments.
TOOLS: dict[Callable[..., BaseModel], tuple[str, tuple[str, ...], str]] = {
    search_papers: (
        "Search papers by example",
        (FACETS, PAGES, IDS + TITLES),
        "not_paper_ids sentences labels exclude where first_stage rerank",
    ),
    get_paper: ("Read a paper", (FACETS, IDS + TITLES), ""),
    label_facets: ("Label the sentences of an abstract", (FACETS,), ""),
    compare_papers: ("Compare two papers", (FACETS, IDS + TITLES), ""),
    recommend_citations: (
        "Recommend papers to cite",
        (PAGES, IDS + TITLES),
        "exclude year_from categories authors where",
    ),
    export_citations: ("Export citations", (PAGES, IDS + "."), ""),
}
"""By tool: a title for people, what the description adds to the docstring, fields that are not offered."""

HINTS = {"read_only_hint": True, "destructive_hint": False, "idempotent_hint": True, "open_world_hint": False}


class ServiceTool(Tool):
    """A tool over the newest generation of the index; errors of the caller are a ToolError of one line."""

    service: Any = Field(exclude=True)
    function: Callable[..., BaseModel] = Field(exclude=True)

    def refresh(self) -> None:
        try:
            self.service.index.refresh()
        except Exception as error:  # whatever fails, what is open goes on
            log.warning("the newest commit of the index was not opened: %s", error)

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        """Answer a call; the text is the JSON of the answer's fields."""
        try:
            answer = await self.service.answer(bound(self.function, self.service, arguments), self.refresh)
        except QbeError as error:
            message = str(error)
            if isinstance(error, PaperNotFoundError):
                message = message.partition("; qbe list")[0] + "; search_papers gives ids that are valid"
            raise ToolError(one_line(message)[:MAX_MESSAGE], log_level=logging.DEBUG) from None
        return ToolResult(answer.model_dump_json(), answer.model_dump(mode="json"))


def create_server(service: SearchService) -> FastMCP[None]:
    """A server of all tools over a service."""
    reader = service.index.reader
    ids = f" Ids of its papers look like {next(iter(reader)).paper_id}." if len(reader) else ""
    instructions = (
        f"Search in an index of {len(reader):,} scientific papers, by example: papers like a paper or an "
        "abstract, for its problem (background), its method or its findings (result)."
        f"{ids} Begin with search_papers; get_paper reads a hit, compare_papers explains it, "
        "recommend_citations finds what a draft should cite, export_citations gives BibTeX and other "
        "formats. Nothing is changed, and nothing outside of this index is searched."
    )
    tools = []
    for function, (title, notes, left_out) in TOOLS.items():
        schema = form_of(function).schema
        shown = schema["properties"].items()
        offered = {name: _without_null(each) for name, each in shown if name not in left_out.split()}
        tools.append(
            ServiceTool(
                name=function.__name__,
                title=title,
                description="\n\n".join([inspect.cleandoc(function.__doc__ or ""), *notes]),
                parameters={**schema, "properties": offered, "description": title},
                output_schema=get_type_hints(function)["return"].model_json_schema(),
                annotations=ToolAnnotations(title=title, **HINTS),
                service=service,
                function=function,
            )
        )
    return FastMCP("qbe", instructions, version=version("qbe"), tools=tools, mask_error_details=True)


def _without_null(field: dict[str, Any]) -> dict[str, Any]:
    """A field's schema without the union with null, which some clients cannot fill; null is still taken."""
    kinds = [each for each in field.get("anyOf", ()) if each.get("type") != "null"]
    if len(kinds) != 1:
        return field
    return {**kinds[0], **{name: value for name, value in field.items() if name not in ("anyOf", "default")}}


def http_app(server: FastMCP[None], host: str, key: str | None) -> ASGIApp:
    """The application that answers requests at a host, with the ``key`` if there is one."""
    return server.http_app(
        PATH,
        [Middleware(Guard, settings=ServeSettings(key, hosts=None))],
        json_response=True,
        stateless_http=True,
        host_origin_protection="auto",
        allowed_hosts=[host] if host in LOCAL else None,  # why: see `settings_for`
    )

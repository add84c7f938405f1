"""Routes of the HTTP interface, and errors as responses: a status, and one line to act on."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Query, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from fastapi.sse import format_sse_event
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from qbe.errors import CorpusError, FacetNotFoundError, PaperNotFoundError, QbeError, UsageError
from qbe.feeds.reports import Watcher
from qbe.feeds.watches import check_since
from qbe.label.by_hand import HandGrades, Turn
from qbe.models.language_model import read_guideline
from qbe.search.queries import pasted_paper
from qbe.search.writers import as_json
from qbe.serve.guard import failure
from qbe.serve.models import (
    Comparison,
    Export,
    PastedText,
    RecommendationBody,
    SearchBody,
    WatchBody,
    WatchName,
    is_list,
)
from qbe.serve.queue import OverloadedError, TooSlowError
from qbe.serve.service import SearchService

log = logging.getLogger("qbe.serve")

EXPORTS = {
    "bibtex": ("application/x-bibtex", "bib"),
    "ris": ("application/x-research-info-systems", "ris"),
    "csv": ("text/csv", "csv"),
    "markdown": ("text/markdown", "md"),
    "json": ("application/jsonl", "jsonl"),
}
"""Media type and file extension by format."""

STATUSES = {
    PaperNotFoundError: 404,
    OverloadedError: 429,
    TooSlowError: 503,
    UsageError: 422,
    FacetNotFoundError: 422,
    CorpusError: 422,
}

SEARCH_EXAMPLES: dict[str, Any] = {
    "by method": {"value": {"paper_ids": ["s036"], "facet": "method", "k": 5}},
    "a pasted abstract": {
        "value": {"title": "On stone", "text": "Stone is hard. We cut it with water.", "facet": "background"}
    },
    "same problem, other method": {
        "value": {"paper_ids": ["s036"], "explore": "same-problem-other-method", "year_from": 2018}
    },
}

_SINGLE = {"since", "name"} | {
    name for body in (SearchBody, Export) for name, field in body.model_fields.items() if not is_list(field)
}


async def single_values(request: Request) -> None:
    """Raise UsageError for a query parameter of one value that is given several times."""
    for name, count in Counter(name for name, _ in request.query_params.multi_items()).items():
        if count > 1 and name in _SINGLE:
            raise UsageError(f"expected one value of {name:.60}, found {count}; give one")


async def _service(request: Request) -> Any:
    return request.app.state.service


async def _watcher(request: Request) -> Any:
    return request.app.state.watcher


async def _hands(request: Request) -> HandGrades:
    hands: HandGrades | None = request.app.state.hands
    if hands is None:
        raise UsageError(
            "expected a server of pairs to grade; start it with qbe serve --pairs FILE --labels DIR"
        )
    return hands


Service = Annotated[SearchService, Depends(_service)]
Watching = Annotated[Watcher, Depends(_watcher)]
Hands = Annotated[HandGrades, Depends(_hands)]
api = APIRouter(prefix="/api", dependencies=[Depends(single_values)])
operations = APIRouter()
watching = APIRouter(prefix="/api/watches", dependencies=[Depends(single_values)])


def failure_of(error: QbeError) -> JSONResponse:
    """The response to an error of the library; what is not the client's fault is logged."""
    status = next((status for kind, status in STATUSES.items() if isinstance(error, kind)), 500)
    if status == 500:
        log.error("%s: %s", type(error).__name__, error)
    headers = {"Retry-After": str(error.retry_after)} if isinstance(error, OverloadedError) else None
    return failure(status, str(error), headers)


def _json(record: dict[str, Any]) -> Response:
    """A record as it is: FastAPI would check each value of it once more."""
    return Response(as_json(record), media_type="application/json")


@api.get("/index")
def about(service: Service, request: Request) -> Response:
    """Say what is served: how many papers, and what can be asked of them."""
    return _json(service.about() | ({"watches": True} if request.app.state.watcher else {}))


@api.get("/search")
def get_search(request: Annotated[SearchBody, Query()], service: Service) -> Response:
    """Search by parameters of the address; lists are repeated parameters."""
    return _json(service.search(request.form()))


@api.post("/search")
def search(
    request: Annotated[SearchBody, Body(openapi_examples=SEARCH_EXAMPLES)], service: Service
) -> Response:
    """Search for papers like papers of the index, or like a pasted abstract."""
    return _json(service.search(request.form()))


@api.post("/search/stream")
def stream(request: SearchBody, service: Service) -> StreamingResponse:
    """Search as a stream of server-sent events: the ranking of the first stage at once, the reranked one when
    it is done (events `ranking`, as /api/search answers), then `end`; or `error`.
    """
    records = service.stream(request.form())
    first = next(records)

    def events() -> Iterator[bytes]:
        yield format_sse_event(event="ranking", data_str=as_json(first))
        try:
            for record in records:
                yield format_sse_event(event="ranking", data_str=as_json(record))
        except QbeError as error:
            yield format_sse_event(event="error", data_str=bytes(failure_of(error).body).decode())
            return
        except Exception:
            message = failure(500, "something went wrong while reranking; the server's log says what")
            yield format_sse_event(event="error", data_str=bytes(message.body).decode())
            raise
        yield format_sse_event(event="end", data_str="{}")

    return StreamingResponse(events(), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


@api.get("/papers/{paper_id:path}")
def paper(paper_id: str, service: Service) -> Response:
    """A paper of the index, with the facets of its sentences."""
    return _json(service.paper(paper_id))


_FILE = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}


@api.post("/paper-file", openapi_extra={"requestBody": {"content": _FILE}})
async def paper_file(
    request: Request,
    service: Service,
    name: Annotated[str, Query(max_length=300, description="the file's name")] = "file",
) -> Response:
    """Title and abstract of a paper that is sent as a file: PDF, LaTeX, BibTeX, JSON, text."""
    return _json(await run_in_threadpool(service.read_file, await request.body(), name))


@api.post("/facets")
def facets(request: PastedText, service: Service) -> Response:
    """Label the sentences of a pasted abstract with their facets."""
    return _json(service.label(request.text, request.title))


@api.get("/compare")
def get_compare(request: Annotated[Comparison, Query()], service: Service) -> Response:
    """Compare two papers by parameters of the address."""
    return compare(request, service)


@api.post("/compare")
def compare(request: Comparison, service: Service) -> Response:
    """Compare two papers: a grade from 0 to 3 for each facet, and the closest sentences."""
    given = request.paper_id or pasted_paper(str(request.text), request.title)
    return _json(service.compare(given, request.other_id))


@api.post("/citations")
def citations(request: RecommendationBody, service: Service) -> Response:
    """Recommend papers that a paper should cite."""
    return _json(service.recommend(request.form()))


@api.get("/titles")
def titles(
    service: Service,
    text: Annotated[str, Query(max_length=300)],
    k: Annotated[int, Query(ge=1, le=50)] = 10,
) -> Response:
    """Papers whose titles have these words, the last one perhaps only begun, or whose id it is."""
    return _json(service.complete(text, k))


@api.get("/export")
def get_export(request: Annotated[Export, Query()], service: Service) -> Response:
    """Papers as a file, by parameters of the address."""
    return export(request, service)


@api.post("/export")
def export(request: Export, service: Service) -> Response:
    """Papers as a file of BibTeX, RIS, CSV, Markdown or JSON lines."""
    media_type, ending = EXPORTS[request.format]
    return Response(
        "".join(service.export_parts(request.paper_ids, request.format)),
        media_type=f"{media_type}; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="papers.{ending}"'},
    )


@watching.get("")
def watches(
    watcher: Watching,
    since: Annotated[str, Query(max_length=20, description="a day, such as 2026-11-20")] = "",
) -> Response:
    """Searches that are kept, each with the papers that came for it, perhaps only those since a date."""
    check_since(since or None)
    return _json(watcher.records(since))


@watching.post("")
def watch(body: WatchBody, watcher: Watching) -> Response:
    """Keep a search: papers that come into the index from now on are reported."""
    return _json(watcher.add(body.name, body.search.form(), body.grade))


@watching.post("/remove")
def unwatch(body: WatchName, watcher: Watching) -> Response:
    """Keep a search no longer."""
    return _json(watcher.remove(body.name))


@watching.get("/feed")
def feed(watcher: Watching, name: Annotated[str | None, Query(max_length=200)] = None) -> Response:
    """The papers that came for the searches that are kept, or for one, as an Atom feed."""
    return Response(watcher.feed(name or None), media_type="application/atom+xml; charset=utf-8")


@operations.get("/health")
async def health(request: Request) -> Response:
    """Say whether searches are answered: 503 while the index is being opened, and when it can no longer be
    read, while what was opened of it still answers.
    """
    state = request.app.state
    reason = "starting" if not state.ready.is_set() else "unreadable" if state.unreadable else ""
    return PlainTextResponse(f"{reason or 'ok'}\n", 503 if reason else 200)


@operations.get("/metrics")
def metrics(request: Request) -> Response:
    """Counts and times, for Prometheus."""
    text = request.app.state.metrics.text()
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


Assessor = Annotated[str, Field(max_length=200, description="small letters, digits and hyphens")]
HandGrade = Annotated[int, Field(ge=0, le=3, strict=True)]


class GivenGrades(BaseModel):
    """The grades of a pair by an assessor."""

    model_config = ConfigDict(extra="forbid")

    assessor: Assessor
    query_id: str
    paper_id: str
    background: HandGrade
    method: HandGrade
    result: HandGrade


@api.get("/labels")
def next_pair(hands: Hands, service: Service, assessor: Annotated[Assessor, Query()]) -> Response:
    """The next pair for an assessor: titles and abstracts alone, with nothing of how it was found."""
    return _pair(service, hands.turn(assessor))


@api.post("/labels")
def give(hands: Hands, service: Service, body: GivenGrades) -> Response:
    """Keep the grades of a pair, in the place of earlier ones; answers with the next pair."""
    grades = (body.background, body.method, body.result)
    return _pair(service, hands.grade(body.assessor, body.query_id, body.paper_id, grades))


def _pair(service: SearchService, turn: Turn) -> Response:
    pair: dict[str, Any] | None = None
    if turn.pair is not None:
        pair = {"query_id": turn.pair.query_id, "paper_id": turn.pair.paper_id}
        for name, paper_id in (("query", turn.pair.query_id), ("candidate", turn.pair.paper_id)):
            shown = service.index.paper(paper_id)
            pair[name] = {"title": shown.title, "abstract": shown.abstract}
    return _json(
        {"graded": turn.graded, "total": turn.total, "pair": pair, "guideline": read_guideline().text}
    )

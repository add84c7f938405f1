"""The addresses of the HTTP interface: what each reads, answers, and says of itself in /openapi.json."""

import inspect
import logging
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Annotated, Any

from pydantic import Field, TypeAdapter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from qbe.errors import CorpusError, FacetNotFoundError, PaperNotFoundError, QbeError, UsageError
from qbe.feeds.watches import Watcher
from qbe.models.language_model import read_guideline
from qbe.search.queries import distinct_papers
from qbe.search.request import SearchForm
from qbe.search.writers import as_json, export_parts
from qbe.serve.guard import FILE_PATH, failure
from qbe.serve.service import Format, PaperIds, SearchService, bound, form_of, is_long
from qbe.serve.turns import OverloadedError, TooSlowError

log = logging.getLogger("qbe.serve")

EXPORTS = {  # media type and file extension by format
    "bibtex": ("application/x-bibtex", "bib"),
    "ris": ("application/x-research-info-systems", "ris"),
    "csv": ("text/csv", "csv"),
    "markdown": ("text/markdown", "md"),
    "json": ("application/jsonl", "jsonl"),
}

STATUSES = {
    PaperNotFoundError: 404,
    OverloadedError: 429,
    TooSlowError: 503,
    UsageError: 422,
    FacetNotFoundError: 422,
    CorpusError: 422,
}

EXAMPLES: dict[str, Any] = {
    "by method": {"value": {"paper_ids": ["2505.20979"], "facet": "method", "k": 5}},
    "a pasted abstract": {
        "value": {"title": "On stone", "text": "Stone is hard. We cut it with water.", "facet": "background"}
    },
    "same problem, other method": {
        "value": {"paper_ids": ["2505.20979"], "explore": "same-problem-other-method", "year_from": 2018}
    },
}


def failure_of(_: Request | None, error: Exception) -> Response:
    """The response to an error of the library; what is not the client's fault is logged."""
    status = next((status for kind, status in STATUSES.items() if isinstance(error, kind)), 500)
    if status == 500:
        log.error("%s: %s", type(error).__name__, error)
    headers = {"Retry-After": "1"} if isinstance(error, OverloadedError) else None
    return failure(status, str(error), headers)


async def stream(state: Any, form: SearchForm) -> Response:
    """Search as a stream of server-sent events: the ranking of the first stage at once, the reranked one when
    it is done (events `ranking`, as /api/search answers), then `end`; or `error`.
    """
    records, takes_long = state.service.stream(form), is_long(partial(stream, state, form))
    following = partial(state.service.turns.answer, next, records, None, is_long=takes_long)
    first = await following()

    async def events() -> AsyncIterator[str]:
        yield f"event: ranking\ndata: {as_json(first)}\n\n"
        try:
            while record := await following():
                yield f"event: ranking\ndata: {as_json(record)}\n\n"
        except QbeError as error:
            yield f"event: error\ndata: {bytes(failure_of(None, error).body).decode()}\n\n"
            return
        except Exception:
            message = failure(500, "something went wrong while reranking; the server's log says what")
            yield f"event: error\ndata: {bytes(message.body).decode()}\n\n"
            raise
        yield "event: end\ndata: {}\n\n"

    return StreamingResponse(events(), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


JSON: TypeAdapter[Any] = TypeAdapter(Any)
Name = Annotated[str, Field(max_length=200, description="small letters, digits and hyphens")]
Grade = Annotated[int, Field(ge=0, le=3, strict=True)]


def about(state: Any) -> dict[str, Any]:
    """Say what is served: how many papers, and what can be asked of them."""
    return {**state.service.about(), **({"watches": True} if state.watcher else {})}


def export(state: Any, paper_ids: PaperIds, format: Format = "bibtex") -> Response:
    """Papers as a file of BibTeX, RIS, CSV, Markdown or JSON lines."""
    media_type, ending = EXPORTS[format]
    return Response(
        "".join(export_parts(distinct_papers(state.service.index, paper_ids, titles=False), format)),
        media_type=f"{media_type}; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="papers.{ending}"'},
    )


def feed(state: Any, name: str | None = None) -> Response:
    """The papers that came for the searches that are kept, or for one, as an Atom feed."""
    return Response(state.watcher.feed(name), media_type="application/atom+xml; charset=utf-8")


def next_pair(state: Any, assessor: Name) -> dict[str, Any]:
    """The next pair for an assessor: titles and abstracts alone, with nothing of how it was found."""
    return _pair(state, assessor)


def give(
    state: Any, assessor: Name, query_id: str, paper_id: str, background: Grade, method: Grade, result: Grade
) -> dict[str, Any]:
    """Keep the grades of a pair, in the place of earlier ones; answers with the next pair."""
    return _pair(state, assessor, query_id, paper_id, (background, method, result))


def _pair(state: Any, assessor: str, *given: Any) -> dict[str, Any]:
    if state.hands is None:
        raise UsageError(
            "expected a server of pairs to grade; start it with qbe serve --pairs FILE --labels DIR"
        )
    reader, pair, hands = state.service.index.reader, dict[str, Any](), state.hands
    turn = hands.grade(assessor, *given, reader) if given else hands.turn(assessor, reader)
    if turn.pair is not None:
        pair = {"query_id": turn.pair.query_id, "paper_id": turn.pair.paper_id}
        for name, paper_id in (("query", turn.pair.query_id), ("candidate", turn.pair.paper_id)):
            shown = reader.paper(paper_id)
            pair[name] = {"title": shown.title, "abstract": shown.abstract}
    found = {"graded": turn.graded, "total": turn.total, "pair": pair or None}
    return found | {"guideline": read_guideline().text}


def metrics(state: Any) -> Response:
    """Counts and times, for Prometheus."""
    return Response(state.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


WATCHES = "/api/watches"
# The functions that answer, by path and method: methods of the service or of the watcher, or functions of the
# application's state; other parameters are those of the request, docstrings its description.
ADDRESSES: dict[str, dict[str, Callable[..., Any]]] = {
    "/api/index": {"GET": about},
    "/api/search": {"GET": SearchService.search, "POST": SearchService.search},
    "/api/search/stream": {"POST": stream},
    "/api/papers/{paper_id:path}": {"GET": SearchService.paper},
    "/api/papers": {"GET": SearchService.paper},  # browsers resolve an id such as ".." of a path away
    FILE_PATH: {"POST": SearchService.read_file},
    "/api/facets": {"POST": SearchService.label},
    "/api/compare": {"GET": SearchService.compare, "POST": SearchService.compare},
    "/api/citations": {"POST": SearchService.recommend},
    "/api/titles": {"GET": SearchService.complete},
    "/api/export": {"GET": export, "POST": export},
    "/api/labels": {"GET": next_pair, "POST": give},
    "/metrics": {"GET": metrics},
    WATCHES: {"GET": Watcher.records, "POST": Watcher.add},
    f"{WATCHES}/remove": {"POST": Watcher.remove},
    f"{WATCHES}/feed": {"GET": feed},
}


def routes_of(state: Any, root_path: str, version: str) -> list[Route]:
    """Make the routes of an application; those of watches only where searches are kept."""
    addresses = {p: each for p, each in ADDRESSES.items() if state.watcher or not p.startswith(WATCHES)}
    described = as_json(description(addresses, root_path, version))

    async def health(_: Request) -> Response:
        reason = "starting" if not state.ready.is_set() else "unreadable" if state.unreadable else ""
        return PlainTextResponse(f"{reason or 'ok'}\n", 503 if reason else 200)

    return [
        *(Route(path, _endpoint(state, each), methods=[*each]) for path, each in addresses.items()),
        Route("/health", health),
        Route("/openapi.json", Response(described, media_type="application/json"), methods=["GET"]),
    ]


def _endpoint(state: Any, functions: dict[str, Callable[..., Any]]) -> Callable[[Request], Any]:
    async def respond(request: Request) -> Response:
        function = functions["GET" if request.method == "HEAD" else request.method]
        body = await request.body()
        if request.url.path.endswith(FILE_PATH):
            values: Any = {**_parameters(request, function), "data": body}
        elif request.method == "POST":
            if not body:
                raise UsageError("expected a JSON object, found an empty body")
            try:
                values = JSON.validate_json(body)
            except ValueError:
                raise UsageError(
                    "expected a body of JSON in UTF-8, found what cannot be read as such"
                ) from None
        else:
            values = _parameters(request, function)
        owners = {"SearchService": state.service, "Watcher": state.watcher}
        first = owners.get(function.__qualname__.partition(".")[0], state)
        call = bound(function, first, values)
        if function is stream:
            answer = await call()
        elif function is export or (first is state.service and function is not SearchService.read_file):
            answer = await state.service.answer(call)  # needs processors alone
        else:
            answer = await run_in_threadpool(call)
        if isinstance(answer, Response):
            return answer
        return Response(as_json(answer), media_type="application/json")

    return respond


def _parameters(request: Request, function: Callable[..., Any]) -> dict[str, Any]:
    """The parameters of an address; those of several values are lists."""
    values: dict[str, Any] = dict(request.path_params)
    for name in request.query_params:
        given = request.query_params.getlist(name)
        several = name in form_of(function).lists
        if len(given) > 1 and not several:
            raise UsageError(f"expected one value of {name:.60}, found {len(given)}; give one")
        values[name] = given if several else given[0]
    return values


def description(
    addresses: dict[str, dict[str, Callable[..., Any]]], root_path: str, version: str
) -> dict[str, Any]:
    """Describe the interface by OpenAPI."""
    answered = {"200": {"description": "the answer; other statuses come with the message of an error"}}
    health = "Say whether searches are answered: 503 while the index is opened, or when it cannot be read."
    paths: dict[str, dict[str, Any]] = {"/health": {"get": {"summary": health, "responses": answered}}}
    schemas: dict[str, Any] = {}
    for path, functions in addresses.items():
        for method, function in functions.items():
            schema = dict(form_of(function).schema)
            schemas |= schema.pop("$defs", {})
            about = (inspect.getdoc(function) or "").partition("\n\n")[0]
            entry: dict[str, Any] = {"summary": " ".join(about.split()), "responses": answered}
            if method == "POST" and path != FILE_PATH:
                content = {"schema": schema} | ({"examples": EXAMPLES} if path == "/api/search" else {})
                entry["requestBody"] = {"required": True, "content": {"application/json": content}}
            else:
                entry["parameters"] = [
                    {
                        "name": name,
                        "in": "path" if f"{{{name}:" in path else "query",
                        "required": name in schema.get("required", ()),
                        "schema": each,
                    }
                    for name, each in schema["properties"].items()
                    if name != "data"
                ]
            if path == FILE_PATH:
                binary = {"schema": {"type": "string", "format": "binary"}}
                entry["requestBody"] = {"content": {"application/octet-stream": binary}}
            paths.setdefault(path.replace(":path", ""), {})[method.lower()] = entry
    title = "Find papers like this one, for its problem, its method or its findings."
    info = {"title": "qbe", "version": version, "description": title}
    servers = {"servers": [{"url": root_path}]} if root_path else {}
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": {"schemas": schemas}, **servers}

"""A server that answers as endpoints of language models do, as well or as badly as it is told."""

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from benchmarks.common import http_server


class Sent(NamedTuple):
    """What a server answers: status, body and headers; ``seconds`` later, and perhaps cut off."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = MappingProxyType({})
    seconds: float = 0.0
    length: int | None = None


class Request(NamedTuple):
    path: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def prompt(self) -> str:
        return self.body["messages"][0]["content"]


Behaviour = Callable[[Request], Sent]


def answer(text: str, prompt_tokens: int = 400, completion_tokens: int = 30) -> Sent:
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}
    body = {"choices": [{"message": {"role": "assistant", "content": text}}], "usage": usage}
    return Sent(body=json.dumps(body).encode())


def grades(background: object = 2, method: object = 1, result: object = 0) -> Sent:
    given = {"background": background, "method": method, "result": result}
    graded = {name: {"rationale": f"of {name}", "grade": each} for name, each in given.items()}
    return answer(json.dumps(graded))


def error(status: int, message: str = "no", **headers: str) -> Sent:
    """An error as endpoints state it; underscores in names of headers are hyphens."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Sent(status, json.dumps({"error": {"message": message}}).encode(), named)


def kept(path: Path) -> list[dict[str, Any]]:
    """The rows of a file of answers, with grades and rationales by facet."""
    with closing(sqlite3.connect(path)) as database:
        database.row_factory = sqlite3.Row
        rows = [dict(row) for row in database.execute("SELECT * FROM answers ORDER BY rowid")]
    for row in rows:
        row |= {name: json.loads(row[name] or "null") for name in ("grades", "rationales")}
    return rows


class Endpoint(NamedTuple):
    """The address of a running server, and the requests that it was sent."""

    url: str
    requests: list[Request]


@contextmanager
def endpoint(behaviour: Behaviour | Sent) -> Iterator[Endpoint]:
    """A server at a free port that answers by a function of the request, or always the same."""
    lock, requests = threading.Lock(), list[Request]()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            request = Request(self.path, {name.title(): value for name, value in self.headers.items()}, body)
            with lock:
                requests.append(request)
            sent = behaviour if isinstance(behaviour, Sent) else behaviour(request)
            time.sleep(sent.seconds)
            self.send_response(sent.status)
            for name, value in sent.headers.items():
                self.send_header(name, value)
            length = len(sent.body) if sent.length is None else sent.length
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(length))
            with suppress(OSError):  # a client that did not wait
                self.end_headers()
                self.wfile.write(sent.body)
            self.close_connection = length != len(sent.body)

        def log_message(self, *_: object) -> None:
            pass

    with http_server(Handler) as address:
        yield Endpoint(f"{address}/v1", requests)

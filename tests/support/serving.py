"""A server of an index in a process of its own, and requests to it."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

START_SECONDS = 90
ABSTRACT = (
    "Old letters are hard to read. We propose a method that trains a neural network on scanned pages. "
    "Our results show that it reads nine in ten of them."
)
"""A text to be pasted: a sentence of each facet."""


def wait_until(condition: Callable[[], object], seconds: float = 120) -> None:
    """Wait until something is so; fails where that takes too long."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


class Answer(NamedTuple):
    """What a server answered."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """The body, as JSON."""
        return json.loads(self.body)

    @property
    def message(self) -> str:
        """What was wrong."""
        return self.json()["error"]["message"]


class Server:
    """A process of ``qbe serve``."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.process, self.port, self.log = process, port, log

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
        timeout: float = 60,
    ) -> Answer:
        """One request over a connection of its own; a body that is no bytes is sent as JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            kind = {} if data is None else {"Content-Type": "application/json"}
            connection.request(method, path, data, kind | (headers or {}))
            answer = connection.getresponse()
            headers = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, headers, answer.read())
        finally:
            connection.close()

    def search(self, **request: Any) -> Answer:
        """A search without the reranker, unless ``rerank`` says otherwise."""
        return self.ask("POST", "/api/search", {"rerank": False, **request})

    def stop(self, kind: signal.Signals = signal.SIGTERM) -> int:
        """End it by a signal; gives its exit code."""
        self.process.send_signal(kind)
        return self.process.wait(60)


@contextmanager
def serving(index: Path, log: Path, *options: str, package: str = "serve") -> Iterator[Server]:
    """A server that has opened its index, at a free port; all that it writes is in the log."""
    command = [sys.executable, "-m", "qbe", package, "--index", str(index), "--port", "0", "--threads", "1"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with log.open("w") as stream:  # a pipe that nobody reads would stop the server
        process = subprocess.Popen([*command, *options], stdout=stream, stderr=stream, env=environment)
    deadline = time.monotonic() + START_SECONDS

    def wait() -> None:
        assert process.poll() is None and time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)

    try:
        while not (match := re.search(r"http://127\.0\.0\.1:(\d+)/", log.read_text())):
            wait()
        server = Server(process, int(match[1]), log)
        while package == "serve" and server.ask("GET", "/health").status != 200:
            wait()
        yield server
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(30)

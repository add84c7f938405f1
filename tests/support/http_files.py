"""A server of the files of a folder that fails as planned."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from benchmarks.common import http_server


class Server:
    """Serves a folder and counts requests; answers each path with the planned failures first.

    A failure is the number of an HTTP status, or ``short``: half of what is asked for. With ``ranges`` it
    continues where it is asked to; ``sent`` counts the bytes.
    """

    def __init__(self, folder: Path, ranges: bool) -> None:
        self.folder, self.ranges, self.url = folder, ranges, ""
        self.requests: Counter[str] = Counter()
        self.failures: dict[str, list[str]] = {}
        self.sent: Counter[str] = Counter()


class Handler(BaseHTTPRequestHandler):
    files: Server

    def do_GET(self) -> None:
        name = self.path.strip("/")
        self.files.requests[name] += 1
        failures = self.files.failures.get(name, [])
        failure = failures.pop(0) if failures else ""
        file = self.files.folder / name
        if file.is_dir():
            file /= "index.html"
        if failure.isdigit() or not file.is_file():
            self.send_error(int(failure or 404))
            return
        data = file.read_bytes()
        start = int(self.headers.get("Range", "bytes=0-")[6:-1]) if self.files.ranges else 0
        if start and start >= len(data):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(data) - start))
        self.send_header("Content-Type", "text/html" if file.suffix == ".html" else "application/gzip")
        if self.files.ranges:
            self.send_header("Accept-Ranges", "bytes")
        self.end_headers()
        data = data[start : start + (len(data) - start) // 2] if failure == "short" else data[start:]
        self.files.sent[name] += len(data)
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def served(folder: Path, *, ranges: bool = False) -> Iterator[Server]:
    """A running server of a folder."""
    running = Server(folder, ranges)
    with http_server(type("Files", (Handler,), {"files": running})) as address:
        running.url = f"{address}/"
        yield running

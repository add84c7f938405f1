"""A server of the files of a folder that fails as planned."""

import http.server
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Server(http.server.ThreadingHTTPServer):
    """Serves a folder and counts requests; answers each path with the planned failures first.

    A failure is the number of an HTTP status, or ``short``: half of what is asked for. With ``ranges`` it
    continues where it is asked to; ``sent`` counts the bytes.
    """

    daemon_threads = True

    def __init__(self, folder: Path, *, ranges: bool = False) -> None:
        self.folder, self.ranges = folder, ranges
        self.requests: Counter[str] = Counter()
        self.failures: dict[str, list[str]] = {}
        self.sent: Counter[str] = Counter()
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        name = self.path.strip("/")
        self.server.requests[name] += 1
        failures = self.server.failures.get(name, [])
        failure = failures.pop(0) if failures else ""
        file = self.server.folder / name
        if file.is_dir():
            file /= "index.html"
        if failure.isdigit() or not file.is_file():
            self.send_error(int(failure or 404))
            return
        data = file.read_bytes()
        start = int(self.headers.get("Range", "bytes=0-")[6:-1]) if self.server.ranges else 0
        if start and start >= len(data):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(data) - start))
        self.send_header("Content-Type", "text/html" if file.suffix == ".html" else "application/gzip")
        if self.server.ranges:
            self.send_header("Accept-Ranges", "bytes")
        self.end_headers()
        data = data[start : start + (len(data) - start) // 2] if failure == "short" else data[start:]
        self.server.sent[name] += len(data)
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def served(folder: Path, *, ranges: bool = False) -> Iterator[Server]:
    """A running server of a folder."""
    with Server(folder, ranges=ranges) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield running
        finally:
            running.shutdown()
            thread.join()

"""A server of files that breaks connections and changes a byte, as networks do now and then."""

import http.server
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.common import http_server

_BLOCK = 1 << 16


@dataclass
class Faults:
    """What a server does wrong: connections end at places (``breaks``), a byte is another, no ``ranges``."""

    breaks: list[int] = field(default_factory=list)
    wrong: int | None = None
    ranges: bool = True
    statuses: list[int] = field(default_factory=list)
    sent: int = 0
    asked: list[Mapping[str, str]] = field(default_factory=list)


class _Handler(http.server.BaseHTTPRequestHandler):
    folder: Path
    faults: Faults

    def do_GET(self) -> None:
        faults, path = self.faults, self.folder / self.path.lstrip("/")
        faults.asked.append(dict(self.headers.items()))
        if faults.statuses:
            self.send_response(faults.statuses.pop(0))
            self.send_header("Retry-After", "0")
            self.end_headers()
            return
        if not path.is_file():
            self.send_error(404)
            return
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        size, place = path.stat().st_size, int(asked[1]) if asked and faults.ranges else 0
        self.send_response(206 if asked and faults.ranges else 200)
        if asked and faults.ranges:
            self.send_header("Content-Range", f"bytes {place}-{size - 1}/{size}")
        self.send_header("Content-Length", str(size - place))
        self.end_headers()
        with path.open("rb") as stream:
            stream.seek(place)
            while block := bytearray(stream.read(_BLOCK)):
                if faults.wrong is not None and place <= faults.wrong < place + len(block):
                    block[faults.wrong - place] ^= 1
                end = next((each for each in faults.breaks if place <= each < place + len(block)), None)
                try:
                    self.wfile.write(block if end is None else block[: end - place])
                except OSError:  # whoever asked has enough
                    self.close_connection = True
                    return
                faults.sent += len(block) if end is None else end - place
                if end is not None:
                    faults.breaks.remove(end)
                    self.close_connection = True
                    return
                place += len(block)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def serving(folder: Path, faults: Faults) -> Iterator[str]:
    """Serve the files of a folder; gives the address of the folder."""
    with http_server(type("Handler", (_Handler,), {"folder": folder, "faults": faults})) as address:
        yield address

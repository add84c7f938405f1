"""The reader of PDFs: one paper a file."""

from __future__ import annotations

import atexit
import io
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from qbe.corpus import fields
from qbe.corpus.head import Head
from qbe.corpus.pdf.layout import FIRST, INTRODUCTION
from qbe.corpus.pdf.worker import DAMAGED, MOST_BYTES, NO_TEXT, PASSWORD
from qbe.corpus.reading import Entry, Reading
from qbe.corpus.streams import MAX_LINE_BYTES
from qbe.errors import RecordError, check_package
from qbe.util import processes

SECONDS = 20.0
"""Within which the first pages of a document must be read; those of papers take a fifth of a second."""

STANDS_IN = {INTRODUCTION: fields.INTRODUCTION, FIRST: "its first paragraph"}
"""What stands for an abstract that was not found, by where it was."""

_PROBLEMS = {
    PASSWORD: ("a PDF without a password", "an encrypted one; save it without", "a PDF with a password"),
    DAMAGED: ("a whole PDF", "it truncated or damaged; fetch it again", "a damaged PDF"),
    NO_TEXT: (
        "text on the first pages of a PDF",
        "hardly any, as in scans; recognize it first (ocrmypdf does), or give title and abstract as text",
        "a PDF without text",
    ),
    "": (
        f"a PDF whose first pages are read in {SECONDS:g} s and {MOST_BYTES >> 30} GiB",
        "another one; give title and abstract as text",
        "a PDF that cannot be read",
    ),
}


def recognizes(head: Head) -> bool:
    """Whether the bytes begin as a PDF does, perhaps behind others, which its name must make up for."""
    return head.data.startswith(b"%PDF-") or (head.suffix == ".pdf" and b"%PDF-" in head.data[:1024])


def read(stream: io.BufferedReader, name: str, reading: Reading) -> Iterator[Entry]:
    """The paper of a file, without an id; its abstract is None where neither one nor a paragraph was found.

    Raises MissingDependencyError without the package pypdfium2.
    """
    del reading
    check_package("pypdfium2")
    data = stream.read(MAX_LINE_BYTES + 1)
    if len(data) > MAX_LINE_BYTES:
        message = (
            f"{name}: expected a PDF of at most {MAX_LINE_BYTES >> 20} MiB, found a larger one; give its text"
        )
        yield Entry(name, RecordError(message, "a PDF that is too large"))
        return
    found = _WORKER.read(data)
    if (problem := found.get("error")) is not None:
        expected, actual, reason = _PROBLEMS[problem]
        yield Entry(name, RecordError(f"{name}: expected {expected}, found {actual}", reason))
        return
    yield Entry(name, _record(found, PurePath(name).name))


def _record(found: dict[str, str], file: str) -> dict[str, Any]:
    arxiv, year = found["arxiv"], ""
    if arxiv:
        digits = arxiv.rpartition("/")[2][:2]
        year = f"{'19' if digits > '90' else '20'}{digits}"
    metadata = {
        "ids": {"arxiv": arxiv} if arxiv else {},
        "doi": found["doi"],
        "year": fields.year(year),
        "file": file,
        fields.ABSTRACT_FROM: STANDS_IN.get(found["source"], "") if found["abstract"] else "",
    }
    return {
        "paper_id": None,
        "title": found["title"],
        "abstract": found["abstract"] or None,
        "metadata": fields.present(metadata),
    }


class _Worker:
    """The process that reads (`qbe.corpus.pdf.worker`), started when there is something to read, and again
    where a document has ended it.
    """

    def __init__(self) -> None:
        self._process: processes.Process | None = None
        self._lock = threading.Lock()

    def read(self, data: bytes) -> dict[str, str]:
        """What the process answers; ``error`` '' where it ended or took too long."""
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                atexit.register(self.end)  # which is to leave no process behind; once more does no harm
                self._process = processes.start([sys.executable, "-m", "qbe.corpus.pdf.worker"])
            process = self._process
            assert process.stdin is not None and process.stdout is not None
            timer = threading.Timer(SECONDS, process.kill)
            timer.start()
            try:
                process.stdin.write(len(data).to_bytes(8, "big") + data)
                process.stdin.flush()
                line = process.stdout.readline()
            except BrokenPipeError:
                line = b""
            except BaseException:  # such as an interrupt: the answer is not to be that of the next document
                self._end()
                raise
            finally:
                timer.cancel()
            if not line.endswith(b"\n"):
                self._end()
                return {"error": ""}
            found: dict[str, str] = json.loads(line)
            return found

    def end(self) -> None:
        """End the process, so that the next document is read by another one."""
        with self._lock:
            self._end()

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


_WORKER = _Worker()

end_worker = _WORKER.end
"""Ends the process that reads, if there is one: what a document did to it is gone."""

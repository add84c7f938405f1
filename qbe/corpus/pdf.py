"""The reader of PDFs: one paper a file, found by a process of its own.

What is hostile or damaged in a document can end that process, and nothing else. It reads documents from its
standard input, each after its length in eight bytes, and answers each with a line of JSON: ``title``,
``abstract``, ``source`` (see `qbe.corpus.pdf_layout`), ``arxiv`` and ``doi``, or ``error``.
"""

from __future__ import annotations

import atexit
import io
import json
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import PurePath

from qbe.corpus import fields
from qbe.corpus.names import alternatives
from qbe.corpus.pdf_layout import FIRST, INTRODUCTION, find
from qbe.corpus.pdf_lines import lines_of
from qbe.corpus.records import Entry, Reading
from qbe.corpus.streams import MAX_LINE_BYTES
from qbe.errors import RecordError, check_package
from qbe.util import work

PAGES = 3  # that are read
SECONDS = 20.0  # within which they must be read; those of papers take a fifth of a second
MOST_BYTES = 1 << 30  # of memory that the process may ask for
FEWEST_LETTERS = 200  # on the first pages of a document that holds its text
PASSWORD, DAMAGED, NO_TEXT = "password", "damaged", "no text"

# What stands for an abstract that was not found, by where it was.
STANDS_IN = {INTRODUCTION: fields.INTRODUCTION, FIRST: "its first paragraph"}

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
_ARXIV = re.compile(r"arXiv:\s?((?:\d{4}\.\d{4,5}|[a-z-]+(?:\.[A-Z]{2})?/\d{7})(?:v\d+)?)")
_DOI = re.compile(alternatives("doi"))


def read(stream: io.BufferedReader, name: str, _: Reading) -> Iterator[Entry]:
    """Yield the paper of a file, without an id; its abstract is None where none was found."""
    check_package("pypdfium2")
    data = stream.read(MAX_LINE_BYTES + 1)
    if len(data) > MAX_LINE_BYTES:
        expected, reason = f"a PDF of at most {MAX_LINE_BYTES >> 20} MiB", "a PDF that is too large"
        yield Entry(name, fields.unfit(expected, "a larger one", "give its text", reason, name))
        return
    found = _read(data)
    if (problem := found.get("error")) is not None:
        expected, actual, reason = _PROBLEMS[problem]
        yield Entry(name, RecordError(f"{name}: expected {expected}, found {actual}", reason))
        return
    arxiv = found["arxiv"]
    digits = arxiv.rpartition("/")[2][:2]
    metadata = {
        "ids": {"arxiv": arxiv} if arxiv else {},
        "doi": found["doi"],
        "year": fields.year(f"{'19' if digits > '90' else '20'}{digits}") if arxiv else None,
        "file": PurePath(name).name,
        fields.ABSTRACT_FROM: STANDS_IN.get(found["source"], "") if found["abstract"] else "",
    }
    texts = {"paper_id": None, "title": found["title"], "abstract": found["abstract"] or None}
    yield Entry(name, {**texts, "metadata": fields.present(metadata)})


_LOCK = threading.RLock()
_PROCESSES: list[work.Process] = []  # the process that reads, if there is one


def _read(data: bytes) -> dict[str, str]:
    """Return the answer of the process that reads; ``error`` is empty where it ends, or is too slow."""
    if work.is_limited:
        return answer(data)
    with _LOCK:
        if not _PROCESSES or _PROCESSES[0].poll() is not None:
            end_worker()
            atexit.register(end_worker)  # once more does no harm
            _PROCESSES.append(work.start([sys.executable, "-m", "qbe.corpus.pdf"]))
        line = b""
        try:
            line = work.answer_of(_PROCESSES[0], data, SECONDS)
        finally:
            if not line:  # also on an interrupt: the answer is not that of the next document
                end_worker()
        return dict(json.loads(line)) if line else {"error": ""}


def end_worker() -> None:
    """Kill the process, so that a malicious PDF cannot affect the next one."""
    with _LOCK:
        while _PROCESSES:
            process = _PROCESSES.pop()
            process.kill()
            process.communicate()


def answer(data: bytes) -> dict[str, str]:
    """Return what a document holds, or what is wrong with it as ``error``."""
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(data)
        lines, upward = lines_of(document, PAGES)
    except pypdfium2.PdfiumError as error:
        return {"error": PASSWORD if "assword" in str(error) or "ecurity" in str(error) else DAMAGED}
    text = " ".join(line.text for line in lines)
    letters = sum(map(str.isalpha, text))
    unknown = sum(each == "\ufffd" or "\ue000" <= each <= "\uf8ff" for each in text)
    if letters < FEWEST_LETTERS or unknown > letters / 5:
        return {"error": NO_TEXT}
    found = find(lines, str(document.get_metadata_value("Title")))
    stamp = _ARXIV.search(upward)
    dois = {match[1].lower() for line in lines if line.page == 0 and (match := _DOI.fullmatch(line.text))}
    return {**found, "arxiv": stamp[1] if stamp else "", "doi": dois.pop() if len(dois) == 1 else ""}


def main() -> None:
    """Answer documents until the input ends."""
    work.limit(MOST_BYTES)
    source, target = sys.stdin.buffer, sys.stdout.buffer
    while size := source.read(8):
        data = source.read(int.from_bytes(size, "big"))
        target.write(json.dumps(answer(data)).encode("ascii") + b"\n")
        target.flush()


if __name__ == "__main__":
    main()

"""The process that reads PDFs: what is hostile or damaged in one can end it, and nothing else.

It reads documents from its standard input, each after its length in eight bytes, and answers each with a
line of JSON: ``title``, ``abstract``, ``source`` (see `qbe.corpus.pdf.layout`), ``arxiv`` and ``doi``, or
``error``.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys

PAGES = 3
"""Pages that are read."""

MOST_BYTES = 1 << 30
"""Of memory that the process may ask for."""

PASSWORD, DAMAGED, NO_TEXT = "password", "damaged", "no text"
FEWEST_LETTERS = 200
"""On the first pages of a document that holds its text."""

_ARXIV = re.compile(r"arXiv:\s?((?:\d{4}\.\d{4,5}|[a-z-]+(?:\.[A-Z]{2})?/\d{7})(?:v\d+)?)")
_DOI = re.compile(
    r"(?:https?://(?:dx\.)?doi\.org/|doi\s*:?\s*(?:https?://(?:dx\.)?doi\.org/)?)(10\.\d{4,9}/\S+?)[.,;]?",
    re.IGNORECASE,
)


def answer(data: bytes) -> dict[str, str]:
    """What a document holds, or what is wrong with it, as ``error``."""
    import pypdfium2

    from qbe.corpus.pdf.layout import find
    from qbe.corpus.pdf.lines import lines_of

    try:
        document = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        return {"error": PASSWORD if "assword" in str(error) or "ecurity" in str(error) else DAMAGED}
    try:
        lines, upward = lines_of(document, PAGES)
    except pypdfium2.PdfiumError:
        return {"error": DAMAGED}
    text = " ".join(line.text for line in lines)
    letters = sum(map(str.isalpha, text))
    unknown = sum(each == "\ufffd" or "\ue000" <= each <= "\uf8ff" for each in text)
    if letters < FEWEST_LETTERS or unknown > letters / 5:
        return {"error": NO_TEXT}
    found = find(lines, str(document.get_metadata_value("Title")))
    stamp = _ARXIV.search(upward)
    dois = {match[1].lower() for line in lines if line.page == 0 and (match := _DOI.fullmatch(line.text))}
    names = {"arxiv": stamp[1] if stamp else "", "doi": dois.pop() if len(dois) == 1 else ""}
    return {**found._asdict(), **names}


def main() -> None:
    """Answer documents until the input ends."""
    import resource

    for limit, value in (
        (resource.RLIMIT_AS, MOST_BYTES),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
    ):
        with contextlib.suppress(ValueError, OSError):  # where the system has no such limit, or a lower one
            resource.setrlimit(limit, (value, value))
    source, target = sys.stdin.buffer, sys.stdout.buffer
    while size := source.read(8):
        data = source.read(int.from_bytes(size, "big"))
        target.write(json.dumps(answer(data)).encode("ascii") + b"\n")
        target.flush()


if __name__ == "__main__":
    main()

"""The paper of a file that is given as a query: PDF, LaTeX, JSON, an entry of a bibliography, or text."""

from __future__ import annotations

import io
import re
from codecs import BOM_UTF8
from itertools import islice
from pathlib import Path
from typing import Any

from qbe.corpus import latex
from qbe.corpus.formats import FORMATS, JSON_LINES, Reader, kind_of
from qbe.corpus.json_stream import decode_record, decode_text
from qbe.corpus.records import Reading, parse_paper
from qbe.corpus.sentences import split_sentences
from qbe.corpus.streams import (
    HEAD_BYTES,
    MAX_LINE_BYTES,
    STDIN,
    Head,
    display_name,
    from_western,
    open_source,
)
from qbe.errors import CorpusError, RecordError, UsageError
from qbe.types import Paper

ID = "query"
"""The id of a paper that brings none."""

_SUFFIXES = {
    ".doc": "a Word document",
    ".docx": "a Word document",
    ".odt": "an OpenDocument file",
}
_LATEX = "a LaTeX document"
_READ = ("plain text", "an empty file", "JSON", _LATEX)
"""Kinds of `qbe.corpus.streams.kind_of` that may be a paper."""

_TITLE = re.compile(r"[ \t#*]*title[ \t*]*:[ \t*]*(\S.*)", re.IGNORECASE)
_ABSTRACT = re.compile(
    r"^[ \t#*]*abstract[ \t*]*(?:[:.\u2013\u2014-][ \t*]*|$)", re.IGNORECASE | re.MULTILINE
)
_WRAPPED = 0.75
"""A first line of this share of the next one's length may be one of a paragraph with line breaks."""

_LINE_END = re.compile(r"\r\n?")


def paper_from_file(path: str | Path) -> Paper:
    r"""The paper of a file (``-``: standard input): a PDF, a LaTeX source with the files that it inputs, a
    JSON object with title and abstract, the only entry of a file in a format of `qbe.corpus.formats`, or text
    (see `title_and_abstract`).

    Its id is ``query`` if it has none. Raises UsageError for a file of another kind or of several papers,
    CorpusError for one that cannot be read or holds no abstract.

    >>> _ = Path("paper.txt").write_text("On stone\n\nStone is hard. We cut it.")
    >>> paper = paper_from_file("paper.txt")
    >>> paper.paper_id, paper.title, len(paper.sentences)
    ('query', 'On stone', 2)
    """
    name = display_name(path)
    if kind := _SUFFIXES.get(Path(name).suffix.lower()):
        raise _other_kind(name, kind)
    with open_source(path) as stream:
        data = stream.read(MAX_LINE_BYTES + 1)
    return paper_from_bytes(data, name, None if str(path) == STDIN else Path(path).parent)


def paper_from_bytes(data: bytes, name: str, folder: Path | None = None) -> Paper:
    r"""The paper of a file of this content and this name, as `paper_from_file` has it; ``folder`` is where
    the files are that a LaTeX source inputs, None: they are not looked for.

    >>> paper_from_bytes(b"Title: On stone\nStone is hard.", "a.txt").title
    'On stone'
    """
    if len(data) > MAX_LINE_BYTES:
        most = MAX_LINE_BYTES >> 20
        raise CorpusError(f"{name}: expected one paper, found more than {most} MiB; shorten it")
    head = Head(name, data[:HEAD_BYTES])
    known = next((each for each in FORMATS.values() if each.recognizes(head)), None)
    if known is FORMATS["pdf"]:
        return _only(known.read, data, name)
    kind = _SUFFIXES.get(head.suffix) or kind_of(head)
    if head.suffix == ".pdf":
        raise UsageError(f"{name}: expected a PDF, found {kind}; fetch the paper itself again")
    data = from_western(_stream(data))[0].read().removeprefix(BOM_UTF8)
    if head.suffix in latex.SUFFIXES or (known is None and kind == _LATEX):
        source = latex.source_of(decode_text(data, name), folder)
        return parse_paper(latex.paper_of(source, name), name, split_sentences, ID)
    if known is None and not kind.startswith(_READ):
        raise _other_kind(name, kind)
    text = _LINE_END.sub("\n", decode_text(data, name)).strip()
    if not text:
        raise CorpusError(f"{name}: expected title and abstract, found nothing; give them")
    record = _object(text, name)
    if isinstance(record, dict) and (known is None or _is_own(record)):
        return parse_paper(record, name, split_sentences, ID)
    if known is None and text[0] not in "{[":
        title, abstract = title_and_abstract(text, name)
        return parse_paper({"title": title, "abstract": abstract}, name, split_sentences, ID)
    return _only((known or JSON_LINES).read, data, name, record if isinstance(record, RecordError) else None)


def _stream(data: bytes) -> io.BufferedReader:
    return io.BufferedReader(io.BytesIO(data))


def _only(read: Reader, data: bytes, name: str, broken: RecordError | None = None) -> Paper:
    """The only paper that a reader finds in a file; ``broken`` is raised where it finds a broken one."""
    entries = list(islice(read(_stream(data), name, Reading()), 2))
    for _, entry in entries:
        if isinstance(entry, RecordError):
            raise broken or entry
    if len(entries) != 1:
        raise UsageError(
            f"{name}: expected one paper, found {'several' if entries else 'none'}; give a file of one, or "
            "search for papers like several with `cited`"
        )
    ((where, only),) = entries
    assert not isinstance(only, RecordError)
    return parse_paper(only, where, split_sentences, ID)


def _is_own(record: dict[str, Any]) -> bool:
    """Whether title and abstract are where qbe's own records have them."""
    return isinstance(record.get("title"), str) and isinstance(record.get("abstract"), str | list)


def _object(text: str, name: str) -> dict[str, Any] | RecordError | None:
    """The JSON object that a text is, or what is wrong with it; None for a text that is none."""
    try:
        return decode_record(text, name) if text.startswith("{") else None
    except RecordError as error:
        return error


def _other_kind(name: str, kind: str) -> UsageError:
    return UsageError(
        f"{name}: expected a paper as PDF, LaTeX, JSON, an entry of a bibliography, or text, found {kind}; "
        "paste its abstract as `text`, its title as `title`"
    )


def title_and_abstract(text: str, name: str) -> tuple[str, str]:
    r"""The title, '' where there is none, and the abstract of a text: behind ``Title:`` and ``Abstract:``, or
    the first line as title where it is no sentence, or all as abstract.

    Raises UsageError where the first line may be a title as well as one of a paragraph with line breaks.

    >>> title_and_abstract("On fish\nFish swim in lakes and in rivers.", "a.txt")
    ('On fish', 'Fish swim in lakes and in rivers.')
    >>> title_and_abstract("Title: On fish\nAnn Lee\nAbstract: Fish swim.", "a.txt")
    ('On fish', 'Fish swim.')
    """
    first, _, rest = text.strip().partition("\n")
    first, named = first.strip().lstrip("# "), _TITLE.match(text.strip())
    title = named[1].strip() if named else first
    if heading := _ABSTRACT.search(text):
        begins = text[: heading.start()].strip()
        return (title if begins else ""), text[heading.end() :].strip()
    if named:
        return title, rest.strip()
    following = rest.split("\n")[0].strip()
    if not rest.strip() or first.endswith((".", ",", ";")) or ". " in first or following[:1].islower():
        return "", text.strip()
    if following and len(rest.split("\n")) > 1 and len(first) >= _WRAPPED * len(following):
        raise UsageError(
            f"{name}: expected a title with an empty line behind it, or none, found a first line that may be "
            "one; add the empty line, or write Title: and Abstract: before them"
        )
    return first, rest.strip()

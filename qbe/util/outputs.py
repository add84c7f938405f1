"""Files that a user names for results: one that exists is replaced only if it is a result of the same kind.

What a file is, its content says, whatever its name. In formats for programs results of a search and of
citation recommendation look alike: one replaces the other. A TREC run counts as one by its tag. Results that
people edit, bibliographies in BibTeX and Markdown, end with a comment that names the command and has the
SHA-256 of all above: a changed one is not replaced.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from qbe.errors import OutputError
from qbe.util.files import StrPath

_HEAD = 1 << 22
"""Bytes that are read of a file: more than the longest record of a corpus."""

_HEADINGS = (b"Papers like \xe2\x80\x9c", b"Papers for \xe2\x80\x9c", b"Papers not like ")
_COLUMNS = frozenset(
    b"query_id,rank,paper_id,title,authors,year,venue,doi,url,score,facet,sentence,background,method,result".split(
        b","
    )
)
"""Names of CSV's columns; a table with others is one that somebody added to."""

_SEALED_BEGINS = (b"%% qbe search: ", b"%% qbe cite: ", *(b"## " + heading for heading in _HEADINGS))
"""How results begin that end with a seal."""

_SEAL = re.compile(rb"\n(?:%%|<!--) (qbe [a-z]+), SHA-256 of all above: ([0-9a-f]{64})(?: -->)?\n\Z")
_COMMENTS = {"bibtex": "\n%% {}\n", "markdown": "\n<!-- {} -->\n"}
"""Comments, by the formats that end with a seal."""


PLOT_SOFTWARE = "qbe plots"
"""What a plot names as its software (PNG) or creator (SVG)."""


class Result(NamedTuple):
    """A kind of result: its name in messages, whether a file that begins with some bytes is one, and the
    ``command`` whose seal counts, where the kind has sealed files.
    """

    name: str
    begins: Callable[[bytes], bool]
    command: str = ""


def check_output(path: StrPath, kind: Result, parameter: str = "output") -> None:
    r"""Raise OutputError where a file exists that has content and is no result of the kind.

    What is no regular file (a pipe, a folder) passes. The message names the ``parameter`` of the file.

    >>> _ = Path("a.trec").write_text("q1 Q0 p7 1 2.5 qbe-dense\n")
    >>> check_output("a.trec", SEARCH)
    >>> _ = Path("papers.jsonl").write_text('{"paper_id": "p7", "title": "On fish"}')
    >>> check_output("papers.jsonl", SEARCH)
    Traceback (most recent call last):
    ...
    qbe.errors.OutputError: papers.jsonl: expected no such file, or a result of qbe search to replace, found
    another file; choose another `output`, or remove it
    """
    path = Path(path)
    try:
        if not path.is_file():
            return
        with path.open("rb") as stream:
            head = stream.read(_HEAD)
        actual = "another file"
        if kind.command and head.startswith(_SEALED_BEGINS):
            if (command := sealed_by(path.read_bytes())) == kind.command:
                return
            actual = f"a result of {command}" if command else "one that was changed after it was written"
        elif not head.strip() or kind.begins(head):
            return
    except OSError as error:
        actual = f"a file that cannot be read ({error.strerror})"
    raise OutputError(
        f"{path}: expected no such file, or {kind.name} to replace, found {actual}; choose another "
        f"`{parameter}`, or remove it"
    )


class Seal:
    r"""The end of a text that is written piece by piece.

    >>> seal = Seal("qbe search", "markdown")
    >>> text = b"## Papers like ...\n"
    >>> seal.add(text)
    >>> seal.end()
    b'\n<!-- qbe search, SHA-256 of all above: ... -->\n'
    >>> sealed_by(text + seal.end())
    'qbe search'
    """

    def __init__(self, command: str, form: str) -> None:
        """``command`` writes the text in a format; only those that people edit have an end."""
        self._command, self._comment, self._digest = command, _COMMENTS.get(form), hashlib.sha256()

    def add(self, data: bytes) -> None:
        """Take the next piece."""
        self._digest.update(data)

    def end(self) -> bytes:
        """What follows the last piece; nothing in formats that are not sealed."""
        if self._comment is None:
            return b""
        text = f"{self._command}, SHA-256 of all above: {self._digest.hexdigest()}"
        return self._comment.format(text).encode()


def sealed_by(data: bytes) -> str | None:
    """The command that wrote a sealed text, None where the text has no seal or was changed."""
    found = _SEAL.search(data)
    if found is None:
        return None
    is_whole = hashlib.sha256(data[: found.start()]).hexdigest() == found[2].decode()
    return found[1].decode() if is_whole else None


def _is_search_result(head: bytes) -> bool:
    is_ris = head.startswith(b"TY  - ") and head.split(b"\n", 2)[1:2] == [b"DP  - qbe"]
    line = head.partition(b"\n")[0].rstrip()
    is_json = line.startswith(b'{"query_id": ') and b', "hits": [' in line  # quotes in texts are escaped
    columns = line.split(b",")
    is_csv = columns[:4] == [b"query_id", b"rank", b"paper_id", b"title"] and _COLUMNS.issuperset(columns)
    return is_ris or is_json or is_csv or _is_run(head) or head.startswith(_HEADINGS)


def _is_run(head: bytes, tag: bytes | None = None) -> bool:
    """Whether the first line is that of a TREC run with a tag, or with one that qbe gives by default."""
    fields = head.lstrip().partition(b"\n")[0].split()
    if len(fields) != 6 or fields[1] != b"Q0" or not (fields[5] == tag or fields[5].startswith(b"qbe-")):
        return False
    try:
        int(fields[3]), float(fields[4])
    except ValueError:
        return False
    return True


def with_tag(kind: Result, tag: str | None) -> Result:
    """A kind of results, with runs that have a tag, too; None for none."""
    if tag is None:
        return kind
    return kind._replace(begins=lambda head: kind.begins(head) or _is_run(head, tag.encode()))


_WATCH_BEGINS = (
    b'{"watch": ',
    b'<?xml version="1.0" encoding="utf-8"?>\n<feed xmlns="http://www.w3.org/2005/Atom">\n  <title>New ',
    b"nothing new\n",
)
_WATCH_HEADING = re.compile(rb"(?:## )?.+: \d+ papers?\n")


def _is_watch_report(head: bytes) -> bool:
    return head.startswith(_WATCH_BEGINS) or _WATCH_HEADING.match(head) is not None


def _is_plot(head: bytes) -> bool:
    return head.startswith((b"\x89PNG", b"<?xml")) and PLOT_SOFTWARE.encode() in head


SEARCH = Result("a result of qbe search", _is_search_result, "qbe search")
CITED = Result("a result of qbe cite", _is_search_result, "qbe cite")
REPORT = Result("a report of qbe evaluate", lambda head: head.startswith(b'{\n "protocol": '))
PLOT = Result("a plot of qbe", _is_plot)
EMPTY = Result("one without content", lambda _: False)
WATCHED = Result("a report of qbe watch", _is_watch_report)

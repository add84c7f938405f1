"""Which of several records of a paper counts, where a database's files hold older versions and deletions."""

from __future__ import annotations

import io
import re
from collections import Counter

_CITATION = re.compile(
    rb"<(?:MedlineCitation|BookDocument)\b[^>]*>\s*<PMID([^>]*)>\s*(\d+)\s*<|<DeleteCitation>(.*?)</DeleteCitation>",
    re.DOTALL,
)
_PMID = re.compile(rb"<PMID\b[^>]*>\s*(\d+)\s*<")
_VERSION = re.compile(rb"\bVersion\s*=\s*[\"'](\d{1,9})[\"']")
_CHUNK_BYTES = 1 << 20
_LONGEST_START, _LONGEST_DELETION = 1 << 12, 8 << 20
"""How far what is looked for may reach over the end of a chunk, in bytes."""


class Revisions:
    """The newest record of each paper, noted in a first pass over some files and looked up in a second.

    Of records with the highest version the last counts. Of most papers the id and the version are kept until
    the second pass begins, and nothing then.

    >>> revisions = Revisions()
    >>> for paper_id, version in ("7", 1), ("7", 2), ("8", 1):
    ...     revisions.note(paper_id, version)
    >>> revisions.delete("8")
    >>> [revisions.counts("7"), revisions.counts("7"), revisions.counts("8"), revisions.counts("9")]
    [False, True, False, True]
    >>> revisions.deleted
    {'8'}
    """

    def __init__(self) -> None:
        self.deleted: set[str] = set()
        self._versions: dict[str, int] = {}  # the highest of each paper
        self._records: dict[
            str, tuple[int, int]
        ] = {}  # how many there are if not one, and which counts (from 1)
        self._seen: Counter[str] = Counter()

    def note(self, paper_id: str, version: int) -> None:
        """Note the next record of a paper."""
        before = self._versions.get(paper_id)
        if before is not None or paper_id in self.deleted:
            number, newest = self._records.get(paper_id, (1, 1))
            is_newer = before is None or version >= before
            self._records[paper_id] = number + 1, number + 1 if is_newer else newest
        self._versions[paper_id] = max(version, before or 0)
        self.deleted.discard(paper_id)

    def delete(self, paper_id: str) -> None:
        """Note that a paper is deleted, unless it has a record after this."""
        number = self._records[paper_id][0] if paper_id in self._records else int(paper_id in self._versions)
        self._records[paper_id] = number, 0
        self._versions.pop(paper_id, None)
        self.deleted.add(paper_id)

    def counts(self, paper_id: str) -> bool:
        """Whether the next record of a paper, in the second pass, is the one that counts."""
        self._versions.clear()
        if paper_id not in self._records:
            return True
        self._seen[paper_id] += 1
        return self._seen[paper_id] == self._records[paper_id][1]


def note_pubmed(stream: io.BufferedReader, revisions: Revisions) -> None:
    """Note the versions of articles and books, and the deletions, of PubMed's XML in UTF-8.

    >>> cited = "<MedlineCitation><PMID Version='2'>7</PMID></MedlineCitation>"
    >>> text = f"{cited}<DeleteCitation><PMID>8</PMID></DeleteCitation>"
    >>> noted = Revisions()
    >>> note_pubmed(io.BufferedReader(io.BytesIO(text.encode())), noted)
    >>> noted.deleted
    {'8'}
    """
    text = b""
    while data := stream.read(_CHUNK_BYTES):
        text += data
        end = 0
        for match in _CITATION.finditer(text):
            end = match.end()
            if match[2]:
                version = _VERSION.search(match[1])
                revisions.note(match[2].decode(), int(version[1]) if version else 1)
            else:
                for pmid in _PMID.findall(match[3]):
                    revisions.delete(pmid.decode())
        begun = text.rfind(b"<DeleteCitation>", end)
        rest = len(text) - (_LONGEST_START if begun < 0 else min(len(text) - begun, _LONGEST_DELETION))
        text = text[max(end, rest) :]

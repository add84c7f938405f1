"""Ids of papers: made from the content where a source has none, and each once in a corpus."""

from __future__ import annotations

import hashlib
import re
from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence

from qbe.corpus.dedupe import FEWEST_WORDS, first_author, normalized_title
from qbe.corpus.fields import doi
from qbe.corpus.record import MAX_ID_CHARS, is_id
from qbe.corpus.streams import display_name
from qbe.errors import RecordError
from qbe.types import Paper

CHOSEN, ASSIGNED, UNIQUE = "chosen", "assigned", "unique"
"""Whose ids the papers of a format have: keys that people choose, so that two papers may have one; ids that a
database assigns, so that these are one paper; or qbe's own, of which each must occur once.
"""

_ARXIV = re.compile(r"(?:arxiv:\s*)?(\S+?)(?:v\d+)?", re.IGNORECASE)


def content_id(paper: Paper) -> str:
    """The id of a paper without one: its DOI, else its arXiv id, else ``sha-`` and 16 digits of its content.

    >>> content_id(Paper("", "On fish", (), metadata={"doi": "https://doi.org/10.1000/ABC"}))
    '10.1000/abc'
    >>> content_id(Paper("", "On fish", (), metadata={"ids": {"arxiv": "arXiv:2001.00001v2"}}))
    '2001.00001'
    >>> content_id(Paper("", "On fish", (), metadata={"year": 2019, "authors": ["Ann Lee"]}))
    'sha-f137f42a09453453'
    """
    other_ids = paper.metadata.get("ids")
    arxiv = other_ids.get("arxiv") if isinstance(other_ids, dict) else None
    match = _ARXIV.fullmatch(arxiv.strip()) if isinstance(arxiv, str) else None
    made = doi(str(paper.metadata.get("doi") or "")) or (match[1] if match else "")
    return usable_id(made) or made_id(paper)


def made_id(paper: Paper) -> str:
    """The id of a paper that has neither an id of its own nor a DOI or arXiv id."""
    return f"sha-{content_digest(paper)[:16]}"


def content_digest(paper: Paper) -> str:
    """The SHA-256 of normalized title, year and first author; also of the abstract, where the title has fewer
    than FEWEST_WORDS words and year or author are not known.
    """
    title, author = normalized_title(paper.title), first_author(paper.metadata.get("authors"))
    parts = [title, paper.year, author]
    if title.count(" ") + 1 < FEWEST_WORDS and not (title and paper.year and author):
        parts.append(paper.abstract)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def usable_id(key: str) -> str:
    r"""A key as an id that a TREC run can hold: white space and control characters become ``_``, and one that
    is too long ends with a digest.

    >>> usable_id(" Lee 2019,\tb"), usable_id("lee2019")
    ('Lee_2019,_b', 'lee2019')
    """
    if is_id(key):
        return key
    key = "_".join("".join(c if c.isprintable() else " " for c in key).split())
    if len(key) > MAX_ID_CHARS:
        key = f"{key[: MAX_ID_CHARS - 17]}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    return key


class Ids:
    """The ids of the papers of some sources.

    ``known`` gives the title of a paper that was there before, in an index to which papers are added, by its
    id; None for another id.
    """

    def __init__(self, sources: Sequence[str], known: Callable[[str], str | None] | None = None) -> None:
        self._sources, self._known = sources, known
        self._numbers: dict[str, int] = {}  # id -> the paper's number in the corpus, from 1
        self._titles = array("q")  # hashes of their normalized titles
        self._ends: list[int] = []  # the number of the last paper of each source read

    def end_source(self) -> None:
        """Note that the papers of the next source follow."""
        self._ends.append(len(self._titles))

    def place(self, paper: Paper, where: str, whose: str) -> tuple[str, bool]:
        """The id of a paper, and whether it is another one than those before it, by id and title.

        Where a paper of another title has its id, ``whose`` says what follows (CHOSEN, ASSIGNED or UNIQUE):
        for CHOSEN the id gets six digits of the content as a suffix. Raises RecordError for UNIQUE.

        >>> ids = Ids(["refs.bib"])
        >>> papers = [Paper("lee2019", title, ()) for title in ("On fish", "On Fish.", "On stone")]
        >>> [ids.place(paper, "refs.bib, line 1", CHOSEN) for paper in papers]
        [('lee2019', True), ('lee2019', False), ('lee2019-aef603', True)]
        """
        paper_id, title = paper.paper_id, normalized_title(paper.title)
        if self._note(paper_id, title):
            return paper_id, True
        if whose == ASSIGNED or self._is_same(paper_id, title):
            return paper_id, False
        if whose == UNIQUE:
            raise RecordError(
                f"{where}: expected each paper_id once, found {paper_id!r} again with another title "
                f"(first {self._first(paper_id)}); drop one of them",
                "a paper_id that occurs twice",
            )
        digest = content_digest(paper)
        paper_id = f"{paper_id}-{digest[:6]}"
        if self._note(paper_id, title):
            return paper_id, True
        if not self._is_same(paper_id, title):
            paper_id = f"{paper.paper_id}-{digest}"
        return paper_id, self._note(paper_id, title)

    def __len__(self) -> int:
        return len(self._titles)

    def number(self, paper_id: str) -> int:
        """The number of the paper of that id in the corpus, from 1; 0 where it is not of the corpus."""
        return self._numbers.get(paper_id, 0)

    def _note(self, paper_id: str, title: str) -> bool:
        """Note the next paper; False where there is one of that id."""
        if paper_id in self._numbers or (self._known is not None and self._known(paper_id) is not None):
            return False
        self._titles.append(hash(title))
        self._numbers[paper_id] = len(self._titles)
        return True

    def _is_same(self, paper_id: str, title: str) -> bool:
        """Whether the paper of that id has this title, by its words."""
        number = self._numbers.get(paper_id)
        if number is not None:
            return bool(title) and self._titles[number - 1] == hash(title)
        before = self._known(paper_id) if self._known is not None else None
        return bool(title) and before is not None and normalized_title(before) == title

    def _first(self, paper_id: str) -> str:
        """Where the paper of that id occurred, in words."""
        number = self._numbers.get(paper_id)
        if number is None:
            return "in the index"
        index = bisect_left(self._ends, number)
        before = self._ends[index - 1] if index else 0
        return f"as paper {number - before} of {display_name(self._sources[index])}"

"""Papers that occur twice under different ids, recognized by their titles or DOIs."""

from __future__ import annotations

import json
import tempfile
import unicodedata
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, Any

from qbe.corpus.fields import doi, present
from qbe.corpus.record import paper_from_record, paper_to_record
from qbe.errors import output_error
from qbe.types import Paper

MERGED_IDS = "merged_ids"
"""The field of metadata that holds the ids of other papers that were merged into one."""

FEWEST_WORDS = 4
"""Shorter titles ("Editorial", "A survey") are compared only where year and first author are known."""


_ASCII = {
    code: chr(code).lower() if chr(code).isalnum() else "" if chr(code) == "'" else " " for code in range(128)
}
"""What `normalized_title` makes of each ASCII character."""


class Seen:
    """The papers before, by title (with year and first author) or by DOI.

    >>> seen = Seen("title")
    >>> seen.add(Paper("1", "Attention is all you need", (), metadata={"year": 2017}))
    >>> seen.first(Paper("2", "Attention Is All You Need.", (), metadata={"date": "2017-06-12"}))
    '1'
    """

    def __init__(self, by: str) -> None:
        self.by = "DOI" if by == "doi" else "title, year and first author"
        self._key = _doi if by == "doi" else _title
        self._ids: dict[str, str] = {}

    def first(self, paper: Paper) -> str | None:
        """The id of an earlier paper that is the same one; None where this is the first."""
        key = self._key(paper)
        return self._ids.get(key) if key is not None else None

    def add(self, paper: Paper) -> None:
        """Note a paper that is the first."""
        key = self._key(paper)
        if key is not None:
            self._ids.setdefault(key, paper.paper_id)


def merged(papers: Iterable[tuple[Paper, int | None]]) -> Iterator[Paper]:
    """Papers with what their duplicates add, in their order, through a temporary file.

    Each comes with None, a duplicate with the number, from 1, of the paper that it is of those that come with
    None. Raises OutputError where the file cannot be written.

    >>> from qbe.types import Sentence
    >>> short, long = (Paper(text, "On fish", (Sentence(text),)) for text in ("We", "We.count."))
    >>> [(paper.paper_id, paper.abstract, paper.metadata) for paper in merged([(short, None), (long, 1)])]
    [('We', 'We.count.', {'merged_ids': ['We.count.']})]
    """
    places, duplicates, end = array("q"), defaultdict[int, list[int]](list), 0
    with tempfile.TemporaryFile() as file:
        for paper, first in papers:
            if first is None:
                places.append(end)
            elif first:
                duplicates[first].append(end)
            else:
                continue
            try:
                end += file.write(json.dumps(paper_to_record(paper)).encode() + b"\n")
            except OSError as error:
                raise output_error(tempfile.gettempdir(), error) from error
        for number, place in enumerate(places, start=1):
            paper = _read(file, place)
            for other in duplicates.get(number, ()):
                paper = _merge(paper, _read(file, other))
            yield paper


def _read(file: IO[bytes], place: int) -> Paper:
    if file.tell() != place:
        file.seek(place)
    return paper_from_record(json.loads(file.readline()))


def _merge(paper: Paper, other: Paper) -> Paper:
    """The paper with the longer abstract, the metadata that it lacks, and all ids of both."""
    longer = max(paper, other, key=lambda each: len(each.abstract))
    metadata = {**other.metadata, **present(paper.metadata)}
    for name in ("tags", "collections", MERGED_IDS):
        lists = [each.metadata.get(name) for each in (paper, other)]
        values = [value for each in lists if isinstance(each, list) for value in each]
        values += [other.paper_id] if name == MERGED_IDS and other.paper_id != paper.paper_id else []
        if values:
            metadata[name] = [value for place, value in enumerate(values) if value not in values[:place]]
    ids, others = paper.metadata.get("ids"), other.metadata.get("ids")
    if isinstance(ids, dict) and isinstance(others, dict):
        metadata["ids"] = {**others, **present(ids)}
    title = paper.title or other.title
    return Paper(paper.paper_id, title, longer.sentences, longer.labelled, metadata, longer.offsets)


def other_ids(metadata: Mapping[str, Any]) -> list[str]:
    """What a paper is called besides its id and title: DOI, further ids, those of papers that were merged
    into it, and address.

    >>> other_ids({"doi": "10.1000/abc", "ids": {"pmid": 7}, "merged_ids": ["lee2019"]})
    ['10.1000/abc', '7', 'lee2019']
    """
    ids, merged_ids = metadata.get("ids"), metadata.get(MERGED_IDS)
    further = [*ids.values()] if isinstance(ids, Mapping) else []
    further += merged_ids if isinstance(merged_ids, list) else []
    return [str(each) for each in (metadata.get("doi"), *further, metadata.get("url")) if each]


def normalized_title(title: str) -> str:
    """Lower-case words of letters and digits, without accents.

    >>> normalized_title("Gödel's Theorem: A Proof.")
    'godels theorem a proof'
    """
    if title.isascii():
        return " ".join(title.translate(_ASCII).split())
    letters = unicodedata.normalize("NFKD", title.casefold())
    kept = "".join(
        c if c.isalnum() else "" if c in "'\u2019" or unicodedata.combining(c) else " " for c in letters
    )
    return " ".join(kept.split())


def _title(paper: Paper) -> str | None:
    title, author = normalized_title(paper.title), first_author(paper.metadata.get("authors"))
    if not title or (title.count(" ") + 1 < FEWEST_WORDS and not (paper.year and author)):
        return None
    return f"{title}|{paper.year}|{author}"


def first_author(authors: Any) -> str:
    """The family name of the first of some authors: a list, or one text with commas or semicolons.

    >>> first_author(["Kurt Gödel", "Emil Post"]), first_author("Kurt Gödel, Emil Post"), first_author(None)
    ('godel', 'godel', '')
    """
    if isinstance(authors, str):
        authors = authors.replace(";", ",").split(",")
    if not isinstance(authors, list) or not authors:
        return ""
    first = authors[0]
    name = first.get("name") or first.get("last") or first.get("family") if isinstance(first, dict) else first
    return normalized_title(str(name or "").partition(",")[0]).rpartition(" ")[2]


def _doi(paper: Paper) -> str | None:
    value = paper.metadata.get("doi")
    return (doi(value) or value.strip().lower() or None) if isinstance(value, str) else None

"""OpenAlex's works: JSON lines of its snapshot, answers of its API with ``results``, or single works.

The schema is that of the work object in OpenAlex's documentation (developers.openalex.org); the data are
published under CC0.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from qbe.corpus.decode import json_objects
from qbe.corpus.fields import NOT_THIS_FORMAT, Fields, doi, no_title, record, wrong_type, year
from qbe.corpus.head import Head, head_of
from qbe.corpus.markup import clean_abstract, clean_title, plain
from qbe.corpus.reading import Entry, Reading, converted
from qbe.corpus.record import MAX_ABSTRACT_CHARS
from qbe.errors import CorpusError, RecordError

MAX_POSITION = 100_000
"""The highest position of a word in an abstract that is believed."""

_WORK = re.compile(r"(?:^|/)(W\d{1,18})$")
_WORK_ID = re.compile(r'"id"\s*:\s*"https://openalex\.org/W\d+"')
_FIELD = re.compile(
    r'"(?:authorships|abstract_inverted_index|publication_year|referenced_works|primary_location)"\s*:'
)
_RESULTS = re.compile(r'\{\s*"(?:meta|results)"\s*:\s*[\[{]')
_PUBMED_CENTRAL = "PMC"


def recognizes(head: Head) -> bool:
    """Whether the first record is a work, or the text an answer with works."""
    text = head.text
    is_json = text.startswith(("{", "["))
    return is_json and _WORK_ID.search(text) is not None and _FIELD.search(text) is not None


def read(stream: io.BufferedReader, name: str, reading: Reading) -> Iterator[Entry]:
    """The works of a snapshot's file or of an answer; those of other fields of study are left out.

    >>> work = b'{"id": "https://openalex.org/W7", "title": "On fish", "publication_year": 2019}'
    >>> [entry] = read(io.BufferedReader(io.BytesIO(work)), "part_000", Reading())
    >>> entry.record["paper_id"], entry.record["metadata"]["year"]
    ('W7', 2019)
    """
    is_answer = _RESULTS.match(head_of(stream, name).text) is not None
    works = json_objects(stream, name, ("results",) if is_answer else None)
    return converted(works, _record, reading)


def _record(source: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The record of a work; raises RecordError for other types than the schema's."""
    if "results" in source:
        raise CorpusError(f"{where}: expected a work, found an answer within it; mend the file")
    work = Fields(source, where)
    paper_id = _paper_id(work.text("id"), where)
    title = clean_title(work.text("title", "display_name"))
    if not title:
        raise no_title(where)
    ids = work.object("ids")
    cites = (_WORK.search(each) for each in work.texts("referenced_works[]"))
    metadata = {
        "authors": [
            name for each in work.texts("authorships[].author.display_name") if (name := plain(each))
        ],
        "year": year(source.get("publication_year")),
        "date": work.text("publication_date"),
        "venue": plain(work.text("primary_location.source.display_name")),
        "categories": _once(_categories(work)),
        "doi": doi(work.text("doi") or str(ids.get("doi"))),
        "url": work.text("primary_location.landing_page_url") or f"https://openalex.org/{paper_id}",
        "cites": [match[1] for match in cites if match],
        "ids": _ids(ids),
        "tags": _once(work.texts("keywords[].display_name")),
    }
    return record(paper_id, title, clean_abstract(_abstract(work, where) or work.text("abstract")), metadata)


def _paper_id(identifier: str, where: str) -> str:
    if match := _WORK.search(identifier):
        return match[1]
    raise RecordError(
        f"{where}: expected a work's id such as https://openalex.org/W2741809807, found "
        f"{ascii(identifier[:60]) if identifier else 'none'}; give files of works only",
        NOT_THIS_FORMAT if identifier else "no paper_id",
    )


def _abstract(work: Fields, where: str) -> str:
    """The text of an index that maps each word to its positions."""
    words: list[tuple[int, str]] = []
    length = 0
    for word, positions in work.object("abstract_inverted_index").items():
        if not isinstance(positions, list):
            raise wrong_type(where, "abstract_inverted_index", "lists of positions", positions)
        if bad := [each for each in positions if type(each) is not int or not 0 <= each <= MAX_POSITION]:
            actual = bad[0] if isinstance(bad[0], int) else type(bad[0]).__name__
            raise RecordError(
                f"{where}: expected positions from 0 to {MAX_POSITION:,} in abstract_inverted_index, "
                f"found {actual}; mend or remove the record",
                NOT_THIS_FORMAT,
            )
        length += len(positions) * (len(word) + 1)
        if length > MAX_ABSTRACT_CHARS:
            raise RecordError(
                f"{where}: expected abstract of at most {MAX_ABSTRACT_CHARS:,} characters, found more; "
                "shorten it or drop the paper",
                "abstract that is too long",
            )
        words += ((position, word) for position in positions)
    words.sort()
    return " ".join(word for _, word in words)


def _categories(work: Fields) -> list[str]:
    """Fields of study: those of the topics; before there were topics, the concepts of the highest level."""
    if work.objects("topics[]"):
        return work.texts("topics[].field.display_name")
    return [
        str(each.get("display_name") or "") for each in work.objects("concepts[]") if each.get("level") == 0
    ]


def _once(names: Iterable[str]) -> list[str]:
    """Names without markup, each once."""
    return [name for name in dict.fromkeys(map(plain, names)) if name]


def _ids(ids: Mapping[str, Any]) -> dict[str, str]:
    """Ids in other collections, without the addresses before them."""
    central = _last_part(ids.get("pmcid")).upper().removeprefix(_PUBMED_CENTRAL)
    identifiers = {
        "pmid": _last_part(ids.get("pmid")),
        "pmc": central and f"{_PUBMED_CENTRAL}{central}",
        "mag": _last_part(ids.get("mag")),
    }
    return {name: value for name, value in identifiers.items() if value}


def _last_part(value: Any) -> str:
    """What stands after the last slash of an address; of a number its digits."""
    return str(value).rstrip("/").rpartition("/")[2] if isinstance(value, str | int) else ""

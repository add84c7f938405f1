"""Semantic Scholar's papers: S2AG's data sets ``papers`` and ``abstracts``, the graph API, S2ORC of 2020.

The schemas are those that the documentation of the "S2AG Datasets" and "Academic Graph" APIs gives
(api.semanticscholar.org), and of S2ORC's README (release 20200705v1, ``metadata``).
"""

from __future__ import annotations

import contextlib
import io
import re
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from qbe.corpus import fields
from qbe.corpus.entry import Entry, converted
from qbe.corpus.head import Head, head_of
from qbe.corpus.jsonarray import json_objects
from qbe.corpus.markup import clean_abstract, clean_title, plain
from qbe.corpus.reading import Reading
from qbe.errors import OutputError, RecordError, output_error

_S2ORC_FIELDS = ("s2_url", "outbound_citations", "has_pdf_parse")
_LIST = re.compile(
    r'(?:\{(?:[^\[\]{}]{0,1000},)?\s*"(data|recommendedPapers|papers)"\s*:\s*)?\[\s*(?:null\s*,\s*)*\{'
)
"""A list of papers, with null for those that are not known, perhaps in an object."""

_OF_CITATION = ("citedPaper", "citingPaper")
_IDS = {each: each for each in ("arxiv", "acl", "dblp", "mag")} | {"pubmed": "pmid", "pubmedcentral": "pmc"}
_S2ORC_IDS = {"arxiv_id": "arxiv", "acl_id": "acl", "pubmed_id": "pmid", "pmc_id": "pmc", "mag_id": "mag"}
_PUBMED_CENTRAL = "PMC"

_CREATE = "CREATE TABLE abstracts (paper_id TEXT, abstract TEXT)"
_INSERT = "INSERT INTO abstracts VALUES (?, ?)"
_INDEX = "CREATE INDEX by_id ON abstracts (paper_id)"
_FIND = "SELECT abstract FROM abstracts WHERE paper_id = ? ORDER BY rowid LIMIT 1"


def recognizes(head: Head) -> bool:
    """Whether the first record is one of Semantic Scholar's, or the text an answer of its API."""
    return (
        head.has("corpusid", "title", "externalids")
        or has_only_abstracts(head)
        or head.has("paperId", "title")
        or (head.has("paper_id", "title", "abstract") and any(map(head.has, _S2ORC_FIELDS)))
        or (_LIST.match(head.text) is not None and '"paperId"' in head.text and '"title"' in head.text)
    )


def has_only_abstracts(head: Head) -> bool:
    """Whether a file is one of the data set ``abstracts``, of which `join_abstracts` makes papers.

    >>> has_only_abstracts(Head("abstracts.jsonl", b'{"corpusid": 7, "abstract": "Fish swim."}'))
    True
    """
    return head.has("corpusid", "abstract") and not head.has("title")


def read(stream: io.BufferedReader, name: str, reading: Reading) -> Iterator[Entry]:
    """The papers of a file or of an answer; those of other fields of study are left out.

    Of the data set ``abstracts`` they have an empty title, and all of them are kept.

    >>> paper = b'{"paperId": "ab12", "title": "On fish", "fieldsOfStudy": ["Biology"]}'
    >>> [entry] = read(io.BufferedReader(io.BytesIO(paper)), "papers.jsonl", Reading())
    >>> entry.record["paper_id"], entry.record["metadata"]
    ('ab12', {'categories': ['Biology']})
    """
    answer = _LIST.match(head_of(stream, name).text)
    papers = json_objects(stream, name, (answer[1],) if answer and answer[1] else None)

    def wanted(paper: Mapping[str, Any], where: str) -> dict[str, Any] | None:
        """The record, None for a paper of another field; abstracts alone have no fields."""
        for relation in _OF_CITATION:
            paper = fields.mapping(paper, relation, where) or paper
        record = _record(paper, where)
        return record if "title" not in paper or reading.keeps(record["metadata"]) else None

    return converted(papers, wanted)


def _record(paper: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The record of a paper; raises RecordError for other types than those of its schema."""
    abstract, title = fields.text(paper, "abstract", where), clean_title(fields.text(paper, "title", where))
    if not title and ("title" in paper or "paperId" in paper):
        raise fields.no_title(where)
    if "paper_id" in paper:
        paper_id = _identifier(paper, "paper_id", where)
        metadata = _s2orc_metadata(paper, where)
        abstract = abstract.replace(":::", " ")
    else:
        # The names of the bulk data sets are those of the API in lower case.
        lower = {name.lower(): value for name, value in paper.items()}
        paper_id = _identifier(lower, "paperid", where) or _identifier(lower, "corpusid", where)
        metadata = _metadata(lower, where)
    return {
        "paper_id": paper_id,
        "title": title,
        "abstract": clean_abstract(abstract) or None,
        "metadata": fields.present(metadata),
    }


def join_abstracts(papers: Iterator[Entry], abstracts: Iterator[Entry], folder: Path) -> Iterator[Entry]:
    """The papers with their abstracts, found by ``paper_id``; before them what is wrong with abstracts.

    The abstracts are kept in a temporary file in ``folder``, which needs about as much space as they do.
    A paper that has an abstract keeps it; of several abstracts with one id the first counts. Raises
    OutputError where the file cannot be written.

    >>> paper = Entry("papers, line 1", {"paper_id": "7", "title": "On fish", "abstract": None})
    >>> abstract = Entry("abstracts, line 1", {"paper_id": "7", "title": "", "abstract": "Fish swim."})
    >>> [joined] = join_abstracts(iter([paper]), iter([abstract]), Path())
    >>> joined.record["title"], joined.record["abstract"]
    ('On fish', 'Fish swim.')
    """
    with _store(folder) as store:
        store.execute(_CREATE)
        for where, each in abstracts:
            if isinstance(each, RecordError):
                yield Entry(where, each)
            elif each["abstract"]:
                store.execute(_INSERT, (each["paper_id"], each["abstract"]))
        store.execute(_INDEX)
        for where, paper in papers:
            if not isinstance(paper, RecordError) and not paper["abstract"]:
                row = store.execute(_FIND, (paper["paper_id"],)).fetchone()
                paper = {**paper, "abstract": row[0]} if row else paper
            yield Entry(where, paper)


@contextlib.contextmanager
def _store(folder: Path) -> Iterator[sqlite3.Connection]:
    """An empty database in a temporary file, without what would make it outlive a crash."""
    try:
        temporary = tempfile.TemporaryDirectory(prefix=".abstracts-", dir=folder)
    except OSError as error:
        raise output_error(folder, error) from error
    try:
        with temporary:
            # Whoever takes the papers may do so in several threads, one after another.
            file = Path(temporary.name) / "abstracts.sqlite"
            with contextlib.closing(sqlite3.connect(file, check_same_thread=False)) as store:
                store.execute("PRAGMA journal_mode = OFF")
                store.execute("PRAGMA synchronous = OFF")
                yield store
    except sqlite3.Error as error:
        raise OutputError(
            f"cannot write {folder}: {error}; free some space or choose another disk"
        ) from error


def _identifier(paper: Mapping[str, Any], name: str, where: str) -> str | None:
    """The paper's id, a string or a number; None where it has none."""
    value = paper.get(name)
    if isinstance(value, bool) or not isinstance(value, str | int | None):
        raise fields.wrong_type(where, name, "a string or whole number", value)
    return str(value) if value not in (None, "") else None


def _metadata(paper: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Metadata of S2AG and of the API, with names in lower case."""
    external = {
        name.lower(): value for name, value in fields.mapping(paper, "externalids", where).items() if value
    }
    cited = (each.get("paperId") for each in fields.objects(paper, "references", where))
    return {
        "authors": [
            name
            for each in fields.objects(paper, "authors", where)
            if (name := plain(fields.text(each, "name", where)))
        ],
        "year": fields.year(paper.get("year")),
        "date": fields.text(paper, "publicationdate", where),
        "venue": plain(
            fields.text(paper, "venue", where)
            or fields.text(fields.mapping(paper, "journal", where), "name", where)
        ),
        "categories": _categories(paper, where),
        "doi": fields.doi(fields.text(external, "doi", where)),
        "url": fields.text(paper, "url", where),
        "cites": [each for each in cited if isinstance(each, str)],
        "ids": _ids(external, _IDS),
    }


def _s2orc_metadata(paper: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Metadata of S2ORC."""
    return {
        "authors": [
            name for each in fields.objects(paper, "authors", where) if (name := _s2orc_author(each, where))
        ],
        "year": fields.year(paper.get("year")),
        "venue": plain(fields.text(paper, "venue", where) or fields.text(paper, "journal", where)),
        "categories": fields.strings(paper, "mag_field_of_study", where),
        "doi": fields.doi(fields.text(paper, "doi", where)),
        "url": fields.text(paper, "s2_url", where),
        "cites": fields.strings(paper, "outbound_citations", where),
        "ids": _ids(paper, _S2ORC_IDS),
    }


def _s2orc_author(author: Mapping[str, Any], where: str) -> str:
    first, last, suffix = (fields.text(author, part, where) for part in ("first", "last", "suffix"))
    return plain(" ".join((first, *fields.strings(author, "middle", where), last, suffix)))


def _categories(paper: Mapping[str, Any], where: str) -> list[str]:
    """Fields of study: those of Semantic Scholar's own classification, else those of its predecessor."""
    names = [fields.text(each, "category", where) for each in fields.objects(paper, "s2fieldsofstudy", where)]
    names = names or fields.strings(paper, "fieldsofstudy", where)
    return [name for name in dict.fromkeys(names) if name]


def _ids(values: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, str]:
    """Ids in other collections, by their name in a paper's metadata."""
    ids = {key: str(values[name]) for name, key in names.items() if isinstance(values.get(name), str | int)}
    if central := ids.get("pmc", "").upper().removeprefix(_PUBMED_CENTRAL):
        ids["pmc"] = f"{_PUBMED_CENTRAL}{central}"
    return {name: value for name, value in ids.items() if value}

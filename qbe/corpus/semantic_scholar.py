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

from qbe.corpus.decode import json_objects
from qbe.corpus.fields import Fields, doi, no_title, record, wrong_type, year
from qbe.corpus.head import Head, head_of
from qbe.corpus.markup import clean_abstract, clean_title, plain
from qbe.corpus.reading import Entry, Reading, converted
from qbe.errors import OutputError, RecordError, output_error

_S2ORC_FIELDS = ("s2_url", "outbound_citations", "has_pdf_parse")
_LIST = re.compile(
    r'(?:\{(?:[^\[\]{}]{0,1000},)?\s*"(data|recommendedPapers|papers)"\s*:\s*)?\[\s*(?:null\s*,\s*)*\{'
)
"""A list of papers, with null for those that are not known, perhaps in an object."""

_OF_CITATION = ("citedPaper", "citingPaper")
_IDS = {each: each for each in ("arxiv", "acl", "dblp", "mag")} | {"pubmed": "pmid", "pubmedcentral": "pmc"}
_IDS |= {"arxiv_id": "arxiv", "acl_id": "acl", "pubmed_id": "pmid", "pmc_id": "pmc", "mag_id": "mag"}
"""The names of further ids, in small letters, in metadata of the API and of S2ORC."""

_PUBMED_CENTRAL = "PMC"

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

    def to_record(paper: Mapping[str, Any], where: str) -> dict[str, Any] | None:
        """The record, None for a paper of another field; abstracts alone have no fields."""
        for relation in _OF_CITATION:
            paper = Fields(paper, where).object(relation) or paper
        made = _record(paper, where)
        return made if "title" not in paper or reading.keeps(made["metadata"]) else None

    return converted(papers, to_record)


def _record(source: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The record of a paper; raises RecordError for other types than those of its schema."""
    # The names of the bulk data sets are those of the API in lower case; S2ORC's have underscores.
    names = {name.lower(): value for name, value in source.items()}
    paper = Fields(names, where)
    title, abstract = clean_title(paper.text("title")), paper.text("abstract")
    if not title and ("title" in names or "paperid" in names):
        raise no_title(where)
    ids = (name for name in ("paper_id", "paperid", "corpusid") if names.get(name) not in (None, ""))
    paper_id = names.get(named_by := next(ids, ""))
    if isinstance(paper_id, bool) or not isinstance(paper_id, str | int | None):
        raise wrong_type(where, named_by, "a string or whole number", paper_id)
    external = {name.lower(): value for name, value in paper.object("externalids").items() if value}
    journal = "journal.name" if isinstance(names.get("journal"), Mapping) else "journal"
    fields_of_study = paper.texts("s2fieldsofstudy[].category") or paper.texts("fieldsofstudy[]")
    cites = [each.get("paperId") for each in paper.objects("references[]")]
    authors = (_author(Fields(each, where)) for each in paper.objects("authors[]"))
    metadata = {
        "authors": [name for name in authors if name],
        "year": year(names.get("year")),
        "date": paper.text("publicationdate"),
        "venue": plain(paper.text("venue", journal)),
        "categories": list(
            dict.fromkeys(filter(None, fields_of_study or paper.texts("mag_field_of_study[]")))
        ),
        "doi": doi(Fields(external, where).text("doi") or paper.text("doi")),
        "url": paper.text("url", "s2_url"),
        "cites": [each for each in cites if isinstance(each, str)] or paper.texts("outbound_citations[]"),
        "ids": _ids({**names, **external}),
    }
    if "paper_id" in names:  # S2ORC's mark between the parts of an abstract
        abstract = abstract.replace(":::", " ")
    return record(None if paper_id is None else str(paper_id), title, clean_abstract(abstract), metadata)


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
        store.execute("CREATE TABLE abstracts (paper_id TEXT, abstract TEXT)")
        for where, each in abstracts:
            if isinstance(each, RecordError):
                yield Entry(where, each)
            elif each["abstract"]:
                store.execute("INSERT INTO abstracts VALUES (?, ?)", (each["paper_id"], each["abstract"]))
        store.execute("CREATE INDEX by_id ON abstracts (paper_id)")
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


def _author(author: Fields) -> str:
    """The name of an author, or of S2ORC's its parts."""
    name = author.text("name")
    return plain(
        name
        or " ".join(
            (author.text("first"), *author.texts("middle[]"), author.text("last"), author.text("suffix"))
        )
    )


def _ids(values: Mapping[str, Any]) -> dict[str, str]:
    """Ids in other collections, by their name in a paper's metadata."""
    ids = {key: str(values[name]) for name, key in _IDS.items() if isinstance(values.get(name), str | int)}
    if central := ids.get("pmc", "").upper().removeprefix(_PUBMED_CENTRAL):
        ids["pmc"] = f"{_PUBMED_CENTRAL}{central}"
    return {name: value for name, value in ids.items() if value}

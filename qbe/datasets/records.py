"""Records of a release's papers, and the records of a corpus that are made of them.

A paper without an abstract gets its title as its only sentence: SciDocs' own scorer ranks such papers by
their titles.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbe.corpus import parse_paper, read_records
from qbe.corpus.jsonl import dump_record
from qbe.corpus.record import FIELDS, paper_to_record
from qbe.errors import CorpusError
from qbe.types import Paper

_PLACEHOLDER = {"abstract": ["."]}


@dataclass(frozen=True, slots=True)
class Papers:
    """The papers of a release.

    Attributes:
        path: the file of their records.
        ids: ids of the papers with an abstract or a title.
        title_only: number of these that have a title only.
        without_text: ids of the papers with neither, which no index can contain.
    """

    path: Path
    ids: frozenset[str]
    title_only: int
    without_text: frozenset[str]


def read_papers(path: Path) -> Papers:
    """Check every record of a file of papers (see `qbe.corpus`).

    Raises CorpusError for a record that `parse_paper` refuses, and for an id that occurs twice.

    >>> _ = Path("papers.jsonl").write_text('''{"paper_id": "1", "title": "On stone", "abstract": null}
    ... {"paper_id": "2", "title": "", "abstract": []}''')
    >>> papers = read_papers(Path("papers.jsonl"))
    >>> papers.ids, papers.title_only, papers.without_text
    (frozenset({'1'}), 1, frozenset({'2'}))
    """
    ids: set[str] = set()
    without_text: set[str] = set()
    title_only = 0
    for where, record in read_records(path):
        kept = corpus_record(record)
        # Abstracts are split by qbe index: any split serves to check a record. A placeholder stands for
        # an absent text.
        checked = kept if has_text(kept) else kept | _PLACEHOLDER
        paper_id = parse_paper(checked, where, unsplit).paper_id
        if paper_id in ids:
            raise CorpusError(
                f"{where}: expected each paper_id once, found {paper_id!r} again; drop one of them"
            )
        ids.add(paper_id)
        if not has_text(kept):
            without_text.add(paper_id)
        elif _empty(record.get("abstract")):
            title_only += 1
    return Papers(path, frozenset(ids - without_text), title_only, frozenset(without_text))


def unsplit(abstract: str) -> list[str]:
    """The whole abstract: the index splits it into sentences.

    >>> unsplit("We route. It helps.")
    ['We route. It helps.']
    """
    return [abstract]


def raw_line(paper: Paper) -> bytes:
    """A paper as a line of JSON with its abstract as one string."""
    return dump_record({**paper_to_record(paper), "abstract": paper.abstract})


def corpus_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that `qbe.corpus` reads, in its form; the title replaces an empty abstract.

    >>> corpus_record({"paper_id": "1", "title": "On stone", "abstract": None, "year": 1851, "doi": "x"})
    {'paper_id': '1', 'title': 'On stone', 'abstract': ['On stone'], 'metadata': {'year': 1851}}
    """
    kept = {field: record[field] for field in FIELDS if field in record}
    kept["title"] = "" if kept.get("title") is None else kept["title"]
    if _empty(kept.get("abstract")):
        kept["abstract"] = [kept["title"]]
    if kept.get("metadata") is None and record.get("year") is not None:
        kept["metadata"] = {"year": record["year"]}
    return kept


def raw_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record with its sentences joined by single spaces, and without ``pred_labels``.

    >>> raw_record({"paper_id": "1", "abstract": ["A.", "B."], "pred_labels": ["other", "method"]})
    {'paper_id': '1', 'abstract': 'A. B.'}
    """
    kept = {field: value for field, value in record.items() if field != "pred_labels"}
    abstract = record["abstract"]
    return {**kept, "abstract": abstract if isinstance(abstract, str) else " ".join(abstract)}


def has_text(record: Mapping[str, Any]) -> bool:
    """Return whether a record, as `corpus_record` returns it, has an abstract or a title.

    >>> has_text(corpus_record({"paper_id": "1", "title": "On stone"})), has_text({"abstract": [" "]})
    (True, False)
    """
    return not _empty(record["abstract"])


def _empty(text: Any) -> bool:
    """Whether a text, or every text of a list, is absent or white space."""
    if isinstance(text, list):
        return all(map(_empty, text))
    return text is None or (isinstance(text, str) and not text.strip())

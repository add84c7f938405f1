"""The papers of an index that a bibliography names: by id, DOI, or title."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from qbe.corpus.dedupe import normalized_title
from qbe.corpus.read import entries
from qbe.corpus.reading import Reading
from qbe.errors import RecordError, UsageError
from qbe.index.reader import IndexReader
from qbe.lines import read_ids

PLAIN = (".txt", ".ids", "")
"""How names of files end that have an id a line."""


class NamedPapers(NamedTuple):
    """Ids of papers of the index, each once, in the order of the bibliography; how many ``entries`` it has;
    one of them that the index lacks, ``missing``, if any; and how many name a paper again, ``repeated``.
    """

    paper_ids: list[str]
    entries: int
    missing: str | None
    repeated: int = 0

    def missing_in_words(self, name: str) -> str | None:
        """What the index lacks of the bibliography of that ``name``, in one line; None where it lacks none.

        >>> NamedPapers(["s051"], 2, "unknown").missing_in_words("refs.bib")
        'refs.bib: 1 of 2 entries are not in the index, such as unknown; left out'
        """
        if self.missing is None:
            return None
        absent = self.entries - len(self.paper_ids) - self.repeated
        return (
            f"{name}: {absent} of {self.entries} entries are not in the index, such as {self.missing}; "
            "left out"
        )


def papers_of(reader: IndexReader, path: Path) -> NamedPapers:
    r"""The papers of the index that a file names: ids, one a line (``.txt``), or a bibliography in any format
    of `qbe.corpus.formats` (BibTeX, RIS, CSL-JSON, JSON lines).

    Entries are looked up by their id, DOI and title. Raises UsageError where the index has none of them,
    InputError or CorpusError for a file that cannot be read.

    >>> _ = Path("cited.txt").write_text("s051\nunknown\n")
    >>> with index.reading() as reader:
    ...     papers_of(reader, Path("cited.txt"))
    NamedPapers(paper_ids=['s051'], entries=2, missing='unknown', repeated=0)
    """
    catalogue = None
    paper_ids: dict[str, None] = {}
    count, repeated, missing = 0, 0, None
    for entry in _entries(path):
        count += 1
        name = str(entry.get("paper_id") or entry.get("title") or f"entry {count}")
        paper_id = entry.get("paper_id")
        if isinstance(paper_id, int):
            paper_id = str(paper_id)
        if not isinstance(paper_id, str) or reader.papers.find(paper_id) is None:
            if len(entry) > 1:
                catalogue = catalogue or _Catalogue(reader)
                paper_id = catalogue.find(entry)
            else:
                paper_id = None
        if paper_id is None:
            missing = missing or name
        else:
            repeated += paper_id in paper_ids
            paper_ids[paper_id] = None
    if not paper_ids:
        raise UsageError(
            f"{path}: expected papers of the index, found none of its {count} entries in it; give their ids, "
            "or entries with DOI or title"
        )
    return NamedPapers(list(paper_ids), count, missing, repeated)


def _entries(path: Path) -> Iterator[dict[str, Any]]:
    """The entries of a file; of a list of ids each as an entry of nothing else."""
    if path.suffix.lower() in PLAIN:
        yield from ({"paper_id": paper_id} for paper_id in read_ids(path))
        return
    for _, record in entries(str(path), Reading(on_error="skip", keep_without_abstract=True)):
        if not isinstance(record, RecordError):
            yield {"title": "", **record}


class _Catalogue:
    """The papers of an index by DOI and by title."""

    def __init__(self, reader: IndexReader) -> None:
        self._by_doi: dict[str, str] = {}
        self._by_title: dict[str, str] = {}
        for paper in reader:
            doi = paper.metadata.get("doi")
            if isinstance(doi, str):
                self._by_doi.setdefault(doi.lower(), paper.paper_id)
            self._by_doi.setdefault(paper.paper_id.lower(), paper.paper_id)
            if title := normalized_title(paper.title):
                self._by_title.setdefault(title, paper.paper_id)

    def find(self, entry: dict[str, Any]) -> str | None:
        """The id of the paper that an entry names; None where the index has none."""
        metadata = entry.get("metadata")
        if not isinstance(metadata, dict):
            metadata = {}
        other_ids = metadata.get("ids")
        values = other_ids.values() if isinstance(other_ids, dict) else ()
        for value in (metadata.get("doi"), *values):
            if isinstance(value, str) and value.lower() in self._by_doi:
                return self._by_doi[value.lower()]
        title = entry.get("title")
        return self._by_title.get(normalized_title(title)) if isinstance(title, str) and title else None

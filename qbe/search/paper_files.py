"""The papers of an index that a bibliography or a list names: by id, DOI, arXiv id, or title."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from qbe.corpus.formats import FORMATS
from qbe.corpus.latex import SUFFIXES, cited_in, source_of
from qbe.corpus.reading import entries, id_of
from qbe.corpus.records import Reading
from qbe.corpus.streams import MAX_LINE_BYTES, display_name, from_western, head_of, open_source
from qbe.errors import CorpusError, RecordError, UsageError
from qbe.index.names import contradicts
from qbe.index.reader import IndexReader
from qbe.util.text import read_ids

log = logging.getLogger(__name__)

PLAIN = (".txt", ".ids", ".lst", ".md", "")
"""How names of files end that may be a list, if what they hold is no bibliography."""

SHOWN = 3
"""Entries that the index lacks which a message names."""


class NamedPapers(NamedTuple):
    """Ids of papers of the index, each once, in the order of the bibliography; how many ``entries`` it has;
    the names of those that the index lacks, ``missing``; and what is wrong with the entries that could not be
    read, ``broken``.
    """

    paper_ids: list[str]
    entries: int
    missing: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()

    def missing_in_words(self, name: str) -> str | None:
        """What the index lacks of the bibliography of that ``name``, and what could not be read, in one line;
        None where all was found.

        >>> NamedPapers(["s051"], 2, ("unknown",)).missing_in_words("refs.bib")
        'refs.bib: 1 of 2 entries are not in the index and are left out (unknown)'
        """
        said = []
        if self.missing:
            count = f"{len(self.missing)} of {self.entries} entries"
            said.append(f"{count} are not in the index and are left out ({_first(self.missing)})")
        if self.broken:
            said.append(f"{len(self.broken)} entries cannot be read and are left out ({self.broken[0]})")
        return f"{name}: {'; '.join(said)}" if said else None


def _first(names: Sequence[str]) -> str:
    return ", ".join([*names[:SHOWN], *(["..."] if len(names) > SHOWN else [])])


def papers_of(reader: IndexReader, path: Path) -> NamedPapers:
    r"""The papers of the index that a file names: a bibliography in any format of `qbe.corpus.formats`, a
    LaTeX source that cites from bibliographies beside it, or a list of ids, DOIs, arXiv ids, addresses or
    titles, one a line. ``catalogue`` gives that of the reader, where it serves several files.

    Raises UsageError where the index has none of them, FileFormatError or CorpusError for a file that cannot
    be read.

    >>> _ = Path("cited.txt").write_text("s051\nunknown\n")
    >>> with index.reading() as reader:
    ...     papers_of(reader, Path("cited.txt"))
    NamedPapers(paper_ids=['s051'], entries=2, missing=('unknown',), broken=())
    """
    named = papers_named(reader, _entries(path))
    if not named.paper_ids:
        first = ", ".join([*named.missing[:SHOWN], *named.broken[:1]])
        raise UsageError(
            f"{path}: expected papers of the index, found none of its {named.entries} entries in it"
            f"{first and f' ({first})'}; give ids, DOIs or arXiv ids, one a line, or entries with a title"
        )
    return named


def papers_named(reader: IndexReader, named: Iterable[Mapping[str, Any] | RecordError | str]) -> NamedPapers:
    """The papers of the index that records of a corpus name, or texts: ids, DOIs, arXiv ids, addresses, or
    titles.

    Records are looked up by id, DOI, arXiv id and their other ids, then by title, with year and first author;
    by a citation key only where the title agrees; what cannot be read, by the ids in it, the key last.

    >>> with index.reading() as reader:
    ...     papers_named(reader, ["S051", {"metadata": {"ids": {"x": "s036"}}}, "s1"])[:3]
    (['s051', 's036'], 3, ('s1',))
    """
    paper_ids: dict[str, None] = {}
    count, missing, broken = 0, [], []
    for entry in named:
        count += 1
        if isinstance(entry, RecordError):
            record: Mapping[str, Any] = {"metadata": {"ids": dict(enumerate(reversed(entry.names)))}}
        else:
            record = {"paper_id": entry, "title": entry} if isinstance(entry, str) else entry
        name = record.get("paper_id")
        paper_id = entry if isinstance(entry, str) else id_of(record) or ""
        row = reader.papers.find(paper_id)
        if row is None or (not isinstance(entry, str) and contradicts(reader.papers[row], record)):
            paper_id = reader.names.of_record(record) or ""
        if paper_id:
            paper_ids[paper_id] = None
        elif isinstance(entry, RecordError):
            broken.append(str(entry))
        else:
            missing.append(str(name or record.get("title") or f"entry {count}"))
    return NamedPapers(list(paper_ids), count, tuple(missing), tuple(broken))


def _entries(path: Path) -> Iterator[Mapping[str, Any] | RecordError | str]:
    """The entries of a bibliography, or the lines of a list."""
    name = display_name(path)
    if path.suffix.lower() in SUFFIXES:
        yield from _cited_in(path)
        return
    if path.suffix.lower() in PLAIN:
        with open_source(path) as stream:
            head = head_of(stream, name)
        if not any(each.recognizes(head) for each in FORMATS.values()):
            yield from read_ids(path)
            return
    for _, record in entries(str(path), Reading(on_error="skip", keep_without_abstract=True)):
        yield record


def _cited_in(path: Path) -> Iterator[Mapping[str, Any] | RecordError]:
    """The entries that a LaTeX source cites, of its bibliographies, then the keys that these lack; all
    entries where it cites none yet. Files that it names and that cannot be read are logged.

    Raises UsageError where it names no bibliography, CorpusError where none can be read.
    """
    with open_source(path) as stream:
        text = from_western(stream)[0].read(MAX_LINE_BYTES).decode(errors="replace")
    lacking = list[str]()
    files, keys = cited_in(source_of(text, path.parent, lacking))
    if lacking:
        log.warning("%s: what it cites in files that cannot be read is left out (%s)", path, _first(lacking))
    if not files:
        raise UsageError(
            f"{path}: expected \\bibliography{{...}} or \\addbibresource{{...}}, found neither; give the "
            "file of BibTeX itself"
        )
    known, unread = set[str | None](), list[CorpusError]()
    reading = Reading("bibtex", on_error="skip", keep_without_abstract=True)
    for file in files:
        try:
            for _, record in entries(str(path.parent / file), reading):
                key = _key_of(record)
                is_repeated = key is not None and key in known  # LaTeX cites the first one
                known.add(key)
                if not is_repeated and (not keys or "*" in keys or key in keys):
                    yield record
        except CorpusError as error:
            unread.append(error)
    if len(unread) == len(files):
        raise unread[0]
    for each in unread:
        log.warning("%s (its entries are left out)", each)
    yield from ({"paper_id": key} for key in sorted(keys - known - {"*"}))


def _key_of(record: Mapping[str, Any] | RecordError) -> str | None:
    return (
        next(iter(record.names), None) if isinstance(record, RecordError) else record["metadata"].get("key")
    )

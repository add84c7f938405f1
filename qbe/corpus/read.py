"""A corpus from several sources: its papers as a stream, each once."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from qbe.corpus import semantic_scholar
from qbe.corpus.dedupe import Seen, merged
from qbe.corpus.entry import Entry
from qbe.corpus.formats import PUBMED, SEMANTIC_SCHOLAR, format_of, recognized
from qbe.corpus.head import head_of
from qbe.corpus.ids import ASSIGNED, CHOSEN, UNIQUE, Ids, content_id, usable_id
from qbe.corpus.leftout import RENAMED, LeftOut
from qbe.corpus.placeholders import is_placeholder
from qbe.corpus.progress import BytesRead
from qbe.corpus.reading import SKIP, SKIP_BYTES, STOP, Reading
from qbe.corpus.record import NO_ABSTRACT, Splitter, is_id, lacking_abstract, parse_paper
from qbe.corpus.revisions import Revisions, note_pubmed
from qbe.corpus.sources import HUGGING_FACE, check_folder, files_of, is_dataset, parts_of, records
from qbe.corpus.streams import display_name, is_address, is_read_once, open_source
from qbe.errors import CorpusError, RecordError
from qbe.types import Paper, Sentence

__all__ = ["AS_IT_COMES", "HUGGING_FACE", "entries", "files_of", "read_corpus"]

AS_IT_COMES = Reading()


def read_corpus(
    sources: Sequence[str],
    split: Splitter | None = None,
    reading: Reading = AS_IT_COMES,
    left_out: LeftOut | None = None,
    bytes_read: BytesRead | None = None,
    known: Callable[[str], str | None] | None = None,
) -> Iterator[Paper]:
    """Papers of all sources in order, as a stream; only their ids (and keys to find duplicates) are kept.

    Each has another id: see `qbe.corpus.ids.Ids`, also for ``known``, the papers of an index to which these
    are added. Where duplicates are to be merged (``reading.dedupe``), the papers wait in a temporary file
    until all are read.

    Files of Semantic Scholar that have abstracts alone are joined with the papers of the others.
    A source is a file in one of `qbe.corpus.formats.FORMATS`, ``-`` for standard input, a folder of such
    files, a Hugging Face dataset ``hf:NAME[:CONFIG][:SPLIT]``, or a folder with one (see
    `qbe.corpus.huggingface`). ``split`` splits abstracts that are one string; ``reading`` says which papers
    are kept, and what is done with records that cannot be used; they are counted in ``left_out``, and
    the bytes of files in ``bytes_read``.

    Raises CorpusError for anything that the readers refuse, and where there is no paper at all;
    MissingDependencyError for a dataset without the package ``datasets``.

    >>> _ = Path("a.jsonl").write_text('{"paper_id": 1, "title": "A", "abstract": ["One."]}')
    >>> _ = Path("b.jsonl").write_text('{"paper_id": 2, "title": "B", "abstract": ["Two."]}')
    >>> [paper.title for paper in read_corpus(["a.jsonl", "b.jsonl"])]
    ['A', 'B']
    """
    left_out = LeftOut() if left_out is None else left_out
    stops = (reading.on_error or _default_policy(sources)) == STOP
    if stops:
        for source in sources:
            check_folder(source, reading)
    reading = _with_revisions(sources, reading)
    if reading.revisions is not None:
        left_out.deleted = frozenset(reading.revisions.deleted)
    papers = _papers(
        _streams(sources, reading, left_out, bytes_read),
        Ids(sources, known),
        lambda entry, whose: _paper(entry, whose, split, reading),
        reading,
        left_out,
        stops,
    )
    kept = 0
    for paper in merged(papers) if reading.dedupe else (paper for paper, first in papers if first is None):
        kept += 1
        yield paper
    if not kept:
        names = ", ".join(map(display_name, sources)) or "no source"
        reasons = f" ({left_out.reasons()})" if left_out else ""
        raise CorpusError(f"expected at least one paper, found none in {names}{reasons}; check the corpus")


def _papers(
    streams: Iterable[Iterator[tuple[str, Entry]]],
    ids: Ids,
    to_paper: Callable[[Entry, str], Paper | None],
    reading: Reading,
    left_out: LeftOut,
    stops: bool,
) -> Iterator[tuple[Paper, int | None]]:
    """Each paper with None; a duplicate with the number of the paper before it that it is, from 1, and 0
    where that is one of an index.
    """
    seen = Seen(reading.dedupe) if reading.dedupe else None
    for stream in streams:
        for whose, entry in stream:
            try:
                paper = to_paper(entry, whose)
                if paper is None:
                    continue
                if not paper.paper_id:
                    paper = replace(paper, paper_id=content_id(paper))
                    whose = CHOSEN if whose == UNIQUE else whose
                first = seen.first(paper) if seen is not None else None
                paper_id, is_new = (first, False) if first else ids.place(paper, entry.where, whose)
            except RecordError as error:
                if stops and error.is_fault:
                    raise _with_remedy(error) from None
                left_out.skip(entry.where, error, id_of(entry.record))
                continue
            if not is_new:
                left_out.merge(entry.where, paper.paper_id, paper_id, seen.by if seen and first else None)
                yield paper, ids.number(paper_id)
                continue
            if paper_id != paper.paper_id:
                message = (
                    f"the id {paper.paper_id!r} is that of another paper before; this one is {paper_id!r}"
                )
                left_out.note(RENAMED, entry.where, message)
                paper = replace(paper, paper_id=paper_id)
            if seen is not None:
                seen.add(paper)
            yield paper, None
            if len(ids) == reading.limit:
                break
        ids.end_source()
        if len(ids) == reading.limit:
            break
    left_out.check(reading.max_rejected, len(ids))


def _streams(
    sources: Sequence[str], reading: Reading, left_out: LeftOut, bytes_read: BytesRead | None
) -> Iterator[Iterator[tuple[str, Entry]]]:
    """The records of each source, with whose ids they have; those of papers whose abstracts are in other
    files together, as one.
    """
    parts = [part for source in sources for part in parts_of(source, reading)]
    abstracts = [part for part in parts if _has_only_abstracts(part, reading, part not in sources)]
    if not abstracts:
        yield from (records(source, reading, left_out, bytes_read) for source in sources)
        return

    def of(parts: Iterable[str]) -> Iterator[Entry]:
        return (entry for part in parts for _, entry in records(part, reading, left_out, bytes_read))

    joined = semantic_scholar.join_abstracts(
        of(part for part in parts if part not in abstracts), of(abstracts), Path(tempfile.gettempdir())
    )
    yield ((ASSIGNED, entry) for entry in joined)


def _with_revisions(sources: Sequence[str], reading: Reading) -> Reading:
    """The reading with the newer versions and the deletions that a first pass over PubMed's files finds."""
    revisions = Revisions()

    def note(stream: io.BufferedReader, name: str) -> bool:
        form = format_of(reading.format) if reading.format else recognized(stream, name)
        if form is PUBMED:
            note_pubmed(stream, revisions)
        return form is PUBMED

    parts = (part for source in sources for part in parts_of(source, reading))
    is_of_pubmed = [_look_at(part, reading, note, part not in sources) for part in parts]
    return reading.with_revisions(revisions) if any(is_of_pubmed) else reading


def _has_only_abstracts(part: str, reading: Reading, in_folder: bool) -> bool:
    """Whether this is a file of abstracts alone, to be joined with papers of other files."""
    if reading.format not in (None, SEMANTIC_SCHOLAR.name):
        return False
    return _look_at(
        part,
        reading,
        lambda stream, name: semantic_scholar.has_only_abstracts(head_of(stream, name)),
        in_folder,
    )


def _look_at(
    part: str, reading: Reading, look: Callable[[io.BufferedReader, str], bool], in_folder: bool
) -> bool:
    """What ``look`` tells of a file; False for what is far away, or could not be read again."""
    if is_dataset(part, reading) or is_address(part) or is_read_once(part):
        return False
    try:
        with open_source(part) as stream:
            return look(stream, part)
    except CorpusError:
        if in_folder:
            return False  # it is named when it is read
        raise


def _default_policy(sources: Sequence[str]) -> str:
    """SKIP for files of more than SKIP_BYTES together: one broken record is not to stop a night's work."""
    files = (file for source in sources for file in files_of(source))
    sizes = (os.path.getsize(file) for file in files if os.path.isfile(file))  # noqa: PTH113, PTH202
    return SKIP if sum(sizes) > SKIP_BYTES else STOP


def _paper(entry: Entry, whose: str, split: Splitter | None, reading: Reading) -> Paper | None:
    """The paper of an entry, with an empty id where it has none of its own; None where it has none of the
    categories wanted. Raises RecordError.
    """
    where, record = entry
    if isinstance(record, RecordError):
        raise record
    paper_id = record.get("paper_id")
    if whose == CHOSEN and isinstance(paper_id, str) and not is_id(paper_id):
        record = {**record, "paper_id": usable_id(paper_id) or None}
    title = record.get("title")
    if whose != UNIQUE and isinstance(title, str | None) and not (title and title.strip()):
        raise RecordError(f"{where}: expected a title, found none; add it or drop the paper", "no title")
    metadata = record.get("metadata")
    if reading.categories and not (isinstance(metadata, Mapping) and reading.keeps(metadata)):
        return None
    try:
        paper = parse_paper(record, where, split, default_id="")
        if is_placeholder([sentence.text for sentence in paper.sentences]):
            raise lacking_abstract(where, ascii(paper.abstract))
        return paper
    except RecordError as error:
        if error.reason != NO_ABSTRACT or not reading.keep_without_abstract or not title:
            raise
    title_alone = {name: value for name, value in record.items() if name != "pred_labels"}
    return parse_paper({**title_alone, "abstract": [title]}, where, split, default_id="")


def id_of(record: Mapping[str, Any] | RecordError) -> str | None:
    """The id that the paper of a record gets, None where the record does not tell.

    >>> id_of({"paper_id": None, "title": "On fish", "metadata": {"doi": "10.1234/5"}})
    '10.1234/5'
    """
    if isinstance(record, RecordError):
        return None
    paper_id, title, metadata = (record.get(name) for name in ("paper_id", "title", "metadata"))
    if paper_id is not None:
        return usable_id(str(paper_id)) or None
    if not isinstance(title, str) or not title:
        return None
    abstract = record.get("abstract")
    texts = [abstract] if isinstance(abstract, str) else abstract if isinstance(abstract, list) else []
    sentences = tuple(Sentence(" ".join(text.split())) for text in texts if isinstance(text, str))
    return content_id(Paper("", title, sentences, metadata=metadata if isinstance(metadata, Mapping) else {}))


def _with_remedy(error: RecordError) -> RecordError:
    """An error that ends the reading, with how to go on."""
    remedy = "leave such records out with `on_error` skip"
    if error.reason == NO_ABSTRACT:
        remedy = "keep such papers by their titles with `keep_without_abstract`, or " + remedy
    return RecordError(f"{error} ({remedy})", error.reason)


def entries(
    source: str, reading: Reading = AS_IT_COMES, bytes_read: BytesRead | None = None
) -> Iterator[Entry]:
    """The records of a source, as a stream, by the reader of its format.

    Raises CorpusError for a source that cannot be read, UsageError for a format that does not exist.

    >>> _ = Path("a.jsonl").write_text('{"paper_id": 1, "title": "A", "abstract": ["One."]}')
    >>> [entry.where for entry in entries("a.jsonl")]
    ['a.jsonl, line 1']
    """
    return (entry for _, entry in records(source, reading, bytes_read=bytes_read))

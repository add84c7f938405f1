"""A corpus of several sources as a stream of papers, each once."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from qbe.corpus import records, streams
from qbe.corpus.fields import ABSTRACT_FROM, TITLE, TWICE, unfit
from qbe.corpus.formats import format_of
from qbe.corpus.identity import CHOSEN, UNIQUE, Ids, Seen, content_id, merged, usable_id
from qbe.corpus.markup import is_placeholder
from qbe.corpus.records import Entry, Reading, RejectedRecords, Splitter, parse_paper
from qbe.corpus.streams import NOT_RECOGNIZED, STDIN, display_name, is_folder, is_library, open_source
from qbe.corpus.tables import SAVED_DATASET, read_dataset
from qbe.corpus.xml_formats import DELETION, note_pubmed
from qbe.errors import CorpusError, RecordError
from qbe.types import Paper, Sentence
from qbe.util.files import HUB, is_address

LIBRARIES = ("csl-json", "bibtex", "ris", "nbib", "wos", "endnote", "refworks")  # of reference managers


def files_of(source: str) -> list[str]:
    """Return the source itself, or the visible files in a folder and below, but for indexes, by name."""
    if not is_folder(source) or is_library(source):
        return [source]
    below = [path for path in Path(source).rglob("*") if path.is_file()]
    indexes = {path.parent for path in below if path.name == "papers.ids"}
    indexes |= {folder.parent for folder in indexes if (folder.parent / "CURRENT").is_file()}
    outside = (path for path in below if (indexes - {Path(source)}).isdisjoint(path.parents))
    visible = (path for path in outside if not any(part[0] == "." for part in path.relative_to(source).parts))
    return sorted(map(str, visible))


def entries(source: str, reading: Reading = records.AS_IT_COMES) -> Iterator[Entry]:
    """Yield the records of a source; an unreadable file of a folder is an entry with its error.

    Raises CorpusError for a source that cannot be read, UsageError for an unknown format.
    """
    return (entry for _, _, entry in _records(source, reading, RejectedRecords()))


def read_corpus(
    sources: Sequence[str],
    split: Splitter | None = None,
    reading: Reading = records.AS_IT_COMES,
    rejected: RejectedRecords | None = None,
) -> Iterator[Paper]:
    """Yield the papers of all sources in order, each with an id of its own.

    A source is a file in one of `qbe.corpus.FORMAT_NAMES`, ``-`` for standard input, a URL that fsspec opens,
    a folder of such files, or a Hugging Face dataset (``hf:NAME[:CONFIG][:SPLIT]`` or a folder). ``split``
    splits abstracts that are one string. Of several records with one id in PubMed's files the last counts.
    With ``reading.dedupe`` the papers wait in a temporary file until all are read.

    Raises CorpusError for anything that the readers refuse, and where there is no paper at all;
    MissingDependencyError for a dataset without the package ``datasets``.
    """
    rejected = RejectedRecords() if rejected is None else rejected
    stops = reading.on_error == records.STOP
    if reading.on_error is None:  # one broken record shall not stop a night's work
        paths = (Path(file) for source in sources for file in files_of(source) if os.path.isfile(file))  # noqa: PTH113
        stops = sum(path.stat().st_size for path in paths) <= records.SKIP_BYTES
    left, deleted = Counter[str](), set[str]()
    for source in sources:
        _first_pass(source, reading, left, deleted)
    rejected.deleted |= deleted
    found = (_records(source, reading, rejected, left) for source in sources)
    papers = _papers(found, Ids(sources), split, reading, rejected, stops)
    kept = 0
    for paper in merged(papers) if reading.dedupe else (paper for paper, first in papers if first is None):
        kept += 1
        yield paper
    if not kept:
        names = ", ".join(map(display_name, sources)) or "no source"
        reasons = f" ({rejected.reasons()})" if rejected else ""
        raise CorpusError(f"expected at least one paper, found none in {names}{reasons}; check the corpus")


def _is_dataset(source: str, reading: Reading) -> bool:
    is_saved = reading.format is None and any(Path(source, each).is_file() for each in SAVED_DATASET)
    return source.startswith(HUB) or is_saved


def _is_read_once(file: str) -> bool:
    """Return True for addresses, standard input, pipes and devices, which are not read twice."""
    is_other = not os.path.isfile(file) and os.path.exists(file)  # noqa: PTH110, PTH113 (as in `is_folder`)
    return file == STDIN or is_address(file) or is_other


def _first_pass(source: str, reading: Reading, left: Counter[str], deleted: set[str]) -> None:
    """Recognize all files that can be read twice; count PubMed's records in ``left``, note its deletions."""
    files = [] if _is_dataset(source, reading) or is_library(source) else files_of(source)
    for file in (each for each in files if not _is_read_once(each)):
        try:
            with open_source(file) as stream:
                is_pubmed = format_of(stream, file, reading.format).name == "pubmed"
            for pmid, is_deletion in note_pubmed(file) if is_pubmed else ():
                (deleted.add if is_deletion else deleted.discard)(pmid)
                left[pmid] += not is_deletion
        except CorpusError:
            if file == source:  # those of a folder are told when they are read
                raise


def _last_of_each(found: Iterable[Entry], left: Counter[str], deleted: frozenset[str]) -> Iterator[Entry]:
    """Replace the records of PubMed that have a later one, or are deleted later, by errors."""
    for where, record in found:
        if isinstance(record, RecordError):
            if record.reason == DELETION:
                continue
            paper_id = next(iter(record.names), "")
        else:
            paper_id = record["paper_id"]
        left[paper_id] -= 1
        if left[paper_id] > 0 or paper_id in deleted:
            message = f"{where}: PMID {paper_id} has a newer version, or is deleted"
            record = RecordError(message, "an older version", is_fault=False)
        yield Entry(where, record)


def _records(
    source: str, reading: Reading, rejected: RejectedRecords, left: Counter[str] | None = None
) -> Iterator[tuple[str, bool, Entry]]:
    """Yield the records of a source, each with whose ids they have (`qbe.corpus.identity`).

    Those of reference managers come with True, where nothing says what to do with unusable ones.
    """
    if _is_dataset(source, reading):
        yield from ((UNIQUE, False, each) for each in read_dataset(source.removeprefix(HUB), reading))
        return
    if is_library(source):
        from qbe.corpus import zotero

        yield from ((CHOSEN, reading.on_error is None, entry) for entry in zotero.read(source))
        return
    in_folder = is_folder(source)
    for file in files_of(source):
        name, count = display_name(file), 0
        try:
            with open_source(file) as stream:
                if in_folder and not stream.peek(1):
                    message = f"{name}: expected papers, found an empty file; fetch it again or remove it"
                    raise RecordError(message, "an empty file", is_fault=False)
                form = format_of(stream, name, reading.format)
                if form.ids == CHOSEN:
                    stream, is_western = streams.from_western(stream, name)
                    if is_western:
                        told = f"read as {streams.WESTERN}; where letters are wrong, convert the file"
                        rejected.note(records.RECODED, name, f"expected UTF-8 text, {told}")
                found = form.read(stream, name, reading)
                if left is not None and form.name == "pubmed" and not _is_read_once(file):
                    found = _last_of_each(found, left, rejected.deleted)
                by_title = form.name in LIBRARIES and reading.on_error is None
                for where, its in found:
                    if by_title and isinstance(its, Mapping) and is_placeholder([its["abstract"] or ""]):
                        about = {**its["metadata"], ABSTRACT_FROM: TITLE}
                        its = {**its, "abstract": [its["title"]], "metadata": about}
                    yield form.ids, by_title, Entry(where, its)
                    count += 1
        except CorpusError as error:
            if count or not in_folder:
                raise
            known = error if isinstance(error, RecordError) else RecordError(str(error), NOT_RECOGNIZED)
            yield UNIQUE, False, Entry(name, known)


def _papers(
    sources: Iterable[Iterator[tuple[str, bool, Entry]]],
    ids: Ids,
    split: Splitter | None,
    reading: Reading,
    rejected: RejectedRecords,
    stops: bool,
) -> Iterator[tuple[Paper, int | None]]:
    """Yield each paper with None; a duplicate with the number (from 1) of the paper that it is."""
    seen = Seen(reading.dedupe)
    for source in sources:
        for whose, of_library, entry in source:
            try:
                if (paper := _paper(entry, whose, split, reading)) is None:
                    continue
                if not paper.paper_id:
                    paper = replace(paper, paper_id=content_id(paper))
                    whose = CHOSEN if whose == UNIQUE else whose
                if isinstance(entry.record, dict) and isinstance(twice := entry.record.get(TWICE), tuple):
                    told = f"expected each field once, found different values twice of {', '.join(twice)}"
                    known = {"paper_id": paper.paper_id, "title": paper.title}
                    rejected.note(records.REPEATED, entry.where, told, **known)
                first = seen.first(paper)
                paper_id, is_new = (first, False) if first else ids.place(paper, entry.where, whose)
            except RecordError as error:
                if stops and error.is_fault and not of_library:
                    if reading.on_error == records.STOP:  # as was asked for
                        raise error from None
                    remedy = "leave such records out with `on_error` skip"
                    if error.reason == records.NO_ABSTRACT:
                        remedy = f"keep such papers by their titles with `keep_without_abstract`, or {remedy}"
                    raise RecordError(f"{error} ({remedy})", error.reason) from None
                title = entry.record.get("title") if isinstance(entry.record, Mapping) else None
                broken = rejected.broken
                rejected.skip(entry.where, error, id_of(entry.record), title)
                rejected.accepted += (rejected.broken - broken) * of_library
                continue
            if not is_new:
                by, place = seen.by if first else None, f"{paper.title!r}, {ids.first(paper_id)}"
                rejected.merge(entry.where, paper.paper_id, paper_id, by, place)
                if first:
                    seen.add(paper, first)
                yield paper, ids.numbers[paper_id]
                continue
            if paper_id != paper.paper_id:
                told = f"the id {paper.paper_id!r} is that of another paper before; this one is {paper_id!r}"
                rejected.note(records.RENAMED, entry.where, told, paper_id=paper_id)
                paper = replace(paper, paper_id=paper_id)
            if stands_in := paper.metadata.get(ABSTRACT_FROM):
                told = f"no abstract was found; {stands_in} stands for it"
                rejected.note(records.STANDS_IN, entry.where, told, paper_id=paper_id)
            seen.add(paper, paper_id)
            yield paper, None
            if len(ids.numbers) == reading.limit:
                break
        ids.ends.append(len(ids.numbers))
        if len(ids.numbers) == reading.limit:
            break
    rejected.check(reading.max_rejected, len(ids.numbers))


def _paper(entry: Entry, whose: str, split: Splitter | None, reading: Reading) -> Paper | None:
    """Return the paper of an entry, with an empty id where it has none; None for other categories."""
    where, record = entry
    if isinstance(record, RecordError):
        raise record
    paper_id, title, metadata = (record.get(name) for name in ("paper_id", "title", "metadata"))
    if whose == CHOSEN and isinstance(paper_id, str) and not records.is_id(paper_id):
        record = {**record, "paper_id": usable_id(paper_id) or None}
    if whose != UNIQUE and isinstance(title, str | None) and not (title and title.strip()):
        raise RecordError(f"{where}: expected a title, found none; add it or drop the paper", "no title")
    if reading.categories and not (isinstance(metadata, Mapping) and reading.keeps(metadata)):
        return None
    try:
        paper = parse_paper(record, where, split, default_id="")
        if is_placeholder([sentence.text for sentence in paper.sentences]):
            advice, reason = records.NO_ABSTRACT_ADVICE, records.NO_ABSTRACT
            raise unfit("an abstract", ascii(paper.abstract), advice, reason, where)
        return paper
    except RecordError as error:
        if error.reason != records.NO_ABSTRACT or not reading.keep_without_abstract or not title:
            raise
    return parse_paper({**record, "abstract": [title], "pred_labels": None}, where, split, default_id="")


def id_of(record: Mapping[str, Any] | RecordError) -> str | None:
    """Return the id that the paper of a record gets, None where the record does not tell."""
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

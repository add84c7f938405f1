"""A corpus of several sources as a stream of papers, each once; how the format of a file is found."""

import io
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from qbe.corpus import bibtex, json_formats, pdf, records, streams, tables, tagged, xml_formats
from qbe.corpus.fields import ABSTRACT_FROM, TITLE, TWICE, unfit
from qbe.corpus.identity import ASSIGNED, CHOSEN, UNIQUE, Ids, Seen, content_id, merged, usable_id
from qbe.corpus.json_stream import list_path
from qbe.corpus.markup import is_placeholder
from qbe.corpus.names import KINDS, PATTERNS, alternatives
from qbe.corpus.records import FIELDS, Entry, Reader, Reading, RejectedRecords, Splitter, parse_paper
from qbe.corpus.streams import Head, display_name, is_folder, is_library, open_source
from qbe.corpus.tables import SAVED_DATASET, read_dataset
from qbe.corpus.xml_formats import DELETION, PUBMED_ROOTS, note_pubmed, root_tag
from qbe.errors import CorpusError, RecordError, UsageError, did_you_mean
from qbe.types import Paper, Sentence
from qbe.util.files import HUB, is_address


class Format(NamedTuple):
    """Describe a format: how it is recognized (in the order of FORMATS) and read, whose ids it has."""

    name: str
    recognizes: Callable[[Head], bool]
    read: Reader
    ids: str


_FIRST_ENTRY = re.compile(alternatives("first entry"), re.IGNORECASE | re.MULTILINE)


def _json_with(name: str) -> Callable[[Head], bool]:
    found = [re.compile(pattern) for of, pattern in PATTERNS if of == name]
    return lambda head: head.text[:1] in ("{", "[") and all(each.search(head.text) for each in found)


def _is_bibtex(head: Head) -> bool:
    is_named = head.suffix in (".bib", ".bibtex") or _FIRST_ENTRY.search(head.text) is not None
    return is_named and not head.text.startswith(("{", "[", "<"))


_OF_S2 = ("corpusid title externalids", "corpusid abstract", "paperId title")
_OF_S2ORC = [f"paper_id title abstract {each}" for each in ("s2_url", "outbound_citations", "has_pdf_parse")]


def _is_semantic_scholar(head: Head) -> bool:
    is_list = head.text.startswith("[") or list_path(head) is not None
    is_named = is_list and all(f'"{name}"' in head.text for name in ("paperId", "title"))
    return is_named or any(map(head.has, (*_OF_S2, *_OF_S2ORC)))


_BY_NAME: dict[str, tuple[Callable[[Head], bool], Reader]] = {
    "arxiv": (lambda it: it.has("id title abstract categories versions"), json_formats.read_arxiv),
    "semantic-scholar": (_is_semantic_scholar, json_formats.read_semantic_scholar),
    "openalex": (_json_with("openalex"), json_formats.reader(json_formats.from_openalex)),
    "crossref": (_json_with("crossref"), json_formats.reader(json_formats.from_crossref)),
    "pubmed": (lambda it: root_tag(it) in PUBMED_ROOTS, xml_formats.read_pubmed),
    "acl-anthology": (  # other formats have collections of other things
        lambda it: root_tag(it) == "collection" and "<volume" in it.text and "<collection id=" in it.text,
        xml_formats.read_anthology,
    ),
    "csl-json": (_json_with("csl-json"), json_formats.reader(json_formats.from_csl)),
    "bibtex": (_is_bibtex, bibtex.read),
    **{name: (its.recognizes, its.read) for name, its in tagged.FORMATS.items()},
    # Before a PDF other bytes may stand.
    "pdf": (lambda it: b"%PDF-" in it.data[: 1024 if it.suffix == ".pdf" else len(b"%PDF-")], pdf.read),
    "parquet": (lambda it: it.data.startswith(b"PAR1"), tables.read_parquet),
    "jsonl": (_json_with("jsonl"), json_formats.read_entries),
    "table": (tables.is_table, tables.read_table),
}
_IDS = dict.fromkeys(("csl-json", "bibtex", "ris", "endnote", "refworks", "table"), CHOSEN)
_IDS |= dict.fromkeys(("parquet", "jsonl"), UNIQUE)
FORMATS = {name: Format(name, *each, _IDS.get(name, ASSIGNED)) for name, each in _BY_NAME.items()}
JSON_LINES = FORMATS["jsonl"]

_ELEMENT = re.compile(r"<([A-Za-z][\w:.-]*)")


def format_of(stream: io.BufferedReader, name: str, called: str | None = None) -> Format:
    """Return the format ``called`` so, or a source's at its beginning; raises UsageError, RecordError."""
    if called in FORMATS:
        return FORMATS[called]
    if called:
        hint = did_you_mean(called, FORMATS, "check `format`")
        raise UsageError(f"expected `format` of {', '.join(FORMATS)}, found {called!r}; {hint}")
    head = streams.head_of(stream, name)
    form = next((each for each in FORMATS.values() if each.recognizes(head)), None)
    is_json = re.search(r"^[^\S\n]*(?:\[\s*)?\{", head.text, re.MULTILINE) is not None
    may_be_papers = not head.text or (is_json and any(f'"{each}"' in head.text for each in FIELDS))
    if form is None and not may_be_papers:
        raise streams.not_recognized(name, kind_of(head))
    return form or JSON_LINES


def kind_of(head: Head) -> str:
    """Say what a file of another kind is, by its beginning and its name."""
    text = head.text[: 1 << 12]
    told = {"begins": head.data[: 1 << 12].decode("latin-1"), "suffix": head.suffix, "text": text}
    known = (kind for what, sign, kind in KINDS if what in told and re.match(f"(?s){sign}", told[what]))
    if kind := next(known, ""):
        return kind
    if text.startswith("<"):
        element = _ELEMENT.search(head.text)
        of_element = f"XML of <{element[1]}>" if element else "XML"
        return "DBLP's XML, which has no abstracts" if of_element == "XML of <dblp>" else of_element
    if text[:1] in ("{", "["):
        fields = ", ".join(map(repr, list(head.record)[:8]))
        return f"JSON with {fields[:200]}" if fields else "JSON"
    if b"\0" in head.data or len(re.findall(r"[\x01-\x08\x0e-\x1f\ufffd]", text)) > len(text) / 10:
        return "binary data"
    is_latex = re.search(r"^\\(documentclass|begin\{|section\{)", text, re.MULTILINE)
    return "a LaTeX document" if is_latex else "plain text" if text else "an empty file"


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

    ``docs/corpora.md`` has the sources. ``split`` splits abstracts that are one string. With
    ``reading.dedupe`` the papers wait in a temporary file until all are read. Raises CorpusError for anything
    that the readers refuse, and where there is no paper at all; MissingDependencyError for a dataset without
    the package ``datasets``.
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
    is_other = not os.path.isfile(file) and os.path.exists(file)  # noqa: PTH110, PTH113 (as in `is_folder`)
    return file == streams.STDIN or is_address(file) or is_other


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
    """Yield the records of a source, each with whose ids they have, and True if it is a library's."""
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
            if not isinstance(error, RecordError):
                error = RecordError(str(error), streams.NOT_RECOGNIZED)
            yield UNIQUE, False, Entry(name, error)


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

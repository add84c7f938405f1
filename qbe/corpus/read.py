"""A corpus from several sources, each read by the reader for its format."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from qbe.corpus import semantic_scholar
from qbe.corpus.dedupe import Seen
from qbe.corpus.entry import Entry
from qbe.corpus.formats import OF_DATASETS, SEMANTIC_SCHOLAR, Format, format_of, recognized
from qbe.corpus.head import head_of
from qbe.corpus.ids import ASSIGNED, CHOSEN, UNIQUE, Ids, usable_id
from qbe.corpus.leftout import LeftOut
from qbe.corpus.progress import BytesRead
from qbe.corpus.reading import SKIP, SKIP_BYTES, STOP, Reading
from qbe.corpus.record import NO_ABSTRACT, Splitter, is_id, parse_paper
from qbe.corpus.streams import display_name, is_address, is_folder, is_read_once, open_source
from qbe.errors import CorpusError, InputError, RecordError
from qbe.types import Paper

HUGGING_FACE = "hf:"
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

    Each has another id: see `qbe.corpus.ids.Ids`, also for ``known``, the papers of an index that these are
    added to.

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
    duplicates = Seen(reading.dedupe) if reading.dedupe else None
    ids = Ids(sources, known)
    kept = 0
    for stream in _streams(sources, reading, bytes_read):
        for whose, (where, record) in stream:
            try:
                paper = _paper(where, record, split, reading, whose)
                if paper is None:
                    continue
                if duplicates is not None and (first := duplicates.first(paper)) is not None:
                    left_out.merge(where, paper.paper_id, first, duplicates.by)
                    continue
                placed = ids.place(paper, where, whose)
            except RecordError as error:
                if stops:
                    raise _with_remedy(error) from None
                left_out.skip(where, error)
                continue
            if placed is None:
                left_out.merge(where, paper.paper_id, paper.paper_id, "id")
                continue
            if paper.paper_id not in ("", placed.paper_id):
                left_out.rename(where, paper.paper_id, placed.paper_id)
            kept += 1
            yield placed
            if kept == reading.limit:
                break
        ids.end_source()
        if kept == reading.limit:
            break
    left_out.check(reading.max_rejected, kept)
    if not kept:
        names = ", ".join(map(display_name, sources)) or "no source"
        reasons = f" ({left_out.reasons()})" if left_out else ""
        raise CorpusError(f"expected at least one paper, found none in {names}{reasons}; check the corpus")


def _streams(
    sources: Sequence[str], reading: Reading, bytes_read: BytesRead | None
) -> Iterator[Iterator[tuple[str, Entry]]]:
    """The records of each source, with whose ids they have; those of papers whose abstracts are in other
    files together, as one.
    """
    chosen = _chosen(reading)
    parts = [part for source in sources for part in _parts(source, chosen)]
    abstracts = [part for part in parts if _has_only_abstracts(part, chosen)]
    if not abstracts:
        yield from (_entries(source, reading, bytes_read) for source in sources)
        return
    papers = [part for part in parts if part not in abstracts]
    joined = semantic_scholar.join_abstracts(
        chain.from_iterable(entries(part, reading, bytes_read) for part in papers),
        chain.from_iterable(entries(file, reading, bytes_read) for file in abstracts),
        Path(tempfile.gettempdir()),
    )
    yield ((ASSIGNED, entry) for entry in joined)


def _has_only_abstracts(part: str, chosen: Format | None) -> bool:
    """Whether this is a file of abstracts alone, to be joined with papers of other files.

    What is far away, or could not be read again, is not looked at.
    """
    if chosen not in (None, SEMANTIC_SCHOLAR) or _is_dataset(part, chosen):
        return False
    if is_address(part) or is_read_once(part):
        return False
    with open_source(part) as stream:
        head = head_of(stream, part)
    return semantic_scholar.has_only_abstracts(head)


def _default_policy(sources: Sequence[str]) -> str:
    """SKIP for files of more than SKIP_BYTES together: one broken record is not to stop a night's work."""
    sizes = (os.path.getsize(source) for source in sources if os.path.isfile(source))  # noqa: PTH113, PTH202
    return SKIP if sum(sizes) > SKIP_BYTES else STOP


def _paper(
    where: str, record: Mapping[str, Any] | RecordError, split: Splitter | None, reading: Reading, whose: str
) -> Paper | None:
    """The paper of an entry, with an empty id where it has none of its own; None where it has none of the
    categories wanted. Raises RecordError.
    """
    if isinstance(record, RecordError):
        raise record
    paper_id = record.get("paper_id")
    if whose == CHOSEN and isinstance(paper_id, str) and not is_id(paper_id):
        record = {**record, "paper_id": usable_id(paper_id) or None}
    metadata = record.get("metadata")
    if reading.categories and not (isinstance(metadata, Mapping) and reading.keeps(metadata)):
        return None
    try:
        return parse_paper(record, where, split, default_id="")
    except RecordError as error:
        if error.reason != NO_ABSTRACT or not reading.keep_without_abstract or not record.get("title"):
            raise
    title_alone = {name: value for name, value in record.items() if name != "pred_labels"}
    return parse_paper({**title_alone, "abstract": [record["title"]]}, where, split, default_id="")


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
    for _, entry in _entries(source, reading, bytes_read):
        yield entry


def _entries(source: str, reading: Reading, bytes_read: BytesRead | None) -> Iterator[tuple[str, Entry]]:
    """The records of a source, with whose ids they have."""
    chosen = _chosen(reading)
    if _is_dataset(source, chosen):
        from qbe.corpus.huggingface import read_dataset

        for entry in read_dataset(source.removeprefix(HUGGING_FACE)):
            yield UNIQUE, entry
        return
    for file in files_of(source):
        with open_source(file, bytes_read) as stream:
            name = display_name(file)
            form = chosen or recognized(stream, name)
            for entry in form.read(stream, name, reading):
                yield form.ids, entry


def _chosen(reading: Reading) -> Format | None:
    """The format that all files are to have; None where each file's own is recognized."""
    return format_of(reading.format) if reading.format else None


def _parts(source: str, chosen: Format | None) -> list[str]:
    """The files of a source that are read one by one; a dataset as a whole."""
    return [source] if _is_dataset(source, chosen) else files_of(source)


def _is_dataset(source: str, chosen: Format | None) -> bool:
    """Whether a source is a dataset of Hugging Face, and not files to be read one by one.

    A folder is one unless the content of a file in it is that of a format which such datasets do not have.
    """
    if source.startswith(HUGGING_FACE):
        return True
    if chosen is not None or not is_folder(source):
        return False
    return all(_may_be_of_a_dataset(file) for file in files_of(source))


def _may_be_of_a_dataset(file: str) -> bool:
    try:
        with open_source(file) as stream:
            return recognized(stream, file).name in OF_DATASETS
    except (InputError, CorpusError):
        return True


def files_of(source: str) -> list[str]:
    """The source itself, or of a folder the files in it and below, by name, hidden ones left out.

    >>> Path("parts").mkdir()
    >>> for name in ("b.jsonl", "a.jsonl", ".hidden"):
    ...     Path("parts", name).touch()
    >>> files_of("parts")
    ['parts/a.jsonl', 'parts/b.jsonl']
    """
    if not is_folder(source):
        return [source]
    below = (path for path in Path(source).rglob("*") if path.is_file())
    visible = (path for path in below if not any(part[0] == "." for part in path.relative_to(source).parts))
    return sorted(map(str, visible))

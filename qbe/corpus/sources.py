"""The sources of a corpus: files, folders of files, data sets; each file read by the reader of its format."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from qbe.corpus.encodings import WESTERN, from_western
from qbe.corpus.entry import Entry
from qbe.corpus.formats import Format, format_of, recognized
from qbe.corpus.ids import CHOSEN, UNIQUE
from qbe.corpus.leftout import RECODED, LeftOut
from qbe.corpus.progress import BytesRead
from qbe.corpus.reading import Reading
from qbe.corpus.streams import display_name, is_folder, open_source
from qbe.corpus.unknown import NOT_RECOGNIZED
from qbe.errors import CorpusError, RecordError

HUGGING_FACE = "hf:"
_MARKERS = ("dataset_dict.json", "state.json")
"""Files of which a folder that ``datasets`` saved has one."""

_MOST_NAMES = 5


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


def parts_of(source: str, reading: Reading) -> list[str]:
    """What of a source is read one by one: its files; a data set as a whole.

    >>> parts_of("hf:someone/papers", Reading())
    ['hf:someone/papers']
    """
    return [source] if is_dataset(source, reading) else files_of(source)


def is_dataset(source: str, reading: Reading) -> bool:
    """Whether a source is a data set of Hugging Face: by its name, or a folder that ``datasets`` saved.

    >>> is_dataset("hf:someone/papers", Reading()), is_dataset("papers.jsonl", Reading())
    (True, False)
    """
    if source.startswith(HUGGING_FACE):
        return True
    return reading.format is None and any(Path(source, each).is_file() for each in _MARKERS)


def records(
    source: str,
    reading: Reading,
    left_out: LeftOut | None = None,
    bytes_read: BytesRead | None = None,
) -> Iterator[tuple[str, Entry]]:
    """The records of a source as a stream, each with whose ids they have (`qbe.corpus.ids`).

    A file of a folder that cannot be read at all is an entry with its error. That the text of a file was not
    in UTF-8 is noted in ``left_out``.

    Raises CorpusError for a source that cannot be read, UsageError for a format that does not exist.

    >>> _ = Path("a.jsonl").write_text('{"paper_id": 1, "title": "A", "abstract": ["One."]}')
    >>> [(whose, entry.where) for whose, entry in records("a.jsonl", Reading())]
    [('unique', 'a.jsonl, line 1')]
    """
    if is_dataset(source, reading):
        from qbe.corpus.huggingface import read_dataset

        for entry in read_dataset(source.removeprefix(HUGGING_FACE)):
            yield UNIQUE, entry
        return
    in_folder = is_folder(source)
    for file in files_of(source):
        name, count = display_name(file), 0
        try:
            for each in _of_file(file, reading, left_out, bytes_read):
                yield each
                count += 1
        except CorpusError as error:
            if count or not in_folder:
                raise
            yield UNIQUE, Entry(name, RecordError(str(error), getattr(error, "reason", NOT_RECOGNIZED)))


def _of_file(
    file: str, reading: Reading, left_out: LeftOut | None, bytes_read: BytesRead | None
) -> Iterator[tuple[str, Entry]]:
    name = display_name(file)
    with open_source(file, bytes_read) as stream:
        form: Format = format_of(reading.format) if reading.format else recognized(stream, name)
        if form.ids == CHOSEN:
            stream, is_western = from_western(stream)
            if is_western and left_out is not None:
                message = f"expected UTF-8 text, read as {WESTERN}; where letters are wrong, convert the file"
                left_out.note(RECODED, name, message)
        for entry in form.read(stream, name, reading):
            yield form.ids, entry


def check_folder(source: str, reading: Reading) -> None:
    """Raise CorpusError that names the files of a folder whose formats are not recognized, if there are any.

    >>> check_folder("papers.jsonl", Reading())
    """
    if not is_folder(source) or reading.format or is_dataset(source, reading):
        return
    files, others = files_of(source), []
    for file in files:
        with contextlib.suppress(CorpusError):  # another one is raised when it is read
            try:
                with open_source(file) as stream:
                    recognized(stream, file)
            except RecordError:
                others.append(file)
    if others:
        more = ", ..." if len(others) > _MOST_NAMES else ""
        raise CorpusError(
            f"{source}: {NOT_RECOGNIZED} of {len(others)} of its {len(files)} files: "
            f"{', '.join(others[:_MOST_NAMES])}{more}; move them away, or leave them out with `on_error` skip"
        )

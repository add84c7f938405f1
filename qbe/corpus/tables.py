"""Tables of papers: CSV with commas, semicolons or bars, TSV, Parquet, and data sets of Hugging Face.

Columns are those that `qbe.corpus.records.Reading` names, or have usual names, as in the exports of reference
managers and databases. What some of these write before the header is left out, and said so.
"""

from __future__ import annotations

import contextlib
import csv
import datetime
import io
import logging
import math
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from qbe.corpus import fields
from qbe.corpus.json_stream import decode_text, plain_record
from qbe.corpus.markup import clean_abstract, clean_title
from qbe.corpus.names import credits
from qbe.corpus.records import COLUMNS, FIELDS, Entry, Reading, converted
from qbe.corpus.streams import Head, is_folder, numbered_lines
from qbe.errors import CorpusError, MissingDependencyError, RecordError, UsageError

# Usual names of columns, in small letters and digits, the better ones first: libraries cite by a key, not
# every paper has an "other id", and those of the Web of Science stand before usual ones.
_USUAL = {
    name: columns.split()
    for name, columns in {
        "key": "identifier citationkey citekey bibtexkey bibkey",
        "id": "id paperid recordid corpusid docid docno key",
        "other id": "ut utuniquewosid eid lensid publicationid openalexid pmid pubmedid accessionnumber doi",
        "title": "title articletitle documenttitle papertitle primarytitle",
        "abstract": "abstract abstractnote abstracttext paperabstract summary text",
        "year": "year publicationyear pubyear publishedyear yearpublished",
        "date": "date publicationdate datepublished published coverdate",
        "authors": "authorfullnames authors author authornames authornamesfull creators",
        "venue": "venue journal journaltitle publicationtitle sourcetitle sourcetitleanthologytitle "
        "journalbook publication source",
        "categories": "categories category fieldsofstudy",
        "tags": "tags manualtags automatictags keywords authorkeywords indexkeywords keywordsplus meshterms "
        "ieeeterms subjects",
        "doi": "doi doilink",
        "url": "url link urls articleurl externalurl pdflink",
        "cites": "cites",
    }.items()
}
_KEYS, _NOT_ALWAYS = (_USUAL.pop(name) for name in ("key", "other id"))
_WEB_OF_SCIENCE = {"AU": "authors", "AF": "authorfullnames", "TI": "title", "SO": "source", "AB": "abstract"}
_WEB_OF_SCIENCE |= {"PY": "year", "DI": "doi", "UT": "ut", "DE": "authorkeywords", "ID": "keywordsplus"}
_USUAL["id"] += [*_KEYS, *_NOT_ALWAYS]
_SEVERAL = ("authors", "tags")  # of these all columns are read: where the first is empty, or together
_NAMES = [  # keys of an object that says what it is called
    keys.split()
    for keys in (
        *("name", "display_name", "title", "given family"),
        *("first_name last_name", "firstName lastName", "first last"),
    )
]
_QUOTED = re.compile(r"""'((?:[^'\\]|\\.?)*+)(?:'|\Z)|"((?:[^"\\]|\\.?)*+)(?:"|\Z)""", re.DOTALL)
_ARXIV = re.compile(r"[a-z-]+\.[A-Za-z-]+|[a-z]+-[a-z]+")
_MOST_COLUMNS, _MOST_CHARS = 20, 40  # in a message

MAX_FIELD_CHARS = 4 << 20  # a longer field is an error, as where a quotation mark is missing
_TAB = "\t"
_DELIMITERS = (",", _TAB, ";", "|")
_DELIMITER_OF = {".csv": None, ".tsv": _TAB, ".tab": _TAB}
_SEPARATOR = re.compile(r"\"?sep=([^\"\w])\"?\s*", re.IGNORECASE)  # Excel writes it before a header
_CELL = re.compile(r'"[^"]*"')
_MOST_LINES_BEFORE = 20
_MOST_HEADER_LINES = 100

_BATCH_ROWS = 1000
# Of a file with a group of more than _LARGE_BYTES of rows _BUFFER_BYTES are read at once. A small column is
# read whole: its reader believes no sizes that a damaged file states.
_LARGE_BYTES = 64 << 20
_BUFFER_BYTES = 1 << 20

_OWN = frozenset(("pred_labels", "metadata"))  # fields of records that tables of others lack
_UNREADABLE: object = object()


class Columns(NamedTuple):
    """Hold the position of the column of each field (`qbe.corpus.records.COLUMNS`) that a table has.

    Further columns for authors and tags are called ``authors 2``; ``has_keys``: ids are citation keys.
    """

    positions: Mapping[str, int]
    may_lack_id: bool
    has_keys: bool = False


def find_columns(
    header: Sequence[str], named: Mapping[str, str], name: str, may_lack_abstract: bool = False
) -> Columns:
    """Find the columns of a table, as they are named for its fields, else by their usual names.

    Raises CorpusError for a named column that is not there, and where title or abstract are not found.
    """
    names = ["".join(filter(str.isalnum, column)).lower() for column in header]  # in letters and digits
    if {"PT", "AU", "TI"} <= set(header):
        names = [_WEB_OF_SCIENCE.get(column, own) for column, own in zip(header, names, strict=True)]
    usual = {column: position for position, column in reversed(list(enumerate(names)))}
    positions: dict[str, int] = {}
    for field in COLUMNS:
        if field in named:
            if named[field] not in header:
                raise CorpusError(
                    f"{name}: expected a column {_short(named[field])} for {field}, found {_listed(header)}; "
                    "check `columns`"
                )
            positions[field] = header.index(named[field])
            continue
        places = [usual[each] for each in _USUAL[field] if each in usual]
        for number, place in enumerate(places if field in _SEVERAL else places[:1], start=1):
            positions[field if number == 1 else f"{field} {number}"] = place
    needed = ("title",) if may_lack_abstract else ("title", "abstract")
    if missing := [field for field in needed if field not in positions]:
        raise CorpusError(
            f"{name}: expected columns for {', '.join(missing)}, found {_listed(header)}; rename them, "
            "or name yours with `columns`"
        )
    column = names[positions["id"]] if "id" in positions else ""
    return Columns(positions, "id" not in named and column in ("", *_NOT_ALWAYS), column in _KEYS)


def to_record(columns: Columns, row: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the record of a row, whose values may be text or those of typed tables.

    Sentences in a list stay apart. Raises RecordError where title or abstract are no text, and without a
    title.
    """
    cells = {field: _cell(value, where) for field, value in row.items()}
    abstract, paper_id = cells.get("abstract"), cells.get("id")
    title = clean_title(_text(cells, "title", where))
    if not title:
        raise fields.no_title(where, is_fault=True)
    if columns.may_lack_id and isinstance(paper_id, str):
        if columns.positions.get("id") == columns.positions.get("doi"):
            paper_id = fields.doi(paper_id) or paper_id
        elif "://" in paper_id:
            paper_id = paper_id.rstrip("/").rpartition("/")[2]
        elif (number := paper_id.removesuffix(".0")).isdecimal():
            paper_id = number
        paper_id = paper_id or None
    metadata = {**_metadata(cells), "key": paper_id if columns.has_keys else None}
    made = fields.record(None, title, clean_abstract(_text(cells, "abstract", where)), metadata)
    return {**made, "paper_id": paper_id, **({"abstract": abstract} if isinstance(abstract, list) else {})}


def metadata_of(row: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the metadata of a row (see `to_record`); its title, abstract and id do not count."""
    told = {field: value for field, value in row.items() if field not in ("id", "title", "abstract")}
    return fields.present(_metadata({field: _cell(value, where) for field, value in told.items()}))


def _metadata(cells: Mapping[str, Any]) -> dict[str, Any]:
    authors, tags = (
        [value for name, value in cells.items() if value and name.partition(" ")[0] == field]
        for field in _SEVERAL
    )
    named: Any = authors[0] if authors else ""
    if isinstance(named, str) and not (named.startswith("[") and named.endswith("]")):
        named = "\n".join(map(clean_title, named.split("\n")))
    else:
        named = [clean_title(name) for name in map(_name, _items(named)) if name]
    words = cells.get("categories")
    categories = words.split() if isinstance(words, str) else [""]
    if not all(map(_ARXIV.fullmatch, categories)):
        categories = _names(words)
    cites = (
        str(each).strip() for each in _items(cells.get("cites"), r"[\s;,|]+") if isinstance(each, str | int)
    )
    return {
        **credits(named),
        **fields.dated(fields.date(str(cells.get("date") or ""))),
        **({"year": fields.year(year)} if (year := fields.date(str(cells.get("year") or ""))) else {}),
        "venue": clean_title(_name(cells.get("venue"))),
        "categories": categories,
        "doi": fields.doi(_name(cells.get("doi"))),
        "url": _name(cells.get("url")),
        "cites": list(filter(None, cites)),
        "tags": fields.once(tag for each in tags for tag in _names(each)),
    }


def _items(value: Any, separator: str = ";") -> list[Any]:
    """Return the items of a list, or of the text of one, in brackets as Python's or with separators."""
    if not isinstance(value, str):
        return value if isinstance(value, list) else []
    if not (value.startswith("[") and value.endswith("]")):
        return re.split(separator, value)
    quoted = [single or double for single, double in _QUOTED.findall(value)]
    return quoted or [part.strip(" []") for part in value.split(",")]


def _names(value: Any) -> list[str]:
    separator = next((each for each in ";|," if isinstance(value, str) and each in value), ";")
    return [name for name in map(_name, _items(value, re.escape(separator))) if name]


def _listed(header: Sequence[str]) -> str:
    names = [_short(column) for column in header[:_MOST_COLUMNS]]
    return ", ".join([*names, "..."] if len(header) > len(names) else names) or "none"


def _short(column: str) -> str:
    return ascii(column if len(column) <= _MOST_CHARS else f"{column[: _MOST_CHARS - 3]}...")


def _cell(value: Any, where: str) -> Any:
    if isinstance(value, str):
        return value.strip()
    match value:
        case bytes():
            return decode_text(value, where).strip()
        case float() if not math.isfinite(value):
            return None
        case float() if value.is_integer():  # whole numbers in a column with missing ones
            return int(value)
        case datetime.date():
            return value.isoformat()[: len("YYYY-MM-DD")]
    return value


def _text(cells: Mapping[str, Any], field: str, where: str) -> str:
    value = cells.get(field)
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return " ".join(value)
    return fields.Fields(cells, where).text(field)


def _name(value: Any) -> str:
    if isinstance(value, Mapping):
        for parts in _NAMES:
            texts = [text for each in parts if isinstance(text := value.get(each), str)]
            if name := " ".join(" ".join(texts).split()):
                return name
        return ""
    return value.strip() if isinstance(value, str) else ""


# --- text ---


def is_table(head: Head) -> bool:
    """Return True if the suffix is that of a table, or a header names columns for title and abstract."""
    if head.text.startswith(("{", "[", "<", "@", "PAR1")):
        return False
    lines = head.text.split("\n", _MOST_LINES_BEFORE)[:_MOST_LINES_BEFORE]
    return head.suffix in _DELIMITER_OF or _find_header(lines, Reading(), head) is not None


def read_table(stream: io.BufferedReader, name: str, reading: Reading) -> Iterator[Entry]:
    """Yield the rows of a table; raises CorpusError without columns for title and abstract."""
    lines, head = _Lines(stream, name), Head(name, b"")
    first = lines.ahead(_MOST_HEADER_LINES)
    found = _find_header(first[:_MOST_LINES_BEFORE], reading, head)
    if found is None:  # the first line is the header, which goes on until no quoted field is open
        header_text = ""
        for line in first:
            header_text += line
            if header_text.count('"') % 2 == 0 and not line.isspace():
                break
        found = 0, _delimiter(head, header_text)
    before, delimiter = found
    for text in first[:before]:
        next(lines)
        if text.strip() and not _SEPARATOR.fullmatch(text):
            where = f"{name}, line {lines.number}"
            message = f"{where}: expected the header, found {text.strip()[:_MOST_CHARS]!a}; left it out"
            yield Entry(where, RecordError(message, "not a paper", is_fault=False))
    rows = _rows(lines, name, delimiter)
    _, header = next(rows, (name, []))
    if isinstance(header, RecordError):
        raise CorpusError(str(header))
    columns = find_columns(header, reading.columns, name, reading.keep_without_abstract)
    needed = max(columns.positions["title"], columns.positions.get("abstract", 0))

    def record(row: list[str], where: str) -> dict[str, Any]:
        if len(row) == len(header) - 1 > needed:
            row.append("")  # as of programs that leave out an empty field at the end
        elif len(row) != len(header):
            advice = "put fields with commas or line breaks in quotation marks"
            reason = "a row with another number of fields"
            raise fields.unfit(where, f"{len(header)} fields", str(len(row)), advice, reason)
        values = {field: row[position] for field, position in columns.positions.items()}
        return to_record(columns, values, where)

    yield from converted(rows, record)


class _Lines:
    def __init__(self, stream: io.BufferedReader, name: str) -> None:
        self.number = 0  # of the last one
        self.error: RecordError | None = None
        self.row: list[tuple[int, bytes]] = []
        """The lines since it was emptied."""

        self._name = name
        self._lines = numbered_lines(stream, name)
        self._ahead: deque[tuple[int, bytes]] = deque()

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        numbered = self._ahead.popleft() if self._ahead else next(self._lines)
        self.row.append(numbered)
        self.number, line = numbered
        try:
            return decode_text(line, f"{self._name}, line {self.number}")
        except RecordError as error:
            self.error = self.error or error
            return line.decode(errors="replace")

    def back(self, first: int) -> None:
        """Go back to a line of the row."""
        self._ahead.extendleft(reversed(self.row[first:]))
        del self.row[first:]
        self.number = self.row[-1][0] if self.row else self.number - 1

    def ahead(self, count: int) -> list[str]:
        """Return the next lines, which stay."""
        self._ahead.extend(islice(self._lines, count - len(self._ahead)))
        return [line.decode(errors="replace") for _, line in self._ahead]


def _rows(lines: _Lines, name: str, delimiter: str) -> Iterator[tuple[str, list[str] | RecordError]]:
    """Yield the rows with their places, the header first, without blank ones and blanks beyond its width."""
    options: Any = {"delimiter": delimiter, "skipinitialspace": True, "strict": True}
    reader, width = csv.reader(lines, **options), 0
    while True:
        lines.row.clear()
        where = f"{name}, line {lines.number + 1}"
        row: list[str] | RecordError | None = None
        limit = csv.field_size_limit(MAX_FIELD_CHARS)  # the whole process's, so it is changed only meanwhile
        try:
            if width and delimiter == _TAB:
                row = _tabbed(lines, width)
            row = row or next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            reader, problem = csv.reader(lines, **options), " ".join(str(error).split())
            expected = "quotation marks in pairs around fields, and doubled within them"
            found = f"malformed text ({problem})"
            row = fields.unfit(where, expected, found, "mend or remove the row", "a malformed row")
        finally:
            csv.field_size_limit(limit)
        if width and isinstance(row, list) and len(row) > width and not any(row[width:]):
            del row[width:]
        # Of a row over several lines that is none the first is one, so that the others are not lost.
        if len(lines.row) > 1 and width and (isinstance(row, RecordError) or abs(len(row) - width) > 1):
            lines.back(1)
        if lines.error is not None:
            row, lines.error = lines.error, None
        if isinstance(row, RecordError) or any(row):
            width = width or (len(row) if isinstance(row, list) else 0)
            yield where, row


def _tabbed(lines: _Lines, width: int) -> list[str] | None:
    """Return the next row if it is one line with so many fields; many such tables quote no fields."""
    row = next(lines).rstrip("\r\n").split(_TAB)
    if len(row) < width or any(row[width:]) or (row[-1].startswith('"') and not row[-1].endswith('"')):
        lines.back(0)
        return None
    return [each[1:-1].replace('""', '"') if each[:1] == each[-1:] == '"' else each for each in row]


def _find_header(lines: Sequence[str], reading: Reading, head: Head) -> tuple[int, str] | None:
    """Return how many lines stand before a header that names title and abstract, and its delimiter."""
    given = ""
    for before, line in enumerate(lines):
        if separator := _SEPARATOR.fullmatch(line):
            given = separator[1]
            continue
        delimiter = given or _delimiter(head, line)
        with contextlib.suppress(CorpusError, csv.Error):
            header = next(csv.reader([line], delimiter=delimiter, skipinitialspace=True), [])
            find_columns(header, reading.columns, head.name, reading.keep_without_abstract)
            return before, delimiter
    return None


def _delimiter(head: Head, header: str) -> str:
    return _DELIMITER_OF.get(head.suffix) or max(_DELIMITERS, key=_CELL.sub("", header).count)


# --- typed ---


def read_parquet(stream: io.BufferedReader, name: str, reading: Reading) -> Iterator[Entry]:
    """Yield the rows of a file; raises CorpusError for a damaged one, a pipe, or one without the columns."""
    not_seekable = CorpusError(
        f"{name}: expected Parquet as a file, found a stream that cannot be read from its end; unpack it and "
        "give the file"
    )
    if not stream.seekable():
        raise not_seekable
    try:
        from pyarrow.parquet import ParquetFile, read_metadata
    except ImportError as error:
        raise MissingDependencyError(
            f"{name}: reading Parquet needs the package pyarrow; run: pip install 'qbe[huggingface]'"
        ) from error
    try:
        metadata = read_metadata(stream)
        # Columns of groups are not asked: of a damaged file pyarrow may look for them beyond its memory.
        groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
        largest = max((group.total_byte_size for group in groups), default=0)
        options = {"buffer_size": _BUFFER_BYTES if largest > _LARGE_BYTES else 0, "pre_buffer": False}
        file = ParquetFile(stream, metadata=metadata, page_checksum_verification=True, **options)
        names = [str(each) for each in file.schema_arrow.names]
    except io.UnsupportedOperation:
        raise not_seekable from None
    except Exception as error:  # of many types, and not only pyarrow's
        raise _damaged(name, error) from error
    needed, record = _typed(names, reading, name)
    return converted(_typed_rows(file, needed, name), record)


def _typed_rows(
    file: Any, needed: Mapping[str, str], name: str
) -> Iterator[tuple[str, dict[str, Any] | RecordError]]:
    # Threads would read several columns at the same time, and jump to and fro in compressed files.
    batches = file.iter_batches(_BATCH_ROWS, columns=sorted(set(needed.values())), use_threads=False)
    count = 0
    while True:
        try:
            batch = next(batches, None)
            columns = [_values(batch.column(each)) for each in needed.values()] if batch is not None else []
        except Exception as error:
            raise _damaged(f"{name}, after row {count}" if count else name, error) from error
        if batch is None:
            return
        for row in zip(*columns, strict=True):
            count += 1
            where = f"{name}, row {count}"
            values = dict(zip(needed, row, strict=True))
            if lost := next((field for field, value in values.items() if value is _UNREADABLE), None):
                expected, reason = f"UTF-8 text as {lost}", "text that is not UTF-8"
                yield where, fields.unfit(where, expected, "other bytes", "mend or remove the row", reason)
            else:
                yield where, values


def _values(column: Any) -> list[Any]:
    """Return the values as Python's; of timestamps the dates (UTC), None beyond the year 9999."""
    import pyarrow as pa

    def value(scalar: Any) -> Any:
        try:
            return scalar.as_py()
        except (ValueError, OverflowError):
            return default

    default = _UNREADABLE
    if pa.types.is_timestamp(column.type):
        column, default = column.view(pa.timestamp(column.type.unit)).cast(pa.date32(), safe=False), None
    try:
        values: list[Any] = column.to_pylist()
    except (ValueError, OverflowError):  # one of them; the others are readable
        values = list(map(value, column))
    return values


def _damaged(place: str, error: Exception) -> CorpusError:
    text = "".join(each if each.isprintable() else " " for each in str(error).replace("`", "'"))
    reason = " ".join(text.split())[:200] or type(error).__name__
    return CorpusError(
        f"{place}: expected a whole Parquet file, found it damaged ({reason}); fetch the file again"
    )


def read_dataset(name: str, reading: Reading) -> Iterator[Entry]:
    """Yield the records of a Hugging Face dataset ``NAME[:CONFIG][:SPLIT]`` (``hf:{name}, row {number}``).

    ``NAME`` is one of the hub or a folder; an only split may be left out. Raises UsageError for a malformed
    name, CorpusError for a dataset that cannot be loaded or lacks columns, MissingDependencyError without
    ``datasets``.
    """
    path, *rest = [name] if is_folder(name) else name.split(":")
    if not path or len(rest) > 2:
        raise UsageError(
            f"hf:{name}: expected NAME[:CONFIG][:SPLIT]; write it so, CONFIG may be empty (NAME::SPLIT)"
        )
    config, split = (part or None for part in (*rest, "", "")[:2])
    place = path if is_folder(path) else f"hf:{path}"
    dataset = _open_dataset(path, config, split, place)
    label = (dataset.features or {}).get("pred_labels")
    label_name = getattr(getattr(label, "feature", None), "int2str", None)  # of labels that are numbers
    names = dataset.column_names
    if names is None:
        names = list(next(_batches(dataset, place), {}))
    else:  # do not read columns that are not needed
        dataset = dataset.select_columns(sorted(set(_typed(names, reading, place)[0].values())))
    needed, record = _typed(names, reading, place)

    def rows() -> Iterator[tuple[str, dict[str, Any]]]:
        number = 0
        for batch in _batches(dataset, place):
            for values in zip(*(batch[column] for column in needed.values()), strict=True):
                number += 1
                row = dict(zip(needed, values, strict=True))
                if label_name is not None and row.get("pred_labels"):
                    row["pred_labels"] = [label_name(each) for each in row["pred_labels"]]
                yield f"{place}, row {number}", row

    yield from converted(rows(), record)


def _open_dataset(path: str, config: str | None, split: str | None, place: str) -> Any:
    try:
        import datasets
    except ImportError as error:
        raise MissingDependencyError(
            f"{place} needs the package datasets; run: pip install 'qbe[huggingface]'"
        ) from error
    datasets.disable_progress_bars()
    # The hub's client logs each of its retries; the exception has all that matters.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    try:
        if any(Path(path, marker).is_file() for marker in ("dataset_dict.json", "state.json")):
            loaded = datasets.load_from_disk(path)
        else:
            loaded = datasets.load_dataset(path, config, streaming=True)
    except Exception as error:
        if type(error).__name__ in ("EmptyDatasetError", "DataFilesNotFoundError"):
            raise CorpusError(
                f"{path}: expected a data set, found a folder or repository without data files; give "
                "another name, or a file of papers"
            ) from error
        raise _unreadable(place, error) from error
    splits = loaded if isinstance(loaded, dict) else {} if split else {"": loaded}
    chosen = [splits[key] for key in splits if split in (None, key)]
    if len(chosen) != 1:
        available = ", ".join(loaded) if isinstance(loaded, dict) else "a dataset without splits"
        expected = f"a split called {split}" if split else "the name of a split"
        raise CorpusError(f"{place}: expected {expected}, found {available}; write hf:NAME:CONFIG:SPLIT")
    return chosen[0].with_format(None)


def _batches(dataset: Any, place: str) -> Iterator[dict[str, list[Any]]]:
    try:
        yield from dataset.iter(batch_size=_BATCH_ROWS)
    except Exception as error:
        raise _unreadable(place, error) from error


def _unreadable(place: str, error: Exception) -> CorpusError:
    reason = " ".join(str(error).split())[:200]
    return CorpusError(
        f"cannot read {place}: {type(error).__name__}: {reason}; check the name and the network, or save the "
        "dataset to a folder and give its name"
    )


def _typed(
    names: Sequence[str], reading: Reading, name: str
) -> tuple[dict[str, str], Callable[[dict[str, Any], str], dict[str, Any]]]:
    """Return the columns of a typed table by field, and what makes a record of their values."""
    columns = find_columns(names, reading.columns, name)
    own = {"paper_id", "title", "abstract"} <= set(names) and not _OWN.isdisjoint(names)
    if own and not reading.columns:
        return {field: field for field in FIELDS if field in names}, plain_record
    needed = {field: names[position] for field, position in columns.positions.items()}
    return needed, partial(to_record, columns)

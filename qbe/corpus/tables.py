"""Tables of papers: CSV with commas, semicolons or bars, TSV, Parquet, and data sets of Hugging Face.

Columns are those that `qbe.corpus.records.Reading` names, or have usual names, as in the exports of reference
managers and databases. What some of these write before the header is left out, and said so.
"""

import csv
import datetime
import io
import json
import logging
import math
import re
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from qbe.corpus import fields
from qbe.corpus.json_stream import DECODER, decode_text
from qbe.corpus.markup import NO_VALUE, clean_title
from qbe.corpus.names import credits, rows
from qbe.corpus.records import COLUMNS, FIELDS, Entry, Reading, converted
from qbe.corpus.streams import Head, is_folder, numbered_lines
from qbe.errors import CorpusError, RecordError, UsageError, check_package
from qbe.util.text import one_line, some

# Usual names of columns, in small letters and digits, the better ones first: libraries cite by a key, not
# every paper has an "other id", and those of the Web of Science stand before usual ones.
_USUAL = {name: columns.split() for name, columns in rows("columns")}
_KEYS, _NOT_ALWAYS = (_USUAL.pop(name) for name in ("key", "other id"))
_WEB_OF_SCIENCE = dict(each.split("=") for each in _USUAL.pop("web of science"))
_USUAL["id"] += [*_KEYS, *_NOT_ALWAYS]
_SEVERAL = ("authors", "tags", "venue")  # of these all columns are read: where one is empty, or together
_OTHER_IDS = ("arxiv", "pmid", "pmc")
_VAGUE = ("pub", "publication", "source")  # venues where no other column is one
_NAMES = [keys.split("+") for keys in _USUAL.pop("called")]  # keys of an object that says what it is called
_FAMILY_FIRST = re.compile(r"^((?:[a-z]\S*\s)*\S+)\s(.+)")
_QUOTED = re.compile(r"""'((?:[^'\\]|\\.?)*+)(?:'|\Z)|"((?:[^"\\]|\\.?)*+)(?:"|\Z)""", re.DOTALL)
_ARXIV = re.compile(r"[a-z-]+\.[A-Za-z-]+|[a-z]+-[a-z]+")
_MOST_COLUMNS, _MOST_CHARS = 20, 40  # in a message

MAX_FIELD_CHARS = 4 << 20  # a longer field is an error, as where a quotation mark is missing
_TAB = "\t"
_DELIMITERS = (",", _TAB, ";", "|")
_DELIMITER_OF = {".csv": None, ".tsv": _TAB, ".tab": _TAB}
_SEPARATOR = re.compile(r"\"?sep=([^\"\w])\"?\s*", re.IGNORECASE)  # Excel writes it before a header
_CELL = re.compile(r'"[^"]*"')
_MOST_LINES_BEFORE, _MOST_HEADER_LINES = 20, 100

_BATCH_ROWS = 1000
# Of a file with a group of more than _LARGE_BYTES of rows _BUFFER_BYTES are read at once. A small column is
# read whole: its reader believes no sizes that a damaged file states.
_LARGE_BYTES = 64 << 20
_BUFFER_BYTES = 1 << 20

_OWN = frozenset(("pred_labels", "metadata"))  # fields of records that tables of others lack
_CSV: Any = {"skipinitialspace": True, "strict": True}
SAVED_DATASET = ("dataset_dict.json", "state.json")  # a folder that ``datasets`` saved has one of these files


class Columns(NamedTuple):
    """Hold the position of the column of each field (`qbe.corpus.records.COLUMNS`) that a table has.

    Further columns for authors and tags are called ``authors 2``; ``has_keys``: ids are citation keys;
    ``of_paperpile``: authors are written "Family Given,Family Given".
    """

    positions: Mapping[str, int]
    may_lack_id: bool
    has_keys: bool = False
    of_paperpile: bool = False


def find_columns(header: Sequence[str], named: Mapping[str, str], may_lack_abstract: bool = False) -> Columns:
    """Find the columns of a table, as they are named for its fields, else by their usual names.

    Raises RecordError for a named column that is not there, and where title or abstract are not found.
    """
    names = ["".join(filter(str.isalnum, column)).lower() for column in header]  # in letters and digits
    if {"PT", "AU", "TI"} <= set(header):
        names = [_WEB_OF_SCIENCE.get(column, own) for column, own in zip(header, names, strict=True)]
    usual = {column: position for position, column in reversed(list(enumerate(names)))}
    shown = [repr(each if len(each) <= _MOST_CHARS else f"{each[: _MOST_CHARS - 3]}...") for each in header]
    listed = some(shown, _MOST_COLUMNS) or "none"
    positions: dict[str, int] = {}
    for field in (*COLUMNS, *_OTHER_IDS):
        if field in named:
            if named[field] not in header:
                expected = f"a column {named[field]!a:.{_MOST_CHARS}} for {field}"
                raise fields.unfit(expected, listed, "check `columns`", "no title")
            positions[field] = header.index(named[field])
            continue
        places = [usual[each] for each in _USUAL[field] if each in usual and each not in _VAGUE]
        places = places or [usual[each] for each in _USUAL[field] if each in usual]
        for number, place in enumerate(places if field in _SEVERAL else places[:1], start=1):
            positions[field if number == 1 else f"{field} {number}"] = place
    own = positions.get("id")
    positions = {name: at for name, at in positions.items() if at != own or name not in _OTHER_IDS}
    needed = ("title",) if may_lack_abstract else ("title", "abstract")
    if missing := ", ".join(field for field in needed if field not in positions):
        advice = "rename them, or name yours with `columns`"
        raise fields.unfit(f"columns for {missing}", listed, advice, "no title")
    column = names[positions["id"]] if "id" in positions else ""
    may_lack_id = "id" not in named and column in ("", *_NOT_ALWAYS)
    return Columns(positions, may_lack_id, column in _KEYS, "labelsfiledin" in names)


def to_record(columns: Columns, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of a row, whose values may be text or those of typed tables.

    Sentences in a list stay apart. Raises RecordError without a title, and where a text is none.
    """
    cells = {field: _cell(value) for field, value in row.items()}
    if columns.of_paperpile and isinstance(names := cells.get("authors"), str):
        cells["authors"] = "; ".join(_FAMILY_FIRST.sub(r"\1, \2", each.strip()) for each in names.split(","))
    paper_id = cells.get("id")
    paper_id = (_name(paper_id) or None) if isinstance(paper_id, list) else paper_id
    if isinstance(paper_id, str) and (columns.may_lack_id or "//openalex.org/" in paper_id):
        if columns.positions.get("id") == columns.positions.get("doi"):
            paper_id = fields.doi(paper_id) or paper_id
        elif "://" in paper_id:
            paper_id = paper_id.rstrip("/").rpartition("/")[2]
        elif (number := paper_id.removesuffix(".0")).isdecimal():
            paper_id = number
        paper_id = paper_id or None
    sentences: dict[str, Any] = {name: value for name, value in cells.items() if isinstance(value, list)}
    title, abstract = (
        " ".join(value)
        if (value := sentences.get(name)) and all(isinstance(each, str) for each in value)
        else fields.Fields(cells).text(name)
        for name in ("title", "abstract")
    )
    metadata = {**metadata_of(cells), "key": paper_id if columns.has_keys else None}
    made = fields.record(None, title, abstract, metadata)
    return made | {"paper_id": paper_id} | {k: v for k, v in sentences.items() if k == "abstract"}


def metadata_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of a row (see `to_record`), still with markup."""
    cells = {field: _cell(value) for field, value in row.items()}
    filled = [(name.partition(" ")[0], value) for name, value in cells.items() if value]
    authors, tags, venues = ([value for name, value in filled if name == field] for field in _SEVERAL)
    named: Any = authors[0] if authors else ""
    if isinstance(named, str) and not (named.startswith("[") and named.endswith("]")):
        named = "\n".join(map(clean_title, named.split("\n")))
    else:
        named = [clean_title(name) for name in map(_name, _items(named)) if name]
    words = cells.get("categories")
    categories = words.split() if isinstance(words, str) else [""]
    if not all(map(_ARXIV.fullmatch, categories)):
        categories = _names(words)
    cites = _items(cells.get("cites"), r"[\s;,|]+")
    if len(cites) == 1 and str(cites[0]).isdecimal():  # a count is no citation
        cites = []
    others = ((name, value) for name in _OTHER_IDS if (value := cells.get(name)))
    return {
        **credits(named),
        **fields.dated(str(cells.get("date") or ""), cells.get("year")),
        "venue": next(filter(None, map(_name, venues)), ""),
        "categories": categories,
        "doi": _name(cells.get("doi")),
        "url": _name(cells.get("url")),
        "cites": [cited for each in cites if isinstance(each, str | int) and (cited := str(each).strip())],
        "ids": {name: _name(str(of) if type(of) is int else of).removesuffix(".0") for name, of in others},
        "tags": [tag for each in tags for tag in _names(each)],
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


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return "" if (text := value.strip()).casefold() in NO_VALUE else text
    match value:
        case bytes():
            return decode_text(value).strip()
        case float() if not math.isfinite(value):
            return None
        case float() if value.is_integer():  # whole numbers in a column with missing ones
            return int(value)
        case datetime.date():
            return value.isoformat()[: len("YYYY-MM-DD")]
    return value


def _name(value: Any) -> str:
    value = value[0] if isinstance(value, list) and value else value
    if isinstance(value, Mapping):
        for parts in _NAMES:
            texts = [text for each in parts if isinstance(text := value.get(each), str)]
            if name := " ".join(" ".join(texts).split()):
                return name
        return ""
    return value.strip() if isinstance(value, str) else ""


def is_table(head: Head) -> bool:
    """Return True if the suffix is that of a table, or a header names columns for title and abstract."""
    if head.text.startswith(("{", "[", "<", "@", "PAR1")):
        return False
    lines = head.text.split("\n", _MOST_LINES_BEFORE)[:_MOST_LINES_BEFORE]
    return head.suffix in _DELIMITER_OF or _find_header(lines, Reading(), head) is not None


def read_table(stream: io.BufferedReader, name: str, reading: Reading) -> Iterator[Entry]:
    """Yield the rows of a file; raises CorpusError without columns for title and abstract."""
    numbered, head = numbered_lines(stream, name), Head(name, b"")
    first = list(islice(numbered, _MOST_HEADER_LINES))
    texts = [line.decode(errors="replace") for _, line in first]
    found = _find_header(texts[:_MOST_LINES_BEFORE], reading, head)
    if found is None:  # the first line is the header, which goes on until no quoted field is open
        closed = (text for text in accumulate(texts) if text.count('"') % 2 == 0 and not text.isspace())
        found = 0, _delimiter(head, next(closed, ""))
    before, delimiter = found
    for (number, _), text in zip(first[:before], texts, strict=False):
        if text.strip() and not _SEPARATOR.fullmatch(text):
            where, line = f"{name}, line {number}", ascii(text.strip()[:_MOST_CHARS])
            error = fields.unfit("the header", line, "left it out", "not a paper", where, is_fault=False)
            yield Entry(where, error)
    rows = _rows(chain(first[before:], numbered), name, delimiter)
    _, header = next(rows, (name, []))
    if isinstance(header, RecordError):
        raise CorpusError(str(header))
    columns = _of_header(header, reading, name, reading.keep_without_abstract)
    needed = max(columns.positions["title"], columns.positions.get("abstract", 0))

    def record(row: list[str]) -> dict[str, Any]:
        if len(row) == len(header) - 1 > needed:
            row.append("")  # as of programs that leave out an empty field at the end
        elif len(row) != len(header):
            advice = "put fields with commas or line breaks in quotation marks"
            reason = "a row with another number of fields"
            raise fields.unfit(f"{len(header)} fields", str(len(row)), advice, reason)
        return to_record(columns, {field: row[place] for field, place in columns.positions.items()})

    yield from converted(rows, record)


def _of_header(header: Sequence[str], reading: Reading, name: str, lacks_abstract: bool = False) -> Columns:
    try:
        return find_columns(header, reading.columns, lacks_abstract)
    except RecordError as error:
        raise CorpusError(f"{name}: {error}") from None


def _rows(
    lines: Iterator[tuple[int, bytes]], name: str, delimiter: str
) -> Iterator[tuple[str, list[str] | RecordError]]:
    """Yield the rows with their places, the header first, without blank ones and blanks beyond its width."""
    ahead, part, width = deque[tuple[int, bytes]](), list[tuple[int, bytes]](), 0

    def taken() -> Iterator[str]:
        while (line := ahead.popleft() if ahead else next(lines, None)) is not None:
            part.append(line)
            yield line[1].decode(errors="replace")

    while True:
        part.clear()
        row: list[str] | RecordError | None = None
        limit = csv.field_size_limit(MAX_FIELD_CHARS)  # the whole process's, so it is changed only meanwhile
        try:
            if width and delimiter == _TAB:
                row = _unquoted(next(taken(), ""), width)
                if row is None:
                    ahead.extendleft(part)
                    part.clear()
            row = row or next(csv.reader(taken(), **_CSV, delimiter=delimiter), None)
        except csv.Error as error:
            expected = "quotation marks in pairs around fields, and doubled within them"
            found = f"malformed text ({' '.join(str(error).split())})"
            place = f"{name}, line {part[0][0]}"
            row = fields.unfit(expected, found, "mend or remove the row", "a malformed row", place)
        finally:
            csv.field_size_limit(limit)
        if row is None:
            return
        if width and isinstance(row, list) and len(row) > width and not any(row[width:]):
            del row[width:]
        # Of a row over several lines that is none the first is one, so that the others are not lost.
        if len(part) > 1 and width and (isinstance(row, RecordError) or abs(len(row) - width) > 1):
            ahead.extendleft(reversed(part[1:]))
            del part[1:]
        try:
            for number, line in part:
                decode_text(line, f"{name}, line {number}")
        except RecordError as error:
            row = error
        if isinstance(row, RecordError) or any(row):
            width = width or (len(row) if isinstance(row, list) else 0)
            yield f"{name}, line {part[0][0]}", row


def _unquoted(line: str, width: int) -> list[str] | None:
    """Return the row of a line that has so many fields; many tables with tabs quote none."""
    row = line.rstrip("\r\n").split(_TAB)
    if len(row) < width or any(row[width:]) or (row[-1].startswith('"') and not row[-1].endswith('"')):
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
        try:
            header = next(csv.reader([line], delimiter=delimiter, skipinitialspace=True), [])
            find_columns(header, reading.columns, reading.keep_without_abstract)
        except (RecordError, csv.Error):
            continue
        return before, delimiter
    return None


def _delimiter(head: Head, header: str) -> str:
    return _DELIMITER_OF.get(head.suffix) or max(_DELIMITERS, key=_CELL.sub("", header).count)


def read_parquet(stream: io.BufferedReader, name: str, reading: Reading) -> Iterator[Entry]:
    """Yield the rows of a file; raises CorpusError for a damaged one, or one without the columns."""
    parquet = check_package("pyarrow.parquet")
    source: Any = stream
    if not stream.seekable():  # it is read from its end
        source = tempfile.TemporaryFile()  # noqa: SIM115 (read as long as rows are asked for)
        shutil.copyfileobj(stream, source)
    try:
        metadata = parquet.read_metadata(source)
        # Columns of groups are not asked: of a damaged file pyarrow may look for them beyond its memory.
        groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
        largest = max((group.total_byte_size for group in groups), default=0)
        options = {"buffer_size": _BUFFER_BYTES if largest > _LARGE_BYTES else 0, "pre_buffer": False}
        file = parquet.ParquetFile(source, metadata=metadata, page_checksum_verification=True, **options)
        names = [str(each) for each in file.schema_arrow.names]
    except Exception as error:  # of many types, and not only pyarrow's
        raise _damaged(name, error) from error

    def batches(columns: list[str]) -> Iterator[dict[str, list[Any]]]:
        count = 0
        try:
            # Threads would read several columns at the same time, and jump to and fro in compressed files.
            for batch in file.iter_batches(_BATCH_ROWS, columns=columns, use_threads=False):
                yield {column: _values(batch.column(column)) for column in columns}
                count += len(batch)
        except Exception as error:
            raise _damaged(f"{name}, after row {count}" if count else name, error) from error

    return _typed(names, reading, name, batches)


def _values(column: Any) -> list[Any]:
    """Return the values as Python's; of timestamps the dates (UTC), None beyond the years 1 to 9999."""
    import pyarrow as pa
    from pyarrow import compute

    if pa.types.is_timestamp(column.type):
        column = column.view(pa.timestamp(column.type.unit)).cast(pa.date32(), safe=False)
        years = compute.year(column)
        inside = compute.and_(compute.greater_equal(years, 1), compute.less_equal(years, 9999))
        column = compute.if_else(inside, column, None)
    values: list[Any] = column.to_pylist()
    return values


def _damaged(place: str, error: Exception) -> CorpusError:
    reason = one_line(str(error).replace("`", "'"))[:200] or type(error).__name__
    found = f"it damaged ({reason}); fetch the file again"
    return CorpusError(f"{place}: expected a whole Parquet file, found {found}")


def read_dataset(name: str, reading: Reading) -> Iterator[Entry]:
    """Yield the records of a Hugging Face dataset ``NAME[:CONFIG][:SPLIT]``, of the hub or in a folder.

    Raises UsageError for a malformed name, CorpusError for a dataset that cannot be loaded or lacks columns.
    """
    path, *rest = [name] if is_folder(name) else name.split(":")
    if not path or len(rest) > 2:
        advice = "write it so, CONFIG may be empty (NAME::SPLIT)"
        raise UsageError(f"hf:{name}: expected NAME[:CONFIG][:SPLIT]; {advice}")
    config, split = (part or None for part in (*rest, "", "")[:2])
    place = path if is_folder(path) else f"hf:{path}"
    datasets = check_package("datasets")
    datasets.disable_progress_bars()
    # The hub's client logs each of its retries; the exception has all that matters.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    try:
        if any(Path(path, marker).is_file() for marker in SAVED_DATASET):
            loaded = datasets.load_from_disk(path)
        else:
            loaded = datasets.load_dataset(path, config, streaming=True)
        dataset = _split_of(loaded, split, place)
        label = (dataset.features or {}).get("pred_labels")
        label_name = getattr(getattr(label, "feature", None), "int2str", None)  # of labels that are numbers

        def batches(columns: list[str]) -> Iterator[dict[str, list[Any]]]:
            for batch in dataset.select_columns(columns).iter(batch_size=_BATCH_ROWS):
                if label_name is not None and "pred_labels" in batch:
                    batch["pred_labels"] = [each and label_name(each) for each in batch["pred_labels"]]
                yield batch

        names = dataset.column_names or list(next(iter(dataset), {}))
        yield from _typed(names, reading, place, batches)
    except CorpusError:
        raise
    except Exception as error:
        if type(error).__name__ in ("EmptyDatasetError", "DataFilesNotFoundError"):
            found = "a folder or repository without data files; give another name, or a file of papers"
            raise CorpusError(f"{path}: expected a data set, found {found}") from error
        reason = " ".join(str(error).split())[:200]
        advice = "check the name and the network, or save the dataset to a folder and give its name"
        raise CorpusError(f"cannot read {place}: {type(error).__name__}: {reason}; {advice}") from error


def _split_of(loaded: Any, split: str | None, place: str) -> Any:
    splits = loaded if isinstance(loaded, dict) else {} if split else {"": loaded}
    chosen = [splits[key] for key in splits if split in (None, key)]
    if len(chosen) != 1:
        available = ", ".join(loaded) if isinstance(loaded, dict) else "a dataset without splits"
        expected = f"a split called {split}" if split else "the name of a split"
        raise CorpusError(f"{place}: expected {expected}, found {available}; write hf:NAME:CONFIG:SPLIT")
    return chosen[0].with_format(None)


def _typed(
    names: Sequence[str],
    reading: Reading,
    name: str,
    batches: Callable[[list[str]], Iterable[Mapping[str, Sequence[Any]]]],
) -> Iterator[Entry]:
    columns = _of_header(names, reading, name)
    needed = {field: names[position] for field, position in columns.positions.items()}
    record: Callable[[dict[str, Any]], dict[str, Any]] = partial(to_record, columns)
    own = {"paper_id", "title", "abstract"} <= set(names) and not _OWN.isdisjoint(names)
    if own and not reading.columns:
        needed = {field: field for field in FIELDS if field in names}
        # As JSON has them: without dates, decimals, NaN.
        record = lambda record: DECODER.decode(json.dumps(record, default=str))  # noqa: E731

    def rows() -> Iterator[tuple[str, dict[str, Any]]]:
        found = batches(sorted(set(needed.values())))
        values = (row for each in found for row in zip(*map(each.__getitem__, needed.values()), strict=True))
        for number, row in enumerate(values, start=1):
            yield f"{name}, row {number}", dict(zip(needed, row, strict=True))

    return converted(rows(), record)

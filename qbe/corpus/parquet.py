"""Typed tables of papers: Parquet files, read by the package pyarrow, and data sets of Hugging Face.

Columns are the fields of `qbe.corpus.record`, or those that `qbe.corpus.columns` finds.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from qbe.corpus.columns import find_columns, to_record
from qbe.corpus.decode import plain_record
from qbe.corpus.head import Head
from qbe.corpus.reading import Entry, Reading
from qbe.corpus.record import FIELDS
from qbe.corpus.streams import is_folder
from qbe.errors import CorpusError, MissingDependencyError, RecordError, UsageError

_MAGIC = b"PAR1"
_BATCH_ROWS = 1000
_LARGE_BYTES = 64 << 20
_BUFFER_BYTES = 1 << 20
"""Of a file with a group of more than _LARGE_BYTES of rows so much is read at once. A small column is
read whole: its reader believes no sizes that a damaged file states.
"""

_NO_DATA = ("EmptyDatasetError", "DataFilesNotFoundError")
"""Errors of ``datasets`` for a folder or repository without data files."""

_OWN = frozenset(("pred_labels", "metadata"))
"""Fields of `qbe.corpus.record` that tables of others lack."""

_UNREADABLE = object()


def recognizes(head: Head) -> bool:
    """Whether the bytes begin as a Parquet file does."""
    return head.data.startswith(_MAGIC)


def read(stream: io.BufferedReader, name: str, reading: Reading) -> Iterator[Entry]:
    """The rows of a file; ``paper_id`` is None without a column for ids.

    Raises CorpusError for a file that is damaged, or comes through a pipe, or has no columns for title and
    abstract; MissingDependencyError without the package pyarrow.
    """
    if not stream.seekable():
        raise _not_seekable(name)
    try:
        from pyarrow.parquet import ParquetFile, read_metadata
    except ImportError as error:
        raise MissingDependencyError(
            f"{name}: reading Parquet needs the package pyarrow; run: pip install 'qbe[huggingface]'"
        ) from error
    try:
        metadata = read_metadata(stream)
        file = ParquetFile(
            stream,
            metadata=metadata,
            buffer_size=_BUFFER_BYTES if _largest_group(metadata) > _LARGE_BYTES else 0,
            pre_buffer=False,
            page_checksum_verification=True,
        )
        names = [str(each) for each in file.schema_arrow.names]
    except io.UnsupportedOperation:
        raise _not_seekable(name) from None
    except Exception as error:  # of many types, and not only pyarrow's
        raise _damaged(name, error) from error
    rows = _TypedRows(names, reading, name)
    for number, values in enumerate(_rows(file, rows.needed, name), start=1):
        where = f"{name}, row {number}"
        lost = next((field for field, value in values.items() if value is _UNREADABLE), None)
        yield Entry(where, _not_utf8(where, lost)) if lost else rows.entry(values, where)


def _largest_group(metadata: Any) -> int:
    """The bytes of the largest group of rows, uncompressed.

    Its columns are not asked: of a damaged file pyarrow may look for them beyond the end of its memory.
    """
    groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
    return max((group.total_byte_size for group in groups), default=0)


def _rows(file: Any, needed: Mapping[str, str], name: str) -> Iterator[dict[str, Any]]:
    """The values of the needed columns, row by row, by fields."""
    # Threads would read several columns at the same time, and jump to and fro in compressed files.
    batches = file.iter_batches(_BATCH_ROWS, columns=sorted(set(needed.values())), use_threads=False)
    count = 0
    while True:
        try:
            batch = next(batches, None)
            if batch is None:
                return
            columns = {field: _values(batch.column(column)) for field, column in needed.items()}
        except Exception as error:
            raise _damaged(f"{name}, after row {count}" if count else name, error) from error
        for row in zip(*columns.values(), strict=True):
            yield dict(zip(columns, row, strict=True))
        count += batch.num_rows


def _values(column: Any) -> list[Any]:
    """The values as Python's; of points in time the dates (of Greenwich), None beyond the year 9999."""
    import pyarrow as pa

    is_time = pa.types.is_timestamp(column.type)
    if is_time:
        column = column.view(pa.timestamp(column.type.unit)).cast(pa.date32(), safe=False)
    try:
        values: list[Any] = column.to_pylist()
    except (ValueError, OverflowError):  # one of them; the others are readable
        values = [_value(scalar, None if is_time else _UNREADABLE) for scalar in column]
    return values


def _value(scalar: Any, default: object) -> Any:
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        return default


def _not_utf8(where: str, field: str) -> RecordError:
    return RecordError(
        f"{where}: expected UTF-8 text as {field}, found other bytes; mend or remove the row",
        "text that is not UTF-8",
    )


def _not_seekable(name: str) -> CorpusError:
    return CorpusError(
        f"{name}: expected Parquet as a file, found a stream that cannot be read from its end; unpack it and "
        "give the file"
    )


def _damaged(place: str, error: Exception) -> CorpusError:
    text = "".join(each if each.isprintable() else " " for each in str(error).replace("`", "'"))
    reason = " ".join(text.split())[:200] or type(error).__name__
    return CorpusError(
        f"{place}: expected a whole Parquet file, found it damaged ({reason}); fetch the file again"
    )


def read_dataset(name: str, reading: Reading) -> Iterator[Entry]:
    """Records of a Hugging Face dataset with their places (``hf:{name}, row {number}``), as a stream.

    ``name`` is ``NAME[:CONFIG][:SPLIT]``: a name of the hub or a folder (saved with ``save_to_disk``, or of
    data files); the split may be left out where there is only one.

    Raises UsageError for a malformed name, CorpusError for a dataset that cannot be loaded or has no columns
    for title and abstract, MissingDependencyError without the package ``datasets``.
    """
    path, *rest = [name] if is_folder(name) else name.split(":")
    if not path or len(rest) > 2:
        raise UsageError(
            f"hf:{name}: expected NAME[:CONFIG][:SPLIT]; write it so, CONFIG may be empty (NAME::SPLIT)"
        )
    config, split = (part or None for part in (*rest, "", "")[:2])
    place = path if is_folder(path) else f"hf:{path}"
    dataset = _open(path, config, split, place)
    rows = None
    if dataset.column_names is not None:  # do not read columns that are not needed
        rows = _TypedRows(dataset.column_names, reading, place)
        dataset = dataset.select_columns(sorted(set(rows.needed.values())))
    label = (dataset.features or {}).get("pred_labels")
    label_name = getattr(getattr(label, "feature", None), "int2str", None)  # of labels that are numbers
    number = 0
    for batch in _batches(dataset, place):
        rows = rows or _TypedRows(list(batch), reading, place)
        for values in zip(*(batch[column] for column in rows.needed.values()), strict=True):
            number += 1
            row = dict(zip(rows.needed, values, strict=True))
            if label_name is not None and row.get("pred_labels"):
                row["pred_labels"] = [label_name(each) for each in row["pred_labels"]]
            yield rows.entry(row, f"{place}, row {number}")


def _open(path: str, config: str | None, split: str | None, place: str) -> Any:
    """The split of that name, or the only one."""
    try:
        import datasets
    except ImportError as error:
        raise MissingDependencyError(
            f"{place} needs the package datasets; run: pip install 'qbe[huggingface]'"
        ) from error
    datasets.disable_progress_bars()
    # The hub's client logs each of its retries; the exception has all that matters.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    saved = any(Path(path, marker).is_file() for marker in ("dataset_dict.json", "state.json"))
    try:
        loaded = (
            datasets.load_from_disk(path) if saved else datasets.load_dataset(path, config, streaming=True)
        )
    except Exception as error:
        if type(error).__name__ in _NO_DATA:
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


class _TypedRows:
    """Makes records of the rows of a typed table, by its columns, or of `qbe.corpus.record`'s own fields.

    ``needed`` maps each field to its column. Raises CorpusError where title or abstract are not found.
    """

    def __init__(self, names: Sequence[str], reading: Reading, name: str) -> None:
        self._columns = find_columns(names, reading.columns, name)
        own = {"paper_id", "title", "abstract"} <= set(names) and not _OWN.isdisjoint(names)
        self._is_own = own and not reading.columns
        self.needed = {field: names[position] for field, position in self._columns.positions.items()}
        if self._is_own:
            self.needed = {field: field for field in FIELDS if field in names}

    def entry(self, row: dict[str, Any], where: str) -> Entry:
        """The entry of a row: the values of the ``needed`` fields."""
        try:
            return Entry(where, plain_record(row) if self._is_own else to_record(self._columns, row, where))
        except RecordError as error:
            return Entry(where, error)

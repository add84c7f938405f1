"""Parquet files of papers, by their fields or the columns that `qbe.corpus.columns` finds.

The package pyarrow reads them.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from typing import Any

from qbe.corpus.columns import TypedRows
from qbe.corpus.head import Head
from qbe.corpus.reading import Entry, Reading
from qbe.errors import CorpusError, MissingDependencyError, RecordError

_MAGIC = b"PAR1"
_BATCH_ROWS = 1000
_LARGE_BYTES = 64 << 20
_BUFFER_BYTES = 1 << 20
"""Of a file with a group of more than _LARGE_BYTES of rows so much is read at once. A small column is
read whole: its reader believes no sizes that a damaged file states.
"""

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
    rows = TypedRows(names, reading, name)
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

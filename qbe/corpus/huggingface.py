"""Papers of a Hugging Face dataset: from the hub, saved with ``save_to_disk``, or a folder of files.

A dataset is named ``NAME[:CONFIG][:SPLIT][?FIELD=COLUMN&...]``, for instance
``someone/papers::train?paper_id=id&abstract=summary``. NAME is a hub name or a local folder. The split
may be left out where there is only one. FIELD is a field of `qbe.corpus.record`, COLUMN its name in the
dataset; by default the names are the same, and all but title and abstract may be absent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from qbe.corpus.decode import plain_record
from qbe.corpus.reading import Entry
from qbe.corpus.record import FIELDS
from qbe.corpus.streams import is_folder
from qbe.errors import CorpusError, MissingDependencyError, UsageError

_BATCH_ROWS = 1000
_NEEDED = frozenset(("title", "abstract"))
_NO_DATA = ("EmptyDatasetError", "DataFilesNotFoundError")
"""Errors of ``datasets`` for a folder or repository without data files."""
_FORM = "NAME[:CONFIG][:SPLIT][?FIELD=COLUMN&...]"


class DatasetName(NamedTuple):
    """The parts of a name; ``columns`` holds the fields that have other names in the dataset."""

    path: str
    config: str | None
    split: str | None
    columns: Mapping[str, str]


def parse_name(name: str) -> DatasetName:
    """Split a dataset's name into its parts; the path of an existing folder is not split at its colons.

    Raises UsageError for a name that does not follow the form, or names a field that papers lack.

    >>> parse_name("someone/papers::train?abstract=summary")
    DatasetName(path='someone/papers', config=None, split='train', columns={'abstract': 'summary'})
    """
    location, _, query = (name, "", "") if is_folder(name) else name.partition("?")
    parts = [location] if is_folder(location) else location.split(":")
    columns = dict(parse_qsl(query, keep_blank_values=True))
    unknown = sorted(columns.keys() - set(FIELDS))
    if unknown:
        raise UsageError(
            f"hf:{name}: expected {', '.join(FIELDS)} before '=', found {unknown[0]!r}; rename it"
        )
    if not parts[0] or len(parts) > 3 or not all(columns.values()) or (query and not columns):
        raise UsageError(f"hf:{name}: expected {_FORM}; write it so, CONFIG may be empty (NAME::SPLIT)")
    config, split = (part or None for part in (*parts[1:], "", "")[:2])
    return DatasetName(parts[0], config, split, columns)


def read_dataset(name: str) -> Iterator[Entry]:
    """Records of a dataset with their places (``hf:{name}, row {number}``), as a stream.

    Raises UsageError for a malformed name, CorpusError for a dataset that cannot be loaded and a missing
    column, MissingDependencyError without the package ``datasets``.
    """
    spec = parse_name(name)
    place = spec.path if is_folder(spec.path) else f"hf:{spec.path}"
    dataset = _open(spec, place)
    available = dataset.column_names
    if available is not None:  # do not read columns that are not needed
        dataset = dataset.select_columns(list(dict.fromkeys(_columns(spec, available, place).values())))
    label_name = _label_name(dataset, spec.columns.get("pred_labels", "pred_labels"))
    number = 0
    for batch in _batches(dataset, place):
        columns = _columns(spec, list(batch), place)
        for row in zip(*(batch[column] for column in columns.values()), strict=True):
            number += 1
            record = dict(zip(columns, row, strict=True))
            if label_name is not None and record.get("pred_labels"):
                record["pred_labels"] = [label_name(label) for label in record["pred_labels"]]
            yield Entry(f"{place}, row {number}", plain_record(record))


def _open(spec: DatasetName, place: str) -> Any:
    """The split that the name selects."""
    try:
        import datasets
    except ImportError as error:
        raise MissingDependencyError(
            f"{place} needs the package datasets; run: pip install 'qbe[huggingface]'"
        ) from error
    datasets.disable_progress_bars()
    # The hub's client logs each of its retries; the exception has all that matters.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    saved = any(Path(spec.path, marker).is_file() for marker in ("dataset_dict.json", "state.json"))
    try:
        if saved:
            loaded = datasets.load_from_disk(spec.path)
        else:
            loaded = datasets.load_dataset(spec.path, spec.config, streaming=True)
    except Exception as error:
        if type(error).__name__ in _NO_DATA:
            raise CorpusError(
                f"{spec.path}: expected a data set, found a folder or repository without data files; give "
                "another name, or a file of papers"
            ) from error
        raise _unreadable(place, error) from error
    if not isinstance(loaded, dict):
        splits = {} if spec.split else {"": loaded}
    else:
        splits = {key: loaded[key] for key in loaded if spec.split in (None, key)}
    if len(splits) != 1:
        available = ", ".join(loaded) if isinstance(loaded, dict) else "a dataset without splits"
        expected = f"a split called {spec.split}" if spec.split else "the name of a split"
        raise CorpusError(f"{place}: expected {expected}, found {available}; write hf:NAME:CONFIG:SPLIT")
    return next(iter(splits.values())).with_format(None)


def _columns(spec: DatasetName, available: Sequence[str], place: str) -> dict[str, str]:
    """Column by field, for the fields that the dataset has; CorpusError where a needed one is missing."""
    columns = {field: spec.columns.get(field, field) for field in FIELDS}
    for field, column in columns.items():
        if column not in available and (field in _NEEDED or field in spec.columns):
            raise CorpusError(
                f"{place}: expected a column {column!r} for {field}, found {', '.join(available)}; "
                f"name yours: hf:NAME?{field}=COLUMN, or give one file"
            )
    return {field: column for field, column in columns.items() if column in available}


def _label_name(dataset: Any, column: str) -> Callable[[int], str] | None:
    """A function from label numbers to names, where the dataset has numbers for labels (ClassLabel)."""
    feature = (dataset.features or {}).get(column)
    return getattr(getattr(feature, "feature", None), "int2str", None)


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

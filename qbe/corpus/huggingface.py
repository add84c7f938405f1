"""Papers of a Hugging Face dataset: from the hub, saved with ``save_to_disk``, or a folder of files.

A dataset is named ``NAME[:CONFIG][:SPLIT]``, for instance ``someone/papers::train``. NAME is a hub name or a
local folder. The split may be left out where there is only one. Columns are found as those of Parquet are.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from qbe.corpus.columns import TypedRows
from qbe.corpus.reading import Entry, Reading
from qbe.corpus.streams import is_folder
from qbe.errors import CorpusError, MissingDependencyError, UsageError

_BATCH_ROWS = 1000
_NO_DATA = ("EmptyDatasetError", "DataFilesNotFoundError")
"""Errors of ``datasets`` for a folder or repository without data files."""


def read_dataset(name: str, reading: Reading) -> Iterator[Entry]:
    """Records of a dataset with their places (``hf:{name}, row {number}``), as a stream.

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
        rows = TypedRows(dataset.column_names, reading, place)
        dataset = dataset.select_columns(sorted(set(rows.needed.values())))
    label = (dataset.features or {}).get("pred_labels")
    label_name = getattr(getattr(label, "feature", None), "int2str", None)  # of labels that are numbers
    number = 0
    for batch in _batches(dataset, place):
        rows = rows or TypedRows(list(batch), reading, place)
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

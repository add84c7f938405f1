"""The sample's index: opened where it is, built where it is not."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import resources
from pathlib import Path

from qbe.corpus import read_jsonl
from qbe.datasets.embedded import PAPERS
from qbe.errors import EncoderMismatchError, IndexFormatError, OutputError, output_error
from qbe.files import cache_folder, publish_directory
from qbe.index.index import Index
from qbe.index.opening import build_index, open_index
from qbe.models.registry import DEFAULT_ENCODER
from qbe.types import Paper

SAMPLE = Path(str(resources.files("qbe.datasets"))) / "sample"
"""The folder of the sample in the package."""


def default_folder() -> Path:
    """Where the index is kept.

    >>> default_folder().parts[-2:]
    ('demo', 'sample')
    """
    return cache_folder() / "demo" / "sample"


def sample_papers() -> list[Paper]:
    """The papers of the sample, in order.

    >>> len(sample_papers())
    128
    """
    return list(read_jsonl(SAMPLE / PAPERS))


def open_sample_index(report: Callable[[str], object]) -> Index:
    """The sample's index in the cache; it is built where it is not there, is damaged, or was built of another
    sample or with another encoder. The caller closes what is returned.

    ``report`` is called with a line before something is built. The index appears complete or not at all; when
    building is interrupted, nothing is left. Raises OutputError where the cache cannot be written, and what
    `qbe.index.opening.build_index` raises.
    """
    papers, folder = sample_papers(), default_folder()
    if folder.exists():
        with suppress(IndexFormatError, EncoderMismatchError):
            return _open(folder, papers)
    report(f"indexing the sample in {folder} ...")
    _build(folder, papers)
    return _open(folder, papers)


def _open(folder: Path, papers: Sequence[Paper]) -> Index:
    """Open an index of these papers, with postings and vectors of the default encoder.

    Raises IndexFormatError or EncoderMismatchError for anything else.
    """
    index = open_index(folder, encoder=DEFAULT_ENCODER)
    try:
        if index.manifest.lucene is None or index.manifest.dense is None or list(index) != papers:
            raise IndexFormatError(f"{folder}: expected postings and vectors of the sample, found others")
    except BaseException:
        index.close()
        raise
    return index


def _build(folder: Path, papers: Sequence[Paper]) -> None:
    """Build the index beside ``folder`` and move it there in one step."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        beside = tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent)
    except OSError as error:
        raise output_error(folder, error) from error
    with beside as name:
        try:
            build_index(Path(name, "index"), papers).close()
        except OutputError as error:  # it may say that a build can be resumed, but this one is removed
            raise OutputError(
                f"cannot write {folder}: no room, or no permission; set QBE_CACHE to another folder"
            ) from error
        publish_directory(Path(name, "index"), folder)

"""Sentence and whole-paper vectors on disk: half precision, memory-mapped, built shard by shard."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbe.encode.encoder import Encoder
from qbe.files import atomic_file
from qbe.index.papers import PaperStore

SENTENCES = "vectors.npy"
WHOLE = "whole.npy"
SHARDS = "shards"
SHARD_PAPERS = 512
"""Papers a shard: the work that a killed build may lose."""

Half = NDArray[np.float16]


def write_vectors(folder: Path, store: PaperStore, encoder: Encoder, advance: Callable[[int], Any]) -> None:
    """Encode all papers of a store into ``vectors.npy`` (sentences, dimension) and ``whole.npy`` (papers,
    dimension), float16. Shards that an interrupted call has finished are kept; ``advance`` is told how
    many more papers are done.
    """
    (folder / SHARDS).mkdir(exist_ok=True)
    for first in range(0, len(store), SHARD_PAPERS):
        path = _shard(folder, first)
        count = min(SHARD_PAPERS, len(store) - first)
        if path.exists():
            advance(count)
            continue
        rows: list[Half] = []
        wholes: list[Half] = []
        for vectors in encoder.encode(islice(store.read_from(first), count)):
            rows.append(vectors.sentences.astype(np.float16))
            wholes.append(vectors.whole.astype(np.float16)[None])
            advance(1)
        with atomic_file(path) as stream:
            shard = np.concatenate(rows + wholes)
            stream.write(_npy_header(shard.shape) + shard.tobytes())
    _join(folder, store, encoder.dimension)


def _join(folder: Path, store: PaperStore, dimension: int) -> None:
    """Shards into whole files, by plain writes: on a full disk they fail, where a memory map would kill."""
    starts = store.layout().starts
    with (folder / SENTENCES).open("wb") as sentences, (folder / WHOLE).open("wb") as whole:
        sentences.write(_npy_header((int(starts[-1]), dimension)))
        whole.write(_npy_header((len(store), dimension)))
        for first in range(0, len(store), SHARD_PAPERS):
            last = min(first + SHARD_PAPERS, len(store))
            shard = np.load(_shard(folder, first))
            count = int(starts[last] - starts[first])
            sentences.write(shard[:count].tobytes())
            whole.write(shard[count:].tobytes())
    shutil.rmtree(folder / SHARDS)


def _shard(folder: Path, first: int) -> Path:
    return folder / SHARDS / f"{first:010d}.npy"


def _npy_header(shape: tuple[int, ...]) -> bytes:
    """The header of a ``.npy`` file of half-precision numbers."""
    header = io.BytesIO()
    description = {
        "descr": np.lib.format.dtype_to_descr(np.dtype(np.float16)),
        "fortran_order": False,
        "shape": shape,
    }
    np.lib.format.write_array_header_1_0(header, description)
    return header.getvalue()


def read_vectors(folder: Path) -> tuple[Half, Half]:
    """Sentence vectors and whole-paper vectors of an index, memory-mapped."""
    return np.load(folder / SENTENCES, mmap_mode="r"), np.load(folder / WHOLE, mmap_mode="r")


def blocks(vectors: Half, rows: int = 65536) -> Iterator[NDArray[np.float32]]:
    """The vectors in single precision, some rows at a time."""
    for first in range(0, len(vectors), rows):
        yield vectors[first : first + rows].astype(np.float32)

"""Stored vectors: half precision, or bytes with a scale per vector; memory-mapped from ``.npy`` files."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbe.errors import IndexBuildError
from qbe.index.params import FLOAT16, INT8
from qbe.index.store import Files, damaged
from qbe.models.formats import L2
from qbe.models.pooling import GRID

SENTENCES = "vectors.npy"
WHOLE = "whole.npy"
LARGEST = 127  # the largest code; codes are symmetric around 0

Half = NDArray[np.float16]
Floats = NDArray[np.float32]


class Quantized:
    """Vectors (n, dimension) as integer ``codes`` (n, dimension) int8 times ``scales`` (n,) float16.

    Single precision holds their numbers exactly: a scale has 11 binary digits, a code 7.
    """

    dtype = np.dtype(np.float32)

    def __init__(self, codes: NDArray[np.int8], scales: Half) -> None:
        self.codes, self.scales = codes, scales
        self.shape: tuple[int, ...] = codes.shape

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: Any) -> Any:
        if isinstance(rows, int | np.integer):
            return self.codes[rows] * self.scales[rows].astype(np.float32)
        return Quantized(self.codes[rows], self.scales[rows])

    def astype(self, dtype: Any) -> NDArray[Any]:
        numbers: NDArray[Any] = self.codes * self.scales.astype(np.float32)[:, None]
        return numbers.astype(dtype, copy=False)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self.astype(np.float32 if dtype is None else dtype)


# Stored vectors: both forms have ``len``, ``shape``, ``[rows]``, ``[slice]``, ``[row]`` and ``astype``.
Vectors = Half | Quantized


def quantized(vectors: NDArray[Any], similarity: str) -> Quantized:
    """Quantize vectors (n, dimension): the nearest integers, the largest of each vector being LARGEST.

    The scale v . c / c . c has the least squared error for a vector v and codes c. It is rounded to half
    precision, so that numbers of unit vectors are multiples of 2 ** -24, and with ``l2`` of 2 ** -16.
    """
    exact = np.asarray(vectors, dtype=np.float64)
    steps = np.abs(exact).max(axis=1, keepdims=True) / LARGEST
    codes = np.rint(exact / np.where(steps > 0, steps, 1)).astype(np.int8)
    numbers = codes.astype(np.float64)
    scales = (exact * numbers).sum(axis=1) / np.maximum((numbers * numbers).sum(axis=1), 1)
    if similarity == L2:
        scales = np.where(scales > 0, np.maximum(np.round(scales * GRID), 1) / GRID, 0)
    return Quantized(codes, scales.astype(np.float16))


def scales_file(name: str) -> str:
    return name.replace(".npy", ".scales.npy")


@contextmanager
def writing_rows(
    path: Path, shape: tuple[int, ...], kind: Any, done: int = 0
) -> Iterator[Callable[[NDArray[Any]], None]]:
    """Write a ``.npy`` file block by block, from the row ``done`` on, with the function that is given.

    Plain writes, not a memory map: on a full disk they raise OSError, where a map would end the process.
    """
    start, dtype = io.BytesIO(), np.dtype(kind)
    description = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(start, description)
    end = start.tell() + done * int(np.prod(shape[1:], dtype=np.int64)) * dtype.itemsize
    with path.open("r+b" if done else "wb") as stream:
        if done and path.stat().st_size < end:
            raise IndexBuildError(f"{path}: expected {done} rows, found fewer; build with `overwrite` alone")
        stream.write(start.getvalue())
        stream.truncate(end)
        stream.seek(end)

        def write(rows: NDArray[Any]) -> None:
            stream.write(np.ascontiguousarray(rows, dtype).data)
            stream.flush()

        yield write


@contextmanager
def writing_vectors(
    folder: Path, name: str, shape: tuple[int, int], stored: str, similarity: str, done: int = 0
) -> Iterator[Callable[[Half | Quantized], None]]:
    """Write the file ``name``, and that of its scales, as `writing_rows` does."""
    if stored == FLOAT16:
        with writing_rows(folder / name, shape, np.float16, done) as write:
            yield write  # type: ignore[misc]
        return
    with (
        writing_rows(folder / name, shape, np.int8, done) as codes,
        writing_rows(folder / scales_file(name), shape[:1], np.float16, done) as scales,
    ):

        def write_both(block: Half | Quantized) -> None:
            numbers = block if isinstance(block, Quantized) else quantized(block, similarity)
            codes(numbers.codes)
            scales(numbers.scales)

        yield write_both


def open_vectors(files: Files, name: str, stored: str = FLOAT16) -> Vectors:
    """Memory-map vectors (their scales are read); raises IndexFormatError for a file of another form."""
    array = files.array(name, stored, 2)
    if stored != INT8:
        return array
    scales = files.array(scales_file(name), "float16", 1).copy()
    if len(scales) != len(array):
        raise damaged(files.folder / scales_file(name), f"{len(array)} scales", len(scales))
    return Quantized(array, scales)

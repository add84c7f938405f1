"""Stored vectors: half precision, or bytes with a scale per vector; memory-mapped from ``.npy`` files."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbe.index.params import FLOAT16, INT8
from qbe.index.store import Files
from qbe.models.formats import L2
from qbe.models.pooling import GRID

SENTENCES = "vectors.npy"
WHOLE = "whole.npy"
LARGEST = 127
"""The largest code; codes are symmetric around 0."""

Half = NDArray[np.float16]
Floats = NDArray[np.float32]


class Quantized:
    """Vectors (n, dimension) as integer ``codes`` (n, dimension) int8 times ``scales`` (n,) float16.

    ``[rows]`` and ``[slice]`` give fewer of them, ``[row]`` one as an array (dimension,), ``astype`` all
    numbers, which single precision holds exactly: a scale has 11 binary digits, a code 7.

    >>> vectors = Quantized(np.array([[127, -64], [0, 127]], np.int8), np.array([0.5, 1], np.float16))
    >>> vectors.shape, vectors[0].tolist()
    ((2, 2), [63.5, -32.0])
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
        """Return the numbers (n, dimension), exact in single and in double precision."""
        numbers: NDArray[Any] = self.codes * self.scales.astype(np.float32)[:, None]
        return numbers.astype(dtype, copy=False)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self.astype(np.float32 if dtype is None else dtype)


Vectors = Half | Quantized
"""Stored vectors: both forms have ``len``, ``shape``, ``[rows]``, ``[slice]``, ``[row]`` and ``astype``."""


def quantized(vectors: NDArray[Any], similarity: str) -> Quantized:
    """Quantize vectors (n, dimension): the nearest integers, the largest of each vector being LARGEST.

    The scale v . c / c . c has the least squared error for a vector v and codes c. It is rounded to half
    precision, so that a vector's numbers, like those of half precision, are multiples of 2 ** -24 where
    vectors have unit length, and with the similarity ``l2`` of 2 ** -16 (`qbe.models.pooling.stored`).

    >>> vectors = quantized(np.array([[0.6, -0.8]]), "cosine")
    >>> vectors.codes.tolist(), vectors.astype(np.float64).round(3).tolist()
    ([[95, -127]], [[0.599, -0.801]])
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
    """Return the name of the file of scales beside a file of codes.

    >>> scales_file("vectors.npy")
    'vectors.scales.npy'
    """
    return name.replace(".npy", ".scales.npy")


@contextmanager
def vector_file(
    folder: Path, name: str, shape: tuple[int, int], stored: str, similarity: str
) -> Iterator[Callable[[Half | Quantized], None]]:
    """Write a file of ``shape`` (vectors, dimension) block by block, with the function that is given.

    Quantized blocks are written as they are. Plain writes, not a memory map: on a full disk they raise
    OSError, where a map would kill the process.

    >>> with vector_file(Path(), "two.npy", (2, 2), "int8", "cosine") as write:
    ...     write(np.array([[1, 0]], np.float16))
    ...     write(np.array([[0, 1]], np.float16))
    >>> open_vectors(Path(), "two.npy", "int8").codes.tolist()
    [[127, 0], [0, 127]]
    """
    with ExitStack() as stack:
        stream = stack.enter_context((folder / name).open("wb"))
        if stored == FLOAT16:
            stream.write(npy_header(shape, np.dtype(np.float16)))
            yield lambda block: write_array(stream, block.astype(np.float16))
            return
        scales = stack.enter_context((folder / scales_file(name)).open("wb"))
        stream.write(npy_header(shape, np.dtype(np.int8)))
        scales.write(npy_header(shape[:1], np.dtype(np.float16)))

        def write(block: Half | Quantized) -> None:
            codes = block if isinstance(block, Quantized) else quantized(block, similarity)
            write_array(stream, codes.codes)
            write_array(scales, codes.scales)

        yield write


def write_array(stream: Any, array: NDArray[Any]) -> None:
    """Write the numbers of an array, in C order, without a header."""
    stream.write(array.tobytes())


def npy_header(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    """Return the header of a ``.npy`` file of an array in C order.

    >>> header = npy_header((2,), np.dtype(np.int8))
    >>> np.load(io.BytesIO(header + bytes([7, 9]))).tolist()
    [7, 9]
    """
    header = io.BytesIO()
    description = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, description)
    return header.getvalue()


def open_vectors(folder: Path | Files, name: str, stored: str) -> Vectors:
    """Memory-map vectors (their scales are read); raises IndexFormatError for a file of another form.

    >>> open_vectors(index.folder / "000001", "whole.npy", "float16").shape
    (128, 384)
    """
    files = Files.of(folder)
    array = files.array(name, stored, 2)
    if stored != INT8:
        half: Half = array
        return half
    scales = files.array(scales_file(name), "float16", 1, mapped=False)
    if len(scales) != len(array):
        raise files.damaged(scales_file(name), f"{len(array)} scales", len(scales))
    return Quantized(array, scales)


def read_vectors(folder: Path | Files, stored: str = FLOAT16) -> tuple[Vectors, Vectors]:
    """Memory-map the sentence vectors and the whole-paper vectors of an index; raises IndexFormatError."""
    return open_vectors(folder, SENTENCES, stored), open_vectors(folder, WHOLE, stored)


def blocks(vectors: Vectors, rows: int = 65536, first: int = 0) -> Iterator[Floats]:
    """Yield the vectors from ``first`` on as float32 arrays of up to ``rows`` rows, in order.

    >>> [len(block) for block in blocks(np.zeros((5, 2), np.float16), rows=2)]
    [2, 2, 1]
    """
    for begin in range(first, len(vectors), rows):
        yield vectors[begin : begin + rows].astype(np.float32)

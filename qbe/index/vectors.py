"""Stored vectors, memory-mapped from ``.npy`` files, and their exact comparison.

Half precision, or bytes with a scale per vector. Sentences of paper i are the rows ``starts[i]`` to
``starts[i + 1]``; ``starts`` is (papers + 1,).
"""

import io
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from qbe.errors import IndexBuildError
from qbe.index.store import FLOAT16, INT8, Files, damaged
from qbe.models.encoding import GRID
from qbe.models.formats import COSINE, L2

SENTENCES = "vectors.npy"
WHOLE = "whole.npy"
T = TypeVar("T")
LARGEST = 127  # the largest code; codes are symmetric around 0

Half = NDArray[np.float16]
Floats = NDArray[np.float32]
Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]
Doubles = NDArray[np.float64]

# By how much FAISS's similarities of unit vectors may differ from exact ones: numbers stored in bytes are
# rounded to half precision (2 ** -11 of their size), sums to single precision.
TOLERANCE = 1e-3
# Vectors multiplied at a time: more would not stay in a processor's nearest cache in double precision.
_BLOCK = 256
# The ratio of numbers whose bits are the same once moved from half to single precision's place.
_HALF_TO_SINGLE = 2.0**112


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


def run_starts(ordered: NDArray[Any]) -> Rows:
    return np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])[: len(ordered)])


def distinct(values: NDArray[Any]) -> Rows:
    """Return the sorted unique values of an array (n,); ``np.unique`` would load masked arrays."""
    ordered: Rows = np.sort(values)
    return ordered[run_starts(ordered)]


def sentence_rows(starts: Rows, papers: Rows) -> tuple[Rows, Rows]:
    """Return the rows of all sentences of some papers, and where each paper's begin among these."""
    counts = starts[papers + 1] - starts[papers]
    begins = np.cumsum(counts) - counts
    return np.arange(counts.sum()) + np.repeat(starts[papers] - begins, counts), begins


class Once:
    """Keeps what is made once, by name; threads may share it."""

    def __init__(self) -> None:
        self._made: dict[object, Any] = {}
        self._making = threading.RLock()

    def once(self, name: object, make: Callable[[], T]) -> T:
        """Return what ``make`` returned at the first call by that name; other threads wait for it."""
        if name not in self._made:
            with self._making:
                if name not in self._made:
                    self._made[name] = make()
        made: T = self._made[name]
        return made


class Selection(Once):
    """Some papers of an index, by row: ``mask`` (papers,) says which.

    What searches make of it, such as a filter of Lucene, is kept with it. No two selections are equal.
    """

    def __init__(self, mask: Mask) -> None:
        super().__init__()
        self.mask = mask

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def rows(self) -> Rows:
        """The rows of its papers, ascending."""
        return np.flatnonzero(self.mask)

    def __reduce__(self) -> "tuple[type[Selection], tuple[Mask]]":
        return Selection, (self.mask,)


def best_per_paper(similarities: Floats, starts: Rows) -> Floats:
    """Return each query sentence's best similarity per paper: (queries, sentences) -> (queries, papers)."""
    return np.maximum.reduceat(similarities, starts, axis=1)


def kept_or_all(keep: Mask, starts: Rows) -> Mask:
    """Return a mask (sentences,) that keeps all sentences of a paper of which ``keep`` keeps none."""
    any_kept = np.logical_or.reduceat(keep, starts)
    kept: Mask = keep | ~np.repeat(any_kept, np.diff(np.append(starts, len(keep))))
    return kept


def mean_max(best: Floats) -> Floats:
    """Return the mean over query sentences of their best matches: (queries, papers) -> (papers,).

    The soft alignment of ColBERT (Khattab and Zaharia, 2020, eq. 3) over sentences, as a mean.
    """
    mean: Floats = best.mean(axis=0, dtype=np.float64).astype(np.float32)
    return mean


def may_be_best(similarities: Floats, papers: Rows, total: int, k: int) -> tuple[Rows, bool]:
    """Return papers (rows) that can be among the best ``k`` by `mean_max`, and whether these are all.

    ``similarities`` (queries, count) are those of each query sentence's nearest sentences, best first, up to
    TOLERANCE, and ``papers`` (queries, count) int64 the rows of their papers, of which there are ``total``.
    An unknown best similarity lies between -1 and that of the last one. A paper whose score is at most what
    ``k`` others' scores are at least is left out (the threshold algorithm of Fagin et al., 2001).
    """
    best = np.full((len(papers), total), -np.inf, np.float32)
    places = papers + total * np.arange(len(papers))[:, None]
    np.maximum.at(best.reshape(-1), places.reshape(-1), similarities.reshape(-1))
    rows = np.flatnonzero(best.max(axis=0) > -np.inf)
    best, farthest = best[:, rows], similarities[:, -1:]
    if len(rows) < k:
        return rows, False
    least, most = mean_max(np.maximum(best, -1)), mean_max(np.maximum(best, farthest))
    enough = np.partition(least, len(rows) - k)[len(rows) - k] - 2 * TOLERANCE
    return rows[most >= enough], bool(mean_max(farthest)[0] < enough)


def similarities(queries: Floats, vectors: Vectors, similarity: str = COSINE) -> Floats:
    """Return inner products (queries, vectors) of unit vectors (n, dimension) in any stored form, as float32;
    with ``l2`` minus Euclidean distances.

    Numbers are multiples of 2 ** -24 (see `qbe.index.vectors.quantized`), their products of 2 ** -48, so that
    double precision holds the sums exactly, in any order; with ``l2`` numbers are multiples of 2 ** -16 (see
    `qbe.models.encoding.stored`).
    """
    left = queries.astype(np.float64)
    lengths = (left * left).sum(axis=1)
    result = np.empty((len(queries), len(vectors)), np.float32)
    for first in range(0, len(vectors), _BLOCK):
        numbers, factors = _parts(vectors[first : first + _BLOCK])
        products = (left @ numbers.T) * factors
        if similarity == L2:
            right = np.einsum("ij,ij->i", numbers, numbers) * factors * factors
            products = -np.sqrt(np.maximum(lengths[:, None] + right - 2 * products, 0))
        result[:, first : first + _BLOCK] = products
    return result


def _parts(vectors: Half | Floats | Quantized) -> tuple[Doubles, Doubles | float]:
    """Return vectors as numbers (n, dimension) and factors, one for all or (n,), to multiply them with."""
    if isinstance(vectors, Quantized):
        return vectors.codes.astype(np.float64), vectors.scales.astype(np.float64)
    if vectors.dtype != np.float16:
        return vectors.astype(np.float64), 1.0
    # Half precision is widened by moving its bits; the exponent is then too small by as much for all.
    bits = vectors.view(np.int16).astype(np.int32)
    bits <<= 13
    bits &= np.int32(-0x70002000)  # all but the copies of the sign that the wider type has put there
    return bits.view(np.float32).astype(np.float64), _HALF_TO_SINGLE


class SentenceBlock(NamedTuple):
    """The sentences of some papers: ``vectors`` (sentences, dimension) as stored; ``starts`` (papers,) where
    those of each begin; ``rows`` (sentences,) their rows in the index.
    """

    vectors: Vectors
    starts: Rows
    rows: Rows


class Compared(NamedTuple):
    """``similarities`` (queries, sentences) of a `SentenceBlock`, and of ``whole`` papers (papers,)."""

    similarities: Floats
    starts: Rows
    rows: Rows
    whole: Floats | None

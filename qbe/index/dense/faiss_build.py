"""Building a FAISS index with given parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from qbe.errors import OutputError
from qbe.index.dense import faiss_settings
from qbe.index.dense.ann import FLAT, IN_LISTS, AnnParams
from qbe.index.dense.faiss_segment import FAISS
from qbe.index.dense.lists import fill, fill_on_disk, read_learned, train_lists
from qbe.index.dense.stored import Vectors
from qbe.index.dense.vectors import blocks, silent
from qbe.models.encoder_format import L2

LINKS, BUILD_BREADTH = 32, 80
"""Of HNSW: neighbours that a vector is linked to (twice as many in the lowest layer), and how many
candidates are compared to find them."""


def write_faiss_segment(
    folder: Path,
    vectors: Vectors,
    similarity: str,
    params: AnnParams | None = None,
    threads: int = 1,
    advance: Callable[[int], Any] = silent,
    learned: Path | None = None,
) -> None:
    """Build an index over vectors (sentences, dimension) into a folder, by default an exact one: by inner
    product for the similarity ``cosine``, by distance for ``l2``.

    The same vectors and parameters give the same bytes. ``advance`` is called with the number of vectors just
    added; ``learned`` is the file of centroids and codes (`qbe.index.dense.lists.save_learned`), learned here
    from the vectors where there is none. Raises OutputError where it cannot be written.

    >>> folder = Path("exact")
    >>> folder.mkdir()
    >>> write_faiss_segment(folder, np.eye(3, dtype=np.float16), "cosine")
    >>> [path.name for path in folder.iterdir()]
    ['faiss.index']
    """
    params = params or AnnParams()
    on_disk = folder if params.on_disk else None
    with writing(folder, threads):
        save(folder, build_faiss(vectors, metric_of(similarity), params, on_disk, advance, learned))


@contextmanager
def writing(folder: Path, threads: int) -> Iterator[None]:
    """A context for work that builds a FAISS index with this many threads and saves it in a folder; raises
    OutputError where FAISS cannot write.

    >>> with writing(Path("absent"), threads=1):
    ...     raise RuntimeError("no space left")
    Traceback (most recent call last):
    ...
    qbe.errors.OutputError: cannot write absent/faiss.index: no space left; ...
    """
    try:
        with faiss_settings.building(threads):
            yield
    except RuntimeError as error:
        raise OutputError(f"cannot write {folder / FAISS}: {error}; check the disk's free space") from error


def metric_of(similarity: str) -> int:
    """FAISS's number of a similarity."""
    import faiss

    return int(faiss.METRIC_L2 if similarity == L2 else faiss.METRIC_INNER_PRODUCT)


def build_faiss(
    vectors: Vectors,
    metric: int,
    params: AnnParams,
    folder: Path | None = None,
    advance: Callable[[int], Any] = silent,
    learned: Path | None = None,
) -> Any:
    """A FAISS index of all vectors; its lists go to a file in ``folder``, if one is given. ``advance`` and
    ``learned`` are those of `write_faiss_segment`.

    Call it within `qbe.index.dense.faiss_settings.building`.

    >>> with faiss_settings.building(threads=1):
    ...     build_faiss(np.eye(3, dtype=np.float16), metric_of("cosine"), AnnParams()).ntotal
    3
    """
    if params.kind not in IN_LISTS:
        return _without_lists(vectors, metric, params, advance)
    index = train_lists(vectors, metric, params) if learned is None else read_learned(learned)
    if folder is None:
        fill(index, vectors, advance)
    else:
        fill_on_disk(index, vectors, folder, advance)
    return index


def _without_lists(vectors: Vectors, metric: int, params: AnnParams, advance: Callable[[int], Any]) -> Any:
    """An exact index, or HNSW over the same codes.

    Scalar quantization to float16 keeps numbers in half precision as they are, at half of a flat index's
    size. HNSW is linked by one thread: with more its links would depend on which thread came first.
    """
    import faiss

    quantizer, dimension = faiss.ScalarQuantizer.QT_fp16, vectors.shape[1]
    if params.kind == FLAT:
        index = faiss.IndexScalarQuantizer(dimension, quantizer, metric)
    else:
        index = faiss.IndexHNSWSQ(dimension, quantizer, LINKS, metric)
        index.hnsw.efConstruction = BUILD_BREADTH
        faiss.omp_set_num_threads(1)
    index.train(np.zeros((1, dimension), np.float32))
    for block in blocks(vectors):
        index.add(block)
        advance(len(block))
    return index


def save(folder: Path, index: Any) -> None:
    """Write an index into a folder."""
    import faiss

    faiss.write_index(index, str(folder / FAISS))

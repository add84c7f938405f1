"""Building the FAISS side of an index, by a plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from qbe.errors import OutputError
from qbe.index.dense.ann import FLAT, IN_LISTS, AnnParams
from qbe.index.dense.lists import fill, fill_on_disk, train_lists
from qbe.index.dense.neighbours import FAISS
from qbe.index.dense.stored import Vectors
from qbe.index.dense.vectors import blocks
from qbe.models.encoder_format import L2

LINKS, BUILD_BREADTH = 32, 80
"""Of HNSW: neighbours that a vector is linked to (twice as many in the lowest layer), and how many
candidates are looked at to find them."""

TOGETHER = 20
"""Vectors from which on FAISS compares them with centroids by matrix products (its own default)."""


def write_neighbours(
    folder: Path, vectors: Vectors, similarity: str, plan: AnnParams | None = None, threads: int = 1
) -> None:
    """Build an index over vectors (sentences, dimension) by a plan, by default an exact one: by inner product
    for the similarity ``cosine``, by distance for ``l2``.

    The same vectors and plan give the same bytes. Raises OutputError where it cannot be written.
    """
    plan = plan or AnnParams()
    on_disk = folder if plan.on_disk else None
    try:
        save(folder, built(vectors, metric_of(similarity), plan, threads, on_disk))
    except RuntimeError as error:
        raise OutputError(f"cannot write {folder / FAISS}: {error}; check the disk's free space") from error


def metric_of(similarity: str) -> int:
    """FAISS's number of a similarity."""
    import faiss

    return int(faiss.METRIC_L2 if similarity == L2 else faiss.METRIC_INNER_PRODUCT)


def built(vectors: Vectors, metric: int, plan: AnnParams, threads: int, folder: Path | None = None) -> Any:
    """A FAISS index of all vectors; its lists go to a file in ``folder``, if one is given."""
    import faiss

    faiss.omp_set_num_threads(threads)
    faiss.cvar.distance_compute_blas_threshold = TOGETHER
    if plan.kind not in IN_LISTS:
        return _without_lists(vectors, metric, plan)
    index = train_lists(vectors, metric, plan)
    if folder is None:
        fill(index, vectors)
    else:
        fill_on_disk(index, vectors, folder)
    return index


def _without_lists(vectors: Vectors, metric: int, plan: AnnParams) -> Any:
    """An exact index, or HNSW over the same codes.

    Scalar quantization to float16 keeps numbers in half precision as they are, at half of a flat index's
    size. HNSW is linked by one thread: by more its links would depend on which came first.
    """
    import faiss

    quantizer, dimension = faiss.ScalarQuantizer.QT_fp16, vectors.shape[1]
    if plan.kind == FLAT:
        index = faiss.IndexScalarQuantizer(dimension, quantizer, metric)
    else:
        index = faiss.IndexHNSWSQ(dimension, quantizer, LINKS, metric)
        index.hnsw.efConstruction = BUILD_BREADTH
        faiss.omp_set_num_threads(1)
    index.train(np.zeros((1, dimension), np.float32))
    for block in blocks(vectors):
        index.add(block)
    return index


def save(folder: Path, index: Any) -> None:
    """Write an index into a folder."""
    import faiss

    faiss.write_index(index, str(folder / FAISS))

"""FAISS indexes of inverted lists: learned from a sample, filled in a stream, in memory or on the disk."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbe.index.dense.ann import IVF_OPQ_PQ, IVF_SQ, AnnParams
from qbe.index.dense.stored import Vectors
from qbe.index.dense.vectors import blocks, silent

LISTS = "faiss.lists"
"""The lists of an index that keeps them on the disk, beside the index's other part."""

SAMPLED = 64
"""Vectors that the centroid of each list is learned from."""

CODE_SAMPLED = 2**16
"""Vectors that codes are learned from, at least (of as many as there are)."""

ROTATION_ROUNDS = 10
"""Rounds of fitting the rotation of OPQ and its codes to each other."""

SHARD_ROWS = 2**20
"""Vectors whose lists are held in memory at a time, where lists go to the disk."""


def train_lists(vectors: Vectors, metric: int, params: AnnParams) -> Any:
    """A FAISS index without vectors, its centroids and codes learned from a sample of ``vectors`` (sentences,
    dimension) that is drawn by ``params.seed``; ``metric`` is FAISS's number of a similarity.

    >>> import faiss
    >>> vectors = np.arange(40, dtype=np.float16).reshape(20, 2)
    >>> lists = train_lists(vectors, faiss.METRIC_L2, AnnParams("ivf-sq", nlist=2))
    >>> lists.is_trained, lists.ntotal
    (True, 0)
    """
    import faiss

    dimension = vectors.shape[1]
    index = ivf = _ivf(dimension, metric, params)
    if params.kind == IVF_OPQ_PQ:
        index = faiss.IndexPreTransform(_rotation(dimension, params), ivf)
    with accelerated(ivf):
        index.train(_sample(vectors, params))
    return index


def save_learned(file: Path, index: Any) -> None:
    """Write an index as `train_lists` gives it, to be filled elsewhere."""
    import faiss

    faiss.write_index(index, str(file))


def read_learned(file: Path) -> Any:
    """An index that `save_learned` wrote, without vectors."""
    import faiss

    return faiss.read_index(str(file), faiss.IO_FLAG_SKIP_PRECOMPUTE_TABLE)


def _ivf(dimension: int, metric: int, params: AnnParams) -> Any:
    import faiss

    quantizer = faiss.IndexFlat(dimension, metric)
    if params.kind == IVF_SQ:
        bits = faiss.ScalarQuantizer.QT_8bit
        ivf = faiss.IndexIVFScalarQuantizer(quantizer, dimension, params.nlist, bits, metric)
    else:
        kind = faiss.IndexIVFPQFastScan if params.code_bits == 4 else faiss.IndexIVFPQ
        ivf = kind(quantizer, dimension, params.nlist, params.subquantizers, params.code_bits, metric)
        _learn(ivf.pq.cp, params)
        ivf.use_precomputed_table = -1  # by distance it would take more memory than all codes
    _learn(ivf.cp, params)
    ivf.cp.spherical = metric == faiss.METRIC_INNER_PRODUCT
    return ivf


def _learn(clustering: Any, params: AnnParams) -> None:
    """How centroids are learned: by seed, from all that is given, which for small corpora is little."""
    clustering.seed = params.seed + 1
    clustering.min_points_per_centroid = 1


def _rotation(dimension: int, params: AnnParams) -> Any:
    import faiss

    rotation = faiss.OPQMatrix(dimension, params.subquantizers, dimension)
    rotation.pq = faiss.ProductQuantizer(dimension, params.subquantizers, params.code_bits)
    _learn(rotation.pq.cp, params)
    rotation.niter = ROTATION_ROUNDS
    rotation.max_train_points = CODE_SAMPLED
    return rotation


def _sample(vectors: Vectors, params: AnnParams) -> NDArray[np.float32]:
    """Vectors (n, dimension) drawn by seed, in the order of the index."""
    count = min(len(vectors), max(SAMPLED * (params.nlist or 0), CODE_SAMPLED))
    rows = np.random.default_rng(params.seed).choice(len(vectors), count, replace=False)
    sample: NDArray[np.float32] = vectors[np.sort(rows)].astype(np.float32)
    return sample


@contextlib.contextmanager
def accelerated(ivf: Any) -> Iterator[None]:
    """While the block runs, the nearest centroids are found on a GPU, if FAISS has one: most of the work of
    learning and filling lists.
    """
    import faiss

    if not getattr(faiss, "get_num_gpus", int)():
        yield
        return
    resources = faiss.StandardGpuResources()
    ivf.quantizer = on_gpu = faiss.index_cpu_to_gpu(resources, 0, ivf.quantizer)
    try:
        yield
    finally:
        ivf.quantizer = on_cpu = faiss.index_gpu_to_cpu(on_gpu)
        on_cpu.this.disown()
        ivf.own_fields = True


def fill(index: Any, vectors: Vectors, advance: Callable[[int], Any] = silent) -> None:
    """Add all vectors (sentences, dimension) to a trained index, block by block; ``advance`` is called with
    the size of each.

    >>> import faiss
    >>> vectors = np.arange(40, dtype=np.float16).reshape(20, 2)
    >>> lists = train_lists(vectors, faiss.METRIC_L2, AnnParams("ivf-sq", nlist=2))
    >>> fill(lists, vectors)
    >>> lists.ntotal
    20
    """
    import faiss

    with accelerated(faiss.extract_index_ivf(index)):
        for block in blocks(vectors):
            index.add(block)
            advance(len(block))


def fill_on_disk(index: Any, vectors: Vectors, folder: Path, advance: Callable[[int], Any] = silent) -> None:
    """Add all vectors to lists in a file of the folder; ``advance`` is called with the size of each block.

    Lists are made of SHARD_ROWS vectors at a time, written, and merged, so that each lies in one piece and
    the file has the same bytes each time.
    """
    import faiss

    ivf = faiss.extract_index_ivf(index)
    shards: list[Path] = []
    with accelerated(ivf):
        for begin in range(0, len(vectors), SHARD_ROWS):
            first = begin
            for block in blocks(vectors[begin : begin + SHARD_ROWS]):
                index.add_with_ids(block, np.arange(first, first + len(block)))
                first += len(block)
                advance(len(block))
            shards.append(folder / f".{LISTS}.{len(shards)}.partial")
            faiss.write_index(index, str(shards[-1]))
            index.reset()
    opened = [faiss.read_index(str(shard), faiss.IO_FLAG_MMAP) for shard in shards]
    parts = faiss.InvertedListsPtrVector()
    for shard in opened:
        parts.push_back(faiss.extract_index_ivf(shard).invlists)
    merged = faiss.OnDiskInvertedLists(ivf.nlist, ivf.code_size, str(folder / LISTS))
    index.ntotal = ivf.ntotal = merged.merge_from_multiple(parts.data(), parts.size())
    merged.filename = LISTS  # relative: an index may be moved
    merged.this.disown()
    ivf.replace_invlists(merged, True)
    for path in shards:
        path.unlink()

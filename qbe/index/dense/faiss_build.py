"""Building a FAISS index: learned from a sample, filled in a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbe.errors import OutputError, UsageError
from qbe.index.dense.ann import AUTO, FaissParams
from qbe.index.dense.faiss_segment import FAISS, building, read_index, searched
from qbe.index.dense.stored import Vectors, blocks
from qbe.models.formats import L2

SAMPLED = 64
"""Vectors that the centroid of each list is learned from."""

CODE_SAMPLED = 2**16
"""Vectors that codes are learned from, at least (of as many as there are)."""


def write_faiss_segment(
    folder: Path,
    vectors: Vectors,
    similarity: str,
    params: FaissParams | None = None,
    threads: int = 1,
    advance: Callable[[int], Any] = lambda _: None,
    learned: Path | None = None,
    kept: bool = False,
) -> None:
    """Build an index over vectors (sentences, dimension) into a folder, by default an exact one: by inner
    product for the similarity ``cosine``, by distance for ``l2``.

    The same vectors and parameters give the same bytes. ``advance`` is called with the number of vectors just
    added; ``learned`` is the file of an index whose centroids and codes are taken; None: they are trained. Its
    own vectors are ``kept`` where they are the first of ``vectors``. Raises
    OutputError where it cannot be written.

    >>> folder = Path("exact")
    >>> folder.mkdir()
    >>> write_faiss_segment(folder, np.eye(3, dtype=np.float16), "cosine")
    >>> [path.name for path in folder.iterdir()]
    ['faiss.index']
    """
    import faiss

    params = params or FaissParams()
    with writing(folder, threads):
        if learned is None:
            index = train(vectors, similarity, params)
        else:
            index = read_index(learned, faiss.IO_FLAG_SKIP_PRECOMPUTE_TABLE)
            if not kept:
                index.reset()
        advance(index.ntotal)
        for block in blocks(vectors, first=index.ntotal):
            index.add(block)
            advance(len(block))
        faiss.write_index(index, str(folder / FAISS))


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
        with building(threads):
            yield
    except RuntimeError as error:
        raise OutputError(f"cannot write {folder / FAISS}: {error}; check the disk's free space") from error


def check_factory(factory: str, dimension: int, similarity: str) -> None:
    """Raise UsageError for a factory string that FAISS does not take for vectors of this dimension, or that
    names an index that cannot be searched for some papers only.

    >>> check_factory("IVF16,PQ7", 16, "cosine")
    Traceback (most recent call last):
        ...
    qbe.errors.UsageError: expected `faiss` as auto or a FAISS factory string such as IVF1024,PQ64x4fs, ...
    """
    import faiss

    if factory == AUTO:
        return
    try:
        index = faiss.index_factory(dimension, factory, _metric(similarity))
        reason = "" if searched(index) else "an index that does not search selected vectors"
    except RuntimeError as error:
        reason = str(error).rpartition("Error: ")[2].rpartition(": ")[2] or "none"
    if reason:
        raise UsageError(
            "expected `faiss` as auto or a FAISS factory string such as IVF1024,PQ64x4fs, for vectors of "
            f"{dimension} numbers, found {factory!r} ({' '.join(reason.split())})"
        )


def train(vectors: Vectors, similarity: str, params: FaissParams) -> Any:
    """A FAISS index without vectors; its centroids and codes, if it has any, are learned from a sample of
    ``vectors`` (sentences, dimension) that is drawn by ``params.seed``.

    Call it within `qbe.index.dense.faiss_segment.building`.

    >>> vectors = np.arange(40, dtype=np.float16).reshape(20, 2)
    >>> with building(threads=1):
    ...     index = train(vectors, "l2", FaissParams("IVF2,SQ8"))
    >>> index.is_trained, index.ntotal
    (True, 0)
    """
    import faiss

    if "HNSW" in params.factory:  # its links would depend on which of several threads came first
        faiss.omp_set_num_threads(1)
    metric = _metric(similarity)
    index = faiss.index_factory(vectors.shape[1], params.factory, metric)
    if params.nlist is not None:
        ivf: Any = faiss.downcast_index(faiss.extract_index_ivf(index))
        ivf.cp.spherical = metric == faiss.METRIC_INNER_PRODUCT
        if hasattr(ivf, "do_polysemous_training"):
            ivf.do_polysemous_training = False  # takes seconds a code, for a search by Hamming distances
        if hasattr(ivf, "use_precomputed_table"):
            ivf.use_precomputed_table = -1  # by distance it would take more memory than all codes
        for clustering in (ivf.cp, *([ivf.pq.cp] if hasattr(ivf, "pq") else [])):
            clustering.seed = params.seed + 1
            clustering.min_points_per_centroid = 1  # of a small corpus, little is given
    if not index.is_trained:
        index.train(_sample(vectors, params))
    return index


def _metric(similarity: str) -> int:
    """FAISS's number of a similarity."""
    import faiss

    return int(faiss.METRIC_L2 if similarity == L2 else faiss.METRIC_INNER_PRODUCT)


def _sample(vectors: Vectors, params: FaissParams) -> NDArray[np.float32]:
    """Vectors (n, dimension) drawn by seed, in the order of the index."""
    count = min(len(vectors), max(SAMPLED * (params.nlist or 0), CODE_SAMPLED))
    rows = np.random.default_rng(params.seed).choice(len(vectors), count, replace=False)
    sample: NDArray[np.float32] = vectors[np.sort(rows)].astype(np.float32)
    return sample

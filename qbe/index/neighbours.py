"""The FAISS side of an index: which sentences lie closest to a query's sentences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbe.errors import IndexFormatError, OutputError
from qbe.index.vectors import Half, blocks
from qbe.models.convention import L2

FAISS = "faiss.index"


def write_neighbours(folder: Path, vectors: Half, similarity: str) -> None:
    """Build an exact index over float16 vectors (sentences, dimension): by inner product for the similarity
    ``cosine``, by distance for ``l2``.

    Scalar quantization to float16 keeps the stored numbers as they are, at half of a flat index's size.
    """
    import faiss

    quantizer = faiss.ScalarQuantizer.QT_fp16
    metric = faiss.METRIC_L2 if similarity == L2 else faiss.METRIC_INNER_PRODUCT
    index = faiss.IndexScalarQuantizer(vectors.shape[1], quantizer, metric)
    index.train(np.zeros((1, vectors.shape[1]), np.float32))
    for block in blocks(vectors):
        index.add(block)
    try:
        faiss.write_index(index, str(folder / FAISS))
    except RuntimeError as error:
        raise OutputError(f"cannot write {folder / FAISS}: {error}; check the disk's free space") from error


class Neighbours:
    """Nearest sentences by the index's own similarity, over all its sentences, or the live ones."""

    def __init__(self, folder: Path, threads: int, live: NDArray[np.bool_] | None = None) -> None:
        """``live`` (sentences,) says which sentences may be found; None: all."""
        import faiss

        path = folder / FAISS
        faiss.omp_set_num_threads(threads)
        try:
            self._index: Any = faiss.read_index(str(path))
        except RuntimeError as error:
            raise IndexFormatError(
                f"{path}: expected a FAISS index, found {error}; the index is damaged: build it again"
            ) from error
        self.sentences: int = self._index.ntotal
        self._findable = self.sentences
        self._sign = -1 if self._index.metric_type == faiss.METRIC_L2 else 1
        self._parameters: Any = None
        if live is not None:
            self._findable = int(live.sum())
            self._parameters = _only(np.packbits(live, bitorder="little"))

    def nearest(self, queries: NDArray[np.float32], count: int) -> NDArray[np.int64]:
        """Positions (queries, count) of the nearest sentences, best first."""
        return self.search(queries, count)[1]

    def search(
        self, queries: NDArray[np.float32], count: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Closeness (more is closer) and positions (queries, count) of the nearest sentences, best first."""
        distances, positions = self._index.search(
            queries, min(count, self._findable), params=self._parameters
        )
        return self._sign * distances, positions


def _only(bits: NDArray[np.uint8]) -> Any:
    """Parameters of a search that finds only the positions whose bit is set."""
    from faiss import IDSelectorBitmap, SearchParameters  # its stubs know C++'s arguments, not Python's

    selector: Any = IDSelectorBitmap
    parameters: Any = SearchParameters
    return parameters(sel=selector(bits))

"""FAISS: building an index over sentence vectors, and finding the papers of the nearest sentences.

A search compares and transforms vectors one by one, since FAISS's matrix products depend on the batch.
"""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from qbe.errors import OutputError, UsageError, check_package
from qbe.index.store import AUTO, EXACT, FaissParams, Files, damaged
from qbe.index.vectors import Floats, Mask, Rows, Selection, Vectors, distinct, may_be_best
from qbe.models.formats import L2

if TYPE_CHECKING:
    from qbe.index.source import Execution

FAISS = "faiss.index"
SAMPLED = 64  # vectors per list that its centroid is learned from
CODE_SAMPLED = 2**16  # vectors that codes are learned from, at least (if there are as many)

_ADDED = 65_536  # vectors that are added at a time
# Positions that FAISS returns in one call, at 12 bytes each, unless a single query needs more.
MOST_POSITIONS = 1 << 24
# Sentences of selected papers up to which all these papers are candidates, which takes as long and is exact.
FEW_SENTENCES = 50_000
# Sentences looked up first, in all and per paper asked for: 97 to 99 % of CSFCube's queries need no more.
FIRST_SENTENCES, FIRST_PER_PAPER = 200, 12
# Factor on the usual number of lists for selected papers, of which the nearest are farther away.
BREADTH = 2

SentenceSelection = tuple[int, Any]  # how many sentences a search may return, and FAISS's selector of them

_reading = threading.Lock()


def check_factory(factory: str, dimension: int, similarity: str) -> None:
    """Raise UsageError for a factory that FAISS does not take, or whose index cannot search a selection."""
    if factory == AUTO:
        return
    try:
        reason = "an index that does not search selected vectors"
        if searched(_empty(factory, dimension, similarity)):
            return
    except RuntimeError as error:
        reason = str(error).rpartition("Error: ")[2].rpartition(": ")[2] or "none"
    raise UsageError(
        "expected `faiss` as auto or a FAISS factory string such as IVF1024,PQ64x4fs, for vectors of "
        f"{dimension} numbers, found {factory!r} ({' '.join(reason.split())})"
    )


def _empty(factory: str, dimension: int, similarity: str) -> Any:
    import faiss

    metric = faiss.METRIC_L2 if similarity == L2 else faiss.METRIC_INNER_PRODUCT
    return faiss.index_factory(dimension, factory, metric)


def searched(index: Any) -> Any:
    """Return the part of a FAISS index behind its transformations; None if it cannot search a selection."""
    import faiss

    if isinstance(index, faiss.IndexPreTransform):
        index = faiss.downcast_index(index.index)
    kinds: Any = (faiss.IndexIVF, faiss.IndexHNSW, faiss.IndexFlatCodes)
    return index if isinstance(index, kinds) else None


def write_faiss(
    folder: Path,
    vectors: Vectors,
    similarity: str,
    params: FaissParams,
    execution: "Execution | None" = None,
    learned: tuple[Path, bool, int] | None = None,
) -> dict[str, Any]:
    """Build an index over vectors (sentences, dimension), save it in a folder, and return what a manifest's
    ``dense`` says of it.

    The same vectors and parameters give the same bytes. ``learned`` is the file of an index whose centroids
    and codes are taken, whether its vectors are kept as the first of ``vectors``, and how many it learned of.
    """
    import faiss

    from qbe.index.source import Execution

    execution, (before, kept, trained) = execution or Execution(), learned or (None, False, len(vectors))
    try:
        with execution.progress("indexing with FAISS", "vectors", len(vectors)) as advance:
            faiss.omp_set_num_threads(execution.threads)  # of this thread
            if before is None:
                index = _train(vectors, similarity, params)
            else:
                index = _read_index(before, faiss.IO_FLAG_SKIP_PRECOMPUTE_TABLE)
                if not kept:
                    index.reset()
            advance(index.ntotal)
            for first in range(index.ntotal, len(vectors), _ADDED):
                block = vectors[first : first + _ADDED].astype(np.float32)
                index.add(block)
                advance(len(block))
        faiss.write_index(index, str(folder / FAISS))
    except RuntimeError as error:
        raise OutputError(f"cannot write {folder / FAISS}: {error}; check the disk's free space") from error
    return {"ann": asdict(params), **({"trained": trained} if params.learns else {})}


def _train(vectors: Vectors, similarity: str, params: FaissParams) -> Any:
    """Return an empty index; centroids and codes are learned from a sample drawn by ``params.seed``."""
    import faiss

    if "HNSW" in params.factory:  # its links would depend on which thread came first
        faiss.omp_set_num_threads(1)
    index = _empty(params.factory, vectors.shape[1], similarity)
    if params.nlist is not None:
        ivf: Any = faiss.downcast_index(faiss.extract_index_ivf(index))
        ivf.cp.spherical = similarity != L2
        if hasattr(ivf, "do_polysemous_training"):
            ivf.do_polysemous_training = False  # takes seconds per code, for a search by Hamming distances
        if hasattr(ivf, "use_precomputed_table"):
            ivf.use_precomputed_table = -1  # by distance it would take more memory than all codes
        for clustering in (ivf.cp, *([ivf.pq.cp] if hasattr(ivf, "pq") else [])):
            clustering.seed = params.seed + 1
            clustering.min_points_per_centroid = 1  # no warnings for a small corpus
        if getattr(faiss, "get_num_gpus", int)():
            # A build for GPUs, which assigns vectors to centroids there.
            ivf.clustering_index = faiss.index_cpu_to_all_gpus(_empty("Flat", ivf.d, similarity))
    if not index.is_trained:
        count = min(len(vectors), max(SAMPLED * (params.nlist or 0), CODE_SAMPLED))
        rows = np.random.default_rng(params.seed).choice(len(vectors), count, replace=False)
        index.train(vectors[np.sort(rows)].astype(np.float32))
    return index


def _read_index(path: Path, flags: int) -> Any:
    """Read an index; counts in a damaged file allocate its size at most, or 256 MB, which tables need."""
    faiss = check_package("faiss")
    with _reading:
        before = faiss.get_deserialization_vector_byte_limit()
        faiss.set_deserialization_vector_byte_limit(max(path.stat().st_size, 1 << 28))
        try:
            return faiss.read_index(str(path), flags)
        finally:
            faiss.set_deserialization_vector_byte_limit(before)


class FaissIndex:
    """Find the nearest sentences by the similarity of the index."""

    def __init__(self, files: Files, threads: int, params: FaissParams, nprobe: int | None = None) -> None:
        """Open the index of a folder, built with ``params``; ``nprobe`` overrides theirs."""
        self._faiss = faiss = check_package("faiss")  # untyped: its stubs know C++'s arguments, not Python's
        self._path, self.params = files.folder / FAISS, params
        self._nprobe = min(nprobe or params.nprobe or 1, params.nlist or 1)
        if nprobe is not None and params.nlist is None:
            raise UsageError(f"`nprobe` goes with an index of lists, found {params.factory}; drop it")
        self._threads = threads
        flags = faiss.IO_FLAG_READ_ONLY | faiss.IO_FLAG_SKIP_PRECOMPUTE_TABLE
        if not params.factory.endswith("fs"):  # fast-scan codes are copied; all others can be mapped
            flags |= faiss.IO_FLAG_MMAP_IFC
        try:
            self._index: Any = _read_index(self._path, flags)
            if params.nlist is not None:
                faiss.extract_index_ivf(self._index).nprobe = self._nprobe
        except (RuntimeError, AttributeError, MemoryError, OSError) as error:
            raise damaged(self._path, "a FAISS index", " ".join(str(error).split())) from error
        self._searched = searched(self._index)
        if self._searched is None:
            raise damaged(self._path, f"a FAISS index {params.factory}", type(self._index).__name__)
        self.sentences: int = self._index.ntotal
        self._inner_product = self._index.metric_type == faiss.METRIC_INNER_PRODUCT
        self.has_similarities = params.factory == EXACT and self._inner_product and self.sentences > 0
        self._transformations: list[Any] = []
        if isinstance(self._index, faiss.IndexPreTransform):
            chain = self._index.chain
            places = range(chain.size())
            self._transformations = [faiss.downcast_VectorTransform(chain.at(n)).apply for n in places]

    def select(self, mask: Mask) -> SentenceSelection:
        """Return some sentences (sentences,) in the form that searches take."""
        return int(np.count_nonzero(mask)), self._faiss.IDSelectorBitmap(np.packbits(mask, bitorder="little"))

    def nearest(
        self, queries: Floats, count: int, allowed: SentenceSelection | None = None, breadth: int = 1
    ) -> Rows:
        """Return the positions (queries, up to count) of the nearest sentences, best first; -1 for none."""
        closeness, positions = self.search(queries, count, allowed, breadth)
        if positions.shape[1] <= count:
            return positions
        # Those as near as the next one are left out (-1): threads find one or another of them.
        tied = (closeness[:, :count] == closeness[:, count, None]) & (positions[:, count, None] >= 0)
        return np.where(tied & ~tied.all(axis=1, keepdims=True), -1, positions[:, :count])

    def search(
        self, queries: Floats, count: int, allowed: SentenceSelection | None = None, breadth: int = 1
    ) -> tuple[Floats, Rows]:
        """Return closeness and positions (queries, count, or one more), best first; -1 for none."""
        faiss = self._faiss
        size, selector = allowed or (self.sentences, None)
        count = min(count if self.params.factory == EXACT else count + 1, size)
        if not count:
            return np.zeros((len(queries), 0), np.float32), np.zeros((len(queries), 0), np.int64)
        for transform in self._transformations:  # one by one: matrix products depend on the other queries
            queries = np.concatenate([transform(row) for row in queries[:, None]])
        faiss.omp_set_num_threads(self._threads)  # of this thread
        parameters: Any = None  # those of the index
        if self.params.nlist is not None and (selector is not None or breadth > 1):  # not all take them
            nprobe = min(self._nprobe * breadth, self.params.nlist)
            parameters = faiss.SearchParametersIVF(sel=selector, nprobe=nprobe)
        elif isinstance(self._searched, faiss.IndexHNSW) and (selector is not None or breadth > 1):
            # HNSW visits as many vectors as it is to compare, of which only selected ones count.
            compared = min(count * self.sentences // size, self.sentences)
            parameters = faiss.SearchParametersHNSW(sel=selector, efSearch=compared)
        elif selector is not None:
            parameters = faiss.SearchParameters(sel=selector)
        # So many vectors that FAISS does not yet use matrix products, which depend on the other queries.
        most = max(1, (faiss.cvar.distance_compute_blas_threshold - 1) // queries.shape[1])
        groups = [queries[first : first + most] for first in range(0, max(len(queries), 1), most)]
        found = [self._searched.search(group, count, params=parameters) for group in groups]
        distances, positions = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
        if positions.max(initial=-1) >= self.sentences:
            raise damaged(self._path, f"positions below {self.sentences}", positions.max())
        return distances if self._inner_product else -distances, positions


class CandidateSource:
    """Finds the papers whose sentences are nearest to those of a query; several threads may share one."""

    def __init__(self, sentences: FaissIndex, starts: Rows) -> None:
        self.sentences, self._starts = sentences, starts
        self._with_sentences = int(np.count_nonzero(np.diff(starts)))

    def nearest(
        self, queries: Sequence[Floats], k: int, allowed: Selection | None = None, by_mean: bool = False
    ) -> Iterator[Rows]:
        """Yield the candidates of each query: rows of papers, int64, ascending, each once.

        A query is the vectors of its sentences, (n, dimension) float32. There are at least ``k`` candidates
        where ``allowed`` has enough papers. Where papers are then scored ``by_mean``
        (`qbe.index.vectors.mean_max`), those that cannot be among the best ``k`` may be left out.
        """
        count, least = max(self.sentences.params.depth, 2 * k), min(k, self._with_sentences)
        selected, usual, size, factor = None, 1, self.sentences.sentences, 4
        if allowed is not None:
            mask, sizes = allowed.mask, np.diff(self._starts)
            selected = allowed.once("sentences", lambda: self.sentences.select(np.repeat(mask, sizes)))
            usual, size, factor = BREADTH, selected[0], 2
            if size <= FEW_SENTENCES or len(allowed) <= 2 * k:
                yield from (allowed.rows for _ in queries)
                return
        # Queries that are looked up together, at least one.
        most = max(1, MOST_POSITIONS // (min(count, int(self._starts[-1])) * max([1, *map(len, queries)])))
        groups = (queries[first : first + most] for first in range(0, len(queries), most))
        if allowed is None and by_mean and self.sentences.has_similarities:
            found = (self._may_be_best(group, k, count) for group in groups)
        else:
            found = (self._papers(group, count, selected, usual) for group in groups)
        for query, rows in zip(queries, chain.from_iterable(found), strict=True):
            wider = count  # until there are enough: a long paper may have all of the nearest sentences
            while len(rows) < least and wider < size:
                wider *= factor
                (rows,) = self._papers([query], wider, selected, usual * (wider // count))
            yield rows if allowed is None or len(rows) >= least else allowed.rows

    def _may_be_best(self, queries: Sequence[Floats], k: int, count: int) -> list[Rows]:
        """Look up few sentences, and ``count`` where these do not show that no other paper can be better."""
        candidates: list[Rows] = [np.zeros(0, np.int64)] * len(queries)
        waiting = [*range(len(queries))]
        for looked_up in sorted({min(count, max(FIRST_SENTENCES, FIRST_PER_PAPER * k)), count}):
            if not waiting:
                break
            vectors = [queries[place] for place in waiting]
            similarities, positions = self.sentences.search(np.concatenate(vectors), looked_up)
            papers = np.searchsorted(self._starts, positions, side="right") - 1
            split = _split(similarities, vectors), _split(papers, vectors)
            places, waiting = waiting, []
            for place, near, of in zip(places, *split, strict=True):
                candidates[place], are_all = may_be_best(near, of, len(self._starts) - 1, k)
                if not are_all:
                    waiting.append(place)
        return candidates

    def _papers(
        self, queries: Sequence[Floats], count: int, selected: SentenceSelection | None, breadth: int
    ) -> list[Rows]:
        positions = self.sentences.nearest(np.concatenate(queries), count, selected, breadth)
        unique = [distinct(each[each >= 0]) for each in _split(positions, queries)]
        return [distinct(np.searchsorted(self._starts, each, side="right") - 1) for each in unique]


def _split(found: NDArray[Any], queries: Sequence[Floats]) -> list[NDArray[Any]]:
    """Split what was found for the vectors of several queries."""
    return np.split(found, np.cumsum([len(each) for each in queries], dtype=np.int64)[:-1])

"""The fused first stage: BM25, sentence vectors, sentence vectors of the facet, whole-paper vectors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from qbe.errors import UsageError
from qbe.index.index import Index
from qbe.search.bm25 import BM25Searcher
from qbe.search.dense import DenseSearcher, best_hits
from qbe.search.fusion import EQUAL_WEIGHTS, FUSIONS
from qbe.types import Hit, Query

Floats = NDArray[np.float64]


class FusedSearcher:
    """Gathers the candidates of BM25 and of the sentence vectors, scores each in every way, and fuses.

    Every component is computed for every candidate, so that none is punished for the list it missed.
    """

    def __init__(
        self,
        index: Index,
        bm25: BM25Searcher,
        dense: DenseSearcher,
        fusion: str = "weighted",
        weights: Mapping[str, float] = EQUAL_WEIGHTS,
        depth: int = 1000,
    ) -> None:
        """``fusion`` is one of FUSIONS; ``weights`` names components ``bm25``, ``sentences`` (all of a
        candidate), ``facet`` (its sentences of the query's facet) and ``whole``; ``depth`` is the number
        of papers each side brings. Raises UsageError for other names and for weights that are all 0.
        """
        if fusion not in FUSIONS:
            raise UsageError(f"expected a fusion of {', '.join(FUSIONS)}, found {fusion!r}")
        unknown = set(weights) - set(EQUAL_WEIGHTS)
        sound = all(math.isfinite(weight) and weight >= 0 for weight in weights.values())
        if unknown or not any(weights.values()) or not sound:
            raise UsageError(
                f"expected finite weights of 0 or more, not all 0, of {', '.join(EQUAL_WEIGHTS)}, "
                f"found {dict(weights)}"
            )
        self._index, self._bm25, self._dense = index, bm25, dense
        self._fuse, self._weights, self._depth = FUSIONS[fusion], weights, depth

    def search(
        self, query: Query, hits: int, pool: Sequence[str] | None = None, *, explain: bool = False
    ) -> list[Hit]:
        """The best hits, ties by id, out of a pool or of both sides' candidates.

        Raises UsageError where only the component ``facet`` has a weight and the query has no facet.
        """
        if query.facet is None and not any(w for name, w in self._weights.items() if name != "facet"):
            raise UsageError("expected a facet, since only the component facet has a weight, found none")
        vectors = self._dense.vectors(query)
        if pool is None:
            # One more than asked for: the query paper is among them, and left out in the end.
            depth = min(max(hits, self._depth + 1), len(self._index))
            lexical = {hit.docid: hit.score for hit in self._bm25.search(query, depth)}
            near = self._dense.search_rows(vectors, depth)
            rows = np.union1d(near, self._dense.rows(list(lexical)))
        else:
            lexical = {}
            rows = np.unique(self._dense.rows(pool))
        docids = [self._index.papers.ids[row] for row in rows]
        missing = [docid for docid in docids if docid not in lexical]
        if missing:
            lexical |= {hit.docid: hit.score for hit in self._bm25.search(query, len(missing), missing)}
        facets = [None] if query.facet is None else [None, query.facet]
        scores = [
            np.array([lexical[docid] for docid in docids]),
            self._dense.whole_scores(vectors, rows),
            *self._dense.scores_within(vectors, rows, facets),
        ]
        names = ("bm25", "whole", "sentences", "facet")
        components = {name: score.astype(np.float64) for name, score in zip(names, scores, strict=False)}
        fused = self._fuse(components, self._weights).astype(np.float32)
        best = best_hits(docids, fused, hits)
        return _explained(best, docids, components) if explain else best


def _explained(hits: list[Hit], docids: list[str], components: Mapping[str, Floats]) -> list[Hit]:
    """Hits with their parts: what each component, as it is before fusion, gave the paper."""
    place = {docid: i for i, docid in enumerate(docids)}
    return [
        hit._replace(parts={name: float(score[place[hit.docid]]) for name, score in components.items()})
        for hit in hits
    ]

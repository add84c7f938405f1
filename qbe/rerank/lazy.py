"""A reranker that is opened by the first candidates that it scores."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from qbe.rerank.reranker import Progress, Reranker, RerankRequest, RerankScore


class LazyReranker:
    """Stands for a reranker that reads no vectors, and opens it when it first scores.

    >>> from qbe.rerank.open import open_reranker
    >>> LazyReranker("facet-rerankers", open_reranker).needs_vectors
    False
    """

    needs_vectors = False

    def __init__(self, name: str, opening: Callable[[], Reranker]) -> None:
        """``opening`` is called once, by whichever thread is first."""
        self.name = name
        self._opening, self._lock = opening, threading.Lock()
        self._opened: Reranker | None = None

    def batch_score(
        self, requests: Sequence[RerankRequest], progress: Progress | None = None
    ) -> list[list[RerankScore]]:
        """See `qbe.rerank.reranker.Reranker.batch_score`; raises what ``opening`` does."""
        with self._lock:
            if self._opened is None:
                self._opened = self._opening()
        return self._opened.batch_score(requests, progress)

"""qbe: find papers like this one, for its problem, its method or its findings.

The names of the public interface are loaded when first used, so that importing qbe costs nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from qbe.index.index import Index
    from qbe.query import Query
    from qbe.rerank.open import open_reranker
    from qbe.rerank.vector_matching import VectorMatching
    from qbe.search.reranking import RerankingSearcher
    from qbe.search.searcher import Searcher
    from qbe.types import Facet, Hit, Paper, Run, Sentence

_HOMES = {
    "Facet": "qbe.types",
    "Hit": "qbe.types",
    "Index": "qbe.index.index",
    "Paper": "qbe.types",
    "Query": "qbe.query",
    "RerankingSearcher": "qbe.search.reranking",
    "Run": "qbe.types",
    "Searcher": "qbe.search.searcher",
    "Sentence": "qbe.types",
    "VectorMatching": "qbe.rerank.vector_matching",
    "open_reranker": "qbe.rerank.open",
}

__all__ = [
    "Facet",
    "Hit",
    "Index",
    "Paper",
    "Query",
    "RerankingSearcher",
    "Run",
    "Searcher",
    "Sentence",
    "VectorMatching",
    "open_reranker",
]


def __getattr__(name: str) -> Any:
    """A public name, from its module; ``__version__``, from the metadata of the installed package."""
    if name == "__version__":
        from importlib.metadata import version

        return version("qbe")
    if name not in _HOMES:
        raise AttributeError(f"module 'qbe' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)

"""The stages that the options of ``python -m qbe.search`` ask for."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from qbe.search.checks import reranker_name

if TYPE_CHECKING:
    from qbe.index.index import Index
    from qbe.rerank.reranker import Reranker
    from qbe.search.searcher import Searcher


def open_searcher(options: argparse.Namespace, index: Index) -> Searcher:
    """The first stage; raises what `Searcher` does."""
    from qbe.search.fusion import EQUAL_WEIGHTS
    from qbe.search.queries import parse_weights
    from qbe.search.searcher import Searcher

    weights = EQUAL_WEIGHTS
    if options.weights is not None:
        weights = parse_weights(options.weights, list(EQUAL_WEIGHTS))
    return Searcher(
        index,
        options.first_stage,
        bm25_query=options.bm25_query,
        match=options.match,
        fusion=options.fusion,
        weights=weights,
        depth=options.depth,
        nprobe=options.nprobe,
    )


def open_second_stage(options: argparse.Namespace, index: Index, threads: int) -> Reranker | None:
    """The reranker, or None where results are not reranked.

    Raises what `qbe.rerank.open.open_reranker` does, IndexFormatError where the vectors to be matched are not
    in the index.
    """
    name = reranker_name(options)
    if name == "none":
        return None
    if name == "cross-encoder":
        return _cross_encoder(options, threads)
    from qbe.rerank.vector_matching import VectorMatching

    index.require_vectors()
    given = _given(options, {"temperature": "temperature", "regularization": "regularization"})
    return VectorMatching(
        name,
        lambda paper: index.vectors(paper).sentences,
        similarity=index.similarity,
        threads=threads,
        **given,
    )


def _cross_encoder(options: argparse.Namespace, threads: int) -> Reranker:
    from qbe.rerank.open import open_reranker

    names = {
        "name": "reranker",
        "precision": "rerank_precision",
        "query_tokens": "query_tokens",
        "candidate_tokens": "candidate_tokens",
    }
    return open_reranker(threads=threads, **_given(options, names))


def _given(options: argparse.Namespace, names: dict[str, str]) -> dict[str, Any]:
    """Those of the options that were given, under the names that are to go with them."""
    values = {name: getattr(options, option) for name, option in names.items()}
    return {name: value for name, value in values.items() if value is not None}

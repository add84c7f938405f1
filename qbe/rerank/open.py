"""Rerankers by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from qbe.models.registry import DEFAULT_RERANKER
from qbe.models.reranker_files import RerankerFiles, resolve_reranker

if TYPE_CHECKING:
    from qbe.parallel import Workers
    from qbe.rerank.reranker import Reranker


def open_reranker(
    name: str = DEFAULT_RERANKER,
    *,
    precision: str = "int8",
    workers: Workers | None = None,
    query_tokens: int | None = None,
    candidate_tokens: int | None = None,
) -> Reranker:
    """The reranker of that registry name, folder or hub name; see `qbe.models.reranker_files`.

    ``workers`` score as many candidates at a time as they have threads (by default one). The token budgets
    count special tokens; by default they are 256 for either side of a pair cross-encoder, and as many as the
    models read for facet rerankers, whose budgets are never more than that. Raises UsageError for a precision
    that the reranker does not have, for a budget without room for a token of text, and for budgets of a pair
    cross-encoder that exceed together what it reads; ModelError when it cannot be found, verified or loaded.
    """
    files = resolve_reranker(name, precision)
    return _OPENERS[files.metadata.kind](files, workers, query_tokens, candidate_tokens)


def describe_reranker(name: str = DEFAULT_RERANKER, precision: str = "int8") -> dict[str, str]:
    """What distinguishes a reranker from another: the SHA-256 of its files by name; errors are those of
    `open_reranker`.

    >>> sorted(describe_reranker())
    ['background.onnx', 'method.onnx', 'result.onnx', 'tokenizer.json', 'trunk.bin']
    """
    return dict(resolve_reranker(name, precision).metadata.files)


def _pair(
    files: RerankerFiles, workers: Workers | None, query_tokens: int | None, candidate_tokens: int | None
) -> Reranker:
    from qbe.rerank.cross_encoder import CrossEncoder
    from qbe.rerank.pairs import CANDIDATE_TOKENS, QUERY_TOKENS

    return CrossEncoder(
        files, workers, _given(query_tokens, QUERY_TOKENS), _given(candidate_tokens, CANDIDATE_TOKENS)
    )


def _facet(
    files: RerankerFiles, workers: Workers | None, query_tokens: int | None, candidate_tokens: int | None
) -> Reranker:
    from qbe.rerank.facet_cross_encoder import FacetCrossEncoder

    limit = files.metadata.max_tokens
    return FacetCrossEncoder(files, workers, _given(query_tokens, limit), _given(candidate_tokens, limit))


def _given(tokens: int | None, default: int) -> int:
    return default if tokens is None else tokens


_OPENERS: Mapping[str, Callable[[RerankerFiles, Workers | None, int | None, int | None], Reranker]] = {
    "pair": _pair,
    "facet": _facet,
}
"""How a reranker is opened, by the kind that its metadata states."""

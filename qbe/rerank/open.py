"""Rerankers by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qbe.models.registry import DEFAULT_RERANKER
from qbe.models.reranker_files import CrossEncoderMetadata, resolve_reranker
from qbe.rerank.pairs import CANDIDATE_TOKENS, QUERY_TOKENS

if TYPE_CHECKING:
    from qbe.rerank.reranker import Reranker


def open_reranker(
    name: str = DEFAULT_RERANKER,
    *,
    precision: str = "int8",
    threads: int = 1,
    query_tokens: int | None = None,
    candidate_tokens: int | None = None,
) -> Reranker:
    """The reranker of that registry name, folder or hub name; see `qbe.models.reranker_files`.

    ``threads`` candidates are judged at a time. The token budgets count special tokens; by default they are
    256 for either side of a pair cross-encoder, and all that facet rerankers take (see their card). Raises
    UsageError for a precision or budgets that the reranker does not have room for, ModelError when it
    cannot be found, verified or loaded.
    """
    files = resolve_reranker(name, precision)
    if isinstance(files.card, CrossEncoderMetadata):
        from qbe.rerank.cross_encoder import CrossEncoder

        return CrossEncoder(
            files, threads, query_tokens or QUERY_TOKENS, candidate_tokens or CANDIDATE_TOKENS
        )
    from qbe.rerank.facet_cross_encoder import FacetCrossEncoder

    limit = files.card.max_tokens
    return FacetCrossEncoder(files, threads, query_tokens or limit, candidate_tokens or limit)


def describe_reranker(name: str = DEFAULT_RERANKER, precision: str = "int8") -> dict[str, str]:
    """What tells a reranker from another: the SHA-256 of its files by name; errors are those of
    `open_reranker`.
    """
    return dict(resolve_reranker(name, precision).card.files)

"""Rerankers by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qbe.models.registry import DEFAULT_RERANKER
from qbe.models.reranker_files import resolve_reranker

if TYPE_CHECKING:
    from qbe.parallel import Workers
    from qbe.rerank.reranker import Reranker


def open_reranker(
    name: str = DEFAULT_RERANKER, *, precision: str = "int8", workers: Workers | None = None
) -> Reranker:
    """The reranker of that registry name, folder or hub name; see `qbe.models.reranker_files`.

    ``workers`` score as many candidates at a time as they have threads (by default one). Raises UsageError
    for a precision that the reranker does not have; ModelError when it cannot be found, verified or loaded.
    """
    files = resolve_reranker(name, precision)
    if files.metadata.kind == "pair":
        from qbe.rerank.cross_encoder import CrossEncoder

        return CrossEncoder(files, workers)
    from qbe.rerank.facet_cross_encoder import FacetCrossEncoder

    return FacetCrossEncoder(files, workers)


def describe_reranker(name: str = DEFAULT_RERANKER, precision: str = "int8") -> dict[str, str]:
    """What distinguishes a reranker from another: the SHA-256 of its files by name; errors are those of
    `open_reranker`.

    >>> sorted(describe_reranker())
    ['background.onnx', 'method.onnx', 'result.onnx', 'tokenizer.json', 'trunk.bin']
    """
    return dict(resolve_reranker(name, precision).metadata.files)

"""Models for batches on a GPU, made of exported ones when they are first used, and kept in the cache."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from qbe.files import cache_folder, make_once, sha256
from qbe.models.encoder_files import EncoderFiles, state_output
from qbe.models.graphs import (
    FLOAT,
    HALF,
    SCORES,
    SUMS,
    Graph,
    add_tagger,
    dequantize,
    halve,
    mask_padding,
    pool,
    to_single,
)
from qbe.models.reranker_files import SCORE

log = logging.getLogger(__name__)

_FORMAT = 1
"""Of the files that are made; another one is another name in the cache."""


def encoder_batches(
    files: EncoderFiles, head: Path | None = None, layers: Sequence[int] = (), *, half: bool = True
) -> Path:
    """The ONNX file of an encoder that takes batches: inputs and outputs are those of `qbe.models.graphs`,
    and the states of all layers by their names (`qbe.models.encoder_files.state_output`).

    With the ``head`` of a tagger, and the numbers of the ``layers`` that it takes, it labels sentences, too.
    Weights in int8 are those numbers, products are in half precision (``half``) or in single.

    Raises MissingDependencyError without onnx, ModelError for files that are damaged.
    """
    last = files.metadata.layers

    def rewrite() -> Graph:
        graph = Graph(files.model)
        dequantize(graph)
        mask_padding(graph)
        pool(graph, state_output(last, last))
        outputs = {SUMS: FLOAT}
        if head is not None:
            tagger = Graph(head)
            dequantize(tagger)
            add_tagger(graph, tagger, [state_output(layer, last) for layer in layers])
            outputs[SCORES] = FLOAT
        if half:
            halve(graph)
        states = {state_output(layer, last): HALF if half else FLOAT for layer in range(last + 1)}
        graph.set_outputs(outputs | states)
        return graph

    parts = [files.model, *([head] if head is not None else [])]
    return _made(files.metadata.name, parts, rewrite, half=half)


def pair_batches(name: str, model: Path) -> Path:
    """The ONNX file of a pair cross-encoder with products in half precision: inputs and output are those of
    ``model``; errors are those of `encoder_batches`.
    """

    def rewrite() -> Graph:
        graph = Graph(model)
        halve(graph)
        to_single(graph, SCORE)
        return graph

    return _made(name, [model], rewrite, half=True)


def _made(name: str, parts: Sequence[Path], rewrite: Callable[[], Graph], *, half: bool) -> Path:
    """The file in the cache that ``rewrite`` makes of ``parts``, made if it is not there."""
    digests = "-".join(sha256(part)[:12] for part in parts)
    target = cache_folder() / "batches" / f"{name}-{digests}-{'half' if half else 'single'}-{_FORMAT}.onnx"

    def make() -> None:
        log.info("making %s for batches, once, in %s ...", name, target)
        graph = rewrite()
        descriptor, temporary = tempfile.mkstemp(prefix=".making-", dir=target.parent)
        os.close(descriptor)
        try:
            graph.write(Path(temporary))
            Path(temporary).replace(target)
        finally:
            Path(temporary).unlink(missing_ok=True)

    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
    make_once(
        target, target.is_file, make, lambda: log.info("another process makes %s: waiting for it ...", target)
    )
    return target

"""Models for batches on a GPU, made of exported ones when they are first used, and kept in the cache."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

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
from qbe.models.reranker_files import SCORE, RerankerFiles
from qbe.util.files import atomic_file, cache_folder, make_once, sha256

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

    digests = [files.metadata.files[files.model.name], *([sha256(head)] if head is not None else [])]
    return _made(files.metadata.name, digests, rewrite, half=half)


def pair_batches(files: RerankerFiles) -> Path:
    """The ONNX file of a pair cross-encoder with products in half precision: inputs and output are those of
    its model; errors are those of `encoder_batches`.
    """
    model = files.model()

    def rewrite() -> Graph:
        graph = Graph(model)
        halve(graph)
        to_single(graph, SCORE)
        return graph

    return _made(files.metadata.name, [files.metadata.files[model.name]], rewrite, half=True)


def _made(name: str, digests: Sequence[str], rewrite: Callable[[], Graph], *, half: bool) -> Path:
    """The file in the cache that ``rewrite`` makes of files with these digests, made if it is not there."""
    parts = "-".join(digest[:12] for digest in digests)
    target = cache_folder() / "batches" / f"{name}-{parts}-{'half' if half else 'single'}-{_FORMAT}.onnx"

    def make() -> None:
        log.info("making %s for batches, once, in %s ...", name, target)
        graph = rewrite()
        with atomic_file(target) as stream:
            stream.write(graph.serialized())

    make_once(
        target, target.is_file, make, lambda: log.info("another process makes %s: waiting for it ...", target)
    )
    return target

"""The kinds of models: their files, where their exports are kept, their metadata in JSON, and digests."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from qbe.errors import ModelError, UsageError
from qbe.util.files import sha256

T = TypeVar("T")


def read_metadata(path: Path, parse: Callable[[Any], T], expected: str, remedy: str) -> T:
    """What ``parse`` makes of a JSON file.

    Raises ModelError, which names what was ``expected`` and ends in ``remedy``, where the file is damaged or
    ``parse`` refuses its content; a ModelError of ``parse`` passes through.

    >>> write_metadata(Path("tagger.json"), {"name": "mine", "layers": [2, 6]})
    >>> read_metadata(Path("tagger.json"), lambda record: record["layers"], "a tagger", "train it again")
    [2, 6]
    """
    try:
        return parse(json.loads(path.read_text(encoding="utf-8")))
    except (AttributeError, OSError, ValueError, TypeError, KeyError, UsageError) as error:
        raise ModelError(f"{path}: expected {expected}, found {error}; {remedy}") from error


def write_metadata(path: Path, record: Mapping[str, Any]) -> None:
    """Write metadata as JSON, one field a line."""
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def verify_digest(path: Path, expected: str | None, remedy: str) -> None:
    """Raise ModelError, which ends in ``remedy``, when a file is missing or has another SHA-256.

    >>> verify_digest(Path("head.onnx"), "0123abcd", "install qbe again")
    Traceback (most recent call last):
        ...
    qbe.errors.ModelError: head.onnx: expected SHA-256 0123abcd, found no file; install qbe again
    """
    digest = sha256(path) if path.is_file() else None
    if digest is None or digest != expected:
        raise ModelError(f"{path}: expected SHA-256 {expected}, found {digest or 'no file'}; {remedy}")


TOKENIZER = "tokenizer.json"
"""A model's tokenizer, as a file of the ``tokenizers`` package."""

RequiredFiles = tuple[tuple[str, ...], ...]
"""Config, weights and tokenizer of a PyTorch model, each by its possible names, the preferred one first."""


class ModelKind(NamedTuple):
    """A kind of model.

    ``noun`` is its name in messages, ``metadata_file`` the JSON file of finished files, ``format``
    the version of both. ``command`` is the subcommand of ``qbe export`` that makes them out of the
    ``required`` files of a PyTorch model, and ``cache`` the subfolder of the cache that holds the results;
    both are empty for a kind that is never exported on first use.

    >>> [(kind.noun, kind.metadata_file) for kind in (ENCODER, CROSS_ENCODER, TAGGER)]
    [('encoder', 'encoder.json'), ('reranker', 'reranker.json'), ('tagger', 'tagger.json')]
    """

    noun: str
    metadata_file: str
    format: int
    command: str = ""
    cache: str = ""
    required: RequiredFiles = ()


ENCODER = ModelKind(
    noun="encoder",
    metadata_file="encoder.json",
    format=4,
    command="encoder",
    cache="encoders",
    required=(("config.json",), ("model.safetensors", "pytorch_model.bin"), (TOKENIZER, "vocab.txt")),
)
"""Format 1 had ``last_hidden_state`` as its only output, format 2 the token states of all layers; format 3
records the encoder format as well, and format 4 has no mask of padding as an input: papers pass one by one.
"""

CROSS_ENCODER = ModelKind(
    noun="reranker",
    metadata_file="reranker.json",
    format=1,
    command="cross-encoder",
    cache="rerankers",
    required=(("config.json",), ("model.safetensors",), (TOKENIZER,)),
)

TAGGER = ModelKind(noun="tagger", metadata_file="tagger.json", format=1)

GRAPH = "graph.onnx"
"""A traced model without its weights (`qbe.models.export.graph`)."""

RANGES = "ranges.safetensors"
"""Beside a graph, the ranges of its activations (`qbe.models.export.quantization.channel_ranges`), float16."""

DIFFERENCE = "difference.safetensors"
"""What a large encoder's folder holds: the difference of its weights from a base (`qbe.models.large`)."""

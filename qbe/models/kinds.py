"""The kinds of models: what their files are called, and where their exports are kept."""

from __future__ import annotations

from typing import NamedTuple

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

ENCODER_FORMATS = (3, ENCODER.format)
"""The formats of encoders that can be read."""

CROSS_ENCODER = ModelKind(
    noun="reranker",
    metadata_file="reranker.json",
    format=1,
    command="cross-encoder",
    cache="rerankers",
    required=(("config.json",), ("model.safetensors",), (TOKENIZER,)),
)

TAGGER = ModelKind(noun="tagger", metadata_file="tagger.json", format=1)

DIFFERENCE = "difference.safetensors"
"""What a large encoder's folder holds: the difference of its weights from a base (`qbe.models.large`)."""

"""The files of an exported encoder, resolved from a name and verified."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbe.errors import ModelError, UsageError
from qbe.models.encoder_format import DEFAULT_FORMAT, EncoderFormat
from qbe.models.kinds import ENCODER, TOKENIZER, read_metadata, verify_digest, write_metadata
from qbe.models.registry import BASE_ENCODER, DEFAULT_ENCODER
from qbe.models.session import CPU
from qbe.models.sources import exported, find_encoder, model_file

CARD = ENCODER.metadata_file
HALF = "fp16"
EXPORTED = ("int8", "fp32")
PRECISIONS = (*EXPORTED, HALF)
"""An encoder that has fp32 or int8 has fp16, too: `qbe.models.batches` makes it of that. A pair cross-encoder
has all three.
"""

_FORMAT_KEY = "convention"
"""What the encoder format is called in JSON files: in ``encoder.json`` and in an index's manifest."""


@dataclass(frozen=True, slots=True)
class EncoderMetadata:
    """What an export records: its format, origin, shape, encoder format, and the digests of its files.

    ``layers`` counts the transformer layers. ``max_tokens`` is the limit of a pass: that of
    ``encoder_format``, or the number of positions of the model. ``adapter`` is the SHA-256 of an adapter's
    weights, None without one. ``files`` holds SHA-256 by file name. ``parity`` holds, for each precision, the
    difference from the PyTorch original that the export measured: ``max_abs_difference`` of token states and
    ``min_cosine`` of mean-pooled vectors, over all layers, and of the last layer's [CLS] where the encoder
    format uses that.
    """

    format: int
    name: str
    source: str
    weights_sha256: str
    dimension: int
    layers: int
    max_tokens: int
    encoder_format: EncoderFormat
    adapter: str | None
    files: Mapping[str, str]
    parity: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class EncoderFiles:
    """An exported encoder on disk, in one precision.

    >>> files = resolve_encoder("facet-encoder")
    >>> files.tokenizer.name, sorted(files.identity)
    ('tokenizer.json', ['name', 'precision', 'weights_sha256'])
    """

    folder: Path
    metadata: EncoderMetadata
    precision: str

    @property
    def model(self) -> Path:
        """The ONNX model of the chosen precision; that which fp16 is made of, fp32 where there is one."""
        if self.precision != HALF:
            return self.folder / model_file(self.precision)
        own = ("fp32", "int8")
        return self.folder / next(file for file in map(model_file, own) if file in self.metadata.files)

    def on_any_machine(self) -> EncoderFiles:
        """The same encoder in the precision that fp16 is made of, which needs no package onnx."""
        return dataclasses.replace(self, precision=self.model.name.split(".")[1])

    @property
    def tokenizer(self) -> Path:
        """The tokenizer, in the format of the ``tokenizers`` package."""
        return self.folder / TOKENIZER

    @property
    def identity(self) -> dict[str, Any]:
        """What two sets of vectors must share to be compared, as an index records it.

        The default encoder format and a missing adapter are left out, so that indexes which were built before
        there was a choice have the same identity.
        """
        identity: dict[str, Any] = {
            "name": self.metadata.name,
            "precision": self.precision,
            "weights_sha256": self.metadata.weights_sha256,
        }
        if self.metadata.encoder_format != DEFAULT_FORMAT:
            identity[_FORMAT_KEY] = dataclasses.asdict(self.metadata.encoder_format)
        if self.metadata.adapter is not None:
            identity["adapter"] = self.metadata.adapter
        return identity

    def verify(self) -> None:
        """Raise ModelError when the model or the tokenizer is missing or is not the one that was exported."""
        remedy = f"delete the folder {self.folder}, and it will be exported again"
        if self.folder.parent == Path(__file__).parent:
            remedy = "install qbe again"
        for path in (self.model, self.tokenizer):
            verify_digest(path, self.metadata.files.get(path.name), remedy)


def usual_precision(device: str) -> str:
    """The precision that is meant where none is named, on the CPU or on a GPU.

    >>> usual_precision("cpu"), usual_precision("cuda")
    ('int8', 'fp16')
    """
    return "int8" if device == CPU else HALF


def check_precision(precision: str, device: str) -> None:
    """Raise UsageError for int8 on a GPU, which ONNX Runtime does not support.

    >>> check_precision("int8", "cpu")
    """
    if device != CPU and precision == "int8":
        raise UsageError(
            f"`device` {device} runs models in {HALF} or fp32, found `precision` int8; give `precision` "
            f"{HALF}"
        )


def state_output(layer: int, last: int) -> str:
    """Name of the output with the token states after a layer; 0 means the embeddings.

    >>> state_output(2, last=6), state_output(6, last=6)
    ('hidden_state_2', 'last_hidden_state')
    """
    return "last_hidden_state" if layer == last else f"hidden_state_{layer}"


def resolve_encoder(name: str = DEFAULT_ENCODER, precision: str = "int8") -> EncoderFiles:
    """The files of an encoder: a registry name, an exported or Hugging Face folder, or a hub name.

    Weights that were never exported are exported once, see `qbe.models.sources.exported`. Raises UsageError
    for an unknown precision, and ModelError when nothing has that name, or it cannot be read, verified or
    exported.

    >>> resolve_encoder("facet-encoder").model.name
    'model.int8.onnx'
    """
    if precision not in PRECISIONS:
        raise UsageError(f"expected a `precision` of {', '.join(PRECISIONS)}, found {precision!r}")
    folder = exported(ENCODER, find_encoder(name))
    metadata = read_card(folder)
    if precision != HALF and model_file(precision) not in metadata.files:
        raise ModelError(
            f"expected the encoder {metadata.name} in {precision}, found it only in "
            f"{', '.join(metadata.parity)}; give `precision` {HALF}, or {next(iter(metadata.parity))} on the "
            f"CPU, or another `encoder`, such as {BASE_ENCODER}"
        )
    return EncoderFiles(folder, metadata, precision)


def read_card(folder: Path) -> EncoderMetadata:
    """Read an export's metadata; raises ModelError when they are damaged or of another format.

    >>> card = read_card(resolve_encoder("facet-encoder").folder)
    >>> card.dimension, card.layers, card.encoder_format.similarity
    (384, 6, 'cosine')
    """

    def parse(record: Any) -> EncoderMetadata:
        version = record.get("format", 1)
        if version != ENCODER.format:
            raise ModelError(
                f"{folder}: expected an export of format {ENCODER.format}, found format {version}; export "
                "its encoder again with: qbe export encoder"
            )
        fields = {key: value for key, value in record.items() if key != _FORMAT_KEY}
        return EncoderMetadata(encoder_format=EncoderFormat(**record[_FORMAT_KEY]), **fields)

    remedy = f"delete the folder {folder} to export again"
    return read_metadata(folder / CARD, parse, "the metadata of an exported encoder", remedy)


def write_card(folder: Path, metadata: EncoderMetadata) -> None:
    """Write the metadata of an export in progress.

    >>> card = read_card(resolve_encoder("facet-encoder").folder)
    >>> write_card(Path(), card)
    >>> read_card(Path()) == card
    True
    """
    fields = dataclasses.asdict(metadata)
    record = {_FORMAT_KEY if key == "encoder_format" else key: value for key, value in fields.items()}
    write_metadata(folder / CARD, record)

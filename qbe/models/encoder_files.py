"""The files of an exported encoder: found by name, folder or hub name, and exported on first use."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbe.errors import ModelError, UsageError
from qbe.files import sha256
from qbe.models.encoder_format import DEFAULT_FORMAT, EncoderFormat
from qbe.models.encoder_sources import EncoderSource, adapter_weights, find_encoder
from qbe.models.exports import (
    ExportKind,
    cached_export,
    export_once,
    model_file,
    verify_digest,
)
from qbe.models.registry import DEFAULT_ENCODER, ENCODERS, PUBLISHED, SHIPPED, EncoderEntry

CARD = "encoder.json"
EXPORT_FORMAT = 3
"""What an export holds. 1: ``last_hidden_state`` alone; 2: the token states of every layer; 3: how the
encoder is read, too.
"""
SOURCES = (("config.json",), ("model.safetensors", "pytorch_model.bin"), ("tokenizer.json", "vocab.txt"))
ENCODER = ExportKind("encoder", "encoder", CARD, "encoders", EXPORT_FORMAT, SOURCES)
PRECISIONS = ("int8", "fp32")


@dataclass(frozen=True, slots=True)
class EncoderMetadata:
    """What an export records: its format, origin, shape, reading, and the digests of its files.

    ``layers`` counts the transformer layers. ``convention`` is how the encoder is read, and ``max_tokens``
    what a pass holds at most: what the convention says, or as many as the model has positions. ``adapter`` is
    the SHA-256 of an adapter's weights, None without one. ``parity`` holds, for each precision, the
    difference from the PyTorch original that the export measured: ``max_abs_difference`` of token states and
    ``min_cosine`` of mean-pooled vectors, over all layers, and of the last one's [CLS] where the convention
    reads that.
    """

    format: int
    name: str
    source: str
    weights_sha256: str
    dimension: int
    layers: int
    max_tokens: int
    convention: EncoderFormat
    adapter: str | None
    files: Mapping[str, str]
    parity: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class EncoderFiles:
    """An exported encoder on disk, in one precision."""

    folder: Path
    card: EncoderMetadata
    precision: str

    @property
    def model(self) -> Path:
        """The ONNX model of the chosen precision."""
        return self.folder / model_file(self.precision)

    @property
    def tokenizer(self) -> Path:
        """The tokenizer, in the format of the ``tokenizers`` package."""
        return self.folder / "tokenizer.json"

    @property
    def identity(self) -> dict[str, Any]:
        """What two sets of vectors must share to be compared; what is as with the default encoder is left
        out, so that indexes of the time before there was a choice still say the same.
        """
        identity: dict[str, Any] = {
            "name": self.card.name,
            "precision": self.precision,
            "weights_sha256": self.card.weights_sha256,
        }
        if self.card.convention != DEFAULT_FORMAT:
            identity["convention"] = dataclasses.asdict(self.card.convention)
        if self.card.adapter is not None:
            identity["adapter"] = self.card.adapter
        return identity

    def verify(self) -> None:
        """Raise ModelError when a file is missing or is not the one that was exported."""
        remedy = f"delete the folder {self.folder}, and it will be exported again"
        if self.folder.parent == Path(__file__).parent:
            remedy = "install qbe again"
        for path in (self.model, self.tokenizer):
            verify_digest(path, self.card.files.get(path.name), remedy)


def state_output(layer: int, last: int) -> str:
    """Name of the output that holds the token states behind a layer; 0 means the embeddings."""
    return "last_hidden_state" if layer == last else f"hidden_state_{layer}"


def resolve_encoder(name: str = DEFAULT_ENCODER, precision: str = "int8") -> EncoderFiles:
    """The files of an encoder: a registry name, an exported or Hugging Face folder, or a hub name.

    Weights that were never exported are exported once, in a process of their own (it needs torch,
    this one does not), into ``qbe.files.cache_folder()``. Raises UsageError for an unknown precision
    and ModelError when nothing of that name is found, verified or exported.
    """
    if precision not in PRECISIONS:
        raise UsageError(f"expected a precision of {', '.join(PRECISIONS)}, found {precision!r}")
    folder = Path(name)
    if name in SHIPPED and not folder.is_dir():
        folder = Path(__file__).parent / SHIPPED[name]
    elif name in ENCODERS and not folder.is_dir():
        folder = _export_entry(ENCODERS[name])
    elif not (folder / CARD).is_file():
        source = find_encoder(name)
        if source is None:
            raise ModelError(
                f"expected an encoder known by name ({', '.join((*SHIPPED, *ENCODERS, *PUBLISHED))}), a "
                "folder, or a "
                f"hub name such as owner/model, found {name!r}; check --encoder"
            )
        folder = _export(source)
    card = read_card(folder)
    if model_file(precision) not in card.files:
        raise ModelError(
            f"expected the encoder {card.name} in {precision}, found it in {', '.join(card.parity)} alone; "
            "give another --precision or --encoder"
        )
    return EncoderFiles(folder, card, precision)


def read_card(folder: Path) -> EncoderMetadata:
    """Read an export's card; raises ModelError when it is damaged or of another format."""
    path = folder / CARD
    try:
        record = json.loads(path.read_text())
        found = record.get("format", 1)
        if found != EXPORT_FORMAT:
            raise ModelError(
                f"{folder}: expected an export of format {EXPORT_FORMAT}, found format {found}; export its "
                "encoder again with: python -m qbe.export encoder"
            )
        return EncoderMetadata(**{**record, "convention": EncoderFormat(**record["convention"])})
    except (AttributeError, OSError, ValueError, TypeError, KeyError, UsageError) as error:
        raise ModelError(
            f"{path}: expected the card of an exported encoder, found {error}; delete the folder {folder} "
            "to export again"
        ) from error


def write_card(folder: Path, card: EncoderMetadata) -> None:
    """Write a card into an export that is being made."""
    (folder / CARD).write_text(json.dumps(dataclasses.asdict(card), indent=1) + "\n")


def _export_entry(entry: EncoderEntry) -> Path:
    variant = _variant(entry.convention)
    destination = cached_export(ENCODER, entry.name, entry.digests["model.safetensors"], variant)
    if (destination / CARD).is_file():
        return destination
    options = entry.convention.options()
    return export_once(ENCODER, packaged_weights(entry), entry.name, entry.source, options, variant)


def _export(source: EncoderSource) -> Path:
    folder, name, origin, convention, adapter = source
    options, digest = convention.options(), ""
    if adapter is not None:
        options += ["--adapter", str(adapter)]
        digest = sha256(adapter_weights(adapter))
    return export_once(ENCODER, folder, name, origin, options, _variant(convention, digest))


def _variant(convention: EncoderFormat, adapter: str = "") -> str:
    """Tells exports of the same weights apart: by how they are read, and by an adapter's digest."""
    if convention == DEFAULT_FORMAT and not adapter:
        return ""
    text = " ".join([*convention.options(), adapter])
    return f"-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def packaged_weights(entry: EncoderEntry) -> Path:
    """The folder of an entry's PyTorch weights inside its package, verified.

    Raises ModelError when the package is not installed or a file is not the one expected.
    """
    specification = importlib.util.find_spec(entry.package)
    if specification is None or specification.origin is None:
        package = entry.package.replace("_", "-")
        raise ModelError(f"the encoder {entry.name} needs the package {package}; run: pip install {package}")
    folder = Path(specification.origin).parent / entry.folder
    for file, expected in entry.digests.items():
        path = folder / file
        found = sha256(path) if path.is_file() else "no file"
        if found != expected:
            raise ModelError(
                f"{path}: expected SHA-256 {expected} ({entry.source}), found {found}; it is not used: "
                f"reinstall the package {entry.package.replace('_', '-')}, or give another --encoder"
            )
    return folder

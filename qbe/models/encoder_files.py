"""The files of an exported encoder: found by name, folder or hub name, and exported on first use."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from qbe.errors import ModelError, UsageError
from qbe.files import sha256
from qbe.models.exports import (
    ExportKind,
    cached_export,
    export_once,
    exported_folder,
    model_file,
    verify_digest,
)
from qbe.models.registry import DEFAULT_ENCODER, ENCODERS, EncoderEntry

CARD = "encoder.json"
EXPORT_FORMAT = 2
"""What an export holds. 1: ``last_hidden_state`` alone; 2: the token states of every layer."""
ENCODER = ExportKind("encoder", "encoder", CARD, "encoders", EXPORT_FORMAT)
PRECISIONS = ("int8", "fp32")


@dataclass(frozen=True, slots=True)
class EncoderCard:
    """What an export records: its format, origin, shape, and the digests of its files.

    ``layers`` counts the transformer layers. ``parity`` holds, for each precision, the difference from the
    PyTorch original that the export measured: ``max_abs_difference`` of token states and ``min_cosine`` of
    mean-pooled vectors, over all layers.
    """

    format: int
    name: str
    source: str
    weights_sha256: str
    dimension: int
    layers: int
    max_tokens: int
    files: Mapping[str, str]
    parity: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class EncoderFiles:
    """An exported encoder on disk, in one precision."""

    folder: Path
    card: EncoderCard
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
    def identity(self) -> dict[str, str]:
        """What two sets of vectors must share to be compared."""
        return {
            "name": self.card.name,
            "precision": self.precision,
            "weights_sha256": self.card.weights_sha256,
        }

    def verify(self) -> None:
        """Raise ModelError when a file is missing or is not the one that was exported."""
        remedy = f"delete the folder {self.folder}, and it will be exported again"
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
    if name in ENCODERS and not Path(name).is_dir():
        exported: Path | None = _export_entry(ENCODERS[name])
    else:
        exported = exported_folder(ENCODER, name)
    if exported is None:
        raise ModelError(
            f"expected an encoder known by name ({', '.join(ENCODERS)}), a folder, or a hub name such as "
            f"owner/model, found {name!r}; check --encoder"
        )
    return EncoderFiles(exported, read_card(exported), precision)


def read_card(folder: Path) -> EncoderCard:
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
        return EncoderCard(**record)
    except (AttributeError, OSError, ValueError, TypeError) as error:
        raise ModelError(
            f"{path}: expected the card of an exported encoder, found {error}; delete the folder {folder} "
            "to export again"
        ) from error


def write_card(folder: Path, card: EncoderCard) -> None:
    """Write a card into an export that is being made."""
    (folder / CARD).write_text(json.dumps(dataclasses.asdict(card), indent=1) + "\n")


def _export_entry(entry: EncoderEntry) -> Path:
    destination = cached_export(ENCODER, entry.name, entry.digests["model.safetensors"])
    if (destination / CARD).is_file():
        return destination
    return export_once(ENCODER, packaged_weights(entry), entry.name, entry.source)


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

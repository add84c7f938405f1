"""Whether models at hand are those that an index was built with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qbe.errors import EncoderMismatchError
from qbe.index.manifest import Manifest
from qbe.models.encoder_files import EncoderFiles, resolve_encoder

READING = ("convention", "adapter")
"""What an encoder's identity may say of its reading; nothing where it is read as the default one."""


def matching_encoder(folder: Path, manifest: Manifest, name: str | None) -> EncoderFiles:
    """The files of the encoder that an index with vectors was built with, or those of ``name``, checked.

    Raises EncoderMismatchError for other weights and for another reading, ModelError where none is found.
    """
    assert manifest.dense is not None
    built = manifest.dense["encoder"]
    files = resolve_encoder(name or manifest.settings["encoder"], built["precision"])
    if files.metadata.weights_sha256 != built["weights_sha256"]:
        raise EncoderMismatchError(
            f"{folder} was built with the encoder {built['name']} ({built['weights_sha256'][:12]}), "
            f"found {files.metadata.name} ({files.metadata.weights_sha256[:12]}); give the encoder it was "
            "built with as --encoder, or build the index again"
        )
    reading, found = ({key: one.get(key) for key in READING} for one in (built, files.identity))
    if found != reading:
        raise EncoderMismatchError(
            f"{folder} was built with the encoder {built['name']} read as {_in_words(reading)}, "
            f"found it read as {_in_words(found)}; give the encoder it was built with as --encoder, or "
            "build the index again"
        )
    return files


def _in_words(reading: Mapping[str, Any]) -> str:
    stated = {**(reading["convention"] or {}), "adapter": reading["adapter"]}
    words = [f"{key} {value}" for key, value in stated.items() if value is not None]
    return ", ".join(words) or "the default encoder"

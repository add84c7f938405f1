"""Joining parts into an index: their encoded shards, and Lucene and FAISS built once over all of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qbe.errors import EncoderMismatchError
from qbe.index.building.build import build
from qbe.index.building.settings import BuildSettings, Execution
from qbe.index.manifest import Manifest
from qbe.index.parts.source import PartsSource
from qbe.models.encoder_files import resolve_encoder


def merge_parts(
    output: Path,
    source: PartsSource,
    settings: BuildSettings,
    *,
    overwrite: bool = False,
    resume: bool = False,
    execution: Execution | None = None,
) -> Manifest:
    """Join all parts of a corpus into an index at ``output``, of the same digest as
    `qbe.index.building.build.build` makes of the corpus.

    Nothing is encoded again. Raises what `build` does, and what ``source`` does for parts that do not fit;
    EncoderMismatchError where the encoder of ``settings`` is not that of the parts.
    """
    _check_encoder(source.encoder, resolve_encoder(settings.encoder, settings.precision).identity)
    return build(output, source, settings, overwrite=overwrite, resume=resume, execution=execution)


def _check_encoder(parts: Mapping[str, Any], encoder: Mapping[str, Any]) -> None:
    """Raise EncoderMismatchError where an encoder is not that of the parts, by their identities."""
    # Its name may be that of a folder, which may be called otherwise on another machine.
    expected, actual = ({**identity, "name": None} for identity in (parts, encoder))
    if actual != expected:
        raise EncoderMismatchError(
            f"the parts were encoded by {parts['name']} ({parts['weights_sha256'][:12]}), found "
            f"{encoder['name']} ({encoder['weights_sha256'][:12]}); give that of the parts as `encoder`"
        )

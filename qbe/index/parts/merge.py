"""Joining parts into an index: what was encoded apart, and Lucene and FAISS once over all of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qbe.errors import EncoderMismatchError
from qbe.index.building.build import build_from
from qbe.index.building.progress import Progress
from qbe.index.building.settings import BuildSettings
from qbe.index.building.timings import Timings
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
    progress: Progress | None = None,
    timings: Timings | None = None,
) -> Manifest:
    """Join all parts of a corpus into an index at ``output``, as `build_index` makes it, of the same digest.

    Nothing is encoded again. Raises what `build_index` does, and what ``source`` does for parts that do not
    fit; EncoderMismatchError where the encoder of ``settings`` is not that of the parts.
    """
    _check_encoder(source.encoder, resolve_encoder(settings.encoder, settings.precision).identity)
    return build_from(source, output, settings, overwrite, resume, progress, timings)


def _check_encoder(parts: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    """Raise EncoderMismatchError where an encoder is not that of the parts, by their identities."""
    # Its name may be that of a folder, which may be called otherwise on another machine.
    own, other = ({**identity, "name": None} for identity in (parts, found))
    if own != other:
        raise EncoderMismatchError(
            f"the parts were encoded by {parts['name']} ({parts['weights_sha256'][:12]}), found "
            f"{found['name']} ({found['weights_sha256'][:12]}); give the encoder of the parts as --encoder"
        )

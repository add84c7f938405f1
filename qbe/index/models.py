"""The encoder and the tagger of an index, by which queries are encoded and labelled."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbe.errors import EncoderMismatchError, MissingDependencyError
from qbe.index.store import Manifest

if TYPE_CHECKING:
    from qbe.models.encoder import Encoder
    from qbe.models.tagger import TaggingEncoder

log = logging.getLogger(__name__)


class IndexModels:
    """The encoder and the tagger of an index, for queries, each loaded when first used."""

    def __init__(
        self, folder: Path, manifest: Manifest, encoder: Any, tagger: str | None, threads: int
    ) -> None:
        self._folder, self._manifest, self._threads = folder, manifest, threads
        self._encoder_name, self._tagger_name = encoder, tagger
        if encoder is not None and manifest.dense is not None:
            matching_encoder(folder, manifest, encoder)  # another encoder is refused now, even if never used

    @cached_property
    def encoder(self) -> Encoder:
        """The encoder of an index with vectors; raises what `matching_encoder` does."""
        from qbe.models.cards import EncoderFiles
        from qbe.models.encoder import Encoder
        from qbe.models.session import HALF

        files = matching_encoder(self._folder, self._manifest, self._encoder_name)
        if not isinstance(files, EncoderFiles):
            given: Encoder = files  # a `GivenEncoder`, in the place of one
            return given
        try:
            return Encoder(files, self._threads)
        except MissingDependencyError as error:
            if files.precision != HALF:
                raise
            # fp16 is made of this precision, which needs no package onnx
            files = replace(files, precision=files.model.name.split(".")[1])
            log.warning(
                "%s: its papers were encoded in %s, queries are encoded in %s (%s)",
                *(self._folder, HALF, files.precision, error),
            )
            return Encoder(files, self._threads)

    @cached_property
    def tagging(self) -> TaggingEncoder:
        """The encoder, or without vectors the tagger's own, that labels every paper it encodes."""
        from qbe.models.tagger import Tagger, TaggingEncoder, open_trunk

        tagger = Tagger.open(self._tagger_name or self._manifest.settings["tagger"])
        encoder = open_trunk(tagger) if self._manifest.dense is None else self.encoder
        return TaggingEncoder(encoder, tagger, "predicted")


def matching_encoder(folder: Path, manifest: Manifest, name: Any) -> Any:
    """Return the files of the encoder of an index, those of ``name``, or a `GivenEncoder`; raise
    EncoderMismatchError for another.
    """
    from qbe.models.folders import resolve_encoder

    assert manifest.dense is not None
    built = manifest.dense["encoder"]
    if name is not None and not isinstance(name, str):
        name.check(folder, built)
        return name
    if "probe" in built:
        raise EncoderMismatchError(
            f"{folder} was built with the encoder {built['name']} of a program; give it as `encoder`"
        )
    files = resolve_encoder(name or manifest.settings["encoder"], built["precision"])
    weights, found, text = built["weights_sha256"], files.metadata, ""
    expected, actual = map(_reading, (built, files.identity))
    if found.weights_sha256 != weights:
        text = f"({weights[:12]}), found {found.name} ({found.weights_sha256[:12]})"
    elif actual != expected:
        text = f"read as {expected}, found it read as {actual}"
    if text:
        raise EncoderMismatchError(
            f"{folder} was built with the encoder {built['name']} {text}; give the encoder it was built with "
            "as `encoder`, or build the index again"
        )
    return files


def _reading(identity: Mapping[str, Any]) -> str:
    """Say how an encoder reads papers."""
    stated = {**(identity.get("convention") or {}), "adapter": identity.get("adapter")}
    words = [f"{key} {value}" for key, value in stated.items() if value is not None]
    return ", ".join(words) or "the default encoder"

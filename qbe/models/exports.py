"""Exports: folders of ONNX models, made once from PyTorch weights and kept in the cache."""

from __future__ import annotations

import hashlib
import logging
import sys
from pathlib import Path

from qbe import processes
from qbe.errors import ModelError
from qbe.files import cache_folder, make_once, sha256
from qbe.models.encoder_format import DEFAULT_FORMAT
from qbe.models.kinds import ModelKind
from qbe.models.sources import Weights, adapter_weights

log = logging.getLogger(__name__)


def exported(kind: ModelKind, source: Path | Weights) -> Path:
    """The folder of a model's finished files; weights that were never exported are exported now.

    That happens once, in a process of its own (it may need torch, this one does not), into
    ``qbe.files.cache_folder()``. While another process makes the same export, this one waits.
    Raises ModelError where weights cannot be verified or exported.
    """
    if isinstance(source, Path):
        return source
    destination = cached_export(kind, source.name, source.sha256, _variant(source))
    command, what = _command(kind, source, destination), f"the {kind.noun} {source.name}"

    def export() -> None:
        log.info("exporting %s to ONNX, once, into %s ...", what, destination)
        process = processes.run(command)
        if process.returncode != 0:
            reason = process.stderr.strip().splitlines() or ["no message"]
            raise ModelError(f"exporting {what} failed: {reason[-1]}")

    make_once(
        destination,
        (destination / kind.metadata_file).is_file,
        export,
        lambda: log.info("another process is exporting %s: waiting for it ...", what),
    )
    return destination


def cached_export(kind: ModelKind, name: str, weights_sha256: str, variant: str = "") -> Path:
    """Where in the cache the export of these weights is, or will be; ``variant`` distinguishes exports of
    the same weights.

    >>> from qbe.models.kinds import ENCODER
    >>> cached_export(ENCODER, "my-encoder", "0123456789abcdef").name
    'my-encoder-0123456789ab-4'
    """
    return cache_folder() / kind.cache / f"{name}-{weights_sha256[:12]}-{kind.format}{variant}"


def model_file(precision: str) -> str:
    """Name of the ONNX file of a precision inside an export.

    >>> model_file("int8")
    'model.int8.onnx'
    """
    return f"model.{precision}.onnx"


def _variant(source: Weights) -> str:
    """A suffix that distinguishes exports of the same weights in other formats or with other adapters."""
    encoder_format, adapter = source.encoder_format or DEFAULT_FORMAT, source.adapter
    if encoder_format == DEFAULT_FORMAT and adapter is None:
        return ""
    digest = "" if adapter is None else sha256(adapter_weights(adapter))
    text = " ".join([*encoder_format.options(), digest])
    return f"-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _command(kind: ModelKind, source: Weights, destination: Path) -> list[str]:
    command = [sys.executable, "-m", "qbe.export", kind.command, "--model", str(source.locate())]
    command += ["--name", source.name, "--source", source.origin, "--output", str(destination)]
    if source.encoder_format is not None:
        command += source.encoder_format.options()
    if source.graph is not None:
        command += ["--graph", str(source.graph)]
    if source.adapter is not None:
        command += ["--adapter", str(source.adapter)]
    return command

"""Exports: folders of ONNX models, made once from PyTorch weights and kept in the cache."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from qbe.errors import ModelError
from qbe.files import cache_folder, lock, sha256

log = logging.getLogger(__name__)

SOURCE_FILES = ("config.json", "model.safetensors", "tokenizer.json")
"""The files of a model, as Hugging Face lays it out, that an export reads."""


class ExportKind(NamedTuple):
    """A kind of export: what it is called in messages, how it is made, and where it is kept.

    ``command`` is its subcommand of ``python -m qbe.export``, ``card`` the file that marks a finished
    export, ``folder`` its place in the cache. Exports of another ``format`` are made again.
    """

    noun: str
    command: str
    card: str
    folder: str
    format: int


def model_file(precision: str) -> str:
    """Name of the ONNX file of a precision inside an export."""
    return f"model.{precision}.onnx"


def exported_folder(kind: ExportKind, name: str) -> Path | None:
    """The export of a folder, which may be one already, or of a hub name; None where ``name`` is neither.

    Weights that were never exported are exported now, once, in a process of their own (it needs torch,
    this one does not), into ``qbe.files.cache_folder()``. Raises ModelError where that fails.
    """
    folder = Path(name)
    if folder.is_dir():
        done = (folder / kind.card).is_file()
        return folder if done else export_once(kind, folder, folder.resolve().name, str(folder))
    if re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        return export_once(kind, _download(kind, name), name.partition("/")[2], name)
    return None


def cached_export(kind: ExportKind, name: str, weights_sha256: str) -> Path:
    """Where in the cache the export of these weights is, or will be."""
    return cache_folder() / kind.folder / f"{name}-{weights_sha256[:12]}-{kind.format}"


def check_source(kind: ExportKind, folder: Path) -> None:
    """Raise ModelError when a folder lacks one of the files that an export reads."""
    missing = [file for file in SOURCE_FILES if not (folder / file).is_file()]
    if missing:
        raise ModelError(
            f"{folder}: expected an exported {kind.noun} ({kind.card}) or a model with "
            f"{', '.join(SOURCE_FILES)}, found no {', '.join(missing)}; give another folder"
        )


def verify_digest(path: Path, expected: str | None, remedy: str) -> None:
    """Raise ModelError, which ends in ``remedy``, when a file is missing or is not the one expected."""
    found = sha256(path) if path.is_file() else None
    if found is None or found != expected:
        raise ModelError(f"{path}: expected SHA-256 {expected}, found {found or 'no file'}; {remedy}")


def export_once(kind: ExportKind, folder: Path, name: str, source: str) -> Path:
    """The cached export of the model in ``folder``, made now where there is none yet."""
    check_source(kind, folder)
    destination = cached_export(kind, name, sha256(folder / "model.safetensors"))
    with lock(destination.with_name(destination.name + ".lock")) as alone:
        if (destination / kind.card).is_file():
            return destination
        if not alone:
            raise ModelError(f"another process is exporting {name} to {destination}; try again in a minute")
        log.info("exporting the %s %s to ONNX, once, into %s ...", kind.noun, name, destination)
        command = [sys.executable, "-m", "qbe.export", kind.command, "--model", str(folder)]
        command += ["--name", name, "--source", source, "--output", str(destination)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = done.stderr.strip().splitlines() or ["no message"]
        raise ModelError(f"exporting the {kind.noun} {name} failed: {reason[-1]}")
    return destination


def _download(kind: ExportKind, name: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=list(SOURCE_FILES)))
    except Exception as error:
        raise ModelError(
            f"cannot load the {kind.noun} {name} from the hub: {str(error).splitlines()[0]}; "
            "check the name and the network, or give a folder"
        ) from error

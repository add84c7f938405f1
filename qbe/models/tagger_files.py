"""The files of a facet tagger: found by name in the package, or in a folder that ``qbe.train`` wrote."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbe.errors import ModelError
from qbe.files import sha256
from qbe.models.registry import DEFAULT_TAGGER, TAGGERS

TAGGER_CARD = "tagger.json"
HEAD = "head.int8.onnx"


@dataclass(frozen=True, slots=True)
class TaggerMetadata:
    """What a tagger states of itself.

    ``trunk`` names the encoder whose token states it reads (``name``, ``weights_sha256``) and
    ``layers`` which of them, 0 being the embeddings. ``also_reads`` holds, in the same form, encoders whose
    states are so near that it reads them, too, each with its figures there (``measured``).
    ``begin``, ``end`` (labels) and ``transitions``
    (labels, labels; from row to column) are the scores of its chain of labels. ``files`` holds
    SHA-256 by file name; ``training`` the recipe, data and figures.
    """

    name: str
    labels: Sequence[str]
    trunk: Mapping[str, str]
    layers: Sequence[int]
    begin: Sequence[float]
    end: Sequence[float]
    transitions: Sequence[Sequence[float]]
    files: Mapping[str, str]
    training: Mapping[str, Any]
    also_reads: Sequence[Mapping[str, Any]] = ()

    @property
    def trunks(self) -> Sequence[Mapping[str, Any]]:
        """All encoders that it reads, the one to open where none is at hand first."""
        return (*self.also_reads, self.trunk)


@dataclass(frozen=True, slots=True)
class TaggerFiles:
    """A tagger on disk."""

    folder: Path
    card: TaggerMetadata

    @property
    def head(self) -> Path:
        """The ONNX model that turns token states into label scores."""
        return self.folder / HEAD

    def verify(self) -> None:
        """Raise ModelError when the head is missing or is not the one that the card describes."""
        expected = self.card.files.get(HEAD)
        found = sha256(self.head) if self.head.is_file() else None
        if found is None or found != expected:
            raise ModelError(
                f"{self.head}: expected SHA-256 {expected}, found {found or 'no file'}; install qbe again, "
                "or train the tagger again"
            )


def resolve_tagger(name: str = DEFAULT_TAGGER) -> TaggerFiles:
    """The files of a tagger: a registry name or a folder.

    Raises ModelError when there is none of that name, or its card is damaged.
    """
    folder = Path(__file__).parent / TAGGERS[name] if name in TAGGERS else Path(name)
    if name not in TAGGERS and not (folder / TAGGER_CARD).is_file():
        raise ModelError(
            f"expected a tagger known by name ({', '.join(TAGGERS)}) or a folder with a {TAGGER_CARD}, "
            f"found {name!r}; check --tagger"
        )
    try:
        card = TaggerMetadata(**json.loads((folder / TAGGER_CARD).read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise ModelError(
            f"{folder / TAGGER_CARD}: expected the card of a tagger, found {error}; install qbe again, or "
            "train the tagger again"
        ) from error
    return TaggerFiles(folder, card)


def write_tagger_card(folder: Path, card: TaggerMetadata) -> None:
    """Write the card of a tagger that is being made."""
    (folder / TAGGER_CARD).write_text(json.dumps(dataclasses.asdict(card), indent=1) + "\n")

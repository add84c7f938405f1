"""The files of a facet tagger, resolved from a name and verified."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbe.models.kinds import TAGGER, read_metadata, verify_digest, write_metadata
from qbe.models.registry import DEFAULT_TAGGER
from qbe.models.sources import find_tagger

TAGGER_CARD = TAGGER.metadata_file
HEAD = "head.int8.onnx"

_REMEDY = "install qbe again, or train the tagger again"


@dataclass(frozen=True, slots=True)
class TaggerMetadata:
    """What a tagger records.

    ``trunk`` names the encoder on whose token states it was trained (``name``, ``weights_sha256``) and
    ``layers`` which of them it takes, 0 being the embeddings. ``also_reads`` holds, in the same form,
    encoders whose states are so similar that the tagger works on them as well, each with the figures that
    were measured there (``measured``). ``begin`` and ``end`` (labels) and ``transitions`` (labels, labels;
    from row to column) are the scores of its chain of labels. ``files`` holds SHA-256 by file name;
    ``training`` the recipe, data and figures.

    >>> resolve_tagger("facet-tagger").metadata.labels
    ['background', 'objective', 'method', 'result', 'other']
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
        """All encoders that it works on; the first is the one to open where none is open yet."""
        return (*self.also_reads, self.trunk)


@dataclass(frozen=True, slots=True)
class TaggerFiles:
    """A tagger on disk."""

    folder: Path
    metadata: TaggerMetadata

    @property
    def head(self) -> Path:
        """The ONNX model that turns token states into label scores."""
        return self.folder / HEAD

    def verify(self) -> None:
        """Raise ModelError when the head is missing or has another digest than recorded."""
        verify_digest(self.head, self.metadata.files.get(HEAD), _REMEDY)


def resolve_tagger(name: str = DEFAULT_TAGGER) -> TaggerFiles:
    """The files of a tagger: a registry name or a folder.

    Raises ModelError when there is none of that name, or its metadata are damaged.

    >>> resolve_tagger("facet-tagger").head.name
    'head.int8.onnx'
    """
    folder = find_tagger(name)

    def parse(record: Any) -> TaggerMetadata:
        return TaggerMetadata(**record)

    metadata = read_metadata(folder / TAGGER_CARD, parse, "the metadata of a tagger", _REMEDY)
    return TaggerFiles(folder, metadata)


def write_tagger_card(folder: Path, metadata: TaggerMetadata) -> None:
    """Write the metadata of a tagger whose folder is being made.

    >>> metadata = resolve_tagger("facet-tagger").metadata
    >>> write_tagger_card(Path(), metadata)
    >>> resolve_tagger(".").metadata == metadata
    True
    """
    write_metadata(folder / TAGGER_CARD, dataclasses.asdict(metadata))

"""A part of an index: every n-th shard of papers, encoded by a process or machine of its own."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbe.errors import IndexFormatError
from qbe.files import write_text
from qbe.index.building import shards
from qbe.index.manifest import PART
from qbe.index.papers import encode_paper
from qbe.types import Paper

PART_FORMAT = 1


@dataclass(frozen=True, slots=True)
class BuildShard:
    """Part ``number`` (from 1) of ``count``: it has shard number - 1, that plus count, and so on.

    Shards are those of a whole build (`qbe.index.building.shards.SHARD_PAPERS` papers each), so that parts
    are of like size, need not know the length of the corpus, and hold what a whole build would have encoded.

    >>> part = BuildShard(number=2, count=8)
    >>> part.has(511), part.has(512), part.place(0), part.place(512)
    (False, True, 512, 4608)
    """

    number: int
    count: int

    def has(self, row: int) -> bool:
        """Whether the part holds a row of the corpus."""
        return row // shards.SHARD_PAPERS % self.count == self.number - 1

    def place(self, first: int) -> int:
        """The row, in the corpus, of the first paper of the shard that begins at a row of the part."""
        shard = first // shards.SHARD_PAPERS
        return (shard * self.count + self.number - 1) * shards.SHARD_PAPERS

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


class PartPapers:
    """Selects the papers of a part from the whole corpus, which ``corpus`` describes once it was read.

    >>> selection = PartPapers(BuildShard(1, 2))
    >>> len(list(selection.of(index))), selection.corpus["papers"]
    (128, 128)
    """

    def __init__(self, part: BuildShard) -> None:
        self._part = part
        self._count, self._digest = 0, hashlib.sha256()

    def of(self, papers: Iterable[Paper]) -> Iterator[Paper]:
        """Pass the papers of the part through."""
        for row, paper in enumerate(papers):
            self._count += 1
            self._digest.update(encode_paper(paper))
            if self._part.has(row):
                yield paper

    @property
    def corpus(self) -> dict[str, Any]:
        """Number of all papers, and the digest that an index of them states."""
        return {"papers": self._count, "sha256": self._digest.hexdigest()}


@dataclass(frozen=True, slots=True)
class PartMetadata:
    """The description of a part, as its ``part.json`` holds it.

    ``part`` is its number and the count of parts, ``shard_papers`` the papers a shard, ``settings`` those of
    the build, ``corpus`` the number of papers of the whole corpus and the digest of their records, ``counts``
    what the part has of it, ``encoder`` and ``tagger`` their identities (the latter None where nothing was
    tagged), ``files`` size and SHA-256 of every file, and ``digest`` one SHA-256 over all of this.
    """

    part: BuildShard
    shard_papers: int
    settings: Mapping[str, Any]
    corpus: Mapping[str, Any]
    counts: Mapping[str, int]
    encoder: Mapping[str, Any]
    tagger: Mapping[str, str] | None
    files: Mapping[str, Mapping[str, Any]]
    digest: str = ""
    format: int = PART_FORMAT

    def sealed(self) -> PartMetadata:
        """The metadata with their digest."""
        record = {**dataclasses.asdict(self), "digest": ""}
        text = json.dumps(record, sort_keys=True)
        return dataclasses.replace(self, digest=hashlib.sha256(text.encode()).hexdigest())


def write_part(folder: Path, metadata: PartMetadata) -> None:
    """Write the metadata into a part that is being built.

    >>> folder = Path("part")
    >>> folder.mkdir()
    >>> metadata = PartMetadata(BuildShard(1, 2), 512, {}, {}, {"papers": 64}, {}, None, {}).sealed()
    >>> write_part(folder, metadata)
    >>> read_part(folder).counts
    {'papers': 64}
    """
    write_text(folder / PART, json.dumps(dataclasses.asdict(metadata), indent=1) + "\n")


def read_part(folder: Path) -> PartMetadata:
    """Read and check the metadata of a part; raises IndexFormatError where there are none or they
    were changed.

    >>> read_part(Path("indexes/sample"))
    Traceback (most recent call last):
        ...
    qbe.errors.IndexFormatError: indexes/sample: expected a part of an index with a part.json, found ...
    """
    path = folder / PART
    try:
        record = json.loads(path.read_text())
        if record.get("format") != PART_FORMAT:
            raise ValueError(f"format {record.get('format')}")
        metadata = PartMetadata(**{**record, "part": BuildShard(**record["part"])})
    except OSError as error:
        raise IndexFormatError(
            f"{folder}: expected a part of an index with a {PART}, found {error.strerror or error}; build "
            "one with: qbe index --part"
        ) from error
    except (AttributeError, ValueError, TypeError, KeyError) as error:
        raise IndexFormatError(
            f"{path}: expected the metadata of a part, found {error!r}; build the part again"
        ) from error
    if metadata.sealed().digest != metadata.digest:
        raise IndexFormatError(
            f"{path}: expected the digest {metadata.digest[:12]}, found another; build the part again"
        )
    return metadata

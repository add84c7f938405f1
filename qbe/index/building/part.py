"""A part of an index: every n-th shard of papers, encoded by a process or machine of its own."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbe.corpus.read import AS_IT_COMES
from qbe.corpus.reading import Reading
from qbe.errors import IndexFormatError, UsageError
from qbe.files import publish_directory, write_text
from qbe.index.building import shards
from qbe.index.building.build import build_inputs, encode, is_same, read_papers
from qbe.index.building.rejected import check_replaceable, publish_rejected
from qbe.index.building.settings import BuildSettings, Execution
from qbe.index.building.shards import BuildModels
from qbe.index.building.source import Corpus, Source, open_corpus
from qbe.index.building.staging import STATE, Place, build_place, check_target, read_state, save_state
from qbe.index.manifest import PART, describe_files
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


class _PartPapers:
    """Selects the papers of a part from the whole corpus, which ``corpus`` describes once it was read."""

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


def build_part(
    output: Path,
    corpus: Corpus,
    settings: BuildSettings,
    part: BuildShard,
    *,
    reading: Reading = AS_IT_COMES,
    overwrite: bool = False,
    resume: bool = False,
    execution: Execution | None = None,
) -> PartMetadata:
    """Encode a part of a corpus into a folder at ``output``; it appears there whole or not at all.

    It is resumed and replaced as an index is (see `qbe.index.building.build.build`, and its errors). The
    whole corpus is read, so that parts can be checked to be of the same one; only the part's papers are
    encoded. Raises UsageError for settings without vectors.
    """
    if not settings.dense:
        raise UsageError("a part holds vectors: expected settings with `dense`, found none; build it whole")
    check_replaceable(output)
    source, execution = open_corpus(corpus, reading), execution or Execution()
    with build_place(output) as place:
        finished: PartMetadata | None = check_target(
            place,
            lambda existing: (
                existing.part == part
                and is_same(existing.settings, existing.counts, settings, source.origin)
                and source.origin.changed <= (place.output / PART).stat().st_mtime_ns
            ),
            overwrite=overwrite,
            resume=resume,
            kind="a part",
            read=read_part,
        )
        if finished is not None:
            return finished
        return _run(place, source, settings, part, execution)


def _run(
    place: Place, source: Source, settings: BuildSettings, part: BuildShard, execution: Execution
) -> PartMetadata:
    """All stages that an unfinished build has not finished, in order."""
    staging = place.staging
    models = BuildModels(settings, execution.threads)
    inputs = build_inputs(source.origin, settings, models) | {"part": str(part)}
    state = read_state(staging, inputs)
    if state is None:
        selection = _PartPapers(part)
        state = read_papers(place, source, models, inputs, execution, lucene=False, select=selection.of)
        state["corpus"] = selection.corpus
        save_state(staging, state)
    encode(staging, models.tagging_encoder(state["tagger"]), execution, place=part.place)
    publish_rejected(place)
    metadata = PartMetadata(
        part=part,
        shard_papers=shards.SHARD_PAPERS,
        settings=inputs["settings"],
        corpus=state["corpus"],
        counts=state["counts"],
        encoder=inputs["encoder"],
        tagger=state["tagger"],
        files=describe_files(staging, leave_out=(STATE, PART)),
    ).sealed()
    write_text(staging / PART, json.dumps(dataclasses.asdict(metadata), indent=1) + "\n")
    publish_directory(staging, place.output)
    (place.output / STATE).unlink()
    return metadata

"""Parts of an index: every n-th shard of papers, encoded by a process or machine of its own, and joined."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from qbe.corpus.read import AS_IT_COMES
from qbe.corpus.reading import Reading
from qbe.corpus.record import Splitter
from qbe.corpus.rejected import RejectedRecords
from qbe.errors import EncoderMismatchError, IndexBuildError, IndexFormatError, UsageError
from qbe.index.building import shards
from qbe.index.building.build import build, build_inputs, encode, is_same, read_papers
from qbe.index.building.rejected import check_replaceable, publish_rejected
from qbe.index.building.settings import BuildSettings, Execution
from qbe.index.building.shards import BuildModels
from qbe.index.building.source import Corpus, Origin, Source, open_corpus
from qbe.index.building.staging import STATE, Place, build_place, check_target, read_state, save_state
from qbe.index.manifest import PART, Manifest, checksum, describe_files, seal, unseal
from qbe.index.openfiles import OpenFiles
from qbe.index.papers import RECORDS, SegmentPapers, encode_paper
from qbe.models.folders import resolve_encoder
from qbe.types import Paper
from qbe.util.files import link_or_copy, publish_directory, sha256, write_text

PART_FORMAT = 2


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


class _Selected:
    """The papers of a part out of the whole corpus, which ``corpus`` describes once it was read."""

    def __init__(self, part: BuildShard) -> None:
        self._part, self._count, self._digest = part, 0, hashlib.sha256()

    def of(self, papers: Iterable[Paper]) -> Iterator[Paper]:
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
    tagged), and ``files`` size and SHA-256 of every file.
    """

    part: BuildShard
    shard_papers: int
    settings: Mapping[str, Any]
    corpus: Mapping[str, Any]
    counts: Mapping[str, int]
    encoder: Mapping[str, Any]
    tagger: Mapping[str, str] | None
    files: Mapping[str, Mapping[str, Any]]
    format: int = PART_FORMAT

    @property
    def digest(self) -> str:
        """One SHA-256 over all of this."""
        return checksum(dataclasses.asdict(self))


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
        record = unseal(path.read_bytes())
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
        selection = _Selected(part)
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
    )
    write_text(staging / PART, seal(dataclasses.asdict(metadata)))
    publish_directory(staging, place.output)
    (place.output / STATE).unlink()
    return metadata


ALIKE = ("precision", "facets")
"""Settings in which parts must agree; the encoder and the tagger are compared by their weights."""


class _Part(NamedTuple):
    folder: Path
    metadata: PartMetadata


class Parts:
    """The parts of a corpus: their papers, in the order of the corpus, and their shards."""

    def __init__(self, folders: Sequence[Path], shard: BuildShard | None = None) -> None:
        """Read the metadata of all parts of one corpus, given in any order; with a ``shard`` only
        those whose papers the part of that number has, had the corpus been split into so many.

        Raises IndexFormatError for a folder that is no part, IndexBuildError for parts that do not belong
        together, or are not all, UsageError for a number of shards that does not divide that of the parts.
        """
        parts = [_Part(folder, read_part(folder)) for folder in folders]
        parts.sort(key=lambda part: part.metadata.part.number)
        _check(parts)
        if shard is not None:
            if len(parts) % shard.count:
                raise UsageError(
                    f"expected `shards` that divides the {len(parts)} parts, found {shard.count}"
                )
            parts = parts[shard.number - 1 :: shard.count]
        self._parts, self._shard, first = parts, shard, parts[0].metadata
        self.settings, self.encoder, self._corpus = first.settings, first.encoder, first.corpus
        self.sentences: int = sum(metadata.counts["sentences"] for _, metadata in parts)

    @property
    def source(self) -> Source:
        """The papers as the source of a build, which finds all of them encoded."""
        return Source(self._papers, self.origin, add_shards=self._add_shards)

    @property
    def origin(self) -> Origin:
        """The corpus as the first part names it and read it, the digests of the parts, whatever their
        folders, and when the last one was finished.
        """
        counts: Mapping[str, Any] = self._parts[0].metadata.counts
        return Origin(
            tuple(self.settings["corpus"]),
            [[metadata.digest] for _, metadata in self._parts],
            max((folder / PART).stat().st_mtime_ns for folder, _ in self._parts),
            counts.get("reading", {}),
        )

    def _papers(self, split: Splitter, left_out: RejectedRecords) -> Iterator[Paper]:  # noqa: ARG002  (read before)
        """The papers of all parts, shard by shard."""
        streams = [SegmentPapers(folder, predictions=False).read_from(0) for folder, _ in self._parts]
        longest = max(metadata.counts["papers"] for _, metadata in self._parts)
        for _ in range(0, longest, shards.SHARD_PAPERS):
            for stream in streams:
                yield from islice(stream, shards.SHARD_PAPERS)

    def _add_shards(self, folder: Path, tagger: dict[str, str] | None) -> None:
        """Verify all files of the parts, and link their shards into the folder of the papers, or copy them.

        Raises IndexBuildError where the tagger or the papers are others, IndexFormatError for a damaged part.
        """
        for part, metadata in self._parts:
            if metadata.tagger is not None and metadata.tagger != tagger:
                actual = tagger["sha256"][:12] if tagger else "none"
                raise IndexBuildError(
                    f"{part} was tagged by {metadata.tagger['name']} ({metadata.tagger['sha256'][:12]}), "
                    f"found {actual}; give the tagger of the parts as `tagger`"
                )
        self.verify()
        if self._shard is None and sha256(folder / RECORDS) != self._corpus["sha256"]:
            raise IndexBuildError(
                f"expected the papers of the corpus ({self._corpus['sha256'][:12]}) from all parts together, "
                "found others; build the parts again"
            )
        (folder / shards.SHARDS).mkdir()
        for first, shard in zip(itertools.count(0, shards.SHARD_PAPERS), self.shards()):
            link_or_copy(shard, shards.shard_file(folder, first))

    def verify(self) -> None:
        """Compare all files of the parts with their digests; raises IndexFormatError for a damaged part."""
        for part, metadata in self._parts:
            try:
                OpenFiles(part, metadata.files).verify()
            except IndexFormatError as error:
                wrong, _, _ = str(error).partition("; ")
                raise IndexFormatError(f"{wrong}; build the part again") from error

    def shards(self) -> list[Path]:
        """The files of encoded papers, in the order of the corpus (`qbe.index.building.shards`)."""
        files = (file for part, _ in self._parts for file in (part / shards.SHARDS).glob("*.npy"))
        return sorted(files, key=lambda file: file.name)


def _check(parts: Sequence[_Part]) -> None:
    """Raise IndexBuildError unless these are all parts of one corpus, encoded alike."""
    first = parts[0]
    for folder, metadata in parts[1:]:
        for what, expected, actual in _comparable(first.metadata, metadata):
            if actual != expected:
                raise IndexBuildError(
                    f"expected parts of one build, found {first.folder} with {what} {expected} and {folder} "
                    f"with {actual}; build one of them again"
                )
    numbers = [metadata.part.number for _, metadata in parts]
    twice = sorted({number for number in numbers if numbers.count(number) > 1})
    count = first.metadata.part.count
    missing = sorted({*range(1, count + 1)} - {*numbers})
    for wrong, what in ((twice, "more than once"), (missing, "nowhere")):
        if wrong:
            names = ", ".join(f"{number}/{count}" for number in wrong)
            raise IndexBuildError(
                f"expected each of {count} parts once, found {names} {what}; check `folders`"
            )
    if first.metadata.shard_papers != shards.SHARD_PAPERS:
        raise IndexBuildError(
            f"expected parts with {shards.SHARD_PAPERS} papers a shard, found {first.metadata.shard_papers}; "
            "merge them with the version of qbe that built them"
        )


def _comparable(first: PartMetadata, other: PartMetadata) -> Iterator[tuple[str, object, object]]:
    """What must be the same in two parts, in words."""
    yield "a count of parts of", first.part.count, other.part.count
    yield "papers a shard of", first.shard_papers, other.shard_papers
    of_first, of_other = (
        f"{each.corpus['papers']} papers ({each.corpus['sha256'][:12]})" for each in (first, other)
    )
    yield "a corpus of", of_first, of_other
    for name in ALIKE:
        yield name, first.settings[name], other.settings[name]
    yield "the encoder", first.encoder, other.encoder
    if first.tagger is not None and other.tagger is not None:
        yield "the tagger", first.tagger, other.tagger


def merge_parts(
    output: Path,
    parts: Parts,
    settings: BuildSettings,
    *,
    overwrite: bool = False,
    resume: bool = False,
    execution: Execution | None = None,
) -> Manifest:
    """Join all parts of a corpus into an index at ``output``, of the same digest as
    `qbe.index.building.build.build` makes of the corpus.

    Nothing is encoded again. Raises what `build` does, and what ``parts`` do that do not fit;
    EncoderMismatchError where the encoder of ``settings`` is not that of the parts.
    """
    encoder, of_parts = resolve_encoder(settings.encoder, settings.precision).identity, parts.encoder
    # Its name may be that of a folder, which may be called otherwise on another machine.
    if {**encoder, "name": None} != {**of_parts, "name": None}:
        raise EncoderMismatchError(
            f"the parts were encoded by {of_parts['name']} ({of_parts['weights_sha256'][:12]}), found "
            f"{encoder['name']} ({encoder['weights_sha256'][:12]}); give that of the parts as `encoder`"
        )
    return build(output, parts.source, settings, overwrite=overwrite, resume=resume, execution=execution)

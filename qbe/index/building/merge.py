"""Parts of a corpus that were encoded apart, as the source of a build."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from qbe.corpus.record import Splitter
from qbe.corpus.rejected import RejectedRecords
from qbe.errors import EncoderMismatchError, IndexBuildError, IndexFormatError, UsageError
from qbe.files import sha256
from qbe.index.building import shards
from qbe.index.building.build import build
from qbe.index.building.part import BuildShard, PartMetadata, read_part
from qbe.index.building.settings import BuildSettings, Execution
from qbe.index.building.source import Origin, Source
from qbe.index.manifest import PART, Manifest
from qbe.index.openfiles import OpenFiles
from qbe.index.papers import RECORDS, SegmentPapers
from qbe.models.encoder_files import resolve_encoder
from qbe.types import Paper

ALIKE = ("precision", "facets")
"""Settings in which parts must agree; the encoder and the tagger are compared by their weights."""


class Part(NamedTuple):
    """A part: its folder and its metadata."""

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
        self._parts = sorted((Part(folder, read_part(folder)) for folder in folders), key=_number)
        _check(self._parts)
        self._shard = shard
        if shard is not None:
            if len(self._parts) % shard.count:
                raise UsageError(
                    f"expected `shards` that divides the {len(self._parts)} parts, found {shard.count}"
                )
            self._parts = self._parts[shard.number - 1 :: shard.count]

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings of the first part."""
        return self._parts[0].metadata.settings

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
            _link(shard, shards.shard_file(folder, first))

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

    @property
    def sentences(self) -> int:
        """The number of sentences."""
        return sum(metadata.counts["sentences"] for _, metadata in self._parts)

    @property
    def encoder(self) -> Mapping[str, Any]:
        """The identity of the encoder of the parts."""
        return self._parts[0].metadata.encoder

    @property
    def _corpus(self) -> Mapping[str, Any]:
        return self._parts[0].metadata.corpus


def _number(part: Part) -> int:
    return part.metadata.part.number


def _check(parts: Sequence[Part]) -> None:
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
    yield "a corpus of", _words(first.corpus), _words(other.corpus)
    for name in ALIKE:
        yield name, first.settings[name], other.settings[name]
    yield "the encoder", first.encoder, other.encoder
    if first.tagger is not None and other.tagger is not None:
        yield "the tagger", first.tagger, other.tagger


def _words(corpus: Mapping[str, Any]) -> str:
    return f"{corpus['papers']} papers ({corpus['sha256'][:12]})"


def _link(source: Path, target: Path) -> None:
    """The same file at another place, or a copy where the places are on different file systems."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


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
    _check_encoder(parts.encoder, resolve_encoder(settings.encoder, settings.precision).identity)
    return build(output, parts.source, settings, overwrite=overwrite, resume=resume, execution=execution)


def _check_encoder(parts: Mapping[str, Any], encoder: Mapping[str, Any]) -> None:
    """Raise EncoderMismatchError where an encoder is not that of the parts, by their identities."""
    # Its name may be that of a folder, which may be called otherwise on another machine.
    expected, actual = ({**identity, "name": None} for identity in (parts, encoder))
    if actual != expected:
        raise EncoderMismatchError(
            f"the parts were encoded by {parts['name']} ({parts['weights_sha256'][:12]}), found "
            f"{encoder['name']} ({encoder['weights_sha256'][:12]}); give that of the parts as `encoder`"
        )

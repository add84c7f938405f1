"""Parts of a corpus that were encoded apart, as the source of a build."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from qbe.corpus.record import Splitter
from qbe.errors import IndexBuildError, IndexFormatError
from qbe.files import sha256
from qbe.index.dense import vectors
from qbe.index.manifest import PART
from qbe.index.papers import RECORDS, PaperCounts, PaperStore
from qbe.index.parts.part import PartMetadata, read_part
from qbe.types import Paper

ALIKE = ("precision", "facets")
"""Settings in which parts must agree; the encoder and the tagger are compared by their weights."""


class Found(NamedTuple):
    """A part and where it is."""

    folder: Path
    card: PartMetadata


class PartsSource:
    """The papers of parts, in the order of the corpus, and their shards (a
    `qbe.index.building.source.Source`).
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        """Read the cards of all parts of one corpus, given in any order.

        Raises IndexFormatError for a folder that is no part, IndexBuildError for parts that do not belong
        together, or are not all.
        """
        self._parts = sorted((Found(folder, read_part(folder)) for folder in folders), key=_number)
        _check(self._parts)

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings of the first part."""
        return self._parts[0].card.settings

    def papers(self, split: Splitter) -> Iterator[Paper]:  # noqa: ARG002  (they are split)
        """The papers of all parts, shard by shard."""
        streams = [PaperStore(folder, predictions=False).read_from(0) for folder, _ in self._parts]
        for _ in range(0, self._corpus["papers"], vectors.SHARD_PAPERS * len(streams)):
            for stream in streams:
                yield from islice(stream, vectors.SHARD_PAPERS)

    def describe(self) -> list[list[Any]]:
        """The digests of the parts, wherever these are."""
        return [[card.digest] for _, card in self._parts]

    def newest(self) -> int:
        """When the last part was finished."""
        return max((folder / PART).stat().st_mtime_ns for folder, _ in self._parts)

    def ready(self, folder: Path, counts: PaperCounts, tagger: dict[str, str] | None) -> None:  # noqa: ARG002
        """Check all files of the parts, and put their shards beside the papers, by links where that can be.

        Raises IndexBuildError where the tagger or the papers are others, IndexFormatError for a damaged part.
        """
        for part, card in self._parts:
            if card.tagger is not None and card.tagger != tagger:
                found = tagger["sha256"][:12] if tagger else "none"
                raise IndexBuildError(
                    f"{part} was tagged by {card.tagger['name']} ({card.tagger['sha256'][:12]}), found "
                    f"{found}; give the tagger of the parts as --tagger"
                )
            _verify(part, card)
        if sha256(folder / RECORDS) != self._corpus["sha256"]:
            raise IndexBuildError(
                f"expected the papers of the corpus ({self._corpus['sha256'][:12]}) from all parts together, "
                "found others; build the parts again"
            )
        (folder / vectors.SHARDS).mkdir()
        for part, _ in self._parts:
            for shard in sorted((part / vectors.SHARDS).glob("*.npy")):
                _link(shard, folder / vectors.SHARDS / shard.name)

    @property
    def encoder(self) -> Mapping[str, Any]:
        """The identity of the encoder of the parts."""
        return self._parts[0].card.encoder

    @property
    def _corpus(self) -> Mapping[str, Any]:
        return self._parts[0].card.corpus


def _number(found: Found) -> int:
    return found.card.part.number


def _check(parts: Sequence[Found]) -> None:
    """Raise IndexBuildError unless these are all parts of one corpus, encoded alike."""
    first = parts[0]
    for folder, card in parts[1:]:
        for what, own, other in _comparable(first.card, card):
            if own != other:
                raise IndexBuildError(
                    f"expected parts of one build, found {first.folder} with {what} {own} and {folder} with "
                    f"{other}; build one of them again"
                )
    numbers = [card.part.number for _, card in parts]
    twice = sorted({number for number in numbers if numbers.count(number) > 1})
    count = first.card.part.count
    missing = sorted({*range(1, count + 1)} - {*numbers})
    for wrong, what in ((twice, "more than once"), (missing, "nowhere")):
        if wrong:
            names = ", ".join(f"{number}/{count}" for number in wrong)
            raise IndexBuildError(f"expected each of {count} parts once, found {names} {what}; check --merge")
    if first.card.shard_papers != vectors.SHARD_PAPERS:
        raise IndexBuildError(
            f"expected parts with {vectors.SHARD_PAPERS} papers a shard, found {first.card.shard_papers}; "
            "merge them with the version of qbe that built them"
        )


def _comparable(one: PartMetadata, other: PartMetadata) -> Iterator[tuple[str, object, object]]:
    """What must be the same in two parts, in words."""
    yield "a count of parts of", one.part.count, other.part.count
    yield "papers a shard of", one.shard_papers, other.shard_papers
    yield "a corpus of", _words(one.corpus), _words(other.corpus)
    for name in ALIKE:
        yield name, one.settings[name], other.settings[name]
    yield "the encoder", one.encoder, other.encoder
    if one.tagger is not None and other.tagger is not None:
        yield "the tagger", one.tagger, other.tagger


def _words(corpus: Mapping[str, Any]) -> str:
    return f"{corpus['papers']} papers ({corpus['sha256'][:12]})"


def _verify(folder: Path, card: PartMetadata) -> None:
    for name, entry in card.files.items():
        path = folder / name
        if not path.is_file() or sha256(path) != entry["sha256"]:
            found = "another" if path.is_file() else "no file"
            raise IndexFormatError(
                f"{path}: expected SHA-256 {entry['sha256']}, found {found}; build the part again"
            )


def _link(source: Path, target: Path) -> None:
    """The same file at another place, or a copy where the places are on different file systems."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)

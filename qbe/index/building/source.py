"""Where the papers of a build come from: a corpus, or parts that were encoded elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from qbe.corpus import read_corpus
from qbe.corpus.record import Splitter
from qbe.index.building.unfinished import describe_sources
from qbe.index.papers import PaperCounts
from qbe.types import Paper


class Source(Protocol):
    """The papers of a build, and what is known of them beforehand."""

    def papers(self, split: Splitter) -> Iterator[Paper]:
        """The papers in order, as a stream; abstracts that are one string are split."""

    def describe(self) -> list[list[Any]]:
        """What tells these papers from others, to notice a change between two tries."""

    def newest(self) -> int:
        """When a file of theirs was last changed, in nanoseconds; 0 where there is no file to ask."""

    def ready(self, folder: Path, counts: PaperCounts, tagger: dict[str, str] | None) -> None:
        """Put beside the papers, now written to a folder, what else there is; may refuse what does not fit.

        ``tagger`` is the identity of the build's.
        """


class CorpusSource:
    """The papers of a corpus, of which nothing else is known."""

    def __init__(self, corpus: tuple[str, ...]) -> None:
        self._corpus = corpus

    def papers(self, split: Splitter) -> Iterator[Paper]:
        """See `qbe.corpus.read_corpus`."""
        return read_corpus(self._corpus, split)

    def describe(self) -> list[list[Any]]:
        """Name, size and time of change of each file."""
        return describe_sources(self._corpus)

    def newest(self) -> int:
        """The latest time of change of the files."""
        return max((facts[2] for facts in self.describe() if len(facts) == 3), default=0)

    def ready(self, folder: Path, counts: PaperCounts, tagger: dict[str, str] | None) -> None:
        """Nothing is there."""

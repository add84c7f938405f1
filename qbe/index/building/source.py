"""Where the papers of a build come from: a corpus, papers in memory, or parts that were encoded elsewhere."""

from __future__ import annotations

import hashlib
import itertools
import os
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from qbe.corpus import paper_to_record, parse_paper, read_corpus
from qbe.corpus.read import AS_IT_COMES, HUGGING_FACE, files_of
from qbe.corpus.reading import Reading
from qbe.corpus.record import Splitter
from qbe.corpus.rejected import RejectedRecords
from qbe.corpus.streams import STDIN, BytesRead
from qbe.errors import CorpusError
from qbe.index.papers import encode_paper
from qbe.types import Paper

IN_MEMORY = "<papers>"
"""What a manifest calls a corpus of papers that a program handed over."""

Corpus = str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | Iterable[Paper]
"""A path or ``hf:`` name, several of them, or papers."""


class Source(Protocol):
    """The papers of a build, and what is known of them beforehand."""

    @property
    def names(self) -> tuple[str, ...]:
        """What the manifest calls the sources."""

    def share_read(self) -> float | None:
        """The share of the papers that has been read; None where it is not known."""

    def how_read(self) -> dict[str, Any]:
        """How files are read, where that is not as usual, as JSON values (`qbe.corpus.reading.Reading`)."""

    def papers(self, split: Splitter, left_out: RejectedRecords) -> Iterator[Paper]:
        """The papers in order, as a stream; abstracts that are one string are split, and records that are
        left out are counted.
        """

    def describe(self) -> list[list[Any]]:
        """A description as JSON values that differs when the papers do, to notice a change before a build is
        resumed.
        """

    def newest(self) -> int:
        """When the files of the source were last changed, in nanoseconds; 0 where it has none."""

    def add_finished_shards(self, folder: Path, tagger: dict[str, str] | None) -> None:
        """Put shards that are encoded already beside the papers, which are written to ``folder``; may refuse
        what does not fit.

        ``tagger`` is the identity of the build's tagger.
        """


def open_corpus(corpus: Corpus, reading: Reading = AS_IT_COMES) -> Source:
    """The source of a corpus; ``reading`` says how files are read.

    Raises TypeError for anything but a path or ``hf:`` name, several of them, or an iterable of papers.

    >>> open_corpus(["a.jsonl", Path("b.jsonl")]).names
    ('a.jsonl', 'b.jsonl')
    >>> open_corpus(iter([index.paper("s001")])).names
    ('<papers>',)
    """
    if isinstance(corpus, str | os.PathLike):
        return CorpusSource([os.fspath(corpus)], reading)
    if not isinstance(corpus, Iterable) or isinstance(corpus, Mapping | bytes):
        raise _wrong_type(corpus)
    if isinstance(corpus, Sequence):
        if any(isinstance(item, Paper) for item in corpus):
            return PapersSource(corpus)
        return CorpusSource(_paths(corpus), reading)
    stream = iter(corpus)
    first = list(itertools.islice(stream, 1))
    if first and isinstance(first[0], str | os.PathLike):
        return CorpusSource(_paths([*first, *stream]), reading)
    return PapersSource(itertools.chain(first, stream))


def _paths(items: Iterable[Any]) -> list[str]:
    paths = list(items)
    for item in paths:
        if not isinstance(item, str | os.PathLike):
            raise _wrong_type(item)
    return [os.fspath(item) for item in paths]


def _wrong_type(value: object) -> TypeError:
    return TypeError(
        "expected `corpus` as a path (str or os.PathLike), several paths, or an iterable of qbe.Paper, found "
        f"{type(value).__name__}"
    )


class CorpusSource:
    """The papers of files and data sets (a `Source`).

    >>> source = CorpusSource(["sample/corpus.jsonl"])
    >>> sum(1 for paper in source.papers(str.splitlines, RejectedRecords()))
    128
    """

    def __init__(self, corpus: Sequence[str], reading: Reading = AS_IT_COMES) -> None:
        self.names = tuple(corpus)
        self.reading = reading
        self._bytes_read: BytesRead | None = None

    def share_read(self) -> float | None:
        """The share of the bytes of its files."""
        return self._bytes_read.share if self._bytes_read else None

    def how_read(self) -> dict[str, Any]:
        """The reading's record."""
        return self.reading.record()

    def papers(self, split: Splitter, left_out: RejectedRecords) -> Iterator[Paper]:
        """See `qbe.corpus.read_corpus`."""
        of_files = not any(name.startswith(HUGGING_FACE) for name in self.names)
        files = [file for name in self.names for file in files_of(name)] if of_files else [STDIN]
        self._bytes_read = BytesRead(files)
        return read_corpus(self.names, split, self.reading, left_out, self._bytes_read)

    def describe(self) -> list[list[Any]]:
        """Name, size and time of change of each file, also of those of a folder; of other sources the name
        only.
        """
        facts: list[list[Any]] = []
        for file in (file for name in self.names for file in files_of(name)):
            path = Path(file)
            if path.is_file():
                status = path.stat()
                facts.append([file, status.st_size, status.st_mtime_ns])
            else:
                facts.append([file])
        return facts

    def newest(self) -> int:
        """The latest time of change of the files."""
        return max((facts[2] for facts in self.describe() if len(facts) == 3), default=0)

    def add_finished_shards(self, folder: Path, tagger: dict[str, str] | None) -> None:
        """There are none."""


class PapersSource:
    """Papers that a program hands over (a `Source`).

    A build of a sequence can be resumed with equal papers, one of any other iterable cannot.

    >>> papers = [index.paper("s001")]
    >>> PapersSource(papers).describe() == PapersSource(tuple(papers)).describe()
    True
    >>> PapersSource(iter(papers)).describe() == PapersSource(iter(papers)).describe()
    False
    """

    names = (IN_MEMORY,)

    def __init__(self, papers: Iterable[Any]) -> None:
        self._papers = papers

    def share_read(self) -> float | None:
        """They may be a stream without an end that is known."""
        return None

    def how_read(self) -> dict[str, Any]:
        """They are not read."""
        return {}

    def papers(self, split: Splitter, left_out: RejectedRecords) -> Iterator[Paper]:  # noqa: ARG002  (sentences)
        """The papers as `qbe.corpus.parse_paper` makes them of a record.

        Raises TypeError for what is no paper, CorpusError for what it refuses, an id that comes twice, and
        where there is no paper at all.
        """
        known: dict[str, int] = {}
        for number, paper in enumerate(self._papers, start=1):
            yield _checked(paper, number)
            first = known.setdefault(paper.paper_id, number)
            if first != number:
                raise CorpusError(
                    f"paper {number}: expected each paper_id once, found {paper.paper_id!r} again (first as "
                    f"paper {first}); drop one of them"
                )
        if not known:
            raise CorpusError("expected at least one paper, found none; check `corpus`")

    def describe(self) -> list[list[Any]]:
        """The digest of the papers of a sequence; of other iterables, which cannot be read twice, a token
        that no other build has.
        """
        if not isinstance(self._papers, Sequence):
            return [[IN_MEMORY, uuid.uuid4().hex]]
        digest = hashlib.sha256()
        for number, paper in enumerate(self._papers, start=1):
            digest.update(encode_paper(_checked(paper, number)))
        return [[IN_MEMORY, digest.hexdigest()]]

    def newest(self) -> int:
        """Later than any index: whether one holds these papers is not known."""
        return sys.maxsize

    def add_finished_shards(self, folder: Path, tagger: dict[str, str] | None) -> None:
        """There are none."""


def _checked(paper: Any, number: int) -> Paper:
    if not isinstance(paper, Paper):
        raise TypeError(
            f"expected `corpus` of qbe.Paper, found {type(paper).__name__} as number {number}; convert "
            "records with qbe.corpus.parse_paper"
        )
    return parse_paper(paper_to_record(paper), f"paper {number}")

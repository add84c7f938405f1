"""The papers of a build as a stream, and where they come from: files, data sets, or papers in memory."""

from __future__ import annotations

import hashlib
import itertools
import os
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qbe.corpus import paper_to_record, parse_paper, read_corpus
from qbe.corpus.reading import files_of
from qbe.corpus.records import AS_IT_COMES, Reading, Splitter
from qbe.corpus.rejected import RejectedRecords
from qbe.corpus.streams import BytesRead
from qbe.errors import CorpusError
from qbe.index.papers import encode_paper
from qbe.types import Paper

IN_MEMORY = "<papers>"
"""What a manifest calls a corpus of papers that a program handed over."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the papers of a build come from: by this a build that is resumed or repeated knows them again.

    ``names`` are what a manifest calls the sources. ``facts`` are JSON values that differ when the papers do.
    ``changed`` is when their files were last changed, in nanoseconds; 0 where there are none. ``reading`` is
    how files are read, where that is not as usual (the record of a `qbe.corpus.records.Reading`).
    """

    names: tuple[str, ...]
    facts: list[list[Any]]
    changed: int = 0
    reading: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Source:
    """The papers of a build and their `Origin`.

    ``papers`` gives them in order, as a stream: abstracts that are one string are split by the function that
    it is given, and records that are left out are counted. ``share_read`` says which share of them has been
    read; None where that is not known. Where they were encoded before, ``add_shards`` puts their vectors
    into the folder of the build, where its papers are by then; it is called with the identity of the build's
    tagger, and may refuse what does not fit.
    """

    papers: Callable[[Splitter, RejectedRecords], Iterator[Paper]]
    origin: Origin
    share_read: Callable[[], float | None] = lambda: None
    add_shards: Callable[[Path, dict[str, str] | None], None] | None = None


Corpus = str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | Iterable[Paper] | Source
"""A path or ``hf:`` name, several of them, papers, or a source as it is."""


def open_corpus(corpus: Corpus, reading: Reading = AS_IT_COMES) -> Source:
    """The source of a corpus; ``reading`` says how files are read.

    A build of a sequence of papers can be resumed with equal ones, one of any other iterable cannot. Raises
    TypeError for anything but a path or ``hf:`` name, several of them, or an iterable of papers, and what the
    papers of a sequence are refused for.

    >>> open_corpus(["a.jsonl", Path("b.jsonl")]).origin.names
    ('a.jsonl', 'b.jsonl')
    >>> papers = [index.paper("s001")]
    >>> open_corpus(papers).origin == open_corpus(tuple(papers)).origin
    True
    >>> open_corpus(iter(papers)).origin == open_corpus(iter(papers)).origin
    False
    """
    if isinstance(corpus, Source):
        return corpus
    if isinstance(corpus, str | os.PathLike):
        return _of_files([os.fspath(corpus)], reading)
    if not isinstance(corpus, Iterable) or isinstance(corpus, Mapping | bytes):
        raise _wrong_type(corpus)
    items: Iterable[Any]
    if isinstance(corpus, Sequence):
        in_memory, items = any(isinstance(item, Paper) for item in corpus), corpus
    else:
        stream = iter(corpus)
        first = list(itertools.islice(stream, 1))
        in_memory = not (first and isinstance(first[0], str | os.PathLike))
        items = itertools.chain(first, stream)
    if in_memory:
        return _in_memory(items)
    names = list(items)
    for name in names:
        if not isinstance(name, str | os.PathLike):
            raise _wrong_type(name)
    return _of_files([os.fspath(name) for name in names], reading)


def _wrong_type(value: object) -> TypeError:
    return TypeError(
        "expected `corpus` as a path (str or os.PathLike), several paths, or an iterable of qbe.Paper, found "
        f"{type(value).__name__}"
    )


def _of_files(names: Sequence[str], reading: Reading) -> Source:
    """The papers of files and data sets (see `qbe.corpus.read_corpus`).

    Known of them are name, size and time of change of each file, also of those of a folder; of other sources
    the name only.
    """
    files = [file for name in names for file in files_of(name)]
    statuses = [Path(file).stat() if Path(file).is_file() else None for file in files]
    facts: list[list[Any]] = [
        [file] if status is None else [file, status.st_size, status.st_mtime_ns]
        for file, status in zip(files, statuses, strict=True)
    ]
    changed = max((status.st_mtime_ns for status in statuses if status is not None), default=0)
    bytes_read = BytesRead(files)
    return Source(
        lambda split, left_out: read_corpus(names, split, reading, left_out, bytes_read),
        Origin(tuple(names), facts, changed, reading.record()),
        lambda: bytes_read.share,
    )


def _in_memory(papers: Iterable[Any]) -> Source:
    """Papers that a program hands over.

    Known of a sequence is the digest of its papers; other iterables cannot be read twice, and get a token
    that no other build has. Whether an index holds these papers is not known: they are newer than any.
    """
    fact = uuid.uuid4().hex
    if isinstance(papers, Sequence):
        digest = hashlib.sha256()
        for number, paper in enumerate(papers, start=1):
            digest.update(encode_paper(_checked(paper, number)))
        fact = digest.hexdigest()
    origin = Origin((IN_MEMORY,), [[IN_MEMORY, fact]], sys.maxsize)
    return Source(lambda split, left_out: _checked_papers(papers), origin)  # noqa: ARG005  (sentences)


def _checked_papers(papers: Iterable[Any]) -> Iterator[Paper]:
    """The papers as `qbe.corpus.parse_paper` makes them of a record.

    Raises TypeError for what is no paper, CorpusError for what it refuses, an id that comes twice, and where
    there is no paper at all.
    """
    numbers: dict[str, int] = {}
    for number, paper in enumerate(papers, start=1):
        yield _checked(paper, number)
        first = numbers.setdefault(paper.paper_id, number)
        if first != number:
            raise CorpusError(
                f"paper {number}: expected each paper_id once, found {paper.paper_id!r} again (first as "
                f"paper {first}); drop one of them"
            )
    if not numbers:
        raise CorpusError("expected at least one paper, found none; check `corpus`")


def _checked(paper: Any, number: int) -> Paper:
    if not isinstance(paper, Paper):
        raise TypeError(
            f"expected `corpus` of qbe.Paper, found {type(paper).__name__} as number {number}; convert "
            "records with qbe.corpus.parse_paper"
        )
    return parse_paper(paper_to_record(paper), f"paper {number}")

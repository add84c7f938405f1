"""Runs and relevance judgements (qrels) as TREC files."""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from qbe.errors import FileFormatError, UsageError
from qbe.types import Hit
from qbe.util.files import StrPath
from qbe.util.lines import bad_line, plain_number, read_fields, write_lines

Rankings = Mapping[str, Sequence[Hit]]
"""Ranked papers by query id, best first."""

MAX_RELEVANCE = 1000
"""The largest relevance of a qrels file. Measures need time and memory in proportion to it."""


class Judgment(NamedTuple):
    """One line of a qrels file."""

    query_id: str
    paper_id: str
    relevance: int


class RunFile(NamedTuple):
    """The content of a run file: its tag (of the last line), and hits by query id, best first."""

    tag: str
    rankings: dict[str, tuple[Hit, ...]]


def _single(value: float) -> float:
    """The nearest IEEE single-precision number; infinite beyond the largest."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _next_below(value: float) -> float:
    """The largest single-precision number below a finite single-precision ``value``."""
    if value == 0.0:
        return -_single(2.0**-149)
    bits = struct.unpack("<i", struct.pack("<f", value))[0]
    return float(struct.unpack("<f", struct.pack("<i", bits - 1 if value > 0 else bits + 1))[0])


def strictly_decreasing(scores: Iterable[float]) -> Iterator[float]:
    """Scores as single-precision numbers, each below the one before it.

    trec_eval keeps scores in single precision and breaks ties by document id, which would reorder a
    run; a score that does not lie below its predecessor is therefore moved to the next number below.
    Raises ValueError for a score that is not finite in single precision.
    """
    previous = math.inf
    for score in scores:
        value = _single(score)
        if math.isfinite(value) and value >= previous:
            value = _next_below(previous)
        if not math.isfinite(value):
            raise ValueError(f"a score must be finite in single precision, found {score}")
        yield value
        previous = value


def check_hits(rankings: Rankings) -> None:
    """Raise TypeError for anything but hits in rankings."""
    for query_id, hits in rankings.items():
        for hit in hits:
            if not isinstance(hit, Hit):
                raise TypeError(f"expected qbe.Hit objects for {query_id}, found {type(hit).__name__}")


def as_written(rankings: Rankings) -> dict[str, tuple[Hit, ...]]:
    """Rankings with the scores that a run file has, `strictly_decreasing`: evaluators, which sort by score,
    then keep the order of the hits.

    Raises TypeError for anything but hits, UsageError for a score that is not finite in single precision and
    for a paper twice in a ranking.

    >>> [hit.score for hit in as_written({"q": (Hit("a", 0.0), Hit("b", 1.0))})["q"]]
    [0.0, -1.401298464324817e-45]
    """
    check_hits(rankings)
    written = {}
    for query_id, hits in rankings.items():
        try:
            scores = list(strictly_decreasing(hit.score for hit in hits))
        except ValueError as error:
            raise UsageError(f"query {query_id}: {error}; give other scores") from error
        seen: set[str] = set()
        for hit in hits:
            if hit.paper_id in seen:
                raise UsageError(
                    f"expected each paper once in a ranking, found {hit.paper_id} again for {query_id}; "
                    "leave it out"
                )
            seen.add(hit.paper_id)
        written[query_id] = tuple(hit._replace(score=score) for hit, score in zip(hits, scores, strict=True))
    return written


def format_run(tag: str, rankings: Rankings) -> str:
    """A run as TREC text: query id, Q0, document id, rank from 1, score, tag; queries in the run's order.

    Raises UsageError for a tag or an id that is not one word: the file could not be read again; and what
    `as_written` does.
    """
    if tag.split() != [tag]:
        raise UsageError(f"expected a run tag of one word, found {tag!r}; leave out white space")
    lines = []
    for query_id, hits in as_written(rankings).items():
        for word in (query_id, *(hit.paper_id for hit in hits)):
            if str(word).split() != [str(word)]:
                raise UsageError(f"expected ids of one word each, found {word!r}; leave out white space")
        for rank, hit in enumerate(hits, start=1):
            lines.append(f"{query_id} Q0 {hit.paper_id} {rank} {hit.score:.9g} {tag}\n")
    return "".join(lines)


def read_run(path: StrPath) -> RunFile:
    """Read a TREC run file; hits are ordered as trec_eval does, whatever their ranks.

    That is by score in single precision, best first, and ties by document id, the greatest first.

    Raises FileFormatError with the line number for a line without six fields, a score that is not a
    finite number, or a document that its query has already.
    """
    rankings: dict[str, dict[str, Hit]] = {}
    tag = ""
    for number, fields in read_fields(path, None):
        if len(fields) != 6:
            raise bad_line(path, number, "query_id Q0 paper_id rank score tag", " ".join(fields))
        query_id, _, paper_id, _, score, tag = fields
        try:
            # One string a document, not one a line.
            hit = Hit(sys.intern(paper_id), float(plain_number(score)))
        except ValueError as error:
            raise bad_line(path, number, "a number as score", score) from error
        if not math.isfinite(hit.score):
            raise bad_line(path, number, "a finite number as score", score)
        hits = rankings.setdefault(query_id, {})
        if paper_id in hits:
            raise bad_line(path, number, "each document once in a query", f"{paper_id} again for {query_id}")
        hits[hit.paper_id] = hit
    ordered = {
        query_id: tuple(
            sorted(hits.values(), key=lambda hit: (_single(hit.score), hit.paper_id), reverse=True)
        )
        for query_id, hits in rankings.items()
    }
    return RunFile(tag, ordered)


def write_qrels(path: StrPath, judgments: Iterable[Judgment]) -> None:
    """Write a TREC qrels file: query id, 0, document id, relevance."""
    write_lines(path, (f"{j.query_id} 0 {j.paper_id} {j.relevance}\n" for j in judgments))


def read_qrels(*paths: StrPath) -> dict[str, dict[str, int]]:
    """Grades by query id and paper id out of TREC qrels files: the mapping that ir-measures takes.

    Raises FileFormatError with the line number for a line without four fields, a grade that is no
    whole number or beyond MAX_RELEVANCE, or a paper judged twice for a query, also in two of the files.

    >>> for facet, grade in (("method", 2), ("result", 0)):
    ...     write_qrels(f"{facet}.qrels", [Judgment(f"1_{facet}", "a", grade)])
    >>> read_qrels("method.qrels", "result.qrels")
    {'1_method': {'a': 2}, '1_result': {'a': 0}}
    """
    qrels: dict[str, dict[str, int]] = {}
    source: dict[str, StrPath] = {}
    for path in paths:
        for query_id, grades in _read_qrels(path).items():
            if twice := qrels.get(query_id, {}).keys() & grades.keys():
                raise FileFormatError(
                    f"{path}: expected each document judged once for a query, found {min(twice)} for "
                    f"{query_id} in {source[query_id]} too; give each qrels file once"
                )
            qrels.setdefault(query_id, {}).update(grades)
            source[query_id] = path
    return qrels


def _read_qrels(path: StrPath) -> dict[str, dict[str, int]]:
    qrels: dict[str, dict[str, int]] = {}
    for number, fields in read_fields(path, None):
        if len(fields) != 4:
            raise bad_line(path, number, "query_id 0 paper_id relevance", " ".join(fields))
        query_id, _, paper_id, relevance = fields
        grades = qrels.setdefault(query_id, {})
        if paper_id in grades:
            raise bad_line(
                path, number, "each document judged once for a query", f"{paper_id} again for {query_id}"
            )
        try:
            grade = int(plain_number(relevance))
        except ValueError as error:
            raise bad_line(path, number, "a whole number as relevance", relevance) from error
        if abs(grade) > MAX_RELEVANCE:  # an id in the wrong column
            raise bad_line(path, number, f"a relevance from -{MAX_RELEVANCE} to {MAX_RELEVANCE}", relevance)
        grades[sys.intern(paper_id)] = grade  # one string a document, not one a judgement
    return qrels

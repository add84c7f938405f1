"""Run, qrels, topics and pool files.

Runs and qrels are TREC's; topics and pools are tab-separated with a header line. A topic whose facet is
empty, or left out, is about its paper's whole abstract; where none has one, the header may leave it out too.
A topic of several aspects states them in a fourth column, separated by spaces: each a weight and ``*`` (left
out: 1), then ``background``, ``method``, ``result``, ``abstract`` or ``sentences:`` with positions from 0,
then ``@`` and a paper's id (left out: the topic's paper): ``background -0.5*method sentences:0,3@p7``.
"""

from __future__ import annotations

import itertools
import math
import re
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from qbe.errors import FileFormatError, UsageError
from qbe.files import atomic_file, write_text
from qbe.query import Topic, TopicAspect, format_weight
from qbe.types import Facet, Hit, Run

TOPICS_HEADER = ("query_id", "paper_id", "facet", "aspects")
POOLS_HEADER = ("query_id", "paper_id")

_ASPECT = re.compile(
    r"(?:(?P<weight>[-+0-9.eE]+)\*)?"
    r"(?:(?P<facet>background|method|result)|abstract|sentences:(?P<positions>\d+(?:,\d+)*))"
    r"(?:@(?P<paper_id>\S+))?"
)


class Judgment(NamedTuple):
    """One line of a qrels file."""

    query_id: str
    paper_id: str
    relevance: int


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


def format_run(run: Run) -> str:
    """A run as TREC text: query id, Q0, document id, rank from 1, score, tag; queries in the run's order.

    Raises UsageError for a tag that is not one word: the file could not be read again.
    """
    if run.tag.split() != [run.tag]:
        raise UsageError(f"expected a run tag of one word, found {run.tag!r}; leave out white space")
    lines = []
    for query_id, hits in run.rankings.items():
        scores = strictly_decreasing(hit.score for hit in hits)
        for rank, (hit, score) in enumerate(zip(hits, scores, strict=True), start=1):
            lines.append(f"{query_id} Q0 {hit.paper_id} {rank} {score:.9g} {run.tag}\n")
    return "".join(lines)


def write_run(path: str | Path, run: Run) -> None:
    """Write a TREC run file, whole or not at all."""
    write_text(Path(path), format_run(run))


def read_run(path: str | Path) -> Run:
    """Read a TREC run file; hits are ordered as trec_eval does, whatever their ranks.

    That is by score in single precision, best first, and ties by document id, the greatest first.

    Raises FileFormatError with the line number for a line without six fields, a score that is not a
    finite number, or a document that its query has already.
    """
    rankings: dict[str, dict[str, Hit]] = {}
    tag = ""
    for number, fields in _fields(path, None):
        if len(fields) != 6:
            raise _bad(path, number, "query_id Q0 paper_id rank score tag", " ".join(fields))
        query_id, _, paper_id, _, score, tag = fields
        try:
            hit = Hit(sys.intern(paper_id), float(score))  # one string a document, not one a line
        except ValueError as error:
            raise _bad(path, number, "a number as score", score) from error
        if not math.isfinite(hit.score):
            raise _bad(path, number, "a finite number as score", score)
        hits = rankings.setdefault(query_id, {})
        if paper_id in hits:
            raise _bad(path, number, "each document once in a query", f"{paper_id} again for {query_id}")
        hits[hit.paper_id] = hit
    ordered = {
        query_id: tuple(
            sorted(hits.values(), key=lambda hit: (_single(hit.score), hit.paper_id), reverse=True)
        )
        for query_id, hits in rankings.items()
    }
    return Run(tag, ordered)


def write_qrels(path: str | Path, judgments: Iterable[Judgment]) -> None:
    """Write a TREC qrels file: query id, 0, document id, relevance."""
    _write_lines(path, (f"{j.query_id} 0 {j.paper_id} {j.relevance}\n" for j in judgments))


def read_qrels(path: str | Path) -> dict[str, dict[str, int]]:
    """Read a TREC qrels file into grades by query id and document id, the mapping ir-measures takes.

    Raises FileFormatError with the line number for a line without four fields, a grade that is no
    whole number, or a document judged twice for a query.
    """
    qrels: dict[str, dict[str, int]] = {}
    for number, fields in _fields(path, None):
        if len(fields) != 4:
            raise _bad(path, number, "query_id 0 paper_id relevance", " ".join(fields))
        query_id, _, paper_id, relevance = fields
        grades = qrels.setdefault(query_id, {})
        if paper_id in grades:
            raise _bad(
                path, number, "each document judged once for a query", f"{paper_id} again for {query_id}"
            )
        try:
            grades[sys.intern(paper_id)] = int(relevance)  # one string a document, not one a judgement
        except ValueError as error:
            raise _bad(path, number, "a whole number as relevance", relevance) from error
    return qrels


def write_topics(path: str | Path, topics: Iterable[Topic]) -> None:
    """Write a topics file with its header; the last columns are left out where no topic needs them."""
    rows = [
        (t.query_id, t.paper_id, t.facet.value if t.facet else "", format_aspects(t.paper_id, t.aspects))
        for t in topics
    ]
    columns = 4 if any(row[3] for row in rows) else 3 if any(row[2] for row in rows) else 2
    _write_table(path, TOPICS_HEADER[:columns], (row[:columns] for row in rows))


def read_topics(path: str | Path) -> list[Topic]:
    """Read a topics file; an empty or absent facet is None, empty or absent aspects are none.

    Raises FileFormatError for a wrong header, field count, facet, aspect or a repeated id.
    """
    topics: list[Topic] = []
    seen: set[str] = set()
    for number, (query_id, paper_id, *rest) in _table(path, TOPICS_HEADER, optional=2, spaced="aspects"):
        if query_id in seen:
            raise _bad(path, number, "each query_id once (a file of pools has more)", f"{query_id} again")
        seen.add(query_id)
        facet, aspects = (*rest, "", "")[:2]
        if facet and aspects:
            raise _bad(path, number, "a facet or aspects", f"{facet} and {aspects}")
        try:
            parsed = parse_aspects(paper_id, aspects)
        except ValueError as error:
            expected = "aspects such as background -0.5*method sentences:0,3@p7"
            raise _bad(path, number, expected, str(error)) from error
        try:
            topics.append(Topic(query_id, paper_id, Facet(facet) if facet else None, parsed))
        except ValueError as error:
            raise _bad(path, number, "background, method, result or nothing as facet", facet) from error
    return topics


def parse_aspects(paper_id: str, text: str) -> tuple[TopicAspect, ...]:
    """The aspects of a topics file's column, of the paper ``paper_id`` where they name no other.

    Raises ValueError with the part that is none, and where no weight is positive.

    >>> parse_aspects("p1", "background -0.5*method@p7")[1].weight
    -0.5
    """
    aspects = []
    for part in text.split():
        match = _ASPECT.fullmatch(part)
        if match is None:
            raise ValueError(part)
        weight = float(match["weight"] or 1)
        if not math.isfinite(weight) or weight == 0:
            raise ValueError(part)
        positions = match["positions"]
        aspects.append(
            TopicAspect(
                match["paper_id"] or paper_id,
                Facet(match["facet"]) if match["facet"] else None,
                tuple(map(int, positions.split(","))) if positions else None,
                weight,
            )
        )
    if aspects and not any(aspect.weight > 0 for aspect in aspects):
        raise ValueError(f"no positive weight in {text}")
    return tuple(aspects)


def format_aspects(paper_id: str, aspects: Iterable[TopicAspect]) -> str:
    """The text that `parse_aspects` reads as these aspects."""
    parts = []
    for aspect in aspects:
        what = aspect.facet.value if aspect.facet else "abstract"
        if aspect.positions is not None:
            what = "sentences:" + ",".join(map(str, aspect.positions))
        weight = "" if aspect.weight == 1 else f"{format_weight(aspect.weight)}*"
        parts.append(f"{weight}{what}" + ("" if aspect.paper_id == paper_id else f"@{aspect.paper_id}"))
    return " ".join(parts)


def write_pools(path: str | Path, pools: Mapping[str, Iterable[str]]) -> None:
    """Write a pools file with its header."""
    rows = ((query_id, paper_id) for query_id, paper_ids in pools.items() for paper_id in paper_ids)
    _write_table(path, POOLS_HEADER, rows)


def read_pools(path: str | Path) -> dict[str, list[str]]:
    """Read a pools file into document ids by query id, in the file's order, repetitions dropped."""
    pools: dict[str, dict[str, None]] = {}
    for _, (query_id, paper_id) in _table(path, POOLS_HEADER):
        pools.setdefault(query_id, {})[sys.intern(paper_id)] = None  # one string a paper, not one a row
    return {query_id: list(paper_ids) for query_id, paper_ids in pools.items()}


def _write_table(path: str | Path, header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    _write_lines(path, ("\t".join(row) + "\n" for row in itertools.chain((header,), rows)))


def _write_lines(path: str | Path, lines: Iterable[str]) -> None:
    """Write lines as they come: the judgements of a large collection are never one string."""
    with atomic_file(Path(path)) as stream:
        stream.writelines(line.encode() for line in lines)


def _table(
    path: str | Path, header: tuple[str, ...], optional: int = 0, spaced: str = ""
) -> Iterator[tuple[int, list[str]]]:
    """Numbered rows behind the header; the last ``optional`` fields may be empty or left out, and the one
    named ``spaced`` may have spaces.
    """
    rows = _fields(path, "\t")
    expected = "a header line " + " ".join(f"<{name}>" for name in header) + " separated by tabs"
    number, first = next(rows, (1, []))
    least = len(header) - optional
    if len(first) < least or tuple(first) != header[: len(first)]:
        raise _bad(path, number, expected, "\t".join(first))
    for number, fields in rows:
        named = itertools.zip_longest(header[: len(fields)], fields, fillvalue="")
        words = [
            field for place, (name, field) in enumerate(named) if name != spaced and (place < least or field)
        ]
        if not least <= len(fields) <= len(first) or any(field.split() != [field] for field in words):
            expected = f"{len(first)} tab-separated fields without white space"
            raise _bad(path, number, expected, "\t".join(fields))
        yield number, fields


def _fields(path: str | Path, separator: str | None) -> Iterator[tuple[int, list[str]]]:
    """Numbered lines of a UTF-8 file, split; blank lines are passed over."""
    try:
        with Path(path).open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                try:
                    text = line.decode().rstrip("\r\n")
                except UnicodeDecodeError as error:
                    raise FileFormatError(
                        f"{path}, line {number}: expected UTF-8 text, found byte 0x{line[error.start]:02x}; "
                        "convert the file to UTF-8"
                    ) from error
                if text.strip():
                    yield number, text.split(separator)
    except OSError as error:
        raise FileFormatError(f"cannot read {path}: {error.strerror}; check the path") from error


def _bad(path: str | Path, number: int, expected: str, found: str) -> FileFormatError:
    return FileFormatError(f"{path}, line {number}: expected {expected}, found {found[:80]!r}; mend the file")

"""Topics and pools: tab-separated files with a header line.

A topic whose facet is empty, or left out, is about its paper's whole abstract; where none has one, the header
may leave it out too. A topic of several aspects states them in a fourth column, separated by spaces: each a
weight and ``*`` (left out: 1), then ``background``, ``method``, ``result``, ``abstract`` or ``sentences:``
with positions from 0, then ``@`` and a paper's id (left out: the topic's paper), such as
``background -0.5*method@p7``.
"""

from __future__ import annotations

import itertools
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping

from qbe.files import StrPath
from qbe.lines import bad_line, read_fields, write_lines
from qbe.query import Topic, TopicAspect, format_weight
from qbe.types import Facet

TOPICS_HEADER = ("query_id", "paper_id", "facet", "aspects")
POOLS_HEADER = ("query_id", "paper_id")

_ASPECT = re.compile(
    r"(?:(?P<weight>[-+0-9.eE]+)\*)?"
    r"(?:(?P<facet>background|method|result)|abstract|sentences:(?P<positions>\d+(?:,\d+)*))"
    r"(?:@(?P<paper_id>\S+))?"
)


def write_topics(path: StrPath, topics: Iterable[Topic]) -> None:
    """Write a topics file with its header; the last columns are left out where no topic needs them."""
    rows = [
        (t.query_id, t.paper_id, t.facet.value if t.facet else "", format_aspects(t.paper_id, t.aspects))
        for t in topics
    ]
    columns = 4 if any(row[3] for row in rows) else 3 if any(row[2] for row in rows) else 2
    _write_table(path, TOPICS_HEADER[:columns], (row[:columns] for row in rows))


def read_topics(path: StrPath) -> list[Topic]:
    """Read a topics file; an empty or absent facet is None, empty or absent aspects are none.

    Raises FileFormatError for a wrong header, field count, facet, aspect or a repeated id.
    """
    topics: list[Topic] = []
    seen: set[str] = set()
    for number, (query_id, paper_id, *rest) in _table(path, TOPICS_HEADER, optional=2, spaced="aspects"):
        if query_id in seen:
            raise bad_line(path, number, "each query_id once (a file of pools has more)", f"{query_id} again")
        seen.add(query_id)
        facet, aspects = (*rest, "", "")[:2]
        if facet and aspects:
            raise bad_line(path, number, "a facet or aspects", f"{facet} and {aspects}")
        try:
            parsed = parse_aspects(paper_id, aspects)
        except ValueError as error:
            expected = "aspects such as background -0.5*method sentences:0,3@p7"
            raise bad_line(path, number, expected, str(error)) from error
        try:
            topics.append(Topic(query_id, paper_id, Facet(facet) if facet else None, parsed))
        except ValueError as error:
            raise bad_line(path, number, "background, method, result or nothing as facet", facet) from error
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


def write_pools(path: StrPath, pools: Mapping[str, Iterable[str]]) -> None:
    """Write a pools file with its header."""
    rows = ((query_id, paper_id) for query_id, paper_ids in pools.items() for paper_id in paper_ids)
    _write_table(path, POOLS_HEADER, rows)


def read_pools(path: StrPath) -> dict[str, list[str]]:
    """Read a pools file into document ids by query id, in the file's order, repetitions dropped."""
    pools: dict[str, dict[str, None]] = {}
    for _, (query_id, paper_id) in _table(path, POOLS_HEADER):
        pools.setdefault(query_id, {})[sys.intern(paper_id)] = None  # one string a paper, not one a row
    return {query_id: list(paper_ids) for query_id, paper_ids in pools.items()}


def _write_table(path: StrPath, header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    write_lines(path, ("\t".join(row) + "\n" for row in itertools.chain((header,), rows)))


def _table(
    path: StrPath, header: tuple[str, ...], optional: int = 0, spaced: str = ""
) -> Iterator[tuple[int, list[str]]]:
    """Numbered rows behind the header; the last ``optional`` fields may be empty or left out, and the one
    named ``spaced`` may have spaces.
    """
    rows = read_fields(path, "\t")
    expected = "a header line " + " ".join(f"<{name}>" for name in header) + " separated by tabs"
    number, first = next(rows, (1, []))
    least = len(header) - optional
    if len(first) < least or tuple(first) != header[: len(first)]:
        raise bad_line(path, number, expected, "\t".join(first))
    for number, fields in rows:
        named = itertools.zip_longest(header[: len(fields)], fields, fillvalue="")
        words = [
            field for place, (name, field) in enumerate(named) if name != spaced and (place < least or field)
        ]
        if not least <= len(fields) <= len(first) or any(field.split() != [field] for field in words):
            expected = f"{len(first)} tab-separated fields without white space"
            raise bad_line(path, number, expected, "\t".join(fields))
        yield number, fields

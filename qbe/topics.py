"""Topics and pools: tab-separated files with a header line.

The columns of topics come in any order. A topic whose facet is empty, or left out, is about its paper's whole
abstract. A topic about a paper that is not of the index has, in place of a paper's id, its abstract as
``text``, and perhaps its ``title``. A topic of several aspects states them in ``aspects``, separated by
spaces: each a weight and ``*`` (left out: 1), then ``background``, ``method``, ``result``, ``abstract`` or
``sentences:`` with positions from 0, then ``@`` and a paper's id (left out: the topic's paper), such as
``background -0.5*method@p7``.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from qbe.errors import UsageError
from qbe.query import Topic, TopicAspect, check_weight, format_weight
from qbe.types import Facet
from qbe.util.files import StrPath
from qbe.util.lines import bad_line, read_fields, write_lines

TOPICS_HEADER = ("query_id", "paper_id", "facet", "aspects", "title", "text")
POOLS_HEADER = ("query_id", "paper_id")
_SPACED = ("aspects", "title", "text")

_ASPECT = re.compile(
    r"(?:(?P<weight>[-+0-9.eE]+)\*)?"
    r"(?:(?P<facet>background|method|result)|abstract|sentences:(?P<positions>\d+(?:,\d+)*))"
    r"(?:@(?P<paper_id>\S+))?"
)


def write_topics(path: StrPath, topics: Iterable[Topic]) -> None:
    """Write a topics file with its header; columns that no topic needs are left out."""
    rows = [
        (
            *(t.query_id, t.paper_id, t.facet.value if t.facet else ""),
            *(format_aspects(t.paper_id, t.aspects), " ".join(t.title.split()), " ".join(t.text.split())),
        )
        for t in topics
    ]
    used = [not place or any(row[place] for row in rows) for place in range(len(TOPICS_HEADER))]
    _write_table(path, (tuple(itertools.compress(row, used)) for row in (TOPICS_HEADER, *rows)))


def read_topics(path: StrPath) -> list[Topic]:
    """Read a topics file; an empty or absent facet is None, empty or absent aspects are none.

    Raises FileFormatError for a wrong header, field count, facet, aspect or a repeated id.
    """
    return [topic for _, topic in numbered_topics(path)]


def numbered_topics(path: StrPath) -> Iterator[tuple[int, Topic]]:
    """The topics of a file with the numbers of their lines; raises what `read_topics` does."""
    expected = (
        "a header line <query_id> <paper_id> <facet> <aspects>, or <text> <title> in place of <paper_id>, "
        "separated by tabs"
    )
    seen: set[str] = set()
    for number, row in _table(path, TOPICS_HEADER, (("query_id",), ("paper_id", "text")), expected):
        query_id, paper_id, facet, aspects, title, text = (row.get(name, "") for name in TOPICS_HEADER)
        if query_id in seen:
            raise bad_line(path, number, "each query_id once (a file of pools has more)", f"{query_id} again")
        seen.add(query_id)
        if facet and aspects:
            raise bad_line(path, number, "a facet or aspects", f"{facet} and {aspects}")
        if paper_id and text:
            raise bad_line(path, number, "a paper_id or a text", f"{paper_id} and {text}")
        try:
            parsed = parse_aspects(paper_id, aspects)
        except ValueError as error:
            example = "aspects such as background -0.5*method sentences:0,3@p7"
            raise bad_line(path, number, example, str(error)) from error
        try:
            topic = Topic(query_id, paper_id, Facet(facet) if facet else None, parsed, text, title)
        except ValueError as error:
            raise bad_line(path, number, "background, method, result or nothing as facet", facet) from error
        yield number, topic


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
        try:
            weight = float(match["weight"] or 1)
            check_weight(weight)
        except (ValueError, UsageError):
            raise ValueError(part) from None
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
    _write_table(path, itertools.chain((POOLS_HEADER,), rows))


def read_pools(path: StrPath) -> dict[str, list[str]]:
    """Read a pools file into document ids by query id, in the file's order, repetitions dropped."""
    pools: dict[str, dict[str, None]] = {}
    expected = "a header line <query_id> <paper_id> separated by tabs"
    for _, row in _table(path, POOLS_HEADER, (("query_id",), ("paper_id",)), expected):
        # One string a paper, not one a row.
        pools.setdefault(row["query_id"], {})[sys.intern(row["paper_id"])] = None
    return {query_id: list(paper_ids) for query_id, paper_ids in pools.items()}


def _write_table(path: StrPath, rows: Iterable[tuple[str, ...]]) -> None:
    write_lines(path, ("\t".join(row) + "\n" for row in rows))


def _table(
    path: StrPath, columns: Collection[str], needed: Sequence[Sequence[str]], expected: str
) -> Iterator[tuple[int, dict[str, str]]]:
    """Numbered rows by column. Of each of ``needed`` a row has one column; the last fields may be left out.
    The header, of which ``expected`` says what it is to be, has some of the columns.
    """
    rows = read_fields(path, "\t")
    number, header = next(rows, (1, []))
    if len({*columns, *header}) > len(columns) or len(set(header)) < len(header):
        raise bad_line(path, number, expected, "\t".join(header))
    if not all(set(header) & set(names) for names in needed):
        raise bad_line(path, number, expected, "\t".join(header))
    for number, fields in rows:
        row = dict(zip(header, fields, strict=False))
        words = all(name in _SPACED or not field or field.split() == [field] for name, field in row.items())
        complete = all(any(row.get(name, "").strip() for name in names) for names in needed)
        if len(fields) > len(header) or not words or not complete:
            problem = f"{len(header)} tab-separated fields without white space in ids"
            raise bad_line(path, number, problem, "\t".join(fields))
        yield number, row

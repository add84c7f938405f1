"""Files of pairs: to be graded, and graded."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from qbe.errors import FileFormatError, UsageError
from qbe.runs import PAIRS_HEADER, read_graded_pairs
from qbe.util.files import StrPath
from qbe.util.text import bad_line, read_fields, write_lines

Grades = Sequence[float]  # of a pair, facet by facet
Merges = Mapping[int, int]  # grades that count as other ones

IDS = PAIRS_HEADER[:2]
POOL, GIVEN, ASSESSOR = "pool", "given", "assessor"  # GIVEN: the pool of pairs that a user gave


class Pair(NamedTuple):
    """Name a query paper and a candidate by their ids, and how the candidate was found."""

    query_id: str
    paper_id: str
    pool: str = GIVEN


def read_pairs(path: StrPath) -> list[Pair]:
    """Read the pairs of a tab-separated file with the columns query_id and paper_id, and pool if any, each
    once.
    """
    rows = read_fields(path, "\t")
    number, header = next(rows, (1, []))
    if not set(IDS) <= set(header):
        raise bad_line(path, number, f"the tab-separated columns {' and '.join(IDS)}", "\t".join(header))
    pairs: dict[tuple[str, str], Pair] = {}
    for number, fields in rows:
        row = dict(zip(header, fields, strict=False))
        query_id, paper_id = (row.get(name, "") for name in IDS)
        if not query_id or not paper_id:
            raise bad_line(path, number, "two ids", "\t".join(fields))
        pairs.setdefault((query_id, paper_id), Pair(query_id, paper_id, row.get(POOL) or GIVEN))
    if not pairs:
        raise FileFormatError(f"{path}: expected pairs, found none; give a file of pairs")
    return list(pairs.values())


def read_grades(path: StrPath) -> dict[tuple[str, str], Grades]:
    """Read grades by query paper and candidate; raises FileFormatError, also for a pair graded twice."""
    grades: dict[tuple[str, str], Grades] = {}
    for query, pairs in read_graded_pairs(path).items():
        for pair in pairs:
            first = grades.setdefault((query, pair.paper_id), pair.grades)
            if first != pair.grades:
                found = " and ".join(
                    ", ".join(f"{grade:g}" for grade in each) for each in (first, pair.grades)
                )
                raise FileFormatError(
                    f"{path}: expected one grade by each facet for {query} and {pair.paper_id}, found "
                    f"{found}; keep one line"
                )
    return grades


def write_pairs(
    path: StrPath, pairs: Sequence[Pair], grades: Sequence[Grades] | None = None, assessor: str = ""
) -> None:
    """Write pairs, with their grades and the ``assessor`` by hand if there are any."""
    hand = [assessor] if assessor else []
    header = (*(IDS if grades is None else PAIRS_HEADER), POOL, *(ASSESSOR for _ in hand))
    given: Sequence[Grades] = [()] * len(pairs) if grades is None else grades
    rows = (
        (pair.query_id, pair.paper_id, *(f"{grade:g}" for grade in row), pair.pool, *hand)
        for pair, row in zip(pairs, given, strict=True)
    )
    write_lines(path, ("\t".join(fields) + "\n" for fields in (header, *rows)))


def parse_merges(texts: Sequence[str]) -> dict[int, int]:
    """Parse grades to merge: ``3:2`` counts 3 as 2; raises UsageError."""
    merges = {}
    for text in texts:
        grade, _, other = text.partition(":")
        if not {grade, other} <= set("0123") or int(grade) in merges:
            raise UsageError(
                "expected grades to `merge` as in 3:2 (3 counts as 2), of 0 to 3 and each once, found "
                f"{text!r}"
            )
        merges[int(grade)] = int(other)
    return merges


def merged(grade: float, merges: Merges) -> float:
    """Return a grade after merging, interpolated where it lies between two whole ones."""
    below, above = math.floor(grade), math.ceil(grade)
    share = grade - below
    if not share:
        return merges.get(below, below)
    return (1 - share) * merges.get(below, below) + share * merges.get(above, above)

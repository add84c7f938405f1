"""Files of pairs: to be graded, and graded."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from qbe.errors import FileFormatError, UsageError
from qbe.runs import PAIRS_HEADER, read_graded_pairs
from qbe.types import Facet
from qbe.util.files import StrPath, write_text
from qbe.util.text import bad_line, read_fields

Grades = Sequence[float]  # of a pair, facet by facet; NaN where it has none
Merges = Mapping[Facet, Mapping[int, int]]  # grades that count as other ones, by facet

IDS = PAIRS_HEADER[:2]
POOL, ASSESSOR = "pool", "assessor"
GIVEN, DIFFERS = "given", "differs"  # pools: of pairs that a user gave, that two files grade differently


class Pair(NamedTuple):
    """Name a query paper and a candidate by their ids, and how the candidate was found."""

    query_id: str
    paper_id: str
    pool: str = GIVEN


def read_pairs(path: StrPath) -> list[Pair]:
    """Read the pairs, each once, of a tab-separated file of query_id and paper_id, and pool if any."""
    rows = read_fields(path, "\t")
    number, header = next(rows, (1, []))
    if not set(IDS) <= set(header) or len({*header}) < len(header):
        raise bad_line(path, number, f"the tab-separated columns {' and '.join(IDS)}", "\t".join(header))
    pairs: dict[tuple[str, str], Pair] = {}
    for number, fields in rows:
        row = dict(zip(header, fields, strict=False))
        query_id, paper_id = (row.get(name, "") for name in IDS)
        if not query_id or not paper_id or any(fields[len(header) :]):
            raise bad_line(path, number, "two ids", "\t".join(fields))
        pairs.setdefault((query_id, paper_id), Pair(query_id, paper_id, row.get(POOL) or GIVEN))
    if not pairs:
        raise FileFormatError(f"{path}: expected pairs, found none; give a file of pairs")
    return list(pairs.values())


def read_grades(path: StrPath, merges: Merges = {}) -> dict[tuple[str, str], Grades]:  # noqa: B006
    """Read grades by query paper and candidate, merged; FileFormatError also for a pair graded twice."""
    grades: dict[tuple[str, str], Grades] = {}
    for query, pairs in read_graded_pairs(path, partial=True).items():
        for pair in pairs:
            first = grades.setdefault((query, pair.paper_id), pair.grades)
            if not _equal(first, pair.grades):
                found = " and ".join(", ".join(map(text_of, each)) for each in (first, pair.grades))
                raise FileFormatError(
                    f"{path}: expected one grade by each facet for {query} and {pair.paper_id}, found "
                    f"{found}; keep one line"
                )
    return {key: merged(each, merges) for key, each in grades.items()}


def write_pairs(
    path: StrPath, pairs: Sequence[Pair], grades: Sequence[Grades] | None = None, assessor: str = ""
) -> None:
    """Write pairs, with their grades and the ``assessor`` by hand if there are any."""
    hand = [assessor] if assessor else []
    header = (*(IDS if grades is None else PAIRS_HEADER), POOL, *(ASSESSOR for _ in hand))
    given: Sequence[Grades] = [()] * len(pairs) if grades is None else grades
    rows = (
        (pair.query_id, pair.paper_id, *map(text_of, row), pair.pool, *hand)
        for pair, row in zip(pairs, given, strict=True)
    )
    write_text(path, "".join("\t".join(fields) + "\n" for fields in (header, *rows)))


def text_of(grade: float) -> str:
    """Return a grade as files have it, empty for none."""
    return "" if math.isnan(grade) else f"{grade:g}"


def parse_merges(texts: Sequence[str]) -> dict[Facet, dict[int, int]]:
    """Parse grades to merge: ``3:2`` counts 3 as 2, ``method:3:2`` in one facet; raises UsageError."""
    merges: dict[Facet, dict[int, int]] = {facet: {} for facet in Facet}
    for text in texts:
        *facets, grade, other = text.split(":") if text.count(":") else ("", "")
        wrong = len(facets) > 1 or not {grade, other} <= set("0123") or not {*facets} <= {*map(str, Facet)}
        for facet in map(Facet, () if wrong else facets or Facet):
            wrong |= int(grade) in merges[facet]
            merges[facet][int(grade)] = int(other)
        if wrong:
            raise UsageError(
                "expected grades to `merge` as in 3:2 (3 counts as 2) or method:3:2, of 0 to 3 and each "
                f"once, found {text!r}"
            )
    return merges


def merged(grades: Grades, merges: Merges) -> tuple[float, ...]:
    """Return the grades of a pair after merging, interpolated where one lies between two whole ones."""
    found = list(grades)
    for place, (facet, grade) in enumerate(zip(Facet, grades, strict=True)):
        of_facet = merges.get(facet)
        if of_facet and not math.isnan(grade):
            below, above = math.floor(grade), math.ceil(grade)
            share = grade - below
            found[place] = (1 - share) * of_facet.get(below, below) + share * of_facet.get(above, above)
    return tuple(found)


def differences(first: StrPath, second: StrPath, *, merges: Merges) -> list[Pair]:
    """Return the pairs that two files grade differently, for a third assessor; FileFormatError if none."""
    one, other = (read_grades(path, merges) for path in (first, second))
    found = [Pair(*key, DIFFERS) for key in one if key in other and not _equal(one[key], other[key])]
    if not found:
        raise FileFormatError(f"expected pairs that {first} and {second} grade differently, found none")
    return found


def adjudicated(first: StrPath, second: StrPath, third: StrPath, *, merges: Merges) -> dict[Pair, Grades]:
    """Return the grades of pairs of two files: theirs where they agree, else the third's, facet by facet.

    Raises FileFormatError where the third lacks a pair on which they differ.
    """
    graded = [read_grades(path, merges) for path in (first, second, third)]
    decided: dict[Pair, Grades] = {}
    for key in (key for key in graded[0] if key in graded[1]):
        one, other = graded[0][key], graded[1][key]
        if not _equal(one, other) and key not in graded[2]:
            raise FileFormatError(
                f"{third}: expected grades of all pairs that {first} and {second} grade differently, found "
                f"none of {key[0]} and {key[1]}; grade those that are left"
            )
        pair = Pair(*key, DIFFERS if key in graded[2] else GIVEN)
        each = zip(one, other, graded[2].get(key, one), strict=True)
        decided[pair] = [a if text_of(a) == text_of(b) else c for a, b, c in each]
    return decided


def _equal(one: Grades, other: Grades) -> bool:
    """Whether grades are equal, none and none included."""
    return list(map(text_of, one)) == list(map(text_of, other))

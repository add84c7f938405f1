"""Files of graded pairs: how similar a candidate is to its query paper in background, method and result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from qbe.errors import FileFormatError
from qbe.shapes import HIGHEST
from qbe.types import Facet
from qbe.util.files import StrPath
from qbe.util.lines import bad_line, plain_number, read_fields

COLUMNS = ("query_id", "paper_id", *(facet.value for facet in Facet))


class GradedPair(NamedTuple):
    """A candidate and its grades, from 0 (unrelated) to 3 (nearly identical), by facet in their order."""

    paper_id: str
    grades: tuple[float, ...]


GradedLists = Mapping[str, Sequence[GradedPair]]
"""Candidates by query paper, in the order of the file."""


def has_graded_pairs(path: StrPath) -> bool:
    r"""Whether the first line of a file names the columns of graded pairs.

    Raises FileFormatError for a file that cannot be read.

    >>> from pathlib import Path
    >>> _ = Path("run.qrels").write_text("q_method 0 a 3\n")
    >>> has_graded_pairs("run.qrels")
    False
    """
    _, header = next(read_fields(path, "\t"), (1, []))
    return set(COLUMNS) <= set(header)


def read_graded_pairs(path: StrPath) -> dict[str, list[GradedPair]]:
    r"""Read a tab-separated file whose first line names the columns query_id, paper_id, background, method
    and result.

    Other columns are ignored. Raises FileFormatError, with the number of the line, for a file that is absent,
    empty, or has another format.

    >>> from pathlib import Path
    >>> rows = ("query_id paper_id background method result", "q a 3 1 0")
    >>> _ = Path("pairs.tsv").write_text("\n".join(row.replace(" ", "\t") for row in rows))
    >>> read_graded_pairs("pairs.tsv")
    {'q': [GradedPair(paper_id='a', grades=(3.0, 1.0, 0.0))]}
    """
    rows = read_fields(path, "\t")
    number, header = next(rows, (1, []))
    if header and not set(COLUMNS) <= set(header):
        raise bad_line(path, number, f"the tab-separated columns {', '.join(COLUMNS)}", "\t".join(header))
    lists: dict[str, list[GradedPair]] = {}
    for number, fields in rows:
        row = dict(zip(header, fields, strict=False))
        try:
            query_id, paper_id, *grades = (row[column] for column in COLUMNS)
            pair = GradedPair(paper_id, tuple(map(_grade, grades)))
        except (KeyError, ValueError) as error:
            expected = f"two ids and numbers from 0 to {HIGHEST:g} as grades"
            raise bad_line(path, number, expected, "\t".join(fields)) from error
        lists.setdefault(query_id, []).append(pair)
    if not lists:
        raise FileFormatError(f"{path}: expected graded pairs, found none; give a file of graded pairs")
    return lists


def _grade(text: str) -> float:
    grade = float(plain_number(text))
    if not 0 <= grade <= HIGHEST:
        raise ValueError(f"a grade of {grade}")
    return grade

"""Grades that people give by hand: a file of graded pairs for each assessor, all of the same pairs."""

from __future__ import annotations

import random
import re
from collections.abc import Container, Sequence
from pathlib import Path
from typing import NamedTuple

from qbe.errors import OutputError, UsageError
from qbe.label.pairs import ASSESSOR, Grades, Pair, read_grades, read_pairs, write_pairs
from qbe.util.files import change_lock
from qbe.util.text import read_fields

MOST_ASSESSORS = 100  # files in a folder: clients cannot make more

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")


class Turn(NamedTuple):
    """Hold the next pair for an assessor (None at the end), and how many of ``total`` pairs have grades."""

    pair: Pair | None
    graded: int
    total: int


class HandGrades:
    """Hand out pairs to assessors, each in an order of their own, and keep grades in ``folder/NAME.tsv``.

    Threads may share it, and other processes may keep grades of the same pairs in the folder.
    """

    def __init__(self, pairs: Sequence[Pair], folder: Path) -> None:
        self._pairs = {(pair.query_id, pair.paper_id): pair for pair in pairs}
        self._folder = folder

    def turn(self, assessor: str, index: Container[str] | None = None) -> Turn:
        """Return what is next of pairs that an ``index`` has; raises UsageError for an invalid name."""
        given, order = self._grades_of(assessor), list(self._pairs)
        random.Random(assessor).shuffle(order)
        if index is not None:
            order = [key for key in order if key in given or (key[0] in index and key[1] in index)]
        left = [key for key in order if key not in given]
        return Turn(self._pairs[left[0]] if left else None, len(order) - len(left), len(order))

    def grade(
        self, assessor: str, query_id: str, paper_id: str, grades: Grades, index: Container[str] | None = None
    ) -> Turn:
        """Keep the grades of a pair in place of the assessor's earlier ones, and return what is next.

        Grades of pairs that are no longer handed out stay in the file. Raises UsageError for an unknown pair.
        """
        if (query_id, paper_id) not in self._pairs:
            raise UsageError(f"expected one of the pairs to be graded, found {query_id} and {paper_id}")
        self._grades_of(assessor)  # where there can be none, nothing is written
        with change_lock(self._folder / "grades"):
            given = {**self._grades_of(assessor), (query_id, paper_id): grades}
            path = self._folder / f"{assessor}.tsv"
            earlier = {pair[:2]: pair for pair in read_pairs(path)} if path.exists() else {}
            kept = {key: pair for key, pair in {**self._pairs, **earlier}.items() if key in given}
            write_pairs(path, list(kept.values()), [given[key] for key in kept], assessor)
            return self.turn(assessor, index)

    def _grades_of(self, assessor: str) -> dict[tuple[str, str], Grades]:
        if not _NAME.fullmatch(assessor):
            raise UsageError(
                f"expected a name of at most 40 small letters, digits and hyphens, found {assessor[:60]!r}"
            )
        path = self._folder / f"{assessor}.tsv"
        if path.exists():
            if next(read_fields(path, "\t"), (1, []))[1][-1:] != [ASSESSOR]:
                raise OutputError(f"{path}: expected grades by hand, found another file; choose another name")
            return read_grades(path)
        if len(list(self._folder.glob("*.tsv"))) >= MOST_ASSESSORS:
            raise UsageError(f"expected at most {MOST_ASSESSORS} assessors; use a name that is there")
        return {}

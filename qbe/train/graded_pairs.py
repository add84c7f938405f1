"""Graded pairs of papers: how like its query paper a candidate is, in background, method and result."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from qbe.errors import CorpusError
from qbe.types import Facet

_FOLDER = Path(__file__).parent / "graded-pairs"
MORE_PAIRS = tuple(_FOLDER / f"{name}.tsv" for name in ("train", "train-2", "train-3", "train-4", "train-5"))
"""The pairs graded for qbe beside those of ``facet-judgments``; the README beside them says how."""


class GradedPair(NamedTuple):
    """A candidate and its grades, from 0 (unrelated) to 3 (near identical), one a facet in their order."""

    paper_id: str
    grades: tuple[float, ...]


GradedLists = Mapping[str, Sequence[GradedPair]]
"""Candidates by query paper, in the order of the file."""


def read_graded_pairs(path: Path) -> dict[str, list[GradedPair]]:
    """Read a tab-separated file with the columns query_id, paper_id, background, method, result.

    Other columns are passed over. Raises CorpusError for a file that is absent or of another form.
    """
    lists: dict[str, list[GradedPair]] = {}
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            for row in csv.DictReader(stream, delimiter="\t"):
                grades = tuple(float(row[facet.value]) for facet in Facet)
                if not all(map(math.isfinite, grades)):
                    raise ValueError(f"a grade of {grades}")
                lists.setdefault(row["query_id"], []).append(GradedPair(row["paper_id"], grades))
    except (OSError, KeyError, ValueError, TypeError) as error:
        raise CorpusError(
            f"{path}: expected tab-separated columns query_id, paper_id, {', '.join(map(str, Facet))}, "
            f"found {error!r}; give a file of graded pairs"
        ) from error
    if not lists:
        raise CorpusError(f"{path}: expected graded pairs, found none; give a file of graded pairs")
    return lists


def without(lists: GradedLists, left_out: frozenset[str]) -> dict[str, list[GradedPair]]:
    """The pairs in which no paper of ``left_out`` takes part."""
    kept = {
        query: [pair for pair in pairs if pair.paper_id not in left_out]
        for query, pairs in lists.items()
        if query not in left_out
    }
    return {query: pairs for query, pairs in kept.items() if pairs}


def papers_of(*sets: GradedLists) -> set[str]:
    """The ids of all papers that take part, as query or as candidate."""
    return {
        identity
        for lists in sets
        for query, pairs in lists.items()
        for identity in (query, *(pair.paper_id for pair in pairs))
    }

"""Lists of graded pairs to train on: which files, and which pairs of them."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np

from qbe.errors import CorpusError, UsageError
from qbe.evaluate.crossed import GAP
from qbe.graded_pairs import GradedLists, GradedPair

PAIRS_FOLDER = Path(__file__).parents[2] / "data" / "graded-pairs"
"""In a checkout of the repository, pairs that extend ``facet-judgments``; the README there describes them."""


def default_pairs() -> Path:
    """`PAIRS_FOLDER`; raises UsageError in an installation, which does not have it."""
    if not PAIRS_FOLDER.is_dir():
        raise UsageError(
            "expected the graded pairs in data/graded-pairs of a checkout of qbe's repository, found no such "
            "folder; give a copy of it, or files of pairs, as `pairs`"
        )
    return PAIRS_FOLDER


def pair_files(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Files of pairs to train on: paths that are files, and for each folder its ``train*.tsv`` by name.

    Raises UsageError for a folder without such files.

    >>> for name in ("train.tsv", "train-2.tsv", "dev.tsv"):
    ...     Path(name).touch()
    >>> [path.name for path in pair_files([Path()])]
    ['train.tsv', 'train-2.tsv']
    """
    files: list[Path] = []
    for path in paths:
        inside = sorted(path.glob("train*.tsv"), key=lambda file: file.stem) if path.is_dir() else [path]
        files += inside
        if not inside:
            raise UsageError(f"{path}: expected train*.tsv in the folder, found none; check `pairs`")
    return tuple(files)


def without(lists: GradedLists, excluded: frozenset[str]) -> dict[str, list[GradedPair]]:
    """The pairs whose query and candidate are not ``excluded`` ids; queries without a pair are dropped.

    >>> a, b = GradedPair("a", (3, 1, 0)), GradedPair("b", (0, 0, 0))
    >>> without({"q": [a, b], "r": [a]}, frozenset({"a"}))
    {'q': [GradedPair(paper_id='b', grades=(0, 0, 0))]}
    """
    kept = {
        query: [pair for pair in pairs if pair.paper_id not in excluded]
        for query, pairs in lists.items()
        if query not in excluded
    }
    return {query: pairs for query, pairs in kept.items() if pairs}


def within(lists: GradedLists, held: Container[str]) -> dict[str, list[GradedPair]]:
    """The lists whose query an index has ``held``, of the candidates that it holds too; lists of fewer than
    two are dropped, since they have no order to learn. Raises CorpusError where nothing is left.

    >>> a, b = GradedPair("a", (3, 1, 0)), GradedPair("b", (0, 0, 0))
    >>> within({"q": [a, b], "r": [a, b]}, {"q", "a", "b"})
    {'q': [GradedPair(paper_id='a', grades=(3, 1, 0)), GradedPair(paper_id='b', grades=(0, 0, 0))]}
    """
    kept = {
        query: [pair for pair in pairs if pair.paper_id in held]
        for query, pairs in lists.items()
        if query in held
    }
    kept = {query: pairs for query, pairs in kept.items() if len(pairs) > 1}
    if not kept:
        raise CorpusError(
            f"expected graded pairs of papers of the index, found none of {len(papers_of(lists)):,}; give an "
            "index that holds them"
        )
    return kept


def count_crossed(pairs: Sequence[GradedPair]) -> int:
    """How many pairs of a list's candidates are crossed, over all pairs of facets: for one facet the first
    is better by GAP grades (`qbe.evaluate.crossed`) or more, for the other the second.

    >>> count_crossed([GradedPair("a", (3, 1, 0)), GradedPair("b", (1, 2, 0)), GradedPair("c", (3, 2, 0))])
    1
    """
    grades = np.array([pair.grades for pair in pairs])
    differences = grades[:, None, :] - grades[None, :, :]  # (candidates, candidates, facets)
    better = (differences >= GAP).astype(np.int64)
    opposed = np.einsum("ijf,jig->ijfg", better, better)
    return int(sum(opposed[:, :, i, j].sum() for i, j in combinations(range(grades.shape[1]), 2)))


def most_crossed(lists: GradedLists, count: int) -> dict[str, Sequence[GradedPair]]:
    """The ``count`` lists with the most crossed pairs (`count_crossed`), of equals the first by id.

    >>> crossed = [GradedPair("a", (3, 1, 0)), GradedPair("b", (1, 2, 0))]
    >>> list(most_crossed({"q": crossed[:1], "r": crossed}, 1))
    ['r']
    """
    order = sorted(lists, key=lambda query: (-count_crossed(lists[query]), query))
    return {query: lists[query] for query in order[:count]}


def papers_of(*sets: GradedLists) -> set[str]:
    """The ids of all queries and candidates.

    >>> sorted(papers_of({"q": [GradedPair("a", (3, 1, 0)), GradedPair("b", (0, 0, 0))]}))
    ['a', 'b', 'q']
    """
    return {
        paper_id
        for lists in sets
        for query, pairs in lists.items()
        for paper_id in (query, *(pair.paper_id for pair in pairs))
    }

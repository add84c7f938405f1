"""The folds of CSFCube's two-fold protocol, read from its ``evaluation_splits.json``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbe.errors import FileFormatError, UsageError
from qbe.evaluate.results import AGGREGATED, ALL, split_query_id
from qbe.files import StrPath
from qbe.types import Facet

SPLITS: Mapping[str, tuple[str, ...]] = {"test": ("fold1_test", "fold2_test"), "dev": ("fold1_dev",)}
"""The folds that a split averages. For dev it is one fold: both together hold all of the test queries."""

_NAMES = ("fold1_dev", "fold2_dev", "fold1_test", "fold2_test")


@dataclass(frozen=True, slots=True)
class Folds:
    """The folds of a split.

    Attributes:
        scopes: for each facet, and for all facets together (``aggregated``), the query ids of each fold.
        known: the query ids of all folds of the file, those of other splits too.
    """

    scopes: Mapping[str, tuple[tuple[str, ...], ...]]
    known: frozenset[str]


def load_folds(path: StrPath, split: str = "test") -> Folds:
    """Read a folds file: facet -> fold1_dev, fold2_dev, fold1_test, fold2_test -> query ids.

    Args:
        path: a JSON file; an entry ``all`` is allowed and must hold the queries of all facets together.
        split: ``test`` for both test folds, or ``dev`` for fold1_dev only, as in the release's scorer.

    Raises FileFormatError for a file that is not of this form, or whose test folds share a query, and
    UsageError for another split.

    >>> from importlib import resources
    >>> sample = resources.files("qbe.datasets") / "sample" / "folds.json"
    >>> folds = load_folds(str(sample))
    >>> [len(fold) for fold in folds.scopes["method"]], [len(fold) for fold in folds.scopes["aggregated"]]
    ([4, 4], [12, 12])
    """
    if split not in SPLITS:
        raise UsageError(f"expected a `split` of {' or '.join(SPLITS)}, found {split!r}")
    path = Path(path)
    content = _read(path)
    facets: dict[str, Any] = {facet.value: content[facet.value] for facet in Facet if facet.value in content}
    if not facets:
        raise _bad(
            path, "folds of background, method or result", f"the entries {', '.join(content) or 'none'}"
        )
    for facet, folds in facets.items():
        _check(path, facet, folds)
    joined = {name: [q for folds in facets.values() for q in folds[name]] for name in _NAMES}
    if ALL in content:
        _check(path, ALL, content[ALL])
        for name in _NAMES:
            if set(content[ALL][name]) != set(joined[name]):
                raise _bad(path, f"the facets' queries together as {ALL}/{name}", "others")
    facets[AGGREGATED] = joined
    scopes = {scope: tuple(tuple(folds[name]) for name in SPLITS[split]) for scope, folds in facets.items()}
    return Folds(scopes, frozenset(q for name in _NAMES for q in joined[name]))


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise FileFormatError(f"cannot read {path}: {error.strerror}; give another folds file") from error
    except ValueError as error:
        raise FileFormatError(f"{path}: expected JSON, found {error}; give another folds file") from error
    if not isinstance(content, dict):
        raise _bad(path, "an object of facets", type(content).__name__)
    return content


def _check(path: Path, facet: str, folds: object) -> None:
    if not isinstance(folds, dict):
        raise _bad(path, f"an object of folds for {facet}", type(folds).__name__)
    for name in _NAMES:
        ids = folds.get(name)
        if not isinstance(ids, list) or not ids or not all(isinstance(q, str) for q in ids):
            raise _bad(path, f"a list of query ids as {facet}/{name}", repr(ids)[:60])
        others = [q for q in ids if facet != ALL and split_query_id(q)[1] is not Facet(facet)]
        if others:
            raise _bad(path, f"query ids that end in _{facet} in {facet}/{name}", others[0])
    test = [*folds["fold1_test"], *folds["fold2_test"]]
    if len(set(test)) != len(test):
        raise _bad(path, f"each query in one test fold of {facet}", "a query twice")


def _bad(path: Path, expected: str, actual: str) -> FileFormatError:
    return FileFormatError(
        f"{path}: expected {expected}, found {actual}; give a file like evaluation_splits.json"
    )

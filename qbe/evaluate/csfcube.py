"""The CSFCube protocol (Mysore et al., 2021): judged pools, two folds, figures by facet and aggregated.

The value of a query is computed on its ranked pool, that of a fold is the mean over its queries, and that of
a facet the mean of both folds. ``aggregated`` joins the queries of all facets in each fold.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from qbe.errors import FileFormatError, UsageError
from qbe.evaluate.evaluation import AGGREGATED, Evaluation, coverage, pool_scores, pool_warnings
from qbe.evaluate.measures import MEASURES, figure, judged_ranking, parse_measures, per_query_values, pool_of
from qbe.query import split_query_id
from qbe.runs import Qrels, Rankings
from qbe.types import Facet
from qbe.util.files import StrPath

CSFCUBE = "csfcube"
# The folds that a split averages. For dev it is one fold: both together hold all of the test queries.
SPLITS: Mapping[str, tuple[str, ...]] = {"test": ("fold1_test", "fold2_test"), "dev": ("fold1_dev",)}
_NAMES = ("fold1_dev", "fold2_dev", "fold1_test", "fold2_test")


@dataclass(frozen=True, slots=True)
class Folds:
    """Query ids of each fold by facet and ``aggregated``, and of all folds of the file."""

    scopes: Mapping[str, tuple[tuple[str, ...], ...]]
    all_queries: frozenset[str]


def load_folds(path: StrPath, split: str = "test") -> Folds:
    """Read a folds file: facet -> fold1_dev, fold2_dev, fold1_test, fold2_test -> query ids."""
    if split not in SPLITS:
        raise UsageError(f"expected a `split` of {' or '.join(SPLITS)}, found {split!r}")
    try:
        content = json.loads(Path(path).read_bytes())
        facets = {
            facet: {name: [*map(str, content[facet][name])] for name in _NAMES}
            for facet in map(str, Facet)
            if facet in content
        }
    except OSError as error:
        raise FileFormatError(f"cannot read {path}: {error.strerror}; give another folds file") from error
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{path}: expected JSON, found {error}; give another folds file") from error
    except (KeyError, TypeError) as error:
        raise _bad(path, f"lists of query ids as {', '.join(_NAMES)} of each facet", str(error)) from error
    if not facets:
        raise _bad(path, "folds of background, method or result", f"{content!r:.60}")
    for facet, folds in facets.items():
        others = [q for name in _NAMES for q in folds[name] if split_query_id(q)[1] is not Facet(facet)]
        if others or not all(folds.values()):
            raise _bad(path, f"query ids that end in _{facet} in each fold", others[0] if others else "none")
        test = folds["fold1_test"] + folds["fold2_test"]
        if len(set(test)) < len(test):
            raise _bad(path, f"each query in one test fold of {facet}", "a query twice")
    facets[AGGREGATED] = {name: [q for folds in facets.values() for q in folds[name]] for name in _NAMES}
    scopes = {scope: tuple(tuple(folds[name]) for name in SPLITS[split]) for scope, folds in facets.items()}
    return Folds(scopes, frozenset(q for ids in facets[AGGREGATED].values() for q in ids))


def _bad(path: StrPath, expected: str, actual: str) -> FileFormatError:
    return FileFormatError(
        f"{path}: expected {expected}, found {actual}; give a file like evaluation_splits.json"
    )


def csfcube_protocol(
    qrels: Qrels, rankings: Rankings, folds: Folds, measures: Iterable[str] = ()
) -> Evaluation:
    """Evaluate a run as CSFCube's scorer does, or by other measures on the same pools and folds."""
    scopes = judged_scopes(folds, qrels)
    queries = {scope: tuple(q for fold in scopes[scope] for q in fold) for scope in scopes}
    left_out, warnings = coverage(queries, qrels, rankings)
    judged = (q for scope, ids in queries.items() if scope not in left_out for q in ids)
    pools = {q: pool_of(q, qrels[q]) for q in judged}
    scores = pool_scores(pools, rankings)
    parsed = parse_measures(measures) if measures else {}
    values = per_query_values(parsed, pools, scores)
    if not parsed:
        ranked = {query: judged_ranking(query, pool, scores.get(query, {})) for query, pool in pools.items()}
        for label, measure in MEASURES.items():
            values[label] = {query: measure.function(*grades) for query, grades in ranked.items()}
    fold_figures: dict[str, dict[str, tuple[float, ...]]] = {}
    figures: dict[str, dict[str, float | None]] = {}
    for name, by_query in values.items():
        fold_figures[name] = {
            scope: tuple(figure(parsed, name, [by_query[q] for q in fold]) for fold in scope_folds)
            for scope, scope_folds in scopes.items()
            if scope not in left_out
        }
        figures[name] = dict.fromkeys(scopes) | {s: fmean(folds) for s, folds in fold_figures[name].items()}
    return Evaluation(queries, values, figures, (*warnings, *pool_warnings(pools, scores)), fold_figures)


def judged_scopes(folds: Folds, qrels: Qrels) -> dict[str, Sequence[Sequence[str]]]:
    """Return the folds of the facets that the qrels cover, and of ``aggregated`` when all are covered."""
    for query_id in qrels:
        if query_id not in folds.all_queries:
            raise FileFormatError(
                f"expected every judged query in the folds, found {query_id} in none; "
                "give qrels and folds of one release"
            )
    scopes: dict[str, Sequence[Sequence[str]]] = {}
    for scope, scope_folds in folds.scopes.items():
        ids = [query_id for fold in scope_folds for query_id in fold]
        missing = [query_id for query_id in ids if query_id not in qrels]
        if not missing:
            scopes[scope] = scope_folds
        elif len(missing) < len(ids) and scope != AGGREGATED:
            raise FileFormatError(
                f"expected judgements for all {len(ids)} {scope} queries of the folds, found none for "
                f"{missing[0]}; give qrels and folds of one release"
            )
    return scopes

"""Protocols of CSFCube (Mysore et al., 2021) and of people's judgements outside it.

CSFCube has judged pools: the value of a query is computed on its ranked pool, that of a fold is the mean over
its queries, that of a facet the mean of both folds; ``aggregated`` joins the queries of all facets in each
fold. ``reviewers`` gives the figures of Stelmakh et al. (2023; ``scripts/scoring.py`` of their release): a
query is ``SAMPLE.RESEARCHER``, and pairs of papers count that the researcher scored. ``reviews`` takes the
mean over reviews of the means over their queries, ``REVIEW-NUMBER``, which depend on each other. ``headings``
compares the facets of sentences; those below a conclusion do not count.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from math import inf
from pathlib import Path
from statistics import fmean

from qbe.corpus.reading import read_corpus
from qbe.errors import FileFormatError
from qbe.evaluate.evaluation import ALL, Evaluation, coverage, pool_warnings, scope_figures, scores_of
from qbe.evaluate.measures import MEASURES, figure, judged_ranking, parse_measures, per_query_values, pool_of
from qbe.query import split_query_id
from qbe.runs import Qrels, Rankings
from qbe.types import Facet, Hit
from qbe.util.files import StrPath

CSFCUBE, AGGREGATED = "csfcube", "aggregated"
# The folds that a split averages. For dev it is one fold: both together hold all of the test queries.
SPLITS: Mapping[str, tuple[str, ...]] = {"test": ("fold1_test", "fold2_test"), "dev": ("fold1_dev",)}
_NAMES = ("fold1_dev", "fold2_dev", "fold1_test", "fold2_test")

Folds = Mapping[str, Mapping[str, Sequence[str]]]  # query ids by facet or ``aggregated``, and by fold


def load_folds(path: StrPath) -> Folds:
    """Read a folds file: facet -> fold1_dev, fold2_dev, fold1_test, fold2_test -> query ids."""
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
    return facets


def _bad(path: StrPath, expected: str, actual: str) -> FileFormatError:
    return FileFormatError(
        f"{path}: expected {expected}, found {actual}; give a file like evaluation_splits.json"
    )


def csfcube_protocol(
    qrels: Qrels, rankings: Rankings, folds: Folds, measures: Iterable[str] = (), split: str = "test"
) -> Evaluation:
    """Evaluate a run as CSFCube's scorer does, or by other measures on the same pools and folds."""
    scopes = judged_scopes(folds, qrels, split)
    queries = {scope: tuple(q for fold in scopes[scope] for q in fold) for scope in scopes}
    left_out, warnings = coverage(queries, qrels, rankings)
    judged = (q for scope, ids in queries.items() if scope not in left_out for q in ids)
    pools = {q: pool_of(q, qrels[q]) for q in judged}
    scores = scores_of(rankings, pools)
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


def judged_scopes(folds: Folds, qrels: Qrels, split: str) -> dict[str, list[Sequence[str]]]:
    """Return the folds of the facets that the qrels cover, and of ``aggregated`` when all are covered."""
    all_queries = set().union(*folds[AGGREGATED].values())
    for query_id in qrels:
        if query_id not in all_queries:
            raise FileFormatError(
                f"expected every judged query in the folds, found {query_id} in none; "
                "give qrels and folds of one release"
            )
    scopes: dict[str, list[Sequence[str]]] = {}
    for scope, of_scope in folds.items():
        scope_folds = [of_scope[name] for name in SPLITS[split]]
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


REVIEWERS, REVIEWS, HEADINGS = "reviewers", "reviews", "headings"

LOSS, EASY, HARD = "loss", "easy", "hard"
# Grades, four times a score: of papers in a researcher's field, or not, and the others.
KNOWN, UNKNOWN = 16, 8
REVIEWER_DEFINITIONS = {
    LOSS: "share of pairs in the wrong order, weighted by the difference of scores; a tie is half a loss",
    EASY: "share of pairs of a score of at least 4 and one of at most 2 that are in the right order",
    HARD: "share of pairs of two scores of at least 4 that are in the right order",
}
REVIEW_MEASURES = ("AP(rel=2)", "nDCG@10", "P(rel=2)@10")
ACCURACY = "accuracy"
HEADING_DEFINITIONS = {ACCURACY: "share of the sentences below a heading of a facet that have its label"} | {
    f"F1 {facet}": f"harmonic mean of precision and recall of the label {facet}" for facet in Facet
}

Labels = Mapping[str, Sequence[Facet | None]]


def reviewers_protocol(qrels: Qrels, rankings: Rankings) -> Evaluation:
    """Evaluate a run of profiles, without the samples that it lacks, by researcher."""
    of_run = {query.partition(".")[0] for query in rankings}
    judged = {query: grades for query, grades in qrels.items() if query.partition(".")[0] in of_run} or qrels
    _, warnings = coverage({ALL: tuple(judged)}, qrels, rankings)
    if left_out := len(qrels) - len(judged):
        warnings += (f"{left_out} queries of samples that the run lacks are left out",)
    scores = scores_of(rankings)
    parts: dict[str, Counter[str]] = {}
    totals: dict[str, Counter[str]] = {}
    for query, grades in judged.items():
        researcher = query.partition(".")[2]
        part, total = (each.setdefault(researcher, Counter()) for each in (parts, totals))
        by_grade = sorted(grades.items(), key=lambda graded: graded[1])
        for (worse, low), (better, high) in combinations(by_grade, 2):
            if low == high:
                continue
            of_worse, of_better = (scores.get(query, {}).get(each, -inf) for each in (worse, better))
            order = (of_better > of_worse) - (of_better < of_worse)
            part[LOSS] += (high - low) * (1 - order)
            total[LOSS] += (high - low) * 2
            if high >= KNOWN and (low <= UNKNOWN or low >= KNOWN):
                kind = HARD if low >= KNOWN else EASY
                part[kind] += order > 0
                total[kind] += 1
    values = {
        name: {each: parts[each][name] / max(1, totals[each][name]) for each in parts}
        for name in REVIEWER_DEFINITIONS
    }
    weights = {name: {each: float(totals[each][name]) for each in parts} for name in values}
    return Evaluation({ALL: tuple(parts)}, values, _weighted(values, weights), warnings, weights=weights)


def _weighted(
    values: Mapping[str, Mapping[str, float]], weights: Mapping[str, Mapping[str, float]]
) -> dict[str, dict[str, float | None]]:
    """Return weighted means over all units; 0 where no unit has any weight."""
    figures: dict[str, dict[str, float | None]] = {}
    for name, of_unit in values.items():
        total = sum(weights[name].values())
        figures[name] = {ALL: sum(of_unit[each] * weights[name][each] for each in of_unit) / (total or 1)}
    return figures


def reviews_protocol(qrels: Qrels, rankings: Rankings, measures: Iterable[str] = ()) -> Evaluation:
    """Evaluate a run by review; a paper that was included in the end has the grade 2."""
    _, warnings = coverage({ALL: tuple(qrels)}, qrels, rankings)
    parsed = parse_measures(measures or REVIEW_MEASURES)
    reviews: dict[str, list[str]] = {}
    for query in qrels:
        reviews.setdefault(query.rpartition("-")[0], []).append(query)
    values = {
        name: {review: fmean(by_query[query] for query in ids) for review, ids in reviews.items()}
        for name, by_query in per_query_values(parsed, qrels, scores_of(rankings)).items()
    }
    scopes = {ALL: tuple(reviews)}
    return Evaluation(scopes, values, scope_figures({}, values, scopes), warnings)


def read_labels(paths: Iterable[StrPath]) -> dict[str, tuple[Facet | None, ...]]:
    """Read the facets of the sentences of labelled papers, by id; raise FileFormatError without labels."""
    labels = {}
    for path in paths:
        for paper in read_corpus([str(path)]):
            if not paper.labelled:
                raise FileFormatError(
                    f"{path}: expected pred_labels of each paper, found none of {paper.paper_id}; run qbe tag"
                )
            labels[paper.paper_id] = tuple(sentence.facet for sentence in paper.sentences)
    return labels


def headings_protocol(given: Labels, predicted: Labels) -> Evaluation:
    """Evaluate the labels of a tagger; a paper that it lacks has none right."""
    labelled = {name: (Hit(name, 1.0),) for name in predicted}
    _, warnings = coverage({ALL: tuple(given)}, {name: {name: 1} for name in given}, labelled)
    pairs: dict[str, list[tuple[Facet, Facet | None]]] = {}
    for paper_id, facets in given.items():
        found = predicted.get(paper_id, [None] * len(facets))
        if len(found) != len(facets):
            raise FileFormatError(
                f"expected {len(facets)} labels of {paper_id}, found {len(found)}; keep its sentences"
            )
        pairs[paper_id] = [(facet, its) for facet, its in zip(facets, found, strict=True) if facet]
    right = {name: fmean(facet is its for facet, its in of) if of else 0.0 for name, of in pairs.items()}
    weights = {ACCURACY: {name: float(len(of)) for name, of in pairs.items()}}
    figures = _weighted({ACCURACY: right}, weights)
    for facet in Facet:
        sides = [(wanted is facet, its is facet) for of in pairs.values() for wanted, its in of]
        both, either = sum(a and b for a, b in sides), sum(a + b for a, b in sides)
        figures[f"F1 {facet}"] = {ALL: 2 * both / max(1, either)}
    return Evaluation({ALL: tuple(pairs)}, {ACCURACY: right}, figures, warnings, weights=weights)

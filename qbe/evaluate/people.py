"""People's judgements outside CSFCube: researchers' scores, systematic reviews, headings set by authors.

``reviewers`` gives the figures of Stelmakh et al. (2023; ``scripts/scoring.py`` of their release): a query is
``SAMPLE.RESEARCHER``, and pairs of papers count that the researcher scored. ``reviews`` takes the mean over
reviews of the means over their queries, ``REVIEW-NUMBER``, which depend on each other. ``headings`` compares
the facets of sentences; those below a conclusion do not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from math import inf
from statistics import fmean

from qbe.corpus import read_corpus
from qbe.errors import FileFormatError
from qbe.evaluate.evaluation import ALL, Evaluation, coverage, scope_figures, scores_of
from qbe.evaluate.measures import parse_measures, per_query_values
from qbe.runs import Qrels, Rankings
from qbe.types import Facet, Hit
from qbe.util.files import StrPath

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
        for (one, grade), (other, its_grade) in combinations(grades.items(), 2):
            weight = grade - its_grade
            score = [scores.get(query, {}).get(each, -inf) for each in (one, other)]
            if not weight:
                continue
            order = ((score[0] > score[1]) - (score[0] < score[1])) * (1 if weight > 0 else -1)
            part[LOSS] += abs(weight) * (1 - order)
            total[LOSS] += abs(weight) * 2
            low, high = sorted((grade, its_grade))
            if high >= KNOWN and (low <= UNKNOWN or low >= KNOWN):
                kind = HARD if low >= KNOWN else EASY
                part[kind] += order > 0
                total[kind] += 1
    values = {
        name: {each: parts[each][name] / max(1, totals[each][name]) for each in parts}
        for name in REVIEWER_DEFINITIONS
    }
    weights = {name: {each: float(totals[each][name]) for each in parts} for name in values}
    return _weighted(values, weights, warnings)


def _weighted(
    values: Mapping[str, Mapping[str, float]],
    weights: Mapping[str, Mapping[str, float]],
    warnings: Sequence[str],
) -> Evaluation:
    """Return weighted means over all units; 0 where no unit has any weight."""
    figures: dict[str, dict[str, float | None]] = {}
    for name, of_unit in values.items():
        total = sum(weights[name].values())
        figures[name] = {ALL: sum(of_unit[each] * weights[name][each] for each in of_unit) / (total or 1)}
    scopes = {ALL: tuple(next(iter(values.values())))}
    return Evaluation(scopes, values, figures, tuple(warnings), weights=weights)


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
    evaluation = _weighted({ACCURACY: right}, weights, warnings)
    figures = dict(evaluation.figures)
    for facet in Facet:
        sides = [(wanted is facet, its is facet) for of in pairs.values() for wanted, its in of]
        both, either = sum(a and b for a, b in sides), sum(a + b for a, b in sides)
        figures[f"F1 {facet}"] = {ALL: 2 * both / max(1, either)}
    return Evaluation(evaluation.queries, evaluation.per_query, figures, evaluation.warnings, weights=weights)

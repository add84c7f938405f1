"""The protocol of citation recommendation: rankings of a whole corpus, means over the query papers.

It is that of Nogueira, Jiang, Cho and Lin (2020) and, before them, Citeomatic (Bhagavatula et al., 2018):
what a paper cites is relevant, and the first 1,000 papers of a ranking count. The id of a query is the id of
its paper, which is no candidate of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from statistics import harmonic_mean

from qbe.evaluate.csfcube import trec_order
from qbe.evaluate.evaluation import coverage, scope_figures, scores_of, without_query_papers
from qbe.evaluate.measures import parse_measures, per_query_values
from qbe.evaluate.results import ALL, Evaluation, Qrels
from qbe.runs import Rankings

CITATIONS = "citations"

DEPTH = 1000

F1, F1_OF_MEANS = "F1@20", "F1@20 of means"

NAMES = {"MRR": "RR", "R@1000": "R@1000", "P@20": "P@20", "R@20": "R@20"}
"""Name in publications -> name in ir-measures, which computes it on the first 1,000 papers."""

DEFINITIONS = {
    F1: "harmonic mean of a query's precision and recall at 20, 0 where both are 0",
    F1_OF_MEANS: "harmonic mean of mean precision and mean recall at 20, which publications give",
    "MRR": "reciprocal rank of the first cited paper among the first 1,000",
}


def citations_protocol(
    qrels: Qrels,
    rankings: Rankings,
    measures: Iterable[str] = (),
) -> Evaluation:
    """Evaluate a run that recommends papers to cite; further measures are computed on the same rankings.

    A paper that is not judged is not cited. A query that is missing in the run scores 0, with a warning.

    Args:
        qrels: the papers that each query paper cites, with a grade of 1 or more.
        rankings: ranked papers by query id.
        measures: names of ir-measures to compute in addition to the protocol's measures.

    Raises FileFormatError when no query is in both qrels and run, UsageError for an unknown measure.

    >>> from qbe.types import Hit
    >>> rankings = {"p7": (Hit("p7", 9.0), Hit("p3", 8.0), Hit("p1", 7.0))}
    >>> citations_protocol({"p7": {"p1": 1, "p2": 1}}, rankings).figures["MRR"]
    {'all': 0.5}
    """
    judged = without_query_papers(qrels)
    scopes = {ALL: tuple(judged)}
    _, warnings = coverage(scopes, judged, rankings)
    scores = _first_scores(rankings)
    further = parse_measures(measures)
    parsed = further | parse_measures(NAMES.values())
    computed = per_query_values(parsed, judged, scores)
    values = {F1: {q: _f1(precision, computed["R@20"][q]) for q, precision in computed["P@20"].items()}}
    values |= {label: computed[name] for label, name in NAMES.items()}
    values |= {name: computed[name] for name in further}
    means = scope_figures(parsed, values, scopes)
    of_means: dict[str, float | None] = {
        scope: _f1(means["P@20"][scope], means["R@20"][scope]) for scope in scopes
    }
    figures = {F1: means.pop(F1), F1_OF_MEANS: of_means, **means}
    return Evaluation(scopes, values, figures, warnings)


def _first_scores(rankings: Rankings) -> dict[str, dict[str, float]]:
    """The scores of the first 1,000 papers of each query, best first, without the query's paper.

    They are cut here so that all measures use one order of papers with equal scores: that of trec_eval, which
    ir-measures' own RR@1000 does not use.
    """
    first = {}
    for query, scores in scores_of(rankings).items():
        others = (paper_id for paper_id in trec_order(scores) if paper_id != query)
        first[query] = {paper_id: scores[paper_id] for paper_id in islice(others, DEPTH)}
    return first


def _f1(precision: float | None, recall: float | None) -> float:
    return harmonic_mean([precision or 0.0, recall or 0.0])

"""The protocol of citation recommendation: rankings of a whole corpus, means over the query papers.

It is that of Nogueira, Jiang, Cho and Lin (2020) and, before them, Citeomatic (Bhagavatula et al., 2018):
what a paper cites is relevant, and the first 1,000 papers of a ranking count. The id of a query is the id of
its paper, which is no candidate of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from statistics import harmonic_mean

from qbe.evaluate.csfcube import trec_order
from qbe.evaluate.evaluation import coverage, scope_figures, scores_of, without_query_papers
from qbe.evaluate.measures import definition, parse_measures, per_query_values
from qbe.evaluate.overlap import Pairs
from qbe.evaluate.results import ALL, CitationResult, OverlapBin, Qrels
from qbe.types import Run

CITATIONS = "citations"

TOP = 20
"""The first papers of a ranking, which a reader would look at."""

DEPTH = 1000

F1, F1_OF_MEANS = "F1@20", "F1@20 of means"

_NAMES = {"MRR": "RR", "R@1000": "R@1000", "P@20": "P@20", "R@20": "R@20"}
"""Name in publications -> name in ir-measures, which computes it on the first 1,000 papers."""

_DEFINITIONS = {
    F1: "harmonic mean of a query's precision and recall at 20, 0 where both are 0",
    F1_OF_MEANS: "harmonic mean of mean precision and mean recall at 20, which publications give",
    "MRR": "reciprocal rank of the first cited paper among the first 1,000",
}

LABELS = (F1, F1_OF_MEANS, *_NAMES)
"""The measures, in the order of a report."""


def citations_protocol(
    qrels: Qrels,
    run: Run,
    measures: Iterable[str] = (),
    scopes: Mapping[str, tuple[str, ...]] | None = None,
    pairs: Pairs | None = None,
) -> CitationResult:
    """Evaluate a run that recommends papers to cite; further measures are computed on the same rankings.

    A paper that is not judged is not cited. A query that is missing in the run scores 0, with a warning.

    Args:
        qrels: the papers that each query paper cites, with a grade of 1 or more.
        run: the rankings.
        measures: names of ir-measures to compute in addition to the protocol's measures.
        scopes: queries whose means are wanted, by name; all of them when None.
        pairs: pairs of a query and a paper that it cites, by their overlap: how many of these papers are
            among the first 20 becomes ``overlap`` of the result.

    Raises FileFormatError when no query is in both qrels and run, UsageError for an unknown measure.

    >>> from qbe.types import Hit
    >>> run = Run("bm25", {"p7": (Hit("p7", 9.0), Hit("p3", 8.0), Hit("p1", 7.0))})
    >>> citations_protocol({"p7": {"p1": 1, "p2": 1}}, run).figures["MRR"]
    {'all': 0.5}
    """
    judged = without_query_papers(qrels)
    scopes = {ALL: tuple(judged)} if scopes is None else scopes
    _, warnings = coverage(scopes, judged, run)
    rankings = _rankings(run)
    wanted = parse_measures(measures)
    parsed = wanted | parse_measures(_NAMES.values())
    computed = per_query_values(parsed, judged, rankings)
    values = {F1: {q: _f1(precision, computed["R@20"][q]) for q, precision in computed["P@20"].items()}}
    values |= {label: computed[name] for label, name in _NAMES.items()}
    values |= {name: computed[name] for name in wanted}
    means = scope_figures(parsed, values, scopes)
    of_means: dict[str, float | None] = {
        scope: _f1(means["P@20"][scope], means["R@20"][scope]) for scope in scopes
    }
    figures = {F1: means.pop(F1), F1_OF_MEANS: of_means, **means}
    return CitationResult(scopes, values, figures, warnings, overlap=_overlap(pairs or {}, rankings))


def _rankings(run: Run) -> dict[str, dict[str, float]]:
    """The scores of the first 1,000 papers of each query, best first, without the query's paper.

    They are cut here so that all measures use one order of papers with equal scores: that of trec_eval, which
    ir-measures' own RR@1000 does not use.
    """
    rankings = {}
    for query, scores in scores_of(run).items():
        others = (paper_id for paper_id in trec_order(scores) if paper_id != query)
        rankings[query] = {paper_id: scores[paper_id] for paper_id in islice(others, DEPTH)}
    return rankings


def _f1(precision: float | None, recall: float | None) -> float:
    return harmonic_mean([precision or 0.0, recall or 0.0])


def _overlap(pairs: Pairs, rankings: Mapping[str, Mapping[str, float]]) -> tuple[OverlapBin, ...]:
    top = {query: frozenset(islice(ranking, TOP)) for query, ranking in rankings.items()}
    return tuple(
        OverlapBin(name, len(of_bin), sum(cited in top.get(query, ()) for query, cited in of_bin))
        for name, of_bin in pairs.items()
    )


def citations_definition(label: str) -> str:
    """Return a one-line definition of a measure of the protocol.

    >>> citations_definition("R@1000")
    'Recall at k, as ir-measures computes R@1000'
    """
    return _DEFINITIONS.get(label) or definition(_NAMES[label])

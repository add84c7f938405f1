"""The protocol of citation recommendation: rankings of a whole corpus, means over the query papers.

It is that of Nogueira, Jiang, Cho and Lin (2020) and, before them, Citeomatic (Bhagavatula et al., 2018):
what a paper cites is relevant, and the first 1,000 papers of a ranking count. The id of a query is the id of
its paper, which is no candidate of its own.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from statistics import harmonic_mean

from qbe.evaluate.csfcube import trec_order
from qbe.evaluate.evaluation import coverage, scope_figures, scores_of, without_query_papers
from qbe.evaluate.measures import parse_measures, per_query_values
from qbe.evaluate.results import ALL, CitationResult, OverlapBin, Qrels
from qbe.trec import Rankings
from qbe.types import Paper

CITATIONS = "citations"

TOP = 20
"""The first papers of a ranking, which a reader would look at."""

DEPTH = 1000

F1, F1_OF_MEANS = "F1@20", "F1@20 of means"

NAMES = {"MRR": "RR", "R@1000": "R@1000", "P@20": "P@20", "R@20": "R@20"}
"""Name in publications -> name in ir-measures, which computes it on the first 1,000 papers."""

DEFINITIONS = {
    F1: "harmonic mean of a query's precision and recall at 20, 0 where both are 0",
    F1_OF_MEANS: "harmonic mean of mean precision and mean recall at 20, which publications give",
    "MRR": "reciprocal rank of the first cited paper among the first 1,000",
}

LABELS = (F1, F1_OF_MEANS, *NAMES)
"""The measures, in the order of a report."""

NO_YEAR, NO_TEXT = "no year", "no text"

Pairs = Mapping[str, tuple[tuple[str, str], ...]]
"""Pairs of a query paper and a paper that it cites, by the name of their bin of overlap."""

_BINS = tuple(f"{low / 20:.2f}-{(low + 1) / 20:.2f}" for low in range(20))
"""The lower bound of a bin belongs to it; in the last one 1 does too."""

_WORD = re.compile(r"[^\W_]+")

_STOP_WORDS = frozenset(
    _WORD.findall(
        "a an and are as at be but by for if in into is it no not of on or such that the their then there "
        "these they this to was will with"
    )
)
"""Those of Lucene's analyzers for English, which BM25 leaves out."""


def citations_protocol(
    qrels: Qrels,
    rankings: Rankings,
    measures: Iterable[str] = (),
    scopes: Mapping[str, tuple[str, ...]] | None = None,
    pairs: Pairs | None = None,
) -> CitationResult:
    """Evaluate a run that recommends papers to cite; further measures are computed on the same rankings.

    A paper that is not judged is not cited. A query that is missing in the run scores 0, with a warning.

    Args:
        qrels: the papers that each query paper cites, with a grade of 1 or more.
        rankings: ranked papers by query id.
        measures: names of ir-measures to compute in addition to the protocol's measures.
        scopes: queries whose means are computed, by name; all of them when None.
        pairs: pairs of a query and a paper that it cites, by their overlap: how many of these papers are
            among the first 20 becomes ``overlap`` of the result.

    Raises FileFormatError when no query is in both qrels and run, UsageError for an unknown measure.

    >>> from qbe.types import Hit
    >>> rankings = {"p7": (Hit("p7", 9.0), Hit("p3", 8.0), Hit("p1", 7.0))}
    >>> citations_protocol({"p7": {"p1": 1, "p2": 1}}, rankings).figures["MRR"]
    {'all': 0.5}
    """
    judged = without_query_papers(qrels)
    scopes = {ALL: tuple(judged)} if scopes is None else scopes
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
    return CitationResult(scopes, values, figures, warnings, overlap=_overlap(pairs or {}, scores))


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


def _overlap(pairs: Pairs, scores: Mapping[str, Mapping[str, float]]) -> tuple[OverlapBin, ...]:
    top = {query: frozenset(islice(ranking, TOP)) for query, ranking in scores.items()}
    return tuple(
        OverlapBin(name, len(of_bin), sum(cited in top.get(query, ()) for query, cited in of_bin))
        for name, of_bin in pairs.items()
    )


def words(paper: Paper) -> frozenset[str]:
    """The distinct words of a paper's title and abstract, in lower case, without stop words.

    >>> sorted(words(Paper("1", "The Well-Tempered Index", ())))
    ['index', 'tempered', 'well']
    """
    text = f"{paper.title} {paper.abstract}".lower()
    return frozenset(_WORD.findall(text)) - _STOP_WORDS


def pairs_by_overlap(qrels: Qrels, papers: Mapping[str, Paper]) -> dict[str, tuple[tuple[str, str], ...]]:
    """Pairs of a query paper and a paper that it cites, by the share of the query's words in the cited paper
    (Nogueira et al., 2020, section 5.2): which of the papers that share few words a ranking finds, a figure
    over all of them does not show.

    Args:
        qrels: grades by query id, which is the id of its paper, and paper id; 1 and more is cited.
        papers: papers by id, with all query papers. Cited papers that are not there have a bin of their own.

    Returns the pairs of each bin up to the last that has any.

    >>> papers = {name: Paper(name, title, ()) for name, title in (("p", "on old maps"), ("q", "maps"))}
    >>> list(pairs_by_overlap({"p": {"q": 1, "r": 0}}, papers).items())[-1]
    ('0.50-0.55', (('p', 'q'),))
    """
    bins: dict[str, list[tuple[str, str]]] = {name: [] for name in (*_BINS, NO_TEXT)}
    words_of = {paper_id: words(paper) for paper_id, paper in papers.items()}
    for query, grades in qrels.items():
        of_query = words_of[query]
        for cited, grade in grades.items():
            if grade > 0 and cited != query:
                name = _bin(of_query, words_of[cited]) if cited in papers else NO_TEXT
                bins[name].append((query, cited))
    last = max((place for place, name in enumerate(_BINS) if bins[name]), default=-1)
    shown = [*_BINS[: last + 1], *([NO_TEXT] if bins[NO_TEXT] else [])]
    return {name: tuple(bins[name]) for name in shown}


def _bin(of_query: frozenset[str], of_cited: frozenset[str]) -> str:
    if not of_query:
        return _BINS[0]
    return _BINS[min(len(_BINS) * len(of_query & of_cited) // len(of_query), len(_BINS) - 1)]


def year_scopes(query_ids: Collection[str], papers: Mapping[str, Paper]) -> dict[str, tuple[str, ...]]:
    """Return the queries of each year, in ascending order, those without a year, and all.

    Args:
        query_ids: ids of queries, which are those of their papers.
        papers: these papers by id.

    >>> papers = {"a": Paper("a", "", (), metadata={"year": 2020}), "b": Paper("b", "", ())}
    >>> year_scopes("ab", papers)
    {'2020': ('a',), 'no year': ('b',), 'all': ('a', 'b')}
    """
    by_year: dict[str, list[str]] = {}
    for query in query_ids:
        by_year.setdefault(papers[query].year or NO_YEAR, []).append(query)
    years = sorted(by_year, key=lambda year: (year == NO_YEAR, year))
    return {year: tuple(by_year[year]) for year in years} | {ALL: tuple(query_ids)}

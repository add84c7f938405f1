"""Diversity: do the first hits of a list come from all corners, and what does that cost in relevance?

The corners are the shapes of exploration (`qbe.query.SHAPES`): a judged candidate of a query paper is in the
one whose grades it has (`qbe.evaluate.as_asked.is_as_asked`). They are the subtopics of a query, so that any
list that was ranked for the paper can be scored, a plain one as well as one that is put together for this.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations
from statistics import fmean

from qbe.errors import FileFormatError
from qbe.evaluate.as_asked import is_as_asked
from qbe.evaluate.crossed import FacetGrades
from qbe.evaluate.csfcube import trec_order
from qbe.evaluate.evaluation import scores_of
from qbe.evaluate.exploration import CUTOFF, ndcg
from qbe.evaluate.results import ALL, Evaluation, split_query_id
from qbe.query import SHAPES
from qbe.runs import Rankings
from qbe.types import Facet

DIVERSITY = "diversity"

ALPHA = 0.5
"""How much less a further paper of the same corner is worth, as usual in TREC's diversity tasks."""

ALPHA_NDCG = f"alpha-nDCG@{CUTOFF}"

DEFINITIONS: Mapping[str, str] = {
    ALPHA_NDCG: f"alpha-nDCG at rank {CUTOFF} (Clarke et al., 2008), alpha {ALPHA:g}, over the corners "
    f"{', '.join(SHAPES)}",
    f"corners@{CUTOFF}": f"share of the corners with a judged paper that are among the first {CUTOFF} "
    "(S-recall; Zhai et al., 2003)",
    f"P@{CUTOFF}": f"share of the first {CUTOFF} hits that are in a corner",
    f"nDCG@{CUTOFF}": f"normalized discounted cumulated gain at rank {CUTOFF}: the gain is the mean of the "
    "grades of all facets",
    **{
        f"{facet} spread": f"mean difference of the {facet} grades of two of the first {CUTOFF} hits"
        for facet in Facet
    },
}
"""The measures, in the order of a report."""


def alpha_ndcg(
    ranked: Sequence[Collection[str]], pool: Sequence[Collection[str]], alpha: float = ALPHA
) -> float:
    """Compute alpha-nDCG at rank 10 (Clarke et al., 2008, eqs. 5 to 7), in [0, 1].

    Args:
        ranked: the subtopics of the retrieved papers in rank order.
        pool: the subtopics of all judged papers; 0 is returned where none has any. The ideal list is found
            greedily, as usual.
        alpha: a paper is worth ``(1 - alpha) ** n`` for a subtopic that n papers above it have.

    >>> round(alpha_ndcg([{"a"}, {"a"}], [{"a"}, {"a"}, {"b"}]), 3)  # (1 + .5/1.585) / (1 + 1/1.585 + .5/2)
    0.699
    """
    seen: dict[str, int] = {}
    left = [set(each) for each in pool if each]
    ideal: list[set[str]] = []
    while left and len(ideal) < CUTOFF:
        best = max(left, key=lambda each: _gain(each, seen, alpha))
        left.remove(best)
        ideal.append(best)
        _see(best, seen)
    highest = _alpha_dcg(ideal, alpha)
    return _alpha_dcg(ranked[:CUTOFF], alpha) / highest if highest else 0.0


def _alpha_dcg(ranked: Sequence[Collection[str]], alpha: float) -> float:
    seen: dict[str, int] = {}
    total = 0.0
    for rank, subtopics in enumerate(ranked, start=1):
        total += _gain(subtopics, seen, alpha) / math.log2(rank + 1)
        _see(subtopics, seen)
    return total


def _gain(subtopics: Collection[str], seen: Mapping[str, int], alpha: float) -> float:
    return math.fsum((1 - alpha) ** seen.get(subtopic, 0) for subtopic in subtopics)


def _see(subtopics: Collection[str], seen: dict[str, int]) -> None:
    for subtopic in subtopics:
        seen[subtopic] = seen.get(subtopic, 0) + 1


def diversity_protocol(grades: FacetGrades, rankings: Rankings) -> Evaluation:
    """Evaluate the first hits of lists by the corners that they come from.

    The queries are the query papers with a judged candidate in a corner. A run has one ranking for each, of
    the query ``{paper_id}`` or ``{paper_id}_{anything}``; of it the judged candidates count. A paper that is
    missing scores 0, and there is a warning, as there is of queries without judgements. Measures are those of
    DEFINITIONS, means over the query papers.

    Raises FileFormatError where no candidate is in a corner, where the run has none of the papers, and where
    it has two rankings of one.

    >>> from qbe.types import Hit
    >>> rows = {"a": dict.fromkeys(Facet, 2.0), "b": {Facet.BACKGROUND: 2.0, Facet.METHOD: 0.0}}
    >>> evaluation = diversity_protocol({"p": rows}, {"p": (Hit("a", 2.0), Hit("b", 1.0))})
    >>> evaluation.figures["corners@10"], evaluation.figures["background spread"]
    ({'all': 1.0}, {'all': 0.0})
    """
    corners = {
        paper: {name: {shape for shape in SHAPES if is_as_asked(row, shape)} for name, row in rows.items()}
        for paper, rows in grades.items()
    }
    papers = [paper for paper, rows in corners.items() if any(rows.values())]
    if not papers:
        raise FileFormatError(
            "expected papers as one of the shapes of exploration asks, found none; give judgements of "
            "background and method of the same papers"
        )
    ranked, others = _ranked(grades, rankings)
    missing = [paper for paper in papers if paper not in ranked]
    if len(missing) == len(papers):
        raise FileFormatError(
            f"expected rankings of the graded papers, of queries such as {papers[0]}, found "
            f"{next(iter(rankings), 'no query')}; give grades and run of the same papers"
        )
    values = {
        paper: _values(grades[paper], corners[paper], ranked.get(paper, [])[:CUTOFF]) for paper in papers
    }
    per_query = {name: {paper: values[paper][name] for paper in papers} for name in DEFINITIONS}
    warnings = [f"{len(missing)} of {len(papers)} papers missing ({missing[0]}, ...)"] if missing else []
    if others:
        warnings.append(f"queries without judgements left out: {len(others)} ({others[0]}, ...)")
    figures: dict[str, dict[str, float | None]] = {
        name: {ALL: fmean(by_paper.values())} for name, by_paper in per_query.items()
    }
    return Evaluation({ALL: tuple(papers)}, per_query, figures, tuple(warnings))


def _ranked(grades: FacetGrades, rankings: Rankings) -> tuple[dict[str, list[str]], list[str]]:
    """The judged candidates of each query paper that has a ranking, best first; queries of other papers."""
    ranked: dict[str, list[str]] = {}
    others = []
    for query_id, scores in scores_of(rankings).items():
        paper = query_id if query_id in grades else split_query_id(query_id)[0]
        paper = paper if paper in grades else query_id.rpartition("_")[0]
        if paper not in grades:
            others.append(query_id)
            continue
        if paper in ranked:
            raise FileFormatError(
                f"expected one ranking of paper {paper}, found {query_id} too; put them in runs of their own"
            )
        ranked[paper] = [name for name in trec_order(scores) if name in grades[paper]]
    return ranked, others


def _values(
    rows: Mapping[str, Mapping[Facet, float]], corners: Mapping[str, set[str]], hits: Sequence[str]
) -> dict[str, float]:
    """The measures of one query paper, whose first judged hits are these."""
    found = [corners[hit] for hit in hits]
    gains = {name: fmean(row.get(facet, 0.0) for facet in Facet) for name, row in rows.items()}
    pairs = list(combinations(hits, 2))
    return {
        ALPHA_NDCG: alpha_ndcg(found, list(corners.values())),
        f"corners@{CUTOFF}": len(set().union(*found)) / len(set().union(*corners.values())),
        f"P@{CUTOFF}": sum(map(bool, found)) / CUTOFF,
        f"nDCG@{CUTOFF}": ndcg([gains[hit] for hit in hits], gains.values()),
        **{
            f"{facet} spread": fmean(
                abs(rows[one].get(facet, 0.0) - rows[other].get(facet, 0.0)) for one, other in pairs
            )
            if pairs
            else 0.0
            for facet in Facet
        },
    }

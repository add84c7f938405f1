"""Comparison of two runs query by query: gains, losses, and papers at wrong ranks.

All values are NDCG%20 under the CSFCube protocol, where every query has a judged pool.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from qbe.errors import UsageError
from qbe.evaluate.evaluation import Evaluation
from qbe.evaluate.inputs import read_runs
from qbe.evaluate.measures import NDCG_PERCENT, discount, ndcg_cutoff, pool_of, trec_order
from qbe.evaluate.report import Report
from qbe.query import split_query_id
from qbe.runs import read_qrels
from qbe.types import Facet
from qbe.util.files import StrPath

MEASURE = NDCG_PERCENT

OVERRANKED = 3
"""The number of overranked papers of a query that are listed."""


class RunComparison(NamedTuple):
    """A system of a report and its baseline."""

    system: str
    baseline: str
    evaluation: Evaluation
    baseline_evaluation: Evaluation

    def differences(self) -> dict[Facet, list[tuple[str, float]]]:
        """Return query ids and differences in NDCG%20 by facet, in descending order, ties by query id."""
        values, others = (each.per_query[MEASURE] for each in (self.evaluation, self.baseline_evaluation))
        by_facet = {
            facet: [(q, values[q] - others[q]) for q in ids if q in values and q in others]
            for facet in Facet
            if (ids := self.evaluation.queries.get(facet.value, ()))
        }
        return {
            facet: sorted(differences, key=lambda item: (-item[1], item[0]))
            for facet, differences in by_facet.items()
            if differences
        }


class RankedPaper(NamedTuple):
    """A judged paper and its rank in the pool, from 1; None where it was not retrieved."""

    paper_id: str
    grade: int
    rank: int | None


class Outcome(NamedTuple):
    """The result of one query: NDCG%20 of a run and of its baseline, in [0, 1], and the size of the pool."""

    query_id: str
    score: float
    baseline: float
    pool: int
    overranked: tuple[RankedPaper, ...]
    missed: RankedPaper | None

    @property
    def difference(self) -> float:
        return self.score - self.baseline


def compare_runs(report: Report) -> RunComparison:
    """Return the first run of a report and its baseline.

    Raises UsageError when the report has not exactly one baseline, the first run is the baseline, or no facet
    has a figure of both.
    """
    system = next(iter(report.evaluations))
    if len(report.baselines) != 1:
        names = ", ".join(report.baselines) or "none"
        raise UsageError(
            f"expected one baseline for a comparison by query, found {names}; give one with `baseline_files`"
        )
    (baseline,) = report.baselines
    if system == baseline:
        raise UsageError(
            f"expected a first run other than the baseline, found {system} as both; give another run first "
            "with `run_files`"
        )
    comparison = RunComparison(system, baseline, report.evaluations[system], report.evaluations[baseline])
    if not comparison.differences():
        raise UsageError(
            f"expected a facet with figures of both {system} and {baseline}, found none; give runs of the "
            "same facet"
        )
    return comparison


def outcomes(report: Report, comparison: RunComparison, qrels_files: Sequence[StrPath]) -> list[Outcome]:
    """Return the result of every query of the facets of a comparison, facet by facet."""
    qrels = read_qrels(*qrels_files)
    rankings = read_runs(report.files[comparison.system]).rankings
    scores = comparison.evaluation.per_query[MEASURE]
    baseline_scores = comparison.baseline_evaluation.per_query[MEASURE]
    results = []
    for differences in comparison.differences().values():
        for query_id, _ in differences:
            pool = pool_of(query_id, qrels[query_id])
            order = trec_order({hit.paper_id: hit.score for hit in rankings.get(query_id, ())})
            ranked = [paper_id for paper_id in order if paper_id in pool]
            results.append(
                Outcome(
                    query_id,
                    scores[query_id],
                    baseline_scores[query_id],
                    len(pool),
                    overranked(ranked, pool),
                    best_missed(ranked, pool),
                )
            )
    return results


def overranked(ranked: Sequence[str], pool: Mapping[str, int]) -> tuple[RankedPaper, ...]:
    """Return the papers at the ranks where most of NDCG%20 is lost, at most three, in rank order.

    The loss at a rank is the discounted gain of the ideal ranking there minus that of the run.
    """
    ideal = sorted(pool.values(), reverse=True)
    losses = []
    for rank, paper_id in enumerate(ranked[: ndcg_cutoff(len(pool))], start=1):
        loss = (max(ideal[rank - 1], 0) - max(pool[paper_id], 0)) / discount(rank)
        if loss > 0:
            losses.append((-loss, rank, paper_id))
    largest = sorted((rank, paper_id) for _, rank, paper_id in sorted(losses)[:OVERRANKED])
    return tuple(RankedPaper(paper_id, pool[paper_id], rank) for rank, paper_id in largest)


def best_missed(ranked: Sequence[str], pool: Mapping[str, int]) -> RankedPaper | None:
    """Return the paper of the highest grade that is ranked too low, the lowest of these; None without one.

    A paper is ranked too low when its rank exceeds the number of papers of its grade or a higher one.
    """
    ranks = {paper_id: rank for rank, paper_id in enumerate(ranked, start=1)}
    missed = [
        (-grade, -ranks.get(paper_id, math.inf), paper_id)
        for paper_id, grade in pool.items()
        if grade > 0 and ranks.get(paper_id, math.inf) > sum(other >= grade for other in pool.values())
    ]
    if not missed:
        return None
    _, _, paper_id = min(missed)
    return RankedPaper(paper_id, pool[paper_id], ranks.get(paper_id))


def worst_to_text(
    comparison: RunComparison, results: Sequence[Outcome], count: int, titles: Mapping[str, str]
) -> str:
    """Format the queries with the largest losses and those with the lowest scores, ``count`` of each."""
    by_score = sorted(results, key=lambda outcome: (outcome.score, outcome.query_id))
    by_difference = sorted(results, key=lambda outcome: (outcome.difference, outcome.query_id))
    losses = [outcome for outcome in by_difference if outcome.difference < 0][:count]
    lines = [f"Largest losses of {comparison.system} against {comparison.baseline}, {MEASURE} (per cent):"]
    lines += [line for outcome in losses for line in _outcome(outcome, titles)] or ["none"]
    lines += ["", f"Lowest scores of {comparison.system}, {MEASURE} (per cent):"]
    lines += [line for outcome in by_score[:count] for line in _outcome(outcome, titles)]
    return "\n".join(lines) + "\n"


def _outcome(outcome: Outcome, titles: Mapping[str, str]) -> list[str]:
    scores = f"{100 * outcome.score:.2f} against {100 * outcome.baseline:.2f}"
    title = titles.get(split_query_id(outcome.query_id)[0], "")
    lines = [f"{outcome.query_id}  {scores} ({100 * outcome.difference:+.2f})  {title}".rstrip()]
    lines += [f"  high    {_ranked(paper, outcome.pool, titles)}" for paper in outcome.overranked]
    if outcome.missed:
        lines.append(f"  missed  {_ranked(outcome.missed, outcome.pool, titles)}")
    return lines


def _ranked(paper: RankedPaper, pool: int, titles: Mapping[str, str]) -> str:
    rank = f"rank {paper.rank} of {pool}" if paper.rank else "not retrieved"
    return f"{rank}, grade {paper.grade}: {paper.paper_id}  {titles.get(paper.paper_id, '')}".rstrip()

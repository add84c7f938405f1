"""Query by query: where one run gains and loses against another, and which papers it places badly.

All values are NDCG%20 under the CSFCube protocol, since only there each query has a judged pool.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from qbe.errors import UsageError
from qbe.evaluate.csfcube import discount, ndcg_cutoff, pool_of, trec_order
from qbe.evaluate.inputs import read_qrels, read_runs
from qbe.evaluate.report import Report
from qbe.evaluate.results import Evaluation
from qbe.types import Facet

MEASURE = "NDCG%20"

WRONGLY_HIGH = 3
"""Papers shown of those that took a better one's place."""


class RunComparison(NamedTuple):
    """Two systems of a report, by name and with their evaluations: the one looked at, and its baseline."""

    system: str
    baseline: str
    ours: Evaluation
    theirs: Evaluation

    def differences(self) -> dict[Facet, list[tuple[str, float]]]:
        """Query ids and differences in NDCG%20 (ours minus theirs, in [-1, 1]) by facet, best first.

        Equal differences stand in the order of their query ids. A facet that either system did not run
        is left out.
        """
        ours, theirs = self.ours.per_query[MEASURE], self.theirs.per_query[MEASURE]
        found: dict[Facet, list[tuple[str, float]]] = {}
        for facet in Facet:
            ids = [q for q in self.ours.queries.get(facet.value, ()) if q in ours and q in theirs]
            if ids:
                pairs = [(query_id, ours[query_id] - theirs[query_id]) for query_id in ids]
                found[facet] = sorted(pairs, key=lambda pair: (-pair[1], pair[0]))
        return found


class Placed(NamedTuple):
    """A judged paper in a ranked pool. ``rank`` counts from 1; None when the run did not retrieve it."""

    paper_id: str
    grade: int
    rank: int | None


class Outcome(NamedTuple):
    """What became of one query.

    Attributes:
        query_id: the query.
        score: NDCG%20 of the run, in [0, 1].
        baseline: NDCG%20 of the baseline, in [0, 1].
        pool: number of judged papers, without the query paper.
        wrongly_high: see ``wrongly_high``.
        missed: see ``best_missed``.
    """

    query_id: str
    score: float
    baseline: float
    pool: int
    wrongly_high: tuple[Placed, ...]
    missed: Placed | None

    @property
    def difference(self) -> float:
        """Run minus baseline, in [-1, 1]."""
        return self.score - self.baseline


def facing(report: Report) -> RunComparison:
    """The first run of a report and its baseline.

    Raises UsageError when the report has not exactly one baseline, the first run is the baseline, or no
    facet was run by both.
    """
    system = next(iter(report.rows))
    if len(report.baselines) != 1:
        found = ", ".join(report.baselines) or "none"
        raise UsageError(f"expected one baseline to look at queries, found {found}; give one --baseline run")
    (baseline,) = report.baselines
    if system == baseline:
        raise UsageError(
            f"expected a run to look at before the baseline, found {system} as both; give another --run first"
        )
    pair = RunComparison(system, baseline, report.rows[system], report.rows[baseline])
    if not pair.differences():
        raise UsageError(
            f"expected a facet that {system} and {baseline} both ran, found none; give both for one facet"
        )
    return pair


def outcomes(report: Report, pair: RunComparison, qrels_files: Sequence[Path]) -> list[Outcome]:
    """Every query of the facets that both systems ran, facet by facet, from the files of the report.

    Raises FileFormatError when a file cannot be read any more.
    """
    qrels, rankings = read_qrels(qrels_files), read_runs(report.files[pair.system]).rankings
    ours, theirs = pair.ours.per_query[MEASURE], pair.theirs.per_query[MEASURE]
    found = []
    for of_facet in pair.differences().values():
        for query_id, _ in of_facet:
            pool = pool_of(query_id, qrels[query_id])
            order = trec_order({hit.paper_id: hit.score for hit in rankings.get(query_id, ())})
            ranked = [paper_id for paper_id in order if paper_id in pool]
            found.append(
                Outcome(
                    query_id,
                    ours[query_id],
                    theirs[query_id],
                    len(pool),
                    wrongly_high(ranked, pool),
                    best_missed(ranked, pool),
                )
            )
    return found


def wrongly_high(ranked: Sequence[str], pool: Mapping[str, int]) -> tuple[Placed, ...]:
    """The papers whose ranks cost most of NDCG%20, at most three, in rank order.

    A rank costs what the ideal ranking has there less what the run has, both discounted; summed over
    the ranks that NDCG%20 looks at this is all that the run lacks.

    Args:
        ranked: the retrieved papers of the pool, best first.
        pool: grades of all judged papers.
    """
    ideal = sorted(pool.values(), reverse=True)
    costs = []
    for rank, paper_id in enumerate(ranked[: ndcg_cutoff(len(pool))], start=1):
        cost = (max(ideal[rank - 1], 0) - max(pool[paper_id], 0)) / discount(rank)
        if cost > 0:
            costs.append((-cost, rank, paper_id))
    dearest = sorted((rank, paper_id) for _, rank, paper_id in sorted(costs)[:WRONGLY_HIGH])
    return tuple(Placed(paper_id, pool[paper_id], rank) for rank, paper_id in dearest)


def best_missed(ranked: Sequence[str], pool: Mapping[str, int]) -> Placed | None:
    """The paper of the highest grade that stands below its place, the one furthest down; None if none does.

    A paper is below its place when its rank exceeds the number of papers of its grade or a higher one:
    no ideal ranking has it there. Papers graded 0 cannot be missed. Arguments as in ``wrongly_high``.
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
    return Placed(paper_id, pool[paper_id], ranks.get(paper_id))


def largest_losses(found: Collection[Outcome], count: int) -> list[Outcome]:
    """At most ``count`` queries that lose against the baseline, the largest loss first."""
    losses = (outcome for outcome in found if outcome.difference < 0)
    return sorted(losses, key=lambda outcome: (outcome.difference, outcome.query_id))[:count]


def lowest_scores(found: Collection[Outcome], count: int) -> list[Outcome]:
    """At most ``count`` queries of the lowest score, the lowest first."""
    return sorted(found, key=lambda outcome: (outcome.score, outcome.query_id))[:count]

"""Comparison of two runs query by query, by NDCG%20 of CSFCube: gains, losses, and papers at wrong ranks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from qbe.errors import UsageError
from qbe.evaluate.measures import NDCG_PERCENT, discount, pool_of, trec_order
from qbe.evaluate.report import Report, read_runs
from qbe.query import split_query_id
from qbe.runs import read_qrels
from qbe.types import Facet
from qbe.util.files import StrPath

MEASURE = NDCG_PERCENT
OVERRANKED = 3  # papers of a query that are listed


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


def outcomes(report: Report, qrels_files: Sequence[StrPath]) -> list[Outcome]:
    """Return the result of each query of a facet that the first run and its one baseline have in common."""
    system = next(iter(report.evaluations))
    if len(report.baselines) != 1 or system in report.baselines:
        raise UsageError(
            "expected a first run and one baseline for a comparison by query, found the baselines "
            f"{', '.join(report.baselines) or 'none'} of {system}; give one with `baseline_files`"
        )
    qrels = read_qrels(*qrels_files)
    rankings = read_runs(report.files[system]).rankings
    scores, others = (report.evaluations[name].per_query[MEASURE] for name in (system, *report.baselines))
    queries = report.evaluations[system].queries
    results = []
    for query in (each for facet in Facet for each in queries.get(facet.value, ())):
        if query in scores and query in others:
            pool = pool_of(query, qrels[query])
            order = trec_order({hit.paper_id: hit.score for hit in rankings.get(query, ())})
            ranked = [paper_id for paper_id in order if paper_id in pool]
            high, missed = overranked(ranked, pool), best_missed(ranked, pool)
            results.append(Outcome(query, scores[query], others[query], len(pool), high, missed))
    return results


def overranked(ranked: Sequence[str], pool: Mapping[str, int]) -> tuple[RankedPaper, ...]:
    """Return the papers at the ranks where most of NDCG%20 is lost, at most three, in rank order."""
    ideal = sorted(pool.values(), reverse=True)
    losses = []
    for rank, paper_id in enumerate(ranked[: int(0.20 * len(pool))], start=1):
        loss = (max(ideal[rank - 1], 0) - max(pool[paper_id], 0)) / discount(rank)
        if loss > 0:
            losses.append((-loss, rank, paper_id))
    largest = sorted((rank, paper_id) for _, rank, paper_id in sorted(losses)[:OVERRANKED])
    return tuple(RankedPaper(paper_id, pool[paper_id], rank) for rank, paper_id in largest)


def best_missed(ranked: Sequence[str], pool: Mapping[str, int]) -> RankedPaper | None:
    """Find the best paper, the lowest of these, that is ranked below as many as have its grade or more."""
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


def worst_to_text(report: Report, results: Sequence[Outcome], count: int, titles: Mapping[str, str]) -> str:
    """Format the queries with the largest losses and those with the lowest scores, ``count`` of each."""
    system, (baseline,) = next(iter(report.evaluations)), report.baselines

    def text(query: Outcome) -> str:
        scores = f"{100 * query.score:.2f} against {100 * query.baseline:.2f}"
        title = titles.get(split_query_id(query.query_id)[0], "")
        gain = 100 * (query.score - query.baseline)
        lines = [f"{query.query_id}  {scores} ({gain:+.2f})  {title}".rstrip()]
        for kind, paper in (*(("high  ", each) for each in query.overranked), ("missed", query.missed)):
            if paper:
                rank = f"rank {paper.rank} of {query.pool}" if paper.rank else "not retrieved"
                title = titles.get(paper.paper_id, "")
                lines.append(f"  {kind}  {rank}, grade {paper.grade}: {paper.paper_id}  {title}".rstrip())
        return "\n".join(lines)

    by_score = sorted(results, key=lambda query: (query.score, query.query_id))
    by_loss = sorted(results, key=lambda query: (query.score - query.baseline, query.query_id))
    losses = [text(query) for query in by_loss if query.score < query.baseline][:count]
    return "\n".join(
        [
            f"Largest losses of {system} against {baseline}, {MEASURE} (per cent):",
            *(losses or ["none"]),
            f"\nLowest scores of {system}, {MEASURE} (per cent):",
            *map(text, by_score[:count]),
            "",
        ]
    )

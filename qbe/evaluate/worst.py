"""The queries with the worst results as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from qbe.evaluate.queries import MEASURE, Outcome, RankedPaper, RunComparison, largest_losses, lowest_scores
from qbe.evaluate.results import split_query_id


def worst_to_text(
    comparison: RunComparison, results: Sequence[Outcome], count: int, titles: Mapping[str, str]
) -> str:
    """Format the queries with the largest losses and those with the lowest scores, ``count`` of each.

    Each has both scores in per cent, the title of the query paper, the overranked papers and the best
    missed one. ``titles`` are by paper id; a paper without a title is given by its id only.

    >>> comparison = RunComparison("fused", "bm25", None, None)
    >>> outcome = Outcome("1_method", 0.5, 0.75, 20, (RankedPaper("a", 0, 1),), RankedPaper("b", 3, 9))
    >>> print(worst_to_text(comparison, [outcome], 1, {"1": "On stone", "a": "On sand"}))
    Largest losses of fused against bm25, NDCG%20 (per cent):
    1_method  50.00 against 75.00 (-25.00)  On stone
      high    rank 1 of 20, grade 0: a  On sand
      missed  rank 9 of 20, grade 3: b
    <BLANKLINE>
    Lowest scores of fused, NDCG%20 (per cent):
    1_method  50.00 against 75.00 (-25.00)  On stone
      high    rank 1 of 20, grade 0: a  On sand
      missed  rank 9 of 20, grade 3: b
    """
    losses, lowest = largest_losses(results, count), lowest_scores(results, count)
    lines = [f"Largest losses of {comparison.system} against {comparison.baseline}, {MEASURE} (per cent):"]
    lines += [line for outcome in losses for line in _outcome(outcome, titles)] or ["none"]
    lines += ["", f"Lowest scores of {comparison.system}, {MEASURE} (per cent):"]
    lines += [line for outcome in lowest for line in _outcome(outcome, titles)]
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

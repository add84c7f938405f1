"""A report's worst queries as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from qbe.evaluate.queries import MEASURE, Outcome, Placed, RunComparison, largest_losses, lowest_scores
from qbe.evaluate.results import split_query_id


def worst_to_text(
    pair: RunComparison, found: Sequence[Outcome], count: int, titles: Mapping[str, str]
) -> str:
    """The queries with the largest loss, then those with the lowest score, ``count`` of each.

    Each with both scores in per cent, the query paper's title, the papers that stand wrongly high and
    the best missed one. ``titles`` are by paper id; a paper without one goes by its id alone.
    """
    losses, lowest = largest_losses(found, count), lowest_scores(found, count)
    lines = [f"Largest losses of {pair.system} against {pair.baseline}, {MEASURE} (per cent):"]
    lines += [line for outcome in losses for line in _outcome(outcome, titles)] or ["none"]
    lines += ["", f"Lowest scores of {pair.system}, {MEASURE} (per cent):"]
    lines += [line for outcome in lowest for line in _outcome(outcome, titles)]
    return "\n".join(lines) + "\n"


def _outcome(outcome: Outcome, titles: Mapping[str, str]) -> list[str]:
    scores = f"{100 * outcome.score:.2f} against {100 * outcome.baseline:.2f}"
    title = titles.get(split_query_id(outcome.query_id)[0], "")
    lines = [f"{outcome.query_id}  {scores} ({100 * outcome.difference:+.2f})  {title}".rstrip()]
    lines += [f"  high    {_placed(placed, outcome.pool, titles)}" for placed in outcome.wrongly_high]
    if outcome.missed:
        lines.append(f"  missed  {_placed(outcome.missed, outcome.pool, titles)}")
    return lines


def _placed(placed: Placed, pool: int, titles: Mapping[str, str]) -> str:
    rank = f"rank {placed.rank} of {pool}" if placed.rank else "not retrieved"
    return f"{rank}, grade {placed.grade}: {placed.paper_id}  {titles.get(placed.paper_id, '')}".rstrip()

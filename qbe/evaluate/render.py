"""A report as tables for people and as JSON for programs; its worst queries as text."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from qbe.evaluate.csfcube import MEASURES
from qbe.evaluate.measures import definition
from qbe.evaluate.published import papers
from qbe.evaluate.queries import MEASURE, Facing, Outcome, Placed, largest_losses, lowest_scores
from qbe.evaluate.report import Report
from qbe.evaluate.results import Evaluation, ProtocolResult, split_query_id

_UNKNOWN = "-"
_WRAP = textwrap.TextWrapper(100, subsequent_indent="    ", break_on_hyphens=False, break_long_words=False)


def to_text(report: Report) -> str:
    """Tables, one a measure: a row a system, its figure for each facet and for the whole.

    The protocol's measures are given in per cent, as the papers print them, others as ir-measures has
    them. Then come the comparisons, and the sources of the published rows.
    """
    first = next(iter(report.rows.values()))
    counts = ", ".join(f"{scope} {len(ids)}" for scope, ids in first.queries.items())
    how = f"CSFCube protocol, {report.split} folds" if report.protocol else "means over queries"
    parts = [f"{how}; queries: {counts}\n"]
    parts += [_measure_table(report, measure) for measure in first.figures]
    if report.comparisons:
        parts.append(_comparison_table(report))
    if report.published:
        parts.append(_sources(report))
    return "\n".join(parts)


def _measure_table(report: Report, measure: str) -> str:
    in_per_cent = measure in MEASURES
    scopes = list(next(iter(report.rows.values())).queries)
    rows: list[list[str]] = [[f"{measure} (per cent)" if in_per_cent else measure, *scopes]]
    for name, evaluation in report.rows.items():
        figures = evaluation.figures[measure]
        rows.append([name, *(_figure(figures[scope], in_per_cent) for scope in scopes)])
    known = papers()
    for published in report.published:
        given = [published.figures.get(measure, {}).get(scope) for scope in scopes]
        if any(figure is not None for figure in given):
            label = f"{published.system} [{known[published.paper].short}]"
            rows.append([label, *(_figure(figure, in_per_cent) for figure in given)])
    return _align(rows, left=1)


def _comparison_table(report: Report) -> str:
    header = ["system", "against", "measure", "queries of", "n", "difference"]
    header += ["p (randomization)", "Holm", "p (t-test)", "Holm"]
    rows = [header]
    for c in report.comparisons:
        p_values = (c.randomization_p, c.randomization_p_holm, c.t_test_p, c.t_test_p_holm)
        difference = f"{100 * c.difference:+.2f}" if c.measure in MEASURES else f"{c.difference:+.4f}"
        rows.append(
            [c.system, c.baseline, c.measure, c.scope, str(c.queries), difference]
            + [f"{p:.4f}" if p >= 0.0001 else "<0.0001" for p in p_values]
        )
    note = (
        "Paired two-sided tests over queries; Holm's correction over all comparisons of a measure. "
        "Difference: mean over queries.\n"
    )
    return _align(rows, left=4) + note


def _sources(report: Report) -> str:
    known = papers()
    lines = ["Published figures:"]
    lines += [f"{row.system} [{known[row.paper].short}]: {row.source}" for row in report.published]
    for paper in known.values():
        reason = f" (no rows: {paper.no_rows})" if paper.no_rows else ""
        lines.append(f"[{paper.short}] {paper.citation} {paper.url}{reason}")
    return "\n".join(_WRAP.fill(line) for line in lines) + "\n"


def _figure(value: float | None, in_per_cent: bool) -> str:
    if value is None:
        return _UNKNOWN
    return f"{100 * value:.2f}" if in_per_cent else f"{value:.4f}"


def _align(rows: Sequence[Sequence[str]], left: int) -> str:
    """Rows as lines with aligned columns: the first ``left`` to the left, the others to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = (
        "  ".join(
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )
    return "\n".join(lines) + "\n"


def worst_to_text(pair: Facing, found: Sequence[Outcome], count: int, titles: Mapping[str, str]) -> str:
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
    return f"{rank}, grade {placed.grade}: {placed.docid}  {titles.get(placed.docid, '')}".rstrip()


def to_json(report: Report) -> dict[str, Any]:
    """The report as plain values for ``json.dump``; all figures are fractions, None where unknown.

    Keys: ``protocol``, ``split`` (None without a protocol), ``queries`` (ids by scope), ``measures``
    (name -> definition), ``rows`` (run, files, figures, fold_figures under a protocol, per_query,
    warnings), ``comparisons``, ``published`` (papers, rows).
    """
    first = next(iter(report.rows.values()))
    return {
        "protocol": report.protocol,
        "split": report.split if report.protocol else None,
        "queries": first.queries,
        "measures": {measure: definition(measure) for measure in first.figures},
        "rows": [
            {"run": name, "files": [str(path) for path in report.files[name]], **_row(evaluation)}
            for name, evaluation in report.rows.items()
        ],
        "comparisons": _plain(report.comparisons),
        "published": {
            "papers": {key: dataclasses.asdict(paper) for key, paper in papers().items()},
            "rows": _plain(report.published),
        }
        if report.published
        else None,
    }


def _row(evaluation: Evaluation) -> dict[str, Any]:
    row: dict[str, Any] = {"figures": evaluation.figures}
    if isinstance(evaluation, ProtocolResult):
        row["fold_figures"] = evaluation.fold_figures
    return {**row, "per_query": evaluation.per_query, "warnings": evaluation.warnings}


def _plain(items: Iterable[Any]) -> list[dict[str, Any]]:
    return [dataclasses.asdict(item) for item in items]

"""A report as tables and as JSON."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Sequence
from typing import Any

from qbe.evaluate.csfcube import CSFCUBE
from qbe.evaluate.evaluation import ALL, Evaluation
from qbe.evaluate.exploration import EXPLORATION, NDCG
from qbe.evaluate.measures import definition
from qbe.evaluate.published import papers
from qbe.evaluate.report import IN_PER_CENT, Report

_UNKNOWN = "-"

_WRAP = textwrap.TextWrapper(100, subsequent_indent="    ", break_on_hyphens=False, break_long_words=False)


def to_text(report: Report) -> str:
    """Format a report as tables: one a measure, with a row for each system and a column for each scope.

    Without facets it is one table with a column for each measure; under exploration scopes are rows. Measures
    of a protocol are given in per cent, others as ir-measures computes them.
    """
    first = next(iter(report.evaluations.values()))
    title = report.scoring.described.title.format(split=report.scoring.split)
    comparisons = [_comparison_table(report), _robustness_table(report)] if report.comparisons else []
    if report.scoring.protocol == EXPLORATION:
        parts = [f"{title}\n"]
        parts += [_exploration_table(report, first, measure) for measure in first.figures]
        return "\n".join(parts + comparisons)
    pairs = {scope: f" ({n:,} pair{'s'[: n != 1]})" for scope, n in first.pairs.items()}
    counts = ", ".join(f"{scope} {len(ids)}{pairs.get(scope, '')}" for scope, ids in first.queries.items())
    parts = [f"{title}; queries: {counts}\n"]
    if set(first.queries) == {ALL}:
        columns = [(measure, ALL) for measure in first.figures]
        parts.append(_table(report, ["run", *map(_heading, first.figures)], columns))
    else:
        for measure in first.figures:
            columns = [(measure, scope) for scope in first.queries]
            parts.append(_table(report, [_heading(measure), *first.queries], columns))
    parts += comparisons
    if report.published:
        parts.append(_sources(report))
    return "\n".join(parts)


def _heading(measure: str) -> str:
    return f"{measure} (per cent)" if measure in IN_PER_CENT else measure


def _table(report: Report, header: list[str], columns: Sequence[tuple[str, str]]) -> str:
    """Format figures: a row for each run and published system, a column for a measure and a scope."""
    rows = [[header[0], "collection", *header[1:]]]
    for name, evaluation in report.evaluations.items():
        figures = [(evaluation.figures[measure][scope], measure in IN_PER_CENT) for measure, scope in columns]
        rows.append([name, "these qrels", *(_figure(figure, in_per_cent) for figure, in_per_cent in figures)])
    publications = papers(report.scoring.protocol) if report.published else {}
    for published in report.published:
        figures = [
            (published.figures.get(measure, {}).get(scope), measure in IN_PER_CENT)
            for measure, scope in columns
        ]
        if any(figure is not None for figure, _ in figures):
            label = f"{published.system} [{publications[published.paper].short}]"
            rows.append(
                [label, published.collection, *(_figure(*figure, printed=True) for figure in figures)]
            )
    if any(published.collection for published in report.published):
        return _align(rows, left=2)
    return _align([[name, *cells] for name, _, *cells in rows], left=1)


def _exploration_table(report: Report, first: Evaluation, measure: str) -> str:
    """The figures of a measure: a row for each scope and its number of queries, a column for each run."""
    queries = first.queries if measure == NDCG else first.with_relevant
    rows = [[measure, "queries", *report.evaluations]]
    for scope, ids in queries.items():
        figures = [evaluation.figures[measure][scope] for evaluation in report.evaluations.values()]
        rows.append([scope, str(len(ids)), *(_figure(figure, False) for figure in figures)])
    return _align(rows, left=1)


def _comparison_table(report: Report) -> str:
    header = ["system", "against", "measure", "queries of", "n", "difference"]
    header += ["p (randomization)", "Holm", "p (t-test)", "Holm"]
    rows = [header]
    for c in report.comparisons:
        p_values = (c.randomization_p, c.randomization_p_holm, c.t_test_p, c.t_test_p_holm)
        rows.append(
            [c.system, c.baseline, c.measure, c.scope, str(c.queries), _difference(c.measure, c.difference)]
            + [f"{p:.4f}" if p >= 0.0001 else "<0.0001" for p in p_values]
        )
    note = (
        "Paired two-sided tests over queries; Holm's correction over all comparisons of a measure. "
        "Difference: mean over queries.\n"
    )
    return _align(rows, left=4) + note


def _robustness_table(report: Report) -> str:
    header = ["system", "against", "measure", "queries of", "difference", "95 % interval"]
    rows = [[*header, "won", "tied", "lost", "without", "the query"]]
    for c in report.comparisons:
        low, high, mean = (_difference(c.measure, value) for value in (*c.interval, c.difference))
        without = _UNKNOWN if c.without_influential is None else _difference(c.measure, c.without_influential)
        counts = map(str, (c.wins, c.ties, c.losses))
        differences = (mean, f"{low} to {high}", *counts, without, c.influential or _UNKNOWN)
        rows.append([c.system, c.baseline, c.measure, c.scope, *differences])
    note = (
        "Interval: percentiles of the mean over queries drawn with replacement. Without: the difference over "
        "all queries but the one that\nchanges it most.\n"
    )
    return _align(rows, left=4) + note


def _difference(measure: str, value: float) -> str:
    return f"{100 * value:+.2f}" if measure in IN_PER_CENT else f"{value:+.4f}"


def _sources(report: Report) -> str:
    publications = papers(report.scoring.protocol)
    of_csfcube = report.scoring.protocol == CSFCUBE
    lines = [f"Published figures{', on CSFCube' if of_csfcube else ''}:"]
    if any(row.collection for row in report.published):
        lines = [
            "Published figures, of other collections than these qrels: differences between systems can be "
            "compared, levels cannot."
        ]
    systems: dict[tuple[str, str], dict[str, None]] = {}
    for row in report.published:
        systems.setdefault((publications[row.paper].short, row.source), {})[row.system] = None
    for (short, source), names in systems.items():
        lines.append(f"[{short}] {source}: {', '.join(names)}")
    for paper in publications.values():
        reason = f" (no rows: {paper.no_rows})" if paper.no_rows else ""
        lines.append(f"[{paper.short}] {paper.citation} {paper.url}{reason}")
    return "\n".join(_WRAP.fill(line) for line in lines) + "\n"


def _figure(value: float | None, in_per_cent: bool, printed: bool = False) -> str:
    """A figure as text. One that was ``printed`` as a fraction has three digits, and is aligned with four."""
    if value is None:
        return _UNKNOWN
    if in_per_cent:
        return f"{100 * value:.2f}"
    return f"{value:.3f} " if printed else f"{value:.4f}"


def _align(rows: Sequence[Sequence[str]], left: int) -> str:
    """Format rows with aligned columns: the first ``left`` columns to the left, the others to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = (
        "  ".join(
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )
    return "\n".join(lines) + "\n"


def to_json(report: Report) -> dict[str, Any]:
    """Convert a report to plain values for ``json.dump``; figures are fractions, None where there is none.

    Keys: ``protocol``, ``split``, ``queries`` (ids by scope), ``measures`` (name -> definition), ``rows``,
    ``comparisons``, ``published``.
    """
    first, described = next(iter(report.evaluations.values())), report.scoring.described
    return {
        "protocol": report.scoring.protocol,
        "split": report.scoring.split if report.scoring.protocol == CSFCUBE else None,
        "queries": first.queries,
        "measures": {
            measure: described.definitions.get(measure) or definition(described.names.get(measure, measure))
            for measure in first.figures
        },
        "rows": [
            {"run": name, "files": [str(path) for path in report.files[name]], **_row(evaluation)}
            for name, evaluation in report.evaluations.items()
        ],
        "comparisons": [dataclasses.asdict(each) for each in report.comparisons],
        "published": {
            "papers": {
                key: dataclasses.asdict(paper) for key, paper in papers(report.scoring.protocol).items()
            },
            "rows": [dataclasses.asdict(each) for each in report.published],
        }
        if report.published
        else None,
    }


def _row(evaluation: Evaluation) -> dict[str, Any]:
    row: dict[str, Any] = {"figures": evaluation.figures}
    if evaluation.fold_figures:
        row["fold_figures"] = evaluation.fold_figures
    if evaluation.pairs:
        row["pairs"] = evaluation.pairs
    return {**row, "per_query": evaluation.per_query, "warnings": evaluation.warnings}

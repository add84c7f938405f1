"""A report as tables, as JSON, and as a plot: a panel a measure, the runs in their order, a line a scope."""

import dataclasses
import textwrap
from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from qbe.errors import UsageError, check_package
from qbe.evaluate.evaluation import ALL, Evaluation
from qbe.evaluate.facets import EXPLORATION, NDCG
from qbe.evaluate.measures import MAP, NDCG_PERCENT, definition
from qbe.evaluate.protocols import AGGREGATED, CSFCUBE
from qbe.evaluate.report import IN_PER_CENT, Published, PublishedRow, Report
from qbe.evaluate.significance import Comparison, figure_interval
from qbe.query import split_query_id
from qbe.util.files import StrPath, atomic_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_UNKNOWN = "-"
_ELSEWHERE = (
    "Published figures, of other collections than these qrels: differences between systems can be compared, "
    "levels cannot."
)


def to_text(report: Report, *, details: bool = False) -> str:
    """Format a report as tables with a row for each system, and a line for each difference.

    A column is a scope, under exploration a row; without facets a column is a measure. By CSFCube's protocol
    there is one table of NDCG%20 and MAP, with the best published system of each paper. ``details`` has a
    table for each measure, all published systems, and all significance tests.
    """
    first = next(iter(report.evaluations.values()))
    title = report.scoring.described.title.format(split=report.scoring.split)
    headings = {name: f"{name} (per cent)" if name in IN_PER_CENT else name for name in first.figures}
    if report.scoring.protocol == EXPLORATION:
        parts = [f"{title}\n"]
        for measure in first.figures:
            rows = [[measure, "queries", *report.evaluations]]
            for scope, ids in (first.queries if measure == NDCG else first.with_relevant).items():
                figures = [evaluation.figures[measure][scope] for evaluation in report.evaluations.values()]
                rows.append([scope, str(len(ids)), *(_figure(measure, figure) for figure in figures)])
            parts.append(_align(rows, left=1))
    else:
        pairs = {scope: f" ({n:,} pair{'s'[: n != 1]})" for scope, n in first.pairs.items()}
        counts = ", ".join(f"{name} {len(ids)}{pairs.get(name, '')}" for name, ids in first.queries.items())
        parts = [f"{title}; queries: {counts}\n"]
        measures, scopes = list(first.figures), list(first.queries)
        if scopes == [ALL]:
            parts.append(_table(report, ["run", *headings.values()], [((each,), ALL) for each in measures]))
        elif len(measures) > 1 and NDCG_PERCENT in measures and not details:
            both = (NDCG_PERCENT, MAP)
            heading = f"{' / '.join(both)} (per cent)"
            parts.append(_table(report, [heading, *scopes], [(both, scope) for scope in scopes]))
        else:
            for each, heading in headings.items():
                parts.append(_table(report, [heading, *scopes], [((each,), scope) for scope in scopes]))
    if report.comparisons:
        parts += _comparisons(report) if details else [_differences(report)]
    if details and set(first.queries) == {ALL}:
        parts.append(_intervals(report))
    if report.published and (details or report.scoring.protocol != CSFCUBE):
        parts.append(_sources(report, report.published))
    elif report.published and _are_elsewhere(report, report.published):
        parts.append(f"{_ELSEWHERE}\n")
    return "\n".join(parts)


def _table(report: Report, header: Sequence[str], columns: Sequence[tuple[Sequence[str], str]]) -> str:
    """Format figures: a row for each run and published system, a column for measures in a scope."""
    is_brief = len(columns[0][0]) > 1  # of each publication the row with the best figures is there
    papers, published = report.published or ({}, ())
    if is_brief:
        best: dict[str, PublishedRow] = {}
        for row in published:
            best[row.paper] = max(best.get(row.paper, row), row, key=_height)
        published = list(best.values())

    def cells(figures: Mapping[str, Mapping[str, Any]], *, printed: bool) -> list[str]:
        made = []
        for measures, scope in columns:
            shown = [_figure(name, figures.get(name, {}).get(scope), printed) for name in measures]
            made.append("" if is_brief and set(shown) == {_UNKNOWN} else " / ".join(shown))
        return made

    rows = [[header[0], "collection", *header[1:]]]
    for name, evaluation in report.evaluations.items():
        rows.append([name, "these qrels", *cells(evaluation.figures, printed=False)])
    for row in published:
        figures = cells(row.figures, printed=True)
        if set(figures) != {_UNKNOWN}:
            rows.append([f"{row.system} [{papers[row.paper].short}]", row.collection, *figures])
    if any(row.collection for row in published):
        return _align(rows, left=2)
    return _align([[name, *others] for name, _, *others in rows], left=1)


def _height(row: PublishedRow) -> tuple[float, float]:
    """The NDCG%20 of a published row over all facets, and the mean of the facets that it has."""
    figures = row.figures.get(NDCG_PERCENT, {})
    return figures.get(AGGREGATED, 0.0), fmean(figures.values()) if figures else 0.0


def _differences(report: Report) -> str:
    """Say for each comparison over all queries, by the first measure, how far which system is ahead."""
    first = report.comparisons[0]
    scopes = list(dict.fromkeys(c.scope for c in report.comparisons))
    lines = []
    for c in report.comparisons:
        if c.measure != first.measure or c.scope != scopes[-1]:
            continue
        mean, low, high, without = _signed(c)
        line = f"{c.system}: {mean} {c.measure} against {c.baseline}, mean over {c.queries} queries"
        line += f", of which {c.wins + c.losses or 'none'} differ (95 % interval {low} to {high}, "
        line += f"Holm p {_p(c.randomization_p_holm)}"
        if c.without_influential is not None:
            line += f"; {without} without {c.influential}"
        lines.append(f"{line})\n")
    return "".join(lines)


def _comparisons(report: Report) -> list[str]:
    """Format the tests of all comparisons, and how much of the differences rests on few queries."""
    names = ["system", "against", "measure", "queries of"]
    tests = [[*names, "n", "difference", "p (randomization)", "Holm", "p (t-test)", "Holm"]]
    robust = [[*names, "difference", "95 % interval", "won", "tied", "lost", "without", "the query"]]
    for c in report.comparisons:
        mean, low, high, without = _signed(c)
        p_values = (c.randomization_p, c.randomization_p_holm, c.t_test_p, c.t_test_p_holm)
        compared, counts = [c.system, c.baseline, c.measure, c.scope], map(str, (c.wins, c.ties, c.losses))
        tests.append([*compared, str(c.queries), mean, *map(_p, p_values)])
        robust.append([*compared, mean, f"{low} to {high}", *counts, without, c.influential or _UNKNOWN])
    return [
        _align(tests, left=4)
        + "Paired two-sided tests over queries; Holm's correction over all comparisons of a measure. "
        "Difference: mean over queries.\n",
        _align(robust, left=4)
        + "Interval: percentiles of the mean over queries drawn with replacement. Without: the difference "
        "over all queries but the one that\nchanges it most.\n",
    ]


def _intervals(report: Report) -> str:
    """Format the interval of each figure that is a mean over queries or their like."""
    rows = [["run", "measure", "figure", "95 % interval"]]
    for name, evaluation in report.evaluations.items():
        for measure in evaluation.per_query:
            low, high = figure_interval(evaluation, measure, ALL)
            shown = [_figure(measure, value) for value in (evaluation.figures[measure][ALL], low, high)]
            rows.append([name, measure, shown[0], f"{shown[1]} to {shown[2]}"])
    return _align(rows, left=2)


def _signed(c: Comparison) -> list[str]:
    values = (c.difference, *c.interval, c.without_influential)
    return [_figure(c.measure, value, sign="+") for value in values]


def _p(value: float) -> str:
    return f"{value:.4f}" if value >= 0.0001 else "<0.0001"


def _are_elsewhere(report: Report, published: Published) -> bool:
    """Whether published figures are of other qrels, as where papers lack CSFCube's ids, which are numbers."""
    queries = (query for ids in next(iter(report.evaluations.values())).queries.values() for query in ids)
    others = report.scoring.protocol == CSFCUBE and not all(q.partition("_")[0].isdecimal() for q in queries)
    return others or any(row.collection for row in published.rows)


def _sources(report: Report, published: Published) -> str:
    place = ", on CSFCube" if report.scoring.protocol == CSFCUBE else ""
    lines = [_ELSEWHERE if _are_elsewhere(report, published) else f"Published figures{place}:"]
    systems: dict[tuple[str, str], dict[str, None]] = {}
    for row in published.rows:
        systems.setdefault((published.papers[row.paper].short, row.source), {})[row.system] = None
    lines += [f"[{short}] {source}: {', '.join(names)}" for (short, source), names in systems.items()]
    for paper in published.papers.values():
        reason = f" (no rows: {paper.no_rows})" if paper.no_rows else ""
        lines.append(f"[{paper.short}] {paper.citation} {paper.url}{reason}")
    wrap = textwrap.TextWrapper(100, subsequent_indent="    ", break_on_hyphens=False, break_long_words=False)
    return "\n".join(map(wrap.fill, lines)) + "\n"


def _figure(measure: str, value: float | None, printed: bool = False, sign: str = "") -> str:
    """Format a figure. One that was ``printed`` as a fraction has three digits, and is aligned with four."""
    if value is None:
        return _UNKNOWN
    if measure in IN_PER_CENT:
        return f"{100 * value:{sign}.2f}"
    return f"{value:.3f} " if printed else f"{value:{sign}.4f}"


def _align(rows: Sequence[Sequence[str]], left: int) -> str:
    """Format rows with aligned columns: the first ``left`` columns to the left, the others to the right."""
    sides = ["<" if column < left else ">" for column in range(len(rows[0]))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    form = "  ".join(f"{{:{side}{width}}}" for side, width in zip(sides, widths, strict=True))
    return "".join(form.format(*row).rstrip() + "\n" for row in rows)


def to_json(report: Report) -> dict[str, Any]:
    """Convert a report to plain values for ``json.dump``; figures are fractions, None where there is none."""
    first, described = next(iter(report.evaluations.values())), report.scoring.described
    protocol = report.scoring.protocol
    rows = []
    for name, evaluation in report.evaluations.items():
        extra = {"fold_figures": evaluation.fold_figures, "pairs": evaluation.pairs}
        row = {"run": name, "files": [*map(str, report.files[name])], "figures": evaluation.figures}
        row |= {key: value for key, value in extra.items() if value}
        rows.append(row | {"per_query": evaluation.per_query, "warnings": evaluation.warnings})
    published = None
    if report.published:
        published = {
            "papers": {key: paper._asdict() for key, paper in report.published.papers.items()},
            "rows": [row._asdict() for row in report.published.rows],
        }
    return {
        "protocol": protocol,
        "split": report.scoring.split if protocol == CSFCUBE else None,
        "queries": first.queries,
        "measures": {each: described.definitions.get(each) or definition(each) for each in first.figures},
        "rows": rows,
        "comparisons": [dataclasses.asdict(comparison) for comparison in report.comparisons],
        "published": published,
    }


# Of the scopes; for readers who cannot distinguish red from green, too (Okabe and Ito, 2008).
COLOURS = ("#333333", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
COLUMNS = 3
_STYLE: Mapping[Any, Any] = {
    "font.size": 8,
    "text.parse_math": False,  # runs may be named with dollar signs
    "axes.spines.top": False,
    "axes.spines.right": False,
    # Reproducible bytes: by default matplotlib chooses element ids at random. Text is written as text.
    "svg.hashsalt": "qbe",
    "svg.fonttype": "none",
}
_METADATA: Mapping[str, dict[str, Any]] = {
    "svg": {"Date": None, "Creator": "qbe plots"},
    "png": {"Software": "qbe plots"},
}


# By scope and run or paper: the lower end of an interval, the value, the upper end.
Points = dict[str, dict[str, tuple[float, float, float]]]


def check_plot(path: StrPath) -> None:
    """Raise UsageError unless the name ends in .svg or .png, MissingDependencyError without matplotlib."""
    path = Path(path)
    if path.suffix[1:].lower() not in _METADATA:
        raise UsageError(f"expected a plot file that ends in .svg or .png, found {path}; rename it")
    check_package("matplotlib")


def write_plot(path: StrPath, report: Report, *, by_paper: bool = False) -> None:
    """Draw a report, or its values `by_paper`, and write it atomically; equal reports give equal bytes."""
    check_plot(path)
    import matplotlib

    kind = Path(path).suffix[1:].lower()
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # independent of the user's settings
        matplotlib.rcParams.update(_STYLE)
        figure = figure_of(report, by_paper=by_paper)
        with atomic_file(Path(path)) as stream:
            figure.savefig(stream, format=kind, dpi=150, metadata=_METADATA[kind])


def points_of(report: Report, measure: str) -> Points:
    """Return the values of a measure by scope and run: figures, or differences to baselines."""
    points: Points = {}
    for c in (each for each in report.comparisons if each.measure == measure):
        run = c.system if len(report.baselines) == 1 else f"{c.system} against {c.baseline}"
        low, high = c.interval
        points.setdefault(c.scope, {})[run] = (low, c.difference, high)
    for run, evaluation in () if report.comparisons else report.evaluations.items():
        for scope, figure in evaluation.figures.get(measure, {}).items():
            if figure is not None:
                points.setdefault(scope, {})[run] = (figure,) * 3
    return points


def points_by_paper(evaluation: Evaluation, measure: str) -> Points:
    """Return the values of papers that are queries by several facets, by facet (CSFCube, Figure 3)."""
    papers: dict[str, dict[str, float]] = {}
    for query_id, value in evaluation.per_query[measure].items():
        paper, facet = split_query_id(query_id)
        if facet is not None:
            papers.setdefault(paper, {})[facet.value] = value
    points: Points = {}
    for paper in sorted(paper for paper, values in papers.items() if len(values) > 1):
        for name, value in papers[paper].items():
            points.setdefault(name, {})[paper] = (value,) * 3
    if not points:
        raise UsageError("expected papers that are queries by several facets as `by_paper`, found none")
    return points


def figure_of(report: Report, *, by_paper: bool = False) -> "Figure":
    """Draw `points_of` each measure that has any, or `points_by_paper` of each run, three panels to a row."""
    import numpy as np
    from matplotlib.figure import Figure

    measures = next(iter(report.evaluations.values())).figures
    panels = [("", measure, points) for measure in measures if (points := points_of(report, measure))]
    if by_paper:
        first = next(iter(measures))
        panels = [(f"{run}: ", first, points_by_paper(e, first)) for run, e in report.evaluations.items()]
    runs = list(dict.fromkeys(run for _, _, points in panels for line in points.values() for run in line))
    columns = min(COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    width = max(3.2, 0.5 * len(runs))
    figure = Figure(figsize=(width * columns, 3.2 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True)
    for axis in axes.flat[len(panels) :]:
        axis.set_axis_off()
    for axis, (of_run, measure, points) in zip(axes.flat, panels, strict=False):
        one, title = (100.0, f"{measure} (per cent)") if measure in IN_PER_CENT else (1.0, measure)
        for place, ((scope, line), colour) in enumerate(zip(points.items(), cycle(COLOURS), strict=False)):
            low, value, high = one * np.array([*line.values()]).T
            # so that no interval covers another
            shift = 0.1 * (place - (len(points) - 1) / 2) if any(low < high) else 0.0
            axis.errorbar(
                [runs.index(run) + shift for run in line],
                value,
                [value - low, high - value],
                marker="o",
                markersize=3,
                linewidth=0 if by_paper else 1,
                color=colour,
                label=scope,
            )
        axis.set_title(f"{of_run}{title}", fontsize=8)
        axis.set_xticks(range(len(runs)), runs, rotation=40, ha="right", rotation_mode="anchor")
        axis.tick_params(axis="x", labelbottom=True)
        axis.grid(axis="y", color="#dddddd", linewidth=0.6)
        if report.comparisons and not by_paper:
            axis.axhline(0, color=COLOURS[0], linewidth=0.8)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    if report.comparisons and not by_paper:
        figure.suptitle(f"difference to {', '.join(report.baselines)}, 95 % intervals", fontsize=9)
    return figure

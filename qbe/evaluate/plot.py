"""A report as a plot, SVG or PNG: a panel a measure, the runs in their order, a line a scope."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from qbe.errors import UsageError, check_package
from qbe.evaluate.evaluation import Evaluation
from qbe.evaluate.report import IN_PER_CENT, Report
from qbe.query import split_query_id
from qbe.util.files import StrPath, atomic_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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


class Point(NamedTuple):
    """A value of a run in the unit of the plot, with the ends of its interval."""

    run: str
    value: float
    low: float
    high: float


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


def points_of(report: Report, measure: str) -> dict[str, list[Point]]:
    """Return the values of a measure by scope and run: figures, or differences to baselines."""
    one = 100.0 if measure in IN_PER_CENT else 1.0
    points: dict[str, list[Point]] = {}
    for c in (each for each in report.comparisons if each.measure == measure):
        run = c.system if len(report.baselines) == 1 else f"{c.system} against {c.baseline}"
        values = (one * value for value in (c.difference, *c.interval))
        points.setdefault(c.scope, []).append(Point(run, *values))
    if report.comparisons:
        return points
    for run, evaluation in report.evaluations.items():
        for scope, figure in evaluation.figures.get(measure, {}).items():
            if figure is not None:
                points.setdefault(scope, []).append(Point(run, *[one * figure] * 3))
    return points


def points_by_paper(evaluation: Evaluation, measure: str) -> dict[str, list[Point]]:
    """Return the values of papers that are queries by several facets, by facet (CSFCube, Figure 3)."""
    one = 100.0 if measure in IN_PER_CENT else 1.0
    papers: dict[str, dict[str, float]] = {}
    for query_id, value in evaluation.per_query[measure].items():
        paper, facet = split_query_id(query_id)
        if facet is not None:
            papers.setdefault(paper, {})[facet.value] = one * value
    points: dict[str, list[Point]] = {}
    for paper in sorted(paper for paper, values in papers.items() if len(values) > 1):
        for facet_name, value in papers[paper].items():
            points.setdefault(facet_name, []).append(Point(paper, value, value, value))
    if not points:
        raise UsageError("expected papers that are queries by several facets as `by_paper`, found none")
    return points


def figure_of(report: Report, *, by_paper: bool = False) -> Figure:
    """Draw `points_of` each measure that has any, or `points_by_paper` of each run, three panels to a row."""
    from matplotlib.figure import Figure

    measures = next(iter(report.evaluations.values())).figures
    titles = {measure: f"{measure} (per cent)" if measure in IN_PER_CENT else measure for measure in measures}
    panels = {title: points for measure, title in titles.items() if (points := points_of(report, measure))}
    if by_paper:
        first, title = next(iter(titles.items()))
        panels = {f"{run}: {title}": points_by_paper(e, first) for run, e in report.evaluations.items()}
    runs = list(dict.fromkeys(p.run for points in panels.values() for line in points.values() for p in line))
    columns = min(COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    width = max(3.2, 0.5 * len(runs))
    figure = Figure(figsize=(width * columns, 3.2 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True)
    for axis in axes.flat[len(panels) :]:
        axis.set_axis_off()
    for axis, (title, points) in zip(axes.flat, panels.items(), strict=False):
        for place, ((scope, line), colour) in enumerate(zip(points.items(), cycle(COLOURS), strict=False)):
            has_intervals = any(point.low < point.high for point in line)
            # so that no interval covers another
            shift = 0.1 * (place - (len(points) - 1) / 2) if has_intervals else 0.0
            axis.errorbar(
                [runs.index(point.run) + shift for point in line],
                [point.value for point in line],
                [[point.value - point.low for point in line], [point.high - point.value for point in line]],
                marker="o",
                markersize=3,
                linewidth=0 if by_paper else 1,
                color=colour,
                label=scope,
            )
        axis.set_title(title, fontsize=8)
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

"""Charts of lines, as the benchmarks draw them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LINES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#333333")
"""Colours that readers who cannot distinguish red from green can tell apart (Okabe and Ito)."""
MARKERS = "osD^vPX"


class Line(NamedTuple):
    """One line of a chart: a value a place, and the ``ranges`` (lowest, highest) around them, if any."""

    name: str
    values: Sequence[float]
    ranges: Sequence[tuple[float, float]] = ()


class Chart(NamedTuple):
    """Lines over ``places``, which stand at even distances, with the titles of both axes; ``logarithmic`` is
    the scale of the values.
    """

    title: str
    x: str
    y: str
    places: Sequence[str]
    lines: Sequence[Line]
    logarithmic: bool = False


def chart_figure(chart: Chart) -> Figure:
    """Draw a chart."""
    from matplotlib.figure import Figure

    from qbe.plots import GRID

    figure = Figure(figsize=(5.2, 3.4), layout="constrained")
    axes = figure.subplots()
    for number, line in enumerate(chart.lines):
        places = range(len(line.values))
        colour = LINES[number % len(LINES)]
        marker = MARKERS[number % len(MARKERS)]
        axes.plot(places, line.values, color=colour, marker=marker, markersize=4, label=line.name, zorder=3)
        if line.ranges:
            lowest, highest = zip(*line.ranges, strict=True)
            axes.fill_between(places, lowest, highest, color=colour, alpha=0.15, linewidth=0, zorder=2)
    axes.set_xticks(range(len(chart.places)), list(chart.places))
    if chart.logarithmic:
        axes.set_yscale("log")
    axes.set_xlabel(chart.x)
    axes.set_ylabel(chart.y)
    axes.set_title(chart.title, fontsize=9, loc="left")
    axes.grid(axis="y", color=GRID, linewidth=0.6, zorder=0)
    axes.tick_params(length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    if len(chart.lines) > 1:
        figure.legend(loc="outside lower center", ncols=2, frameon=False)
    return figure


def write_chart(path: Path, chart: Chart) -> None:
    """Write a chart to a file; raises what `qbe.plots.save_plot` does."""
    from qbe.plots import save_plot

    save_plot(path, lambda: chart_figure(chart))

"""What the analyses of citation recommendation share: options, rankings of a split's queries, plots."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from qbe.types import Hit, Paper, Run

PACKAGES = ("faiss-cpu", "numpy", "onnxruntime", "pyserini")

BLOCK = 64
"""Queries that are ranked at a time."""

DEPTH = 1000
"""Hits of a query, as the protocol of citations reads them."""

SIGNIFICANT = 0.05

LINES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#333333")
"""Colours that readers who cannot distinguish red from green can tell apart (Okabe and Ito)."""
MARKERS = "osD^vPX"


def collection_options(parser: argparse.ArgumentParser) -> None:
    """Add options for the collection, the plot and the threads."""
    parser.add_argument(
        "--collection",
        type=Path,
        default=Path("data/citations"),
        metavar="DIR",
        help="written by qbe datasets citations (default: %(default)s)",
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="the figures as lines, .svg or .png")
    parser.add_argument("--threads", type=int, help="default: all processors this process may use")


def index_option(parser: argparse.ArgumentParser) -> None:
    """Add an option for an index of the collection's papers."""
    parser.add_argument(
        "--index",
        type=Path,
        default=Path("indexes/citations"),
        metavar="DIR",
        help="of papers.jsonl of the collection (default: %(default)s)",
    )


def ranked(search: Callable[[Sequence[Paper]], Sequence[Sequence[Hit]]], papers: Sequence[Paper]) -> Run:
    """The run of queries that are papers, whose ids are theirs; ``search`` ranks some of them."""
    from qbe.types import Run

    rankings: dict[str, tuple[Hit, ...]] = {}
    for first in range(0, len(papers), BLOCK):
        block = papers[first : first + BLOCK]
        for paper, hits in zip(block, search(block), strict=True):
            rankings[paper.paper_id] = tuple(hits)
    return Run("qbe", rankings)


def decimals(value: float, places: int = 3) -> str:
    """A figure as tables of the protocol print it.

    >>> decimals(0.2656), decimals(1.0)
    ('.266', '1.000')
    """
    return f"{value:.{places}f}".removeprefix("0")


def chance(p: float) -> str:
    """A probability as text.

    >>> chance(0.00002), chance(0.03)
    ('p < 0.001', 'p = 0.030')
    """
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


class Line(NamedTuple):
    """One line of a chart: a value a place, and the ``ranges`` (lowest, highest) around them, if any."""

    name: str
    values: Sequence[float]
    ranges: Sequence[tuple[float, float]] = ()


class Chart(NamedTuple):
    """Lines over ``places``, which stand at even distances, with the titles of both axes."""

    title: str
    x: str
    y: str
    places: Sequence[str]
    lines: Sequence[Line]


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

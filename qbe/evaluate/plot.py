"""A plot of the differences of two runs by query, as SVG or PNG."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from qbe.evaluate.queries import MEASURE, RunComparison
from qbe.evaluate.results import split_query_id
from qbe.files import StrPath
from qbe.outputs import PLOT_TITLE
from qbe.plots import FIRST, GRID, INK, SECOND, save_plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_GAIN, _LOSS = FIRST, SECOND


def write_plot(path: StrPath, comparison: RunComparison) -> None:
    """Write the plot of `gains_figure` to a file, atomically; equal figures give equal bytes.

    Raises what `qbe.plots.check_plot` raises, and OutputError when the file cannot be written.

    >>> write_plot("gains.pdf", RunComparison("a", "b", None, None))
    Traceback (most recent call last):
    qbe.errors.UsageError: expected a plot file that ends in .svg or .png, found gains.pdf; rename it
    """
    save_plot(path, lambda: gains_figure(comparison))


def gains_figure(comparison: RunComparison) -> Figure:
    """Draw the differences in NDCG%20 to the baseline: one panel for each facet, one bar for each query.

    The largest gain is at the top. Differences are in points (hundredths), on one scale for all panels. A
    panel's title gives the mean over its queries and the numbers of gains, losses and equal scores.
    """
    from matplotlib.figure import Figure

    by_facet = comparison.differences()
    rows = max(map(len, by_facet.values()))
    figure = Figure(figsize=(3.7 * len(by_facet), 1.2 + 0.19 * rows), layout="constrained")
    panels = figure.subplots(1, len(by_facet), squeeze=False, sharex=True)[0]
    for panel, (facet, differences) in zip(panels, by_facet.items(), strict=True):
        _draw(panel, facet.value, differences)
    figure.suptitle(f"{comparison.system} against {comparison.baseline}, {PLOT_TITLE}", fontsize=10)
    figure.supxlabel(f"difference in {MEASURE}, points", fontsize=8)
    return figure


def _draw(panel: Axes, facet: str, differences: Sequence[tuple[str, float]]) -> None:
    points = [100 * difference for _, difference in differences]
    places = range(len(points))
    panel.barh(places, points, height=0.7, color=[_GAIN if p > 0 else _LOSS for p in points], zorder=2)
    panel.set_yticks(places, [split_query_id(query_id)[0] for query_id, _ in differences])
    panel.invert_yaxis()
    panel.axvline(0, color=INK, linewidth=0.8, zorder=3)
    panel.grid(axis="x", color=GRID, linewidth=0.6, zorder=0)
    panel.tick_params(length=0)
    for side in ("top", "right", "left"):
        panel.spines[side].set_visible(False)
    up, down = sum(p > 0 for p in points), sum(p < 0 for p in points)
    counts = f"{up} up, {down} down, {len(points) - up - down} equal"
    panel.set_title(f"{facet}: mean {fmean(points):+.2f} ({counts})", fontsize=8, loc="left")

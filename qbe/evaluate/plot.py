"""A plot of the differences of two runs by query, as SVG or PNG; the only file that imports matplotlib."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from qbe.errors import MissingDependencyError, UsageError
from qbe.evaluate.queries import MEASURE, RunComparison
from qbe.evaluate.results import split_query_id
from qbe.files import StrPath, atomic_file
from qbe.outputs import PLOT_SOFTWARE, PLOT_TITLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("svg", "png")

_GAIN, _LOSS, _INK, _GRID = (
    "#2166ac",
    "#d6604d",
    "#333333",
    "#dddddd",
)  # for readers who cannot distinguish red from green
_STYLE: Mapping[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 8,
    "text.color": _INK,
    "text.parse_math": False,  # a run may be named with dollar signs
    "axes.edgecolor": _GRID,
    "axes.labelcolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    # Reproducible bytes: by default matplotlib chooses element ids at random. Text is written as text.
    "svg.hashsalt": "qbe",
    "svg.fonttype": "none",
}
_METADATA = {"svg": {"Date": None}, "png": {"Software": PLOT_SOFTWARE}}


def check_plot(path: StrPath) -> None:
    """Check that a plot can be written to a file of this name.

    Raises UsageError unless the name ends in .svg or .png, MissingDependencyError without matplotlib.

    >>> check_plot("gains.pdf")
    Traceback (most recent call last):
    ...
    qbe.errors.UsageError: expected a plot file that ends in .svg or .png, found gains.pdf; rename it
    """
    path = Path(path)
    if path.suffix[1:].lower() not in FORMATS:
        raise UsageError(f"expected a plot file that ends in .svg or .png, found {path}; rename it")
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingDependencyError(
            f"{path}: drawing needs the package matplotlib; run: pip install 'qbe[plot]'"
        )


def write_plot(path: StrPath, comparison: RunComparison) -> None:
    """Write the plot of `gains_figure` to a file, atomically; equal figures give equal bytes.

    Raises what `check_plot` raises, and OutputError when the file cannot be written.

    >>> write_plot("gains.pdf", RunComparison("a", "b", None, None))
    Traceback (most recent call last):
    qbe.errors.UsageError: expected a plot file that ends in .svg or .png, found gains.pdf; rename it
    """
    check_plot(path)
    path = Path(path)
    import matplotlib

    file_format = path.suffix[1:].lower()
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # independent of the user's settings
        matplotlib.rcParams.update(_STYLE)
        figure = gains_figure(comparison)
        with atomic_file(path) as stream:
            figure.savefig(stream, format=file_format, dpi=150, metadata=_METADATA[file_format])


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
    panel.axvline(0, color=_INK, linewidth=0.8, zorder=3)
    panel.grid(axis="x", color=_GRID, linewidth=0.6, zorder=0)
    panel.tick_params(length=0)
    for side in ("top", "right", "left"):
        panel.spines[side].set_visible(False)
    up, down = sum(p > 0 for p in points), sum(p < 0 for p in points)
    counts = f"{up} up, {down} down, {len(points) - up - down} equal"
    panel.set_title(f"{facet}: mean {fmean(points):+.2f} ({counts})", fontsize=8, loc="left")

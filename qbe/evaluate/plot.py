"""A picture of what each query gains or loses, as SVG or PNG; the only file that imports matplotlib."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from qbe.errors import MissingDependencyError, UsageError
from qbe.evaluate.queries import MEASURE, RunComparison
from qbe.evaluate.results import split_query_id
from qbe.files import atomic_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("svg", "png")

_GAIN, _LOSS, _INK, _GRID = "#2166ac", "#d6604d", "#333333", "#dddddd"  # told apart without red and green
_STYLE: Mapping[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 8,
    "text.color": _INK,
    "text.parse_math": False,  # a run may be named with dollar signs
    "axes.edgecolor": _GRID,
    "axes.labelcolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    # The same figures give the same bytes: matplotlib would draw element ids at random. Text stays text.
    "svg.hashsalt": "qbe",
    "svg.fonttype": "none",
}
_METADATA = {"svg": {"Date": None}, "png": {"Software": None}}


def check_plot(path: Path) -> None:
    """Raise UsageError for a file name of another format, MissingDependencyError without matplotlib."""
    if path.suffix[1:].lower() not in FORMATS:
        raise UsageError(f"expected a plot file that ends in .svg or .png, found {path}; rename it")
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingDependencyError(
            f"{path}: drawing needs the package matplotlib; run: pip install 'qbe[plot]'"
        )


def write_plot(path: Path, pair: RunComparison) -> None:
    """Draw ``gains_figure`` into a file, whole or not at all; the same figures give the same bytes.

    Raises what ``check_plot`` raises, and OutputError when the file cannot be written.
    """
    check_plot(path)
    import matplotlib

    form = path.suffix[1:].lower()
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # not what this machine's settings say
        matplotlib.rcParams.update(_STYLE)
        figure = gains_figure(pair)
        with atomic_file(path) as stream:
            figure.savefig(stream, format=form, dpi=150, metadata=_METADATA[form])


def gains_figure(pair: RunComparison) -> Figure:
    """A panel a facet, a bar a query: NDCG%20 points gained or lost against the baseline, best at the top.

    Points are hundredths. All panels share one scale. A panel's title gives the mean over its queries and
    how many go up, go down and stay.
    """
    from matplotlib.figure import Figure

    by_facet = pair.differences()
    rows = max(map(len, by_facet.values()))
    figure = Figure(figsize=(3.7 * len(by_facet), 1.2 + 0.19 * rows), layout="constrained")
    panels = figure.subplots(1, len(by_facet), squeeze=False, sharex=True)[0]
    for panel, (facet, differences) in zip(panels, by_facet.items(), strict=True):
        _draw(panel, facet.value, differences)
    figure.suptitle(f"{pair.system} against {pair.baseline}, query by query", fontsize=10)
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

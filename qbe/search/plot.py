"""A plot of hits by their grades: problem by method, with the result as size."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from qbe.files import StrPath
from qbe.plots import FIRST, GRID, INK, SECOND, save_plot
from qbe.query import Query
from qbe.search.present import Lookup, heading
from qbe.types import Facet, Hit

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HIGHEST = 3
MOST = 40
"""Hits that are drawn at most; more could not be told apart."""

_TITLE = 60
_SMALLEST, _LARGEST = 12.0, 160.0
"""Areas of points of the result's grades 0 and 3, in square points."""


def write_plot(path: StrPath, lookup: Lookup, query: Query, hits: Sequence[Hit]) -> None:
    """Write the plot of `grades_figure` to a file, atomically; equal figures give equal bytes.

    Raises what `qbe.plots.check_plot` raises, and OutputError when the file cannot be written.
    """
    save_plot(path, lambda: grades_figure(lookup, query, hits))


def grades_figure(lookup: Lookup, query: Query, hits: Sequence[Hit]) -> Figure:
    """Draw graded hits as points with their ranks: to the right the more similar in the problem, upwards the
    more similar in the method, the larger the more similar in the result; a list has the titles. The query's
    paper is marked where a paper like itself would be.
    """
    from matplotlib.figure import Figure

    drawn = [(rank, hit) for rank, hit in enumerate(hits, start=1) if hit.grades is not None][:MOST]
    figure = Figure(figsize=(9.5, max(4.8, 1.2 + 0.17 * len(drawn))), layout="constrained")
    panel, titles = figure.subplots(1, 2, width_ratios=(5, 4.5))
    by_facet = {facet: [(hit.grades or {}).get(facet.value, 0.0) for _, hit in drawn] for facet in Facet}
    areas = [_SMALLEST + (_LARGEST - _SMALLEST) * grade / HIGHEST for grade in by_facet[Facet.RESULT]]
    x, y = by_facet[Facet.BACKGROUND], by_facet[Facet.METHOD]
    panel.scatter(x, y, s=areas, color=FIRST, alpha=0.6, linewidths=0, zorder=3)
    for (rank, _), across, up in zip(drawn, x, y, strict=True):
        panel.annotate(str(rank), (across, up), xytext=(4, 4), textcoords="offset points", zorder=4)
    panel.scatter([HIGHEST], [HIGHEST], marker="*", s=140, color=SECOND, clip_on=False, zorder=5)
    panel.annotate("query", (HIGHEST, HIGHEST), xytext=(-34, -4), textcoords="offset points", color=SECOND)
    panel.set_xlim(0, HIGHEST + 0.05)
    panel.set_ylim(0, HIGHEST + 0.05)
    panel.set_aspect("equal")
    panel.set_xlabel("problem: grade by background")
    panel.set_ylabel("method: grade by method")
    panel.set_title("size: grade by result", fontsize=8, loc="left", color=INK)
    panel.grid(color=GRID, linewidth=0.6, zorder=0)
    panel.tick_params(length=0)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)
    lines = [f"{rank:>2}  {_shortened(lookup(hit.paper_id).title or hit.paper_id)}" for rank, hit in drawn]
    titles.axis("off")
    titles.text(0, 1, "\n".join(lines), va="top", ha="left", fontsize=7, linespacing=1.4)
    figure.suptitle("\n".join(textwrap.wrap(heading(query), 120)), fontsize=9, x=0.01, ha="left")
    return figure


def _shortened(title: str) -> str:
    return title if len(title) <= _TITLE else f"{title[: _TITLE - 1].rstrip()}…"

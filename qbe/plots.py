"""Plots as SVG or PNG: their style, and how they are written. matplotlib is imported when one is drawn."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbe.errors import MissingDependencyError, UsageError
from qbe.files import StrPath, atomic_file
from qbe.outputs import PLOT_SOFTWARE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("svg", "png")

INK, GRID = "#333333", "#dddddd"
FIRST, SECOND = "#2166ac", "#d6604d"
"""Two colours for readers who cannot distinguish red from green."""

_STYLE: Mapping[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 8,
    "text.color": INK,
    "text.parse_math": False,  # runs and papers may be named with dollar signs
    "axes.edgecolor": GRID,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    # Reproducible bytes: by default matplotlib chooses element ids at random. Text is written as text.
    "svg.hashsalt": "qbe",
    "svg.fonttype": "none",
}
_METADATA = {"svg": {"Date": None, "Creator": PLOT_SOFTWARE}, "png": {"Software": PLOT_SOFTWARE}}


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


def save_plot(path: StrPath, draw: Callable[[], Figure]) -> None:
    """Write what ``draw`` draws to a file, atomically; equal figures give equal bytes.

    Raises what `check_plot` raises, and OutputError when the file cannot be written.
    """
    check_plot(path)
    path = Path(path)
    import matplotlib

    file_format = path.suffix[1:].lower()
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # independent of the user's settings
        matplotlib.rcParams.update(_STYLE)
        figure = draw()
        with atomic_file(path) as stream:
            figure.savefig(stream, format=file_format, dpi=150, metadata=_METADATA[file_format])

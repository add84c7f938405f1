"""Learning curves: the scores on dev in the course of trainings, side by side, as a table and as a plot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from qbe.errors import ModelError
from qbe.evaluate.plot import save_figure
from qbe.outputs import PLOT, check_output

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Curve(NamedTuple):
    """A training of one seed: its ``scores`` on dev, higher is better, one for each ``interval`` of steps."""

    name: str
    interval: int
    scores: Sequence[float]

    @property
    def steps(self) -> list[int]:
        """The number of steps before each score.

        >>> Curve("work, seed 0", 50, [0.125, 0.25]).steps
        [50, 100]
        """
        return [self.interval * (place + 1) for place in range(len(self.scores))]

    @property
    def best(self) -> tuple[int, float]:
        """The steps before the best score, and this score.

        >>> Curve("work, seed 0", 50, [0.125, 0.25, 0.25]).best
        (100, 0.25)
        """
        place = max(range(len(self.scores)), key=self.scores.__getitem__)
        return self.steps[place], self.scores[place]


def read_curves(folders: Iterable[Path]) -> list[Curve]:
    """The curves in the work folders of trainings, under way or finished, by folder and seed.

    Raises ModelError where a folder holds no training that was measured on dev, or one that cannot be read.
    """
    import torch

    from qbe.train.weights import checked_checkpoint

    curves = []
    for folder in folders:
        found = []
        for path in sorted(folder.glob("seed-*.pt"), key=lambda each: (len(each.name), each.name)):
            with checked_checkpoint(path):
                state = torch.load(path, weights_only=True, mmap=True)
                if state["dev"]:
                    name = f"{folder}, {path.stem.replace('-', ' ')}"
                    found.append(Curve(name, state["interval"], state["dev"]))
        if not found:
            raise ModelError(
                f"{folder}: expected the work folder of a training that was measured on dev, found none; "
                "wait for its first measurement, or give another"
            )
        curves += found
    return curves


def as_text(curves: Iterable[Curve]) -> str:
    """A table of curves: the best score, the steps before it, and all scores.

    >>> print(as_text([Curve("work, seed 0", 50, [0.125, 0.25])]))
    training      best   after steps  by 50 steps
    work, seed 0  0.250          100  0.125 0.250
    """
    curves = list(curves)
    width = max(len("training"), *(len(curve.name) for curve in curves))
    intervals = {curve.interval for curve in curves}
    every = f"by {intervals.pop()} steps" if len(intervals) == 1 else "scores"
    lines = [f"{'training':{width}}  best   after steps  {every}"]
    for curve in curves:
        steps, best = curve.best
        scores = " ".join(f"{score:.3f}" for score in curve.scores)
        lines.append(f"{curve.name:{width}}  {best:.3f}  {steps:>11}  {scores}")
    return "\n".join(lines)


def plot(curves: Iterable[Curve], path: Path) -> None:
    """Draw curves, scores by steps; raises what `qbe.evaluate.plot.save_figure` does, and OutputError
    for a file that is no plot of qbe.

    The same curves give the same bytes.
    """
    check_output(path, PLOT, "plot")

    def draw() -> Figure:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(7, 4), layout="constrained")
        axes = figure.subplots()
        for curve in curves:
            axes.plot(curve.steps, curve.scores, marker="o", markersize=3, label=curve.name)
        axes.set(xlabel="steps", ylabel="score on dev")
        axes.grid(alpha=0.3)
        axes.legend()
        return figure

    save_figure(path, draw)

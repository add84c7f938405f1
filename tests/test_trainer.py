"""The trainer: rates, the choice of the epoch, averages, and checkpoints of a toy task with dropout."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from qbe.errors import ModelError
from qbe.train.fit import Schedule, fit, lr_factor

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

STEPS = 3
SCHEDULE = Schedule(epochs=3, clip=1.0, patience=3, warm_up=0.2, ema_decay=0.5)


class ToyTask:
    """A linear layer with dropout that learns sums of numbers; dev scores may be given."""

    steps_per_epoch = STEPS

    def __init__(self, dev: list[float] | None = None, rate: float = 0.1) -> None:
        torch.manual_seed(7)
        self.network = nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 1))
        self.measured: list[torch.Tensor] = []
        self._dev, self._rate = dev, rate

    def optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.network.parameters(), lr=self._rate)

    def batches(self, seed: int):
        numbers = np.random.default_rng(seed)
        while True:
            yield torch.tensor(numbers.random((8, 4)), dtype=torch.float32)

    def losses(self, batch: torch.Tensor):
        for half in batch.chunk(2):
            yield ((self.network(half)[:, 0] - half.sum(1)) ** 2).mean() / 2

    def score(self) -> float | None:
        assert not self.network.training
        self.measured.append(self.network[1].weight.detach().clone())
        if self._dev is not None:
            return self._dev[len(self.measured) - 1]
        return -((self.network(torch.eye(4))[:, 0] - 1) ** 2).mean().item()


def fitted(task: ToyTask, schedule: Schedule, folder: Path) -> tuple[int, list[float]]:
    """The steps that are done, and the scores on dev by epoch."""
    fit(task, schedule, 0, folder / "fit.pt")
    state = torch.load(folder / "fit.pt")
    return state["step"], state["dev"]


def test_the_learning_rate_goes_up_and_down():
    assert [lr_factor(step, 20, 0.1) for step in (0, 1, 2, 11, 19)] == pytest.approx([0.5, 1, 1, 0.5, 1 / 18])
    assert [lr_factor(step, 1, 0.1) for step in (0, 1)] == [1, 0]
    rates = [lr_factor(step, 97, 0.1) for step in range(97)]
    assert 0 < min(rates) <= max(rates) == 1
    assert rates == [*sorted(rates[:9]), *sorted(rates[9:], reverse=True)]


def test_the_best_epoch_is_kept_and_the_fit_ends_when_dev_gets_no_better(tmp_path):
    task = ToyTask(dev=[0.1, 0.5, 0.5, 0.4, 0.9])
    assert fitted(task, Schedule(epochs=5, patience=2), tmp_path) == (4 * STEPS, [0.1, 0.5, 0.5, 0.4])
    assert torch.equal(task.network[1].weight, task.measured[1])  # of equal scores the first
    assert not task.network.training
    assert torch.equal(torch.load(tmp_path / "fit.pt")["best"]["1.weight"], task.measured[1])


def test_without_patience_all_epochs_are_trained_and_without_scores_the_last_is_kept(tmp_path):
    assert fitted(ToyTask(dev=[0.5, 0.4, 0.3]), Schedule(epochs=3), tmp_path)[0] == 3 * STEPS
    task, longer = ToyTask(), ToyTask(dev=[0.1, 0.2, 0.3])
    task.score = lambda: None
    (tmp_path / "fit.pt").unlink()
    assert fitted(task, Schedule(epochs=3), tmp_path) == (3 * STEPS, [])
    fit(longer, Schedule(epochs=3), 0, tmp_path / "other.pt")
    assert torch.equal(task.network[1].weight, longer.network[1].weight)


def test_an_average_is_what_is_scored_and_kept(tmp_path):
    task = ToyTask(dev=[0.0])
    start = task.network[1].weight.detach().clone()
    fitted(task, Schedule(epochs=1, ema_decay=1.0), tmp_path)
    assert torch.equal(task.measured[0], start)
    assert torch.equal(task.network[1].weight, start)


def test_a_loss_that_is_no_number(tmp_path):
    task = ToyTask()
    task.losses = lambda batch: iter([batch.new_tensor(math.nan, requires_grad=True)])
    with pytest.raises(ModelError, match="fit, step 1: expected a loss that is a number, found nan"):
        fitted(task, SCHEDULE, tmp_path)
    assert not any(tmp_path.iterdir())

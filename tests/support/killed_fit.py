"""A toy task of the trainer; run as a script, its fit dies when it would keep its second checkpoint.

Usage: killed_fit.py CHECKPOINT
"""

import os
import signal
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

from qbe.train.fit import Progress, Schedule, fit

STEPS, EVERY = 3, 2
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
        fixed = torch.eye(4)
        error = ((self.network(fixed)[:, 0] - 1) ** 2).mean().item()
        return -error


def toy_fit(checkpoint: Path) -> tuple[nn.Module, Progress]:
    """9 steps, with a checkpoint after each 2 and each epoch of 3."""
    torch.set_num_threads(1)
    task = ToyTask()
    return task.network, fit(task, SCHEDULE, 1, checkpoint, EVERY)


def die_at_the_second(checkpoint: Path) -> None:
    checkpoints = 0

    def hook(event: str, values: tuple) -> None:
        nonlocal checkpoints
        if event == "os.rename" and Path(values[1]) == checkpoint:
            checkpoints += 1
            if checkpoints == 2:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


if __name__ == "__main__":
    die_at_the_second(Path(sys.argv[1]))
    toy_fit(Path(sys.argv[1]))

"""The trainer of all models: steps, schedule, the choice of an epoch on dev, checkpoints that resume exactly.

A model's training is a `Task`: a network, its batches, their losses, and its score on dev.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from qbe.errors import ModelError, UsageError
from qbe.train.artifacts import save_state
from qbe.train.weights import checked_checkpoint, copied, mean, trainable, with_weights

log = logging.getLogger(__name__)
B = TypeVar("B")
T = TypeVar("T")


class Task(Protocol[B]):
    """A network to train, and what it is trained on."""

    @property
    def network(self) -> nn.Module:
        """The network, whose parameters that have gradients are trained."""
        ...

    @property
    def steps_per_epoch(self) -> int:
        """The number of an epoch's steps."""
        ...

    def optimizer(self) -> torch.optim.Optimizer:
        """A new optimizer, each group of parameters with its full learning rate."""
        ...

    def batches(self, seed: int) -> Iterator[B]:
        """The batch of each step, for at least as many epochs as are trained.

        What is random in them follows from the seed. Batches that are done are drawn again when a training
        resumes: they hold ids or places, and nothing that takes time.
        """
        ...

    def losses(self, batch: B) -> Iterable[Tensor]:
        """The parts of a step's loss, which is their sum; gradients of each are computed before the next."""
        ...

    def score(self) -> float | None:
        """The score of the network, as it is now, on dev, higher is better; None where the last epoch is
        kept.
        """
        ...


@dataclass(frozen=True, slots=True)
class Schedule:
    """How long `fit` trains, and how the optimizer's steps are scaled.

    It trains ``epochs``, or until ``patience`` epochs had no better score on dev (None: all). The norm of all
    gradients together is clipped to ``clip`` (None: not). Learning rates follow `lr_factor` with ``warm_up``
    (None: they are constant). With an ``ema_decay`` the weights that are scored and kept are an exponential
    moving average of those of each step; while ``ema_ramp``, it follows the first steps more closely.
    """

    epochs: int
    clip: float | None = None
    patience: int | None = None
    warm_up: float | None = None
    ema_decay: float | None = None
    ema_ramp: bool = True


class Progress(NamedTuple):
    """The number of steps that a fit has done, and its scores on dev by epoch (higher is better)."""

    step: int
    dev: tuple[float, ...]


def fit_seeds(
    make: Callable[[int], Task[B]], schedule: Schedule, seeds: Iterable[int], work: Path, every: int = 50
) -> dict[str, dict[str, Tensor]]:
    """Fit one task a seed, and return their weights by name, ``seed 0``, ``seed 1`` and so on; of several
    seeds the last is their ``mean`` (a "soup"; Wortsman et al., *Model soups*, ICML 2022).

    ``make`` gives a seed's task, whose network has the weights to start from. The checkpoints are
    ``seed-N.pt`` in the folder ``work``; ``every`` and errors are those of `fit`.
    """
    weights = {}
    for seed in seeds:
        task = make(seed)
        fit(task, schedule, seed, work / f"seed-{seed}.pt", every)
        weights[f"seed {seed}"] = copied(task.network)
    return weights if len(weights) == 1 else {**weights, "mean": mean(list(weights.values()))}


def shuffled(items: Sequence[T], size: int, epochs: int, rng: np.random.Generator) -> Iterator[list[T]]:
    """The items in groups of ``size``, in another random order in each epoch; the last group may be smaller.

    >>> [sorted(group) for group in shuffled("abc", 3, 2, np.random.default_rng(0))]
    [['a', 'b', 'c'], ['a', 'b', 'c']]
    """
    for _ in range(epochs):
        order = rng.permutation(len(items)).tolist()
        for first in range(0, len(order), size):
            yield [items[place] for place in order[first : first + size]]


def fit(task: Task[B], schedule: Schedule, seed: int, path: Path, every: int = 50) -> Progress:
    """Train a network, and leave the weights of the epoch with the best score on dev in it.

    Its state is written to the file ``path`` after each ``every`` steps and each epoch. A fit that was
    interrupted continues from there, and ends in the same weights as one that was
    not (on a CPU, on one machine, with as many threads). Raises ModelError for a checkpoint that cannot be
    read, and where a loss is not finite.
    """
    torch.manual_seed(seed)
    state = _State(task, schedule)
    if path.exists():
        state.load(path)
    network, per_epoch = task.network, task.steps_per_epoch
    total, begin = schedule.epochs * per_epoch, state.step
    log.info("%s: step %d of %d", path.stem, begin, total)
    losses: list[float] = []
    batches = itertools.islice(task.batches(seed), begin, None)
    while state.step < total and not _should_stop(state.dev, schedule.patience):
        network.train()
        losses.append(_backward(task.losses(next(batches)), path.stem, state.step))
        state.update(total)
        epoch_ends = state.step % per_epoch == 0
        if epoch_ends:
            network.eval()
            state.measure()
        if state.step % every == 0 or epoch_ends:
            average = sum(losses) / len(losses)
            log.info("%s: step %d of %d, loss %.4f", path.stem, state.step, total, average)
            losses.clear()
            state.save(path)
    network.load_state_dict(state.best, strict=False)
    network.eval()
    return Progress(state.step, tuple(state.dev))


def _backward(parts: Iterable[Tensor], name: str, step: int) -> float:
    """Compute the gradients of a step's loss, part by part, and return it; ModelError where it is none."""
    loss = 0.0
    for part in parts:
        part.backward()  # type: ignore[no-untyped-call]
        loss += part.item()
    if not math.isfinite(loss):
        raise ModelError(
            f"{name}, step {step + 1}: expected a loss that is a number, found {loss}; lower the learning "
            "rate"
        )
    return loss


class _State:
    """A fit under way: the network, its optimizer, the average and the best weights, scores on dev."""

    def __init__(self, task: Task[B], schedule: Schedule) -> None:
        self._task, self._schedule = task, schedule
        self._optimizer = task.optimizer()
        self._rates = [group["lr"] for group in self._optimizer.param_groups]
        self._average = None if schedule.ema_decay is None else copied(task.network)
        self.best = copied(task.network)
        self.step, self.dev = 0, list[float]()

    def update(self, total: int) -> None:
        """Change the parameters by their gradients, as the next step of ``total``."""
        network, schedule = self._task.network, self._schedule
        if schedule.warm_up is not None:
            factor = lr_factor(self.step, total, schedule.warm_up)
            for group, rate in zip(self._optimizer.param_groups, self._rates, strict=True):
                group["lr"] = rate * factor
        if schedule.clip is not None:
            nn.utils.clip_grad_norm_(trainable(network).values(), schedule.clip)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self.step += 1
        if self._average is not None and schedule.ema_decay is not None:
            # At first the average follows closely: the weights that it started from are soon out of date.
            early = (1 + self.step) / (10 + self.step) if schedule.ema_ramp else 1.0
            _update_average(self._average, network, min(schedule.ema_decay, early))

    def measure(self) -> None:
        """Score the epoch that ends, and keep its weights where they are the best so far."""
        network, average, task = self._task.network, self._average, self._task
        score = task.score() if average is None else with_weights(network, average, task.score)
        if score is None or not self.dev or score > max(self.dev):
            self.best = copied(network) if average is None else {k: v.clone() for k, v in average.items()}
        if score is not None:
            self.dev.append(score)
            log.info("epoch %d: dev %.4f", len(self.dev), score)

    def save(self, path: Path) -> None:
        state = {
            "network": copied(self._task.network),
            "optimizer": self._optimizer.state_dict(),
            "best": self.best,
            "step": self.step,
            "dev": self.dev,
            "random": torch.get_rng_state(),
        }
        save_state(path, state if self._average is None else {**state, "mean": self._average})

    def load(self, path: Path) -> None:
        with checked_checkpoint(path):
            state = torch.load(path, weights_only=True)
            self._task.network.load_state_dict(state["network"], strict=False)
            self._optimizer.load_state_dict(state["optimizer"])
            self.best.update(state["best"])
            if self._average is not None:
                self._average.update(state["mean"])
            self.step, self.dev = state["step"], list(state["dev"])
            torch.set_rng_state(state["random"])


def matmul_dtype(device: str) -> torch.dtype:
    """The type of numbers for matrix products: bfloat16 where the processor multiplies it, else float32.

    Raises UsageError for a GPU where torch sees none.

    >>> matmul_dtype("cpu") in (torch.bfloat16, torch.float32)
    True
    """
    if device != "cpu" and not torch.cuda.is_available():
        raise UsageError(
            f"expected a GPU that torch sees for `device` {device}, found none; give cpu as `device`"
        )
    fast = torch.cpu._is_avx512_bf16_supported() if device == "cpu" else torch.cuda.is_bf16_supported()
    return torch.bfloat16 if fast else torch.float32


def lr_factor(step: int, total: int, warm_up: float = 0.1) -> float:
    """The factor of the full learning rate at a step (from 0).

    It rises linearly to 1 over a share ``warm_up`` of the steps, and then falls linearly to 0.

    >>> [lr_factor(step, 10, warm_up=0.2) for step in (0, 1, 2, 6, 10)]
    [0.5, 1.0, 1.0, 0.5, 0.0]
    """
    warm = max(1, int(total * warm_up))
    return min((step + 1) / warm, max(0.0, (total - step) / max(1, total - warm)))


def _should_stop(scores: Sequence[float], patience: int | None) -> bool:
    """Whether none of the last ``patience`` scores (higher is better) exceeds the best one before them."""
    return patience is not None and bool(scores) and len(scores) - 1 - scores.index(max(scores)) >= patience


@torch.no_grad()
def _update_average(average: Mapping[str, Tensor], network: nn.Module, decay: float) -> None:
    """Let each part of an average be ``decay`` of itself and ``1 - decay`` of the parameter, in place."""
    for name, part in trainable(network).items():
        average[name].mul_(decay).add_(part, alpha=1 - decay)

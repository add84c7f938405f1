"""The training loop that encoder and rerankers share, with checkpoints that resume exactly.

The tagger, whose fits take minutes, has a loop of its own; schedule and optimizer steps are the same.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from qbe.errors import ModelError, UsageError
from qbe.train.artifacts import save_state
from qbe.train.weights import Weights, copied, trainable, with_weights
from qbe.train.weights import checked_checkpoint as _checked

log = logging.getLogger(__name__)


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


def should_stop(scores: Sequence[float], patience: int) -> bool:
    """Whether none of the last ``patience`` scores (higher is better) exceeds the best one before them.

    >>> should_stop([0.2, 0.5, 0.4, 0.5], patience=2), should_stop([0.2, 0.5, 0.4, 0.6], patience=2)
    (True, False)
    """
    return bool(scores) and len(scores) - 1 - scores.index(max(scores)) >= patience


class ScheduledOptimizer:
    """An optimizer with gradient clipping, whose learning rates follow `lr_factor`.

    Each group of parameters has its full learning rate as ``lr``.

    >>> weight = nn.Parameter(torch.tensor([1.0]))
    >>> optimizer = ScheduledOptimizer(torch.optim.SGD([weight], lr=0.5), [weight], total=10, clip=1.0)
    >>> (3 * weight).sum().backward()
    >>> optimizer.step(0)  # the gradient 3 is clipped to 1
    >>> round(weight.item(), 4)
    0.5
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        parameters: Iterable[nn.Parameter],
        total: int,
        *,
        clip: float,
        warm_up: float = 0.1,
    ) -> None:
        """``clip`` is the largest norm of all gradients together; ``total`` counts the steps."""
        self.optimizer = optimizer
        self._parameters = list(parameters)
        self._full_rates = [group["lr"] for group in optimizer.param_groups]
        self._total, self._clip, self._warm_up = total, clip, warm_up

    def step(self, number: int) -> None:
        """Change the parameters by their gradients, as step ``number`` (from 0), and clear the gradients."""
        factor = lr_factor(number, self._total, self._warm_up)
        for group, rate in zip(self.optimizer.param_groups, self._full_rates, strict=True):
            group["lr"] = rate * factor
        nn.utils.clip_grad_norm_(self._parameters, self._clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


class DevScore(NamedTuple):
    """A score on dev (higher is better), and how the log shows it."""

    value: float
    text: str


class Progress(NamedTuple):
    """The number of steps that a fit has done, and its scores on dev by epoch (higher is better)."""

    step: int
    dev: tuple[float, ...]


def cloned(weights: Weights) -> dict[str, Tensor]:
    """A copy of weights.

    >>> weights = {"bias": torch.tensor([1.0])}
    >>> copy = cloned(weights)
    >>> weights["bias"] += 1
    >>> copy
    {'bias': tensor([1.])}
    """
    return {name: part.clone() for name, part in weights.items()}


def save_checkpoint(
    path: Path,
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    progress: Progress,
    copies: Mapping[str, Weights],
) -> None:
    """Write the state of a fit, and ``copies`` of weights (such as the best) by their names, to a file.

    After an interruption the file is the old one or the new one (`qbe.train.artifacts.save_state`).

    >>> layer = nn.Linear(1, 1)
    >>> optimizer = torch.optim.AdamW(layer.parameters())
    >>> save_checkpoint(Path("fit.pt"), layer, optimizer, Progress(3, (0.5,)), {"best": copied(layer)})
    >>> load_checkpoint(Path("fit.pt"), layer, optimizer, {})
    Progress(step=3, dev=(0.5,))
    """
    state = {
        "network": {name: part.detach() for name, part in trainable(network).items()},
        "optimizer": optimizer.state_dict(),
        **{name: dict(weights) for name, weights in copies.items()},
        "step": progress.step,
        "dev": list(progress.dev),
    }
    save_state(path, state)


def load_checkpoint(
    path: Path,
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    copies: Mapping[str, dict[str, Tensor]],
) -> Progress:
    """Restore the state of a fit from a file, and the weights in ``copies``, which are changed in place.

    Raises ModelError for a checkpoint that cannot be read.

    >>> layer, best = nn.Linear(1, 1), {}
    >>> optimizer = torch.optim.AdamW(layer.parameters())
    >>> save_checkpoint(Path("fit.pt"), layer, optimizer, Progress(3, (0.5,)), {"best": copied(layer)})
    >>> load_checkpoint(Path("fit.pt"), layer, optimizer, {"best": best}).step, sorted(best)
    (3, ['bias', 'weight'])
    """
    with _checked(path):
        state = torch.load(path, weights_only=True)
        network.load_state_dict(state["network"], strict=False)
        optimizer.load_state_dict(state["optimizer"])
        for name, weights in copies.items():
            weights.update(state[name])
        return Progress(state["step"], tuple(state["dev"]))


class Learner(Protocol):
    """A network, its data and its loss, for `fit`."""

    network: nn.Module
    steps_per_epoch: int

    def optimizer(self) -> torch.optim.Optimizer:
        """A new optimizer, each group of parameters with its full learning rate."""
        ...

    def backward(self, step: int) -> Sequence[float]:
        """Compute the gradients of a step (from 0), and return its losses.

        All that is random in it follows from the seed and the number of the step.
        """
        ...

    def score(self) -> DevScore:
        """The score of the network, as it is now, on dev."""
        ...


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """How long `fit` trains: ``epochs`` at most, or until ``patience`` epochs had no better score on dev.

    For ``clip`` and ``warm_up`` see `ScheduledOptimizer`. With an ``ema_decay`` the weights that are scored
    and kept are an exponential moving average of those of each step.
    """

    epochs: int
    clip: float
    patience: int
    warm_up: float = 0.1
    ema_decay: float | None = None


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """The file that holds the state of a fit; it is written after each ``every`` steps and each epoch.

    ``stop_after`` ends the fit after so many steps of a call, as an interruption would.
    """

    path: Path
    every: int = 500
    stop_after: int | None = None


def fit(learner: Learner, settings: LoopSettings, seed: int, checkpoints: Checkpoints) -> Progress:
    """Train a network, and leave the weights of the epoch with the best score on dev in it.

    A fit that was interrupted continues from its checkpoint, and ends in the same weights as one that was
    not (on a CPU, on one machine, with as many threads). Raises ModelError for a checkpoint that cannot be
    read, and where a loss is not finite.
    """
    network, per_epoch = learner.network, learner.steps_per_epoch
    total = settings.epochs * per_epoch
    optimizer = learner.optimizer()
    scheduled = ScheduledOptimizer(
        optimizer, trainable(network).values(), total, clip=settings.clip, warm_up=settings.warm_up
    )
    progress = Progress(0, ())
    copies = {} if settings.ema_decay is None else {"mean": copied(network)}
    average = copies.get("mean")
    copies["best"] = copied(network)
    if checkpoints.path.exists():
        progress = load_checkpoint(checkpoints.path, network, optimizer, copies)
        log.info("seed %d continues after step %d of %d", seed, progress.step, total)
    last = None if checkpoints.stop_after is None else progress.step + checkpoints.stop_after
    losses: list[float] = []
    while progress.step < total and not should_stop(progress.dev, settings.patience):
        step_losses = learner.backward(progress.step)
        _check_finite(step_losses, seed, progress.step)
        losses += step_losses
        scheduled.step(progress.step)
        progress = progress._replace(step=progress.step + 1)
        if average is not None and settings.ema_decay is not None:
            # At first the average follows closely: the weights that it started from are soon out of date.
            decay = min(settings.ema_decay, (1 + progress.step) / (10 + progress.step))
            update_average(average, network, decay)
        epoch_ends = progress.step % per_epoch == 0
        if epoch_ends:
            score = learner.score() if average is None else with_weights(network, average, learner.score)
            if not progress.dev or score.value > max(progress.dev):
                copies["best"] = copied(network) if average is None else cloned(average)
            progress = progress._replace(dev=(*progress.dev, score.value))
            log.info("seed %d, epoch %d: %s", seed, len(progress.dev), score.text)
        if progress.step % checkpoints.every == 0 or epoch_ends or progress.step == last:
            log.info("seed %d, step %d of %d: loss %.4f", seed, progress.step, total, np.mean(losses))
            losses.clear()
            save_checkpoint(checkpoints.path, network, optimizer, progress, copies)
        if progress.step == last:
            break
    network.load_state_dict(copies["best"], strict=False)
    return progress


def _check_finite(losses: Sequence[float], seed: int, step: int) -> None:
    for loss in losses:
        if not math.isfinite(loss):
            raise ModelError(
                f"seed {seed}, step {step + 1}: expected a loss that is a number, found {loss}; lower the "
                "learning rate"
            )


@torch.no_grad()
def update_average(average: Mapping[str, Tensor], network: nn.Module, decay: float) -> None:
    """Bring an exponential moving average of a network's trainable parameters, by name, up to their state.

    Each part of ``average`` becomes ``decay`` of itself and ``1 - decay`` of the parameter, in place.

    >>> layer, average = nn.Linear(1, 1, bias=False), {"weight": torch.tensor([[2.0]])}
    >>> layer.weight.data[:] = 4.0
    >>> update_average(average, layer, 0.75)
    >>> average
    {'weight': tensor([[2.5000]])}
    """
    for name, part in trainable(network).items():
        average[name].mul_(decay).add_(part, alpha=1 - decay)

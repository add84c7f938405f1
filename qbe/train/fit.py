"""The trainer: steps, learning rates, the choice of an epoch on dev, checkpoints that resume exactly."""

import itertools
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from qbe.errors import ModelError, UsageError
from qbe.models import reading
from qbe.train.work import save_state

log = logging.getLogger(__name__)
B = TypeVar("B")
T = TypeVar("T")
Weights = Mapping[str, Tensor]


@dataclass
class Task(Generic[B]):
    """A network to train; its parameters that have gradients are trained.

    A resumed training draws finished batches again, so they hold ids or places, nothing that takes time.
    """

    network: nn.Module
    steps_per_epoch: int
    rate: Callable[[str, Tensor], tuple[float, float]]  # a parameter's full learning rate and weight decay
    batches: Callable[[int], Iterator[B]]  # of a seed, one a step, for as many epochs as are trained
    losses: Callable[[B], Iterable[Tensor]]  # parts of a step's loss; gradients of each come before the next
    score: Callable[[], float | None] = lambda: None  # on dev, higher is better; None keeps the last epoch
    betas: tuple[float, float] = (0.9, 0.999)

    def optimizer(self) -> torch.optim.Optimizer:
        groups: dict[tuple[float, float], list[nn.Parameter]] = {}
        for name, part in trainable(self.network).items():
            groups.setdefault(self.rate(name, part), []).append(part)
        return torch.optim.AdamW(
            [{"params": parts, "lr": rate, "weight_decay": decay} for (rate, decay), parts in groups.items()],
            betas=self.betas,
        )


@dataclass(frozen=True, slots=True)
class Schedule:
    """How long `fit` trains, and how the optimizer's steps are scaled."""

    epochs: int
    clip: float | None = None  # the largest norm of gradients
    patience: int | None = None  # epochs without a better score on dev, after which it ends
    warm_up: float | None = None  # as in `lr_factor`; None: learning rates are constant
    ema_decay: float | None = None  # of the average of the weights, which is scored and kept


def fit_seeds(
    task: Task[B], schedule: Schedule, seeds: Iterable[int], work: Path, every: int = 50
) -> dict[str, dict[str, Tensor]]:
    """Fit a task once a seed from the network's present weights, and return the weights by name: ``seed 0``
    and so on, and of several last their ``mean`` (a "soup"; Wortsman et al., *Model soups*, ICML 2022).
    """
    start, weights = copied(task.network), {}
    for seed in seeds:
        task.network.load_state_dict(start, strict=False)
        fit(task, schedule, seed, work / f"seed-{seed}.pt", every)
        weights[f"seed {seed}"] = copied(task.network)
    return weights if len(weights) == 1 else {**weights, "mean": mean(list(weights.values()))}


def fit(task: Task[B], schedule: Schedule, seed: int, path: Path, every: int = 50) -> None:
    """Train a network, and leave the weights of the epoch with the best score on dev in it.

    Its state is written to ``path`` after each ``every`` steps and each epoch. An interrupted fit continues
    from there and ends in the same weights (on a CPU, on one machine, with as many threads).
    """
    torch.manual_seed(seed)
    network, state = task.network, _State(task, schedule)
    if path.exists():
        state.load(path)
    total, begin = schedule.epochs * task.steps_per_epoch, state.step
    log.info("%s: step %d of %d", path.stem, begin, total)
    losses, dev = list[float](), state.dev
    batches, patience = itertools.islice(task.batches(seed), begin, None), schedule.patience
    while state.step < total:
        if patience is not None and dev and len(dev) - 1 - dev.index(max(dev)) >= patience:
            break
        network.train()
        loss = 0.0
        for part in task.losses(next(batches)):
            part.backward()  # type: ignore[no-untyped-call]
            loss += part.item()
        if not math.isfinite(loss):
            raise ModelError(
                f"{path.stem}, step {state.step + 1}: expected a loss that is a number, found {loss}; lower "
                "the learning rate"
            )
        losses.append(loss)
        state.update(total)
        epoch_ends = state.step % task.steps_per_epoch == 0
        if epoch_ends:
            network.eval()
            state.measure()
        if state.step % every == 0 or epoch_ends:
            log.info("%s: step %d of %d, loss %.4f", path.stem, state.step, total, sum(losses) / len(losses))
            losses.clear()
            state.save(path)
    network.load_state_dict(state.best, strict=False)
    network.eval()


class _State:
    def __init__(self, task: Task[B], schedule: Schedule) -> None:
        self._task, self._schedule = task, schedule
        self._optimizer = task.optimizer()
        self._rates = [group["lr"] for group in self._optimizer.param_groups]
        self._average = None if schedule.ema_decay is None else copied(task.network)
        self.best = copied(task.network)
        self.step, self.dev = 0, list[float]()

    def update(self, total: int) -> None:
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
            with torch.no_grad():
                for name, part in trainable(network).items():
                    self._average[name].mul_(schedule.ema_decay).add_(part, alpha=1 - schedule.ema_decay)

    def measure(self) -> None:
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
            "mean": self._average,
            "step": self.step,
            "dev": self.dev,
            "random": torch.get_rng_state(),
        }
        save_state(path, state)

    def load(self, path: Path) -> None:
        with checked_checkpoint(path):
            state = torch.load(path, weights_only=True)
            self._task.network.load_state_dict(state["network"], strict=False)
            self._optimizer.load_state_dict(state["optimizer"])
            self.best, self._average = state["best"], state.get("mean")  # older ones lack it
            self.step, self.dev = state["step"], state["dev"]
            torch.set_rng_state(state["random"])


def shuffled(items: Sequence[T], size: int, epochs: int, rng: np.random.Generator) -> Iterator[list[T]]:
    """The items in groups of ``size``, in another random order each epoch; the last group may be smaller."""
    for _ in range(epochs):
        order = rng.permutation(len(items)).tolist()
        for first in range(0, len(order), size):
            yield [items[place] for place in order[first : first + size]]


def matmul_dtype(device: str) -> torch.dtype:
    """bfloat16 where the processor multiplies it, else float32; UsageError for a GPU that is not there."""
    if device != "cpu" and not torch.cuda.is_available():
        raise UsageError(
            f"expected a GPU that torch sees for `device` {device}, found none; give cpu as `device`"
        )
    fast = torch.cpu._is_avx512_bf16_supported() if device == "cpu" else torch.cuda.is_bf16_supported()
    return torch.bfloat16 if fast else torch.float32


def lr_factor(step: int, total: int, warm_up: float) -> float:
    """Rise linearly from 0 to 1 over ``warm_up`` steps, or such a share of them, and then fall to 0."""
    warm = max(1, int(total * warm_up if warm_up < 1 else warm_up))
    return min((step + 1) / warm, max(0.0, (total - step) / max(1, total - warm)))


def trainable(network: nn.Module) -> dict[str, nn.Parameter]:
    return {name: part for name, part in network.named_parameters() if part.requires_grad}


def copied(network: nn.Module) -> dict[str, Tensor]:
    """Copy the trainable parameters."""
    return {name: part.detach().clone() for name, part in trainable(network).items()}


def mean(weights: Sequence[Weights]) -> dict[str, Tensor]:
    return {name: torch.stack([each[name] for each in weights]).mean(0) for name in weights[0]}


def with_weights(network: nn.Module, weights: Weights, function: Callable[[], T]) -> T:
    """Call a function while the network has other weights."""
    before = {name: part.detach().clone() for name, part in network.named_parameters() if name in weights}
    network.load_state_dict(dict(weights), strict=False)
    try:
        return function()
    finally:
        network.load_state_dict(before, strict=False)


def checked_checkpoint(checkpoint: Path) -> AbstractContextManager[None]:
    return reading(checkpoint, "a checkpoint of this training", "delete it, or give another `work`")

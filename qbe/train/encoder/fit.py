"""Fitting an encoder to co-cited pairs, with checkpoints that resume exactly."""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn

from qbe.errors import ModelError
from qbe.train.checkpoint import Progress, load, save
from qbe.train.encoder.batches import Pair, Reader, read_triplets
from qbe.train.encoder.loss import OBJECTIVES
from qbe.train.encoder.network import EncoderNetwork
from qbe.train.encoder.recipe import Recipe, Schedule
from qbe.train.pace import lr_factor, should_stop
from qbe.train.weights import copied, learned

log = logging.getLogger(__name__)


class Fit:
    """A network that learns from pairs by a recipe."""

    def __init__(self, network: EncoderNetwork, reader: Reader, recipe: Recipe) -> None:
        self.network, self.recipe = network, recipe
        self._reader = reader

    def run(
        self,
        pairs: Sequence[Pair],
        dev: Sequence[Pair],
        seed: int,
        checkpoint: Path,
        *,
        every: int = 500,
        stop_after: int | None = None,
    ) -> Progress:
        """Fit the network, and leave the weights of the epoch in it that lose least on dev.

        The state after each ``every`` steps is kept in ``checkpoint``; the same call goes on from there,
        and ends in the same weights as one that was never interrupted (on a CPU, one machine, as many
        threads): the order of the pairs, their negatives and what dropout drops follow from the seed and
        the step. ``stop_after`` ends after so many steps of this call, as an interruption would. The
        figures on dev are minus its losses. Raises ModelError for a checkpoint that cannot be read, and
        where the loss is no number any more.
        """
        schedule = self.recipe.schedule
        size = min(schedule.batch * schedule.accumulate, len(pairs))
        per_epoch = len(pairs) // size
        total = schedule.epochs * per_epoch
        optimizer = _optimizer(self.network, schedule)
        best, progress = copied(self.network), Progress(0, ())
        if checkpoint.exists():
            progress = load(checkpoint, self.network, optimizer, best=best)
            log.info("seed %d goes on after step %d of %d", seed, progress.step, total)
        last = None if stop_after is None else progress.step + stop_after
        order: list[int] = []
        losses: list[float] = []
        while progress.step < total and not should_stop(progress.dev, schedule.patience):
            epoch, place = divmod(progress.step, per_epoch)
            if place == 0 or not order:
                order = random.Random(f"{seed}-{epoch}").sample(range(len(pairs)), len(pairs))
            for group in optimizer.param_groups:
                group["lr"] = schedule.learning_rate * lr_factor(progress.step, total, schedule.warm_up)
            chosen = [pairs[number] for number in order[place * size : (place + 1) * size]]
            losses.append(self._step(chosen, optimizer, random.Random(f"{seed}-{progress.step}")))
            if not math.isfinite(losses[-1]):
                raise ModelError(
                    f"seed {seed}, step {progress.step + 1}: expected a loss that is a number, found "
                    f"{losses[-1]}; lower --learning-rate"
                )
            progress = progress._replace(step=progress.step + 1)
            if progress.step % per_epoch == 0:
                figure = -self.loss(dev)
                if not progress.dev or figure > max(progress.dev):
                    best = copied(self.network)
                progress = progress._replace(dev=(*progress.dev, figure))
                log.info("seed %d, epoch %d: loss on dev %.4f", seed, len(progress.dev), -figure)
            if progress.step % every == 0 or progress.step % per_epoch == 0 or progress.step == last:
                log.info("seed %d, step %d of %d: loss %.4f", seed, progress.step, total, np.mean(losses))
                losses.clear()
                save(checkpoint, self.network, optimizer, progress, best=best)
            if progress.step == last:
                break
        self.network.load_state_dict(best, strict=False)
        return progress

    def _step(self, pairs: Sequence[Pair], optimizer: torch.optim.Optimizer, ranks: random.Random) -> float:
        """One step of the optimizer on some batches; their mean loss before it."""
        torch.manual_seed(ranks.getrandbits(63))  # for dropout
        self.network.train()
        summed = 0.0
        for batch in self._batches(pairs):
            triplets = read_triplets(self.network, self._reader, batch, ranks)
            if triplets is None:
                continue
            lost = OBJECTIVES[self.recipe.objective](triplets, self.recipe.settings)
            (lost.sum() / len(pairs)).backward()  # type: ignore[no-untyped-call]
            summed += lost.sum().item()
        nn.utils.clip_grad_norm_(list(learned(self.network).values()), self.recipe.schedule.clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return summed / len(pairs)

    @torch.no_grad()
    def loss(self, pairs: Sequence[Pair]) -> float:
        """The mean loss of pairs, without dropout, against negatives that are always the same ones."""
        self.network.eval()
        ranks = random.Random("dev")
        order = ranks.sample(list(pairs), len(pairs))
        lost = []
        for batch in self._batches(order):
            triplets = read_triplets(self.network, self._reader, batch, ranks)
            if triplets is not None:
                lost += OBJECTIVES[self.recipe.objective](triplets, self.recipe.settings).tolist()
        return float(np.mean(lost)) if lost else math.nan

    def _batches(self, pairs: Sequence[Pair]) -> list[Sequence[Pair]]:
        size = self.recipe.schedule.batch
        return [pairs[begin : begin + size] for begin in range(0, len(pairs), size)]


def _optimizer(network: EncoderNetwork, schedule: Schedule) -> torch.optim.AdamW:
    parts = learned(network).values()
    return torch.optim.AdamW(
        [
            {"params": [part for part in parts if part.dim() > 1], "weight_decay": schedule.weight_decay},
            {"params": [part for part in parts if part.dim() <= 1], "weight_decay": 0.0},
        ]
    )

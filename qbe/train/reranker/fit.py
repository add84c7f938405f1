"""Fitting a facet cross-encoder to graded lists, with checkpoints that resume exactly."""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import Tensor, nn

from qbe.train.checkpoint import Progress, load, save
from qbe.train.graded_pairs import GradedLists, GradedPair
from qbe.train.pace import lr_factor, should_stop
from qbe.train.reranker.loss import LOSSES
from qbe.train.reranker.network import FACETS, Network
from qbe.train.reranker.reading import Reading
from qbe.train.weights import with_weights
from qbe.types import Facet

log = logging.getLogger(__name__)


class Schedule(NamedTuple):
    """How the network is fitted.

    AdamW, warm-up over a tenth of the steps, then linearly down to nothing; ``queries`` lists a step. The
    layers learn at ``learning_rate``, the facets' projections and token weights at ``head_rate``, the
    weights of similarities and the gates, of which there are few, at ``weight_rate``. Of a list's
    candidates that no facet finds related (a grade of 1), at most ``unrelated`` are read, others in each
    epoch. What is kept is the running mean of the weights, by ``memory``. ``patience`` epochs without a
    better dev figure end it.
    """

    epochs: int = 1
    learning_rate: float = 6e-5
    head_rate: float = 2e-4
    weight_rate: float = 2e-2
    queries: int = 2
    unrelated: int = 4
    weight_decay: float = 0.01
    clip: float = 1.0
    memory: float = 0.98
    loss: str = "logistic"
    patience: int = 2


class Papers:
    """Papers by id, and their states behind the layers that do not learn, read when first asked for."""

    def __init__(self, network: Network, readings: Mapping[str, Reading]) -> None:
        """``network`` lends its lower layers, which stay as they are."""
        self.readings = readings
        self._network = network
        self._below: dict[str, Tensor] = {}

    def below(self, identity: str) -> Tensor:
        """States (tokens, dimension) bfloat16 of a paper behind the lower layers.

        Each paper is read by itself, so that its states do not depend on which others were asked for.
        """
        if identity not in self._below:
            (self._below[identity],) = self._network.read_below([self.readings[identity]])
        return self._below[identity]

    def scores(self, network: Network, query: str, pairs: Sequence[GradedPair]) -> Tensor:
        """Scores (candidates, facets) of a query's candidates."""
        ids = [query, *(pair.paper_id for pair in pairs)]
        found: Tensor = network(
            [self.readings[identity] for identity in ids], [self.below(identity) for identity in ids]
        )
        return found


def fit(
    network: Network,
    papers: Papers,
    lists: GradedLists,
    dev: GradedLists,
    schedule: Schedule,
    seed: int,
    checkpoint: Path,
    *,
    facets: Sequence[Facet] = FACETS,
    every: int = 100,
    stop_after: int | None = None,
) -> Progress:
    """Fit the network, and leave the best epoch's running mean of the weights in it.

    The state after each ``every`` steps is kept in ``checkpoint``; the same call goes on from there, and
    ends in the same weights as one that was never interrupted (on one machine with as many threads).
    ``facets`` are those whose grades are learned. ``stop_after`` ends after so many steps of this call, as
    an interruption would. Raises ModelError for a checkpoint that cannot be read.
    """
    numbers = [FACETS.index(facet) for facet in facets]
    queries = sorted(query for query in lists if len(lists[query]) > 1)
    per_epoch = len(queries) // schedule.queries
    total = schedule.epochs * per_epoch
    optimizer = _optimizer(network, schedule)
    learned = network.learned
    mean = {name: part.detach().clone() for name, part in learned.items()}
    best = {name: part.clone() for name, part in mean.items()}
    progress = Progress(0, ())
    if checkpoint.exists():
        progress = load(checkpoint, network, optimizer, mean=mean, best=best)
        log.info("seed %d goes on after step %d of %d", seed, progress.step, total)
    loss_of, last = LOSSES[schedule.loss], None if stop_after is None else progress.step + stop_after
    losses: list[float] = []
    while progress.step < total and not should_stop(progress.dev, schedule.patience):
        epoch, place = divmod(progress.step, per_epoch)
        order = random.Random(f"{seed}-{epoch}").sample(queries, len(queries))
        chosen = order[place * schedule.queries : (place + 1) * schedule.queries]
        for group in optimizer.param_groups:
            group["lr"] = group["full_rate"] * lr_factor(progress.step, total)
        for query in chosen:
            pairs = thinned(lists[query], schedule.unrelated, random.Random(f"{seed}-{epoch}-{query}"))
            scores = papers.scores(network, query, pairs)
            grades = torch.tensor([pair.grades for pair in pairs], device=scores.device)
            loss = torch.stack([loss_of(scores[:, i], grades[:, i]) for i in numbers]).mean()
            (loss / len(chosen)).backward()  # type: ignore[no-untyped-call]
            losses.append(loss.item())
        nn.utils.clip_grad_norm_(list(learned.values()), schedule.clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        progress = progress._replace(step=progress.step + 1)
        _remember(mean, learned, min(schedule.memory, (1 + progress.step) / (10 + progress.step)))
        if progress.step % per_epoch == 0:
            found = with_weights(network, mean, lambda: spearman(network, papers, dev))
            figure = float(np.mean([found[i] for i in numbers]))
            if not progress.dev or figure > max(progress.dev):
                best = {name: part.clone() for name, part in mean.items()}
            progress = progress._replace(dev=(*progress.dev, figure))
            log.info("seed %d, epoch %d: dev Spearman %s", seed, len(progress.dev), _shown(found))
        if progress.step % every == 0 or progress.step % per_epoch == 0 or progress.step == last:
            log.info("seed %d, step %d of %d: loss %.4f", seed, progress.step, total, np.mean(losses))
            losses.clear()
            save(checkpoint, network, optimizer, progress, mean=mean, best=best)
        if progress.step == last:
            break
    network.load_state_dict(best, strict=False)
    return progress


def thinned(pairs: Sequence[GradedPair], unrelated: int, ranks: random.Random) -> list[GradedPair]:
    """The pairs, but of those with no grade of 1 or more at most ``unrelated``, drawn at random."""
    none = [place for place, pair in enumerate(pairs) if max(pair.grades) < 1]
    dropped = set(ranks.sample(none, max(0, len(none) - unrelated)))
    return [pair for place, pair in enumerate(pairs) if place not in dropped]


def spearman(network: Network, papers: Papers, lists: GradedLists) -> tuple[float, ...]:
    """For each facet the mean over queries of Spearman's correlation of scores and grades.

    A query whose grades are all alike has none and is passed over; where all scores are alike it is 0.
    """
    found: list[list[float]] = [[] for _ in FACETS]
    with torch.no_grad():
        for query, pairs in lists.items():
            scores = papers.scores(network, query, pairs).float().cpu().numpy()
            for number, values in enumerate(found):
                values.extend(
                    correlation(scores[:, number].tolist(), [pair.grades[number] for pair in pairs])
                )
    return tuple(float(np.mean(values)) if values else math.nan for values in found)


def correlation(scores: Sequence[float], grades: Sequence[float]) -> list[float]:
    """Spearman's correlation of one query's scores and grades; none where all grades are alike."""
    if len(set(grades)) < 2:
        return []
    return [float(spearmanr(scores, grades).statistic) if len(set(scores)) > 1 else 0.0]


def _optimizer(network: Network, schedule: Schedule) -> torch.optim.AdamW:
    rates: dict[float, list[nn.Parameter]] = {}
    for name, part in network.learned.items():
        few = name == "weights" or name.endswith("gate")
        head = name in ("projections", "token_weights")
        rate = schedule.weight_rate if few else schedule.head_rate if head else schedule.learning_rate
        rates.setdefault(rate, []).append(part)
    groups = [
        {
            "params": parts,
            "full_rate": rate,
            "weight_decay": schedule.weight_decay if rate == schedule.learning_rate else 0.0,
        }
        for rate, parts in rates.items()
    ]
    return torch.optim.AdamW(groups, betas=(0.9, 0.98))


def _remember(mean: Mapping[str, Tensor], learned: Mapping[str, Tensor], memory: float) -> None:
    with torch.no_grad():
        for name, part in learned.items():
            mean[name].mul_(memory).add_(part, alpha=1 - memory)


def _shown(found: Sequence[float]) -> str:
    return " / ".join(f"{value:.4f}" for value in found)

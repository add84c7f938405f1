"""Checkpoints of a fit, from which it goes on exactly."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from qbe.errors import ModelError
from qbe.train.weights import learned


class Progress(NamedTuple):
    """Where a fit stands: steps done, and the figure on dev after each epoch."""

    step: int
    dev: tuple[float, ...]


def save(
    path: Path,
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    progress: Progress,
    **weights: Mapping[str, Tensor],
) -> None:
    """Keep the state of a fit, and other ``weights`` by their names; the file is the old one or the new."""
    state = {
        "network": {name: part.detach() for name, part in learned(network).items()},
        "optimizer": optimizer.state_dict(),
        **{name: dict(parts) for name, parts in weights.items()},
        "step": progress.step,
        "dev": list(progress.dev),
    }
    partial = path.with_suffix(".partial")
    torch.save(state, partial)
    partial.replace(path)


def best_weights(checkpoint: Path) -> dict[str, Tensor]:
    """The best weights that a fit left in its checkpoint; raises ModelError where there are none."""
    with _reading(checkpoint):
        best: dict[str, Tensor] = torch.load(checkpoint, weights_only=True)["best"]
        return best


def load(
    path: Path, network: nn.Module, optimizer: torch.optim.Optimizer, **weights: dict[str, Tensor]
) -> Progress:
    """Put the state of a fit back where it was, and other weights into the dictionaries of their names.

    Raises ModelError for a checkpoint that cannot be read.
    """
    with _reading(path):
        state = torch.load(path, weights_only=True)
        network.load_state_dict(state["network"], strict=False)
        optimizer.load_state_dict(state["optimizer"])
        for name, parts in weights.items():
            parts.update(state[name])
        return Progress(state["step"], tuple(state["dev"]))


@contextlib.contextmanager
def _reading(checkpoint: Path) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]  # an empty file's error is empty
        raise ModelError(
            f"{checkpoint}: expected a checkpoint of this training, found: {reason}; delete it, or give "
            "another work folder"
        ) from error

"""The trainable weights of a network: copies and means of them, and those that checkpoints hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

from qbe.train.artifacts import checked

Weights = Mapping[str, Tensor]
T = TypeVar("T")
PUBLISHED = "published.pt"
"""The file of a work folder that holds the weights which the training chose, as `best_weights` reads it.
"""


def trainable(network: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that have gradients, by name.

    >>> layer = nn.Linear(2, 1)
    >>> _ = layer.bias.requires_grad_(False)
    >>> list(trainable(layer))
    ['weight']
    """
    return {name: part for name, part in network.named_parameters() if part.requires_grad}


def copied(network: nn.Module) -> dict[str, Tensor]:
    """A copy of the trainable parameters."""
    return {name: part.detach().clone() for name, part in trainable(network).items()}


def adamw(network: nn.Module, rate: float, weight_decay: float) -> torch.optim.Optimizer:
    """AdamW over the trainable parameters, of which biases and normalizations do not decay."""
    parts = trainable(network).values()
    groups = [
        {"params": [part for part in parts if (part.dim() > 1) is matrices], "weight_decay": decay}
        for matrices, decay in ((True, weight_decay), (False, 0.0))
    ]
    return torch.optim.AdamW(groups, lr=rate)


def adamw_by_name(
    network: nn.Module, settings: Callable[[str, nn.Parameter], tuple[float, float]]
) -> torch.optim.Optimizer:
    """AdamW over the trainable parameters; ``settings`` gives the learning rate and the decay of each."""
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, part in trainable(network).items():
        groups.setdefault(settings(name, part), []).append(part)
    return torch.optim.AdamW(
        [{"params": parts, "lr": rate, "weight_decay": decay} for (rate, decay), parts in groups.items()],
        betas=(0.9, 0.98),
    )


def mean(weights: Sequence[Weights]) -> dict[str, Tensor]:
    """The mean of several sets of weights."""
    return {name: torch.stack([each[name] for each in weights]).mean(0) for name in weights[0]}


def interpolated(before: Weights, after: Weights, share: float) -> dict[str, Tensor]:
    """``(1 - share) * before + share * after`` of each part (Wortsman et al., *Robust fine-tuning of
    zero-shot models*, CVPR 2022, section 3).

    >>> interpolated({"bias": torch.tensor([1.0])}, {"bias": torch.tensor([3.0])}, 0.25)
    {'bias': tensor([1.5000])}
    """
    return {name: torch.lerp(before[name].float(), part.float(), share) for name, part in after.items()}


def with_weights(network: nn.Module, weights: Weights, function: Callable[[], T]) -> T:
    """The result of a function that is called while the network has other weights.

    >>> layer = nn.Linear(1, 1, bias=False)
    >>> with_weights(layer, {"weight": torch.tensor([[2.0]])}, lambda: layer(torch.tensor([3.0])).item())
    6.0
    """
    before = {name: part.detach().clone() for name, part in network.named_parameters() if name in weights}
    network.load_state_dict(dict(weights), strict=False)
    try:
        return function()
    finally:
        network.load_state_dict(before, strict=False)


def best_weights(checkpoint: Path) -> dict[str, Tensor]:
    """The best weights in the checkpoint of a fit; raises ModelError where there are none.

    >>> torch.save({"best": {"bias": torch.tensor([0.5])}}, "fit.pt")
    >>> best_weights(Path("fit.pt"))
    {'bias': tensor([0.5000])}
    """
    with checked_checkpoint(checkpoint):
        best: dict[str, Tensor] = torch.load(checkpoint, weights_only=True)["best"]
        return best


def checked_checkpoint(checkpoint: Path) -> AbstractContextManager[None]:
    """Around the reading of a checkpoint: whatever is wrong with it becomes a ModelError of one line."""
    return checked(checkpoint, "a checkpoint of this training", "delete it, or give another `work`")

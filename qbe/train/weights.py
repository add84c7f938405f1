"""The weights of a network that learns: which they are, copies and means of them, others lent to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

Weights = Mapping[str, Tensor]
T = TypeVar("T")


def learned(network: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that learn, by name."""
    return {name: part for name, part in network.named_parameters() if part.requires_grad}


def copied(network: nn.Module) -> dict[str, Tensor]:
    """What the parameters that learn hold now."""
    return {name: part.detach().clone() for name, part in learned(network).items()}


def mean(weights: Sequence[Weights]) -> dict[str, Tensor]:
    """The mean of several sets of weights (a "soup"; Wortsman et al., 2022)."""
    return {name: torch.stack([each[name] for each in weights]).mean(0) for name in weights[0]}


def with_weights(network: nn.Module, weights: Weights, call: Callable[[], T]) -> T:
    """What a call gives while the network has other weights."""
    own = {name: part.detach().clone() for name, part in network.named_parameters() if name in weights}
    network.load_state_dict(dict(weights), strict=False)
    try:
        return call()
    finally:
        network.load_state_dict(own, strict=False)

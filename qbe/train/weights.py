"""The trainable weights of a network: copies and means of them, and checkpoints that hold them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from qbe.errors import UsageError
from qbe.train.kept import checked, save_state

Weights = Mapping[str, Tensor]
T = TypeVar("T")
INTERPOLATED = "interpolated"
"""The name of weights between those that a training started from and the mean of its seeds."""


class Progress(NamedTuple):
    """The number of steps that a fit has done, and its scores on dev by epoch (higher is better)."""

    step: int
    dev: tuple[float, ...]


def trainable(network: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that have gradients, by name.

    >>> layer = nn.Linear(2, 1)
    >>> _ = layer.bias.requires_grad_(False)
    >>> list(trainable(layer))
    ['weight']
    """
    return {name: part for name, part in network.named_parameters() if part.requires_grad}


def copied(network: nn.Module) -> dict[str, Tensor]:
    """A copy of the trainable parameters.

    >>> copied(nn.Linear(1, 1))["bias"].requires_grad
    False
    """
    return {name: part.detach().clone() for name, part in trainable(network).items()}


def cloned(weights: Weights) -> dict[str, Tensor]:
    """A copy of weights.

    >>> weights = {"bias": torch.tensor([1.0])}
    >>> copy = cloned(weights)
    >>> weights["bias"] += 1
    >>> copy
    {'bias': tensor([1.])}
    """
    return {name: part.clone() for name, part in weights.items()}


def mean(weights: Sequence[Weights]) -> dict[str, Tensor]:
    """The mean of several sets of weights (a "soup"; Wortsman et al., *Model soups*, ICML 2022).

    >>> mean([{"bias": torch.tensor([1.0])}, {"bias": torch.tensor([4.0])}])
    {'bias': tensor([2.5000])}
    """
    return {name: torch.stack([each[name] for each in weights]).mean(0) for name in weights[0]}


def interpolated(before: Weights, after: Weights, share: float) -> dict[str, Tensor]:
    """``(1 - share) * before + share * after`` of each part (Wortsman et al., *Robust fine-tuning of
    zero-shot models*, CVPR 2022, section 3).

    >>> interpolated({"bias": torch.tensor([1.0])}, {"bias": torch.tensor([3.0])}, 0.25)
    {'bias': tensor([1.5000])}
    """
    return {name: torch.lerp(before[name].float(), part.float(), share) for name, part in after.items()}


def check_share(share: float) -> None:
    """Raise UsageError for a share of weights that is not above 0, up to 1.

    >>> check_share(0.5)
    """
    if not 0 < share <= 1:
        raise UsageError(f"expected `share` above 0, up to 1, found {share:g}")


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


def save_checkpoint(
    path: Path,
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    progress: Progress,
    copies: Mapping[str, Weights],
) -> None:
    """Write the state of a fit, and ``copies`` of weights (such as the best) by their names, to a file.

    After an interruption the file is the old one or the new one (`qbe.train.kept.save_state`).

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


def save_interpolated(work: Path, weights: Weights | None) -> None:
    """Keep the interpolated weights of a training in its work folder, beside the checkpoints of its seeds.

    They replace those of an earlier call with another share; None removes these. The file is replaced in one
    step.

    >>> save_interpolated(Path(), {"bias": torch.tensor([0.5])})
    >>> best_weights(Path("interpolated.pt"))
    {'bias': tensor([0.5000])}
    >>> save_interpolated(Path(), None)
    >>> Path("interpolated.pt").exists()
    False
    """
    path = work / f"{INTERPOLATED}.pt"
    if weights is None:
        path.unlink(missing_ok=True)
    else:
        save_state(path, {"best": dict(weights)})


def best_weights(checkpoint: Path) -> dict[str, Tensor]:
    """The best weights in the checkpoint of a fit; raises ModelError where there are none.

    >>> torch.save({"best": {"bias": torch.tensor([0.5])}}, "fit.pt")
    >>> best_weights(Path("fit.pt"))
    {'bias': tensor([0.5000])}
    """
    with _checked(checkpoint):
        best: dict[str, Tensor] = torch.load(checkpoint, weights_only=True)["best"]
        return best


def _checked(checkpoint: Path) -> AbstractContextManager[None]:
    return checked(checkpoint, "a checkpoint of this training", "delete it, or give another `work`")

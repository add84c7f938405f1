"""A small fit of a tiny encoder; run as a script, one that dies when it would keep its fourth checkpoint.

Usage: killed_encoder_fit.py MODEL CHECKPOINT
"""

import sys
from pathlib import Path

import torch

from qbe.encode.tokenizer import PaperTokenizer
from qbe.train.encoder.fit import Fit, WindowTokenizer
from qbe.train.encoder.network import EncoderNetwork
from qbe.train.encoder.recipe import Recipe, Schedule
from qbe.train.fitting import Checkpoints, Progress

EVERY, KEPT_AT = 2, (2, 3, 4, 6, 8, 9)
RECIPE = Recipe("ts+ot", schedule=Schedule(epochs=3, batch=3, accumulate=2, learning_rate=3e-3, patience=3))


def small_fit(
    model: Path, checkpoint: Path, dtype: torch.dtype = torch.float32, stop_after: int | None = None
) -> tuple[EncoderNetwork, Progress]:
    """Fit to a few pairs for 9 steps, with a checkpoint after each 2 and each epoch of 3."""
    from support.cocitations import planted_pairs

    torch.set_num_threads(1)
    pairs = planted_pairs(26, 5)
    network = EncoderNetwork(model, dtype)
    fit = Fit(network, WindowTokenizer(PaperTokenizer(model / "tokenizer.json"), 128), RECIPE)
    progress = fit.run(pairs[:20], pairs[20:], 1, Checkpoints(checkpoint, EVERY, stop_after))
    return network, progress


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from support.killed_fit import die_at

    die_at(Path(sys.argv[2]), KEPT_AT.index(6) + 1)
    small_fit(Path(sys.argv[1]), Path(sys.argv[2]))

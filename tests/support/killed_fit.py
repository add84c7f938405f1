"""A small fit of a tiny network; run as a script, one that dies when it would keep its second checkpoint.

Usage: killed_fit.py MODEL CHECKPOINT
"""

import os
import signal
import sys
from pathlib import Path

import torch

from qbe.corpus import read_jsonl
from qbe.train.reranker.network import Network
from qbe.train.reranker.task import CandidateScorer, GradedSplits, GradedTask, Recipe
from qbe.train.trainer import Checkpoints, Progress, fit

LISTS, EVERY = 3, 2
RECIPE = Recipe(epochs=3, learning_rate=3e-3, head_rate=1e-2, queries=1, ema_decay=0.5)


def small_fit(model: Path, checkpoint: Path, stop_after: int | None = None) -> tuple[Network, Progress]:
    """Fit to a few lists of the sample for 9 steps, with a checkpoint after each 2 and each epoch of 3."""
    from support.tiny_reranker import SAMPLE, graded_lists, network, tokenized

    torch.set_num_threads(1)
    lists = dict(list(graded_lists(6).items())[:LISTS])
    fitted = network(model)
    scorer = CandidateScorer(fitted, tokenized(model, read_jsonl(SAMPLE / "papers.jsonl")))
    task = GradedTask(scorer, GradedSplits(lists, lists), RECIPE)
    return fitted, fit(task, RECIPE.schedule(), 1, Checkpoints(checkpoint, EVERY, stop_after))


def die_at(checkpoint: Path, count: int) -> None:
    """Kill this process when it is about to put a checkpoint in its place for the ``count``-th time."""
    checkpoints = 0

    def hook(event: str, values: tuple) -> None:
        nonlocal checkpoints
        if event == "os.rename" and Path(values[1]) == checkpoint:
            checkpoints += 1
            if checkpoints == count:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    die_at(Path(sys.argv[2]), 2)
    small_fit(Path(sys.argv[1]), Path(sys.argv[2]))

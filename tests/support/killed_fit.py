"""A small fit of a tiny network; run as a script, one that dies when it would keep its second checkpoint.

Usage: killed_fit.py MODEL CHECKPOINT
"""

import os
import signal
import sys
from pathlib import Path

import torch

from qbe.corpus import read_jsonl
from qbe.train.checkpoint import Progress
from qbe.train.reranker.fit import Papers, Schedule, fit
from qbe.train.reranker.network import Network

LISTS, EVERY = 3, 2
SCHEDULE = Schedule(epochs=3, learning_rate=3e-3, head_rate=1e-2, queries=1, memory=0.5)


def small_fit(model: Path, checkpoint: Path, stop_after: int | None = None) -> tuple[Network, Progress]:
    """Fit to a few lists of the sample for 9 steps, with a checkpoint after each 2 and each epoch of 3."""
    from support.tiny_reranker import SAMPLE, graded_lists, network, readings

    torch.set_num_threads(1)
    lists = dict(list(graded_lists(6).items())[:LISTS])
    fitted = network(model)
    papers = Papers(fitted, readings(model, read_jsonl(SAMPLE / "papers.jsonl")))
    progress = fit(fitted, papers, lists, lists, SCHEDULE, 1, checkpoint, every=EVERY, stop_after=stop_after)
    return fitted, progress


def die_at(checkpoint: Path, time: int) -> None:
    """Have this process killed when it would put a checkpoint in its place for the so manieth time."""
    kept = 0

    def hook(event: str, values: tuple) -> None:
        nonlocal kept
        if event == "os.rename" and Path(values[1]) == checkpoint:
            kept += 1
            if kept == time:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    die_at(Path(sys.argv[2]), 2)
    small_fit(Path(sys.argv[1]), Path(sys.argv[2]))

"""What tagging adds to encoding: the same papers encoded with and without the tagger as a hook.

    python -m benchmarks.tagging [--papers 300] [--rounds 7]

The side "a pass of its own" runs the encoder a second time for the tagger's states, as with another
encoder: what a tagger of the encoder's size costs at least when it does not share the pass.
"""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

from benchmarks.common import Stage, interleaved, machine, papers, positive, ratio, spread, table
from qbe import _cli
from qbe.encode.encoder import Encoder
from qbe.tag.tagger import Tagger, TaggingEncoder


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tagging", description=__doc__)
    parser.add_argument(
        "--corpus", type=Path, metavar="FILE", help="default: CSFCube in QBE_DATA, or the sample"
    )
    parser.add_argument("--papers", type=positive, default=300)
    parser.add_argument("--rounds", type=positive, default=7)
    parser.add_argument("--threads", type=positive)
    return parser


def main(argv: list[str]) -> None:
    options = parser().parse_args(argv)
    threads = _cli.threads(options.threads)
    name, chosen = papers(options.corpus, options.papers, lambda _: True)
    encoder, tagger = Encoder.open(threads=threads), Tagger.open()
    tagging = TaggingEncoder(encoder, tagger, "predicted")
    two_passes = "encoding + a tagger's own pass"
    actions: dict[str, Stage] = {
        "encoding": lambda: _run(encoder.encode(chosen)),
        "encoding + tagging": lambda: _run(tagging.encode(chosen)),
        two_passes: lambda: _run(chain(encoder.encode(chosen), tagging.encode(chosen))),
    }
    print(machine(threads, ("onnxruntime", "numpy")))
    print(f"{len(chosen)} papers of {name}, {options.rounds} rounds\n")
    times = interleaved(actions, options.rounds)
    rows = [
        (
            side,
            spread([len(chosen) / seconds for seconds in runs]),
            "1" if side == "encoding" else ratio(times, side, "encoding"),
        )
        for side, runs in times.items()
    ]
    print(table(("side", "papers/s", "time / encoding"), rows))


def _run(stream: Iterable[object]) -> None:
    deque(stream, maxlen=0)


if __name__ == "__main__":
    _cli.run("benchmarks.tagging", main)

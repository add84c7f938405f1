"""Sides of a benchmark that run in separate processes; each waits for a line and runs a round."""

import contextlib
import functools
import json
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.common import Stage, median_p95, spread
from benchmarks.roles import memory

_EVERY = 0.02  # seconds between two measurements of a command's memory


class Side:
    """A process that prints a JSON object when it is ready, and one more for each line that it reads."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.ready = self._answer()
        self.rounds: list[dict[str, Any]] = []

    def round(self, line: str = "") -> None:
        """Run a round; the line is passed to the process."""
        assert self._process.stdin is not None
        print(line, file=self._process.stdin, flush=True)
        self.rounds.append(self._answer())

    def latency(self) -> str:
        """Return median and 95th percentile of the milliseconds of its queries, as text."""
        return " / ".join(median_p95([seconds for answer in self.rounds for seconds in answer["seconds"]]))

    def slower_than(self, other: "Side") -> str:
        """Return the ratio of its time to the other's by round, as text: median (minimum to maximum)."""
        pairs = zip(self.rounds, other.rounds, strict=True)
        ratios = [sum(answer["seconds"]) / sum(peer["seconds"]) for answer, peer in pairs]
        return spread(ratios, "{:.2f}")

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):  # libraries may print other lines
                answer: dict[str, Any] = json.loads(line)
                return answer
        raise SystemExit(f"a side ended without an answer: {self._process.args!r}")


def in_turn(sides: Sequence[Side], rounds: int) -> None:
    """Run the rounds of all sides in turn, A B C A B C ...; a first round is not counted."""
    for _ in range(rounds + 1):
        for side in sides:
            side.round()
    for side in sides:
        del side.rounds[0]


def onnx_rounds(
    peers: Path, kind: str, model: Path, texts: Sequence[Any], sizes: Sequence[int], threads: int
) -> dict[str, Stage]:
    """Return rounds of sentence-transformers' ONNX back end by name; none without the peers' environment."""
    if not peers.exists():
        print(f"without sentence-transformers' ONNX back end: no {peers}; `make peers` creates it\n")
        return {}
    file = model / "benchmark-texts.json"
    file.write_text(json.dumps(texts))
    rounds = dict[str, Stage]()
    for precision in ("fp32", "int8"):
        command = [str(peers), "-m", "benchmarks.roles", kind, str(model), str(file), precision]
        side = Side([*command, str(threads)])
        for size in sizes:
            rounds[f"ST ONNX {precision}, batch {size}"] = functools.partial(side.round, str(size))
    return rounds


class Ended(NamedTuple):
    """Wall-clock seconds of a command, and its peak memory in 10^9 bytes."""

    seconds: float
    peak: float


def finished(command: Sequence[str]) -> Ended:
    """Run a command to its end and discard its output; raises SystemExit where it fails."""
    begin, peak = time.perf_counter(), 0.0
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors) as process,
    ):
        # Not `getrusage`: a child's maximum starts with the memory of its parent.
        while process.poll() is None:
            with contextlib.suppress(OSError, KeyError):
                peak = max(peak, memory(process.pid)["peak"])
            time.sleep(_EVERY)
        seconds = time.perf_counter() - begin
        if process.returncode:
            errors.seek(0)
            raise SystemExit(f"a measured command failed: {errors.read()[-2000:]}")
    return Ended(seconds, peak)

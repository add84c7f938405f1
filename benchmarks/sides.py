"""Sides of a benchmark that run in separate processes, and how they are compared with qbe's."""

import contextlib
import functools
import json
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import floors
from benchmarks.common import Stage, interleaved, ratio, spread, table

PACKAGES = ("torch", "transformers", "sentence-transformers", "onnxruntime", "tokenizers", "numpy")
_EVERY = 0.02  # seconds between two measurements of a command's memory


class Side:
    """A process that prints a JSON object when it is ready, and one more for each line that it reads."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._answer()
        self.rounds: list[dict[str, Any]] = []

    def round(self, line: str) -> None:
        """Run a round; the line is passed to the process."""
        assert self._process.stdin is not None
        print(line, file=self._process.stdin, flush=True)
        self.rounds.append(self._answer())

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):  # libraries may print other lines
                answer: dict[str, Any] = json.loads(line)
                return answer
        raise SystemExit(f"a side ended without an answer: {self._process.args!r}")


def against_peers(
    unit: str, count: int, actions: Mapping[str, Stage], rounds: int, threads: int
) -> dict[str, float]:
    """Print what each side does a second, of ``count`` in a round, and its time against qbe's; return the
    operations/s of matrix products, measured before and after.
    """
    before = floors.products(threads)
    times = interleaved({name: [action] for name, action in actions.items()}, rounds)
    after = floors.products(threads)
    of_qbe = "qbe int8", "qbe fp32"
    rows = [
        (name, spread([count / each for each in runs]), *(ratio(times, name, side) for side in of_qbe))
        for name, runs in times.items()
    ]
    print(table(("side", f"{unit}/s", *(f"time / {side}" for side in of_qbe)), rows))
    return {name: max(rate, after[name]) for name, rate in before.items()}


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


def token_counter(tokenizer_file: Path) -> Callable[[str], int]:
    """Return what counts the tokens of a text, special ones included."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return lambda text: len(tokenizer.encode(text).ids)


class Ended(NamedTuple):
    """Wall-clock seconds of a command, and its peak memory in 10^9 bytes."""

    seconds: float
    peak: float


def finished(command: Sequence[str]) -> Ended:
    """Run a command to its end and discard its output; raises SystemExit where it fails."""
    begin, peak = time.perf_counter(), 0
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors) as process,
    ):
        # Not `getrusage`: a child's maximum starts with the memory of its parent.
        while process.poll() is None:
            with contextlib.suppress(OSError):
                status = Path(f"/proc/{process.pid}/status").read_text()
                peak = max(peak, *map(int, re.findall(r"VmHWM:\s+(\d+)", status)), 0)
            time.sleep(_EVERY)
        seconds = time.perf_counter() - begin
        if process.returncode:
            errors.seek(0)
            raise SystemExit(f"a measured command failed: {errors.read()[-2000:]}")
    return Ended(seconds, peak * 1024 / 1e9)

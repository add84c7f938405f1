"""``python -m benchmarks.kills``: a writer killed at random moments, beside readers of the same index.

A process appends, updates, deletes and compacts without end and is killed with SIGKILL, over and over;
after each kill the index must open, hold exactly the papers of its last commit, and agree with itself
(`benchmarks.kill_roles.check`). Meanwhile other processes open, check and close it as fast as they can.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from benchmarks.common import positive
from qbe.cli import common as _cli


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.kills", description=__doc__.split("\n\n")[0])
    parser.add_argument("--kills", type=positive, default=50, help="default: %(default)s")
    parser.add_argument("--readers", type=positive, default=4, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="of moments and writes (default: %(default)s)")
    parser.add_argument("--encoder", default="all-MiniLM-L6-v2", help="default: %(default)s")
    parser.add_argument(
        "--longest",
        type=float,
        default=1.0,
        help="seconds from the start of a writer's last write to its kill, at most (default: %(default)s)",
    )
    return parser


class Role:
    """A process of `benchmarks.kill_roles`, and how many lines it has printed."""

    def __init__(self, role: str, work: Path, seed: int) -> None:
        command = [sys.executable, "-m", "benchmarks.kill_roles", role, str(work), str(seed)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  (read when the process has ended)
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self._errors, env=environment, text=True
        )
        self.lines = 0
        self._changed = threading.Condition()
        self._ended = False
        threading.Thread(target=self._count, daemon=True).start()

    def _count(self) -> None:
        assert self._process.stdout is not None
        for _ in self._process.stdout:
            with self._changed:
                self.lines += 1
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def wait(self, lines: int) -> None:
        """Until it has printed so many lines, or has ended."""
        with self._changed:
            self._changed.wait_for(lambda: self.lines >= lines or self._ended)

    def kill(self) -> None:
        """End it with SIGKILL; raises SystemExit with what it printed last where it had ended by itself."""
        if self._process.poll() is not None:
            self._errors.seek(0)
            raise SystemExit(f"FAILED: a process ended by itself: {self._errors.read()[-2000:]}")
        self._process.kill()
        self._process.wait()


def main(argv: list[str]) -> None:
    from benchmarks.kill_roles import begin, check, interrupted
    from qbe.datasets.sample import copy_sample

    options = parser().parse_args(argv)
    chance, started = random.Random(options.seed), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        copy_sample(work)
        begin(work, options.encoder)
        readers = [Role("read", work, number) for number in range(options.readers)]
        inside = generation = 0
        for number in _cli.progress(range(options.kills), "killing", "writers", options.kills):
            writer = Role("write", work, chance.randrange(2**31))
            writer.wait(chance.randint(1, 4))  # it prints a line before each write
            time.sleep(chance.uniform(0, options.longest))
            writer.kill()
            try:
                generation = check(work)
            except Exception as error:
                raise SystemExit(f"FAILED after kill {number + 1}, seed {options.seed}: {error!r}") from error
            inside += interrupted(work, generation)
        for reader in readers:
            reader.wait(1)
            reader.kill()
        opened = sum(reader.lines for reader in readers)
        print(
            f"passed: {options.kills} kills (seed {options.seed}), {inside} of them during a write, among "
            f"{generation} commits; each time the index opened with exactly the committed papers on both "
            f"sides; {options.readers} readers opened it {opened:,} times without an error; "
            f"{time.monotonic() - started:.0f} s"
        )


if __name__ == "__main__":
    _cli.run("benchmarks.kills", main)

"""Builds described by one value: settings, corpus and threads."""

import contextlib
import dataclasses
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbe.corpus.records import AS_IT_COMES, Reading
from qbe.index.build import build
from qbe.index.source import BuildSettings, Execution
from qbe.index.store import Manifest

SCRIPT = Path(__file__).parent / "killed_build.py"


@dataclass(frozen=True)
class Job(BuildSettings):
    """Settings of a build, with its corpus, how that is read, and threads."""

    corpus: tuple[str, ...] = ()
    threads: int = 1
    reading: Reading = AS_IT_COMES

    @property
    def settings(self) -> BuildSettings:
        names = [field.name for field in dataclasses.fields(BuildSettings)]
        return BuildSettings(**{name: getattr(self, name) for name in names})


def build_job(output: Path, job: Job, *, overwrite: bool = False, resume: bool = False) -> Manifest:
    how = {"overwrite": overwrite, "resume": resume, "execution": Execution(job.threads)}
    return build(output, job.corpus, job.settings, reading=job.reading, **how)


def interrupt(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


class Killer:
    """Builds that are killed at a moment of `support.killed_build`, each in a process of its own."""

    def __init__(self, process: subprocess.Popen) -> None:
        self._process = process

    def __call__(self, moment: str, output: Path, settings: Job, *options: str) -> None:
        arguments = ["--corpus", *settings.corpus, "--output", str(output), "--threads", "2", *options]
        arguments += ["--encoder", settings.encoder] if settings.dense else ["--only=bm25"]
        if settings.facets == "predicted":
            arguments += ["--facets", "predicted", "--tagger", settings.tagger]
        if not settings.bm25:
            arguments.append("--only=dense")
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([moment, *arguments]) + "\n")
        self._process.stdin.flush()
        assert int(self._process.stdout.readline()) == signal.SIGKILL


@contextlib.contextmanager
def killer() -> Iterator[Killer]:
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout"), subprocess.PIPE)
    with subprocess.Popen([sys.executable, SCRIPT], text=True, **pipes) as process:
        yield Killer(process)

"""Functions shared by the benchmarks: interleaved timing, ratios, tables, papers, the machine."""

import argparse
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import metadata
from itertools import cycle, islice
from pathlib import Path
from threading import Thread
from typing import Any

from qbe.errors import CorpusError
from qbe.types import Paper

SAMPLE = Path(__file__).parent.parent / "tests" / "data" / "sample"
"""128 invented papers, with topics and pools."""

Stage = Callable[[], object]

# Seconds of each run by name; runs at the same position of their lists belong to one round.
Times = dict[str, list[float]]


def positive(text: str) -> int:
    """Parse an option's value, a whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, found {text!r}")
    return int(text)


_OPTIONS: dict[str, dict[str, Any]] = {
    "index": {"type": Path, "default": Path("indexes/csfcube"), "metavar": "DIR"},
    "topics": {"type": Path, "default": Path("qrels/topics.tsv"), "metavar": "FILE"},
    "pool": {"type": Path, "default": Path("qrels/pools.tsv"), "metavar": "FILE"},
    "peers": {
        "type": Path,
        "default": Path(".venv-peers/bin/python"),
        "metavar": "PYTHON",
        "help": "of the environment that `make peers` creates (default: %(default)s)",
    },
    "work": {"type": Path, "metavar": "DIR", "help": "where to write (default: $TMPDIR)"},
    "threads": {"type": int, "help": "default: all processors this process may use"},
}


def parsed(name: str, about: str | None, argv: list[str], **options: int | dict[str, Any]) -> Any:
    """Parse options of a benchmark: numbers with a default, or settings of `add_argument`, some above."""
    parser = argparse.ArgumentParser(
        prog=f"benchmarks.{name}", description=(about or "").partition("\n\n")[0]
    )
    for option, given in options.items():
        own = given if isinstance(given, dict) else {"type": positive, "default": given}
        settings = {"help": "default: %(default)s", **_OPTIONS.get(option, {}), **own}
        parser.add_argument(f"--{option.replace('_', '-')}", **settings)
    return parser.parse_args(argv)


def interleaved(actions: Mapping[str, Sequence[Stage]], rounds: int, warm_up: bool = True) -> Times:
    """Time all actions of a name, then those of the next, in turn, A B C A B C ..., so that changes of the
    machine's load affect all equally; a first round is not counted.
    """
    times: Times = {name: [] for name in actions}
    for counted in (*[False] * warm_up, *[True] * rounds):
        for name, stages in actions.items():
            for stage in stages:
                begin = time.perf_counter()
                stage()
                if counted:
                    times[name].append(time.perf_counter() - begin)
    return times


def ratio(times: Times, numerator: str, denominator: str) -> str:
    """Return the ratio of two times as text: median (min to max) over rounds."""
    pairs = zip(times[numerator], times[denominator], strict=True)
    return spread([slow / fast for slow, fast in pairs], "{:.2f}")


def spread(values: Sequence[float], form: str = "{:.1f}") -> str:
    """Return median (min to max) as text."""
    low, middle, high = (form.format(f(values)) for f in (min, statistics.median, max))
    return f"{middle} ({low} to {high})"


def median_p95(values: Sequence[float], factor: float = 1e3) -> tuple[str, str]:
    """Return median and 95th percentile as text, by default in milliseconds from seconds."""
    ordered = sorted(values)
    p95 = ordered[min(len(ordered) - 1, round(0.95 * (len(ordered) - 1)))]
    return f"{factor * statistics.median(ordered):.2f}", f"{factor * p95:.2f}"


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Format a Markdown table with aligned columns, all but the first to the right."""
    cells = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    first, *others = widths
    rule = ["-" * first, *("-" * (width - 1) + ":" for width in others)]
    lines = (
        [row[0].ljust(first), *(cell.rjust(width) for cell, width in zip(row[1:], others, strict=True))]
        for row in cells
    )
    head, *body = ("| " + " | ".join(line) + " |" for line in lines)
    return "\n".join([head, "| " + " | ".join(rule) + " |", *body])


def papers(corpus: Path | None, count: int, fits: Callable[[Paper], bool]) -> tuple[str, list[Paper]]:
    """A name and the first ``count`` fitting papers of a corpus, CSFCube below QBE_DATA, or the sample."""
    from qbe.corpus.reading import read_corpus

    if corpus is None and os.environ.get("QBE_DATA"):
        corpus = Path(os.environ["QBE_DATA"]) / "csfcube" / "abstracts-csfcube-preds.jsonl"
    path = corpus or SAMPLE / "corpus.jsonl"
    fitting = list(islice(filter(fits, read_corpus([str(path)])), count))
    if not fitting:
        raise CorpusError(f"expected papers of at most one pass through the encoder, found none in {path}")
    return path.name, list(islice(cycle(fitting), count))


@contextmanager
def serving(index: Path, log: Path, *options: object) -> Iterator[tuple[int, int]]:
    """Serve an index on this machine; give the port and the process id."""
    command = [sys.executable, "-m", "qbe", "serve", "--index", str(index), "--port", "0", *map(str, options)]
    with log.open("w") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    assert process.stdout is not None
    try:
        match = re.search(r":(\d+)", process.stdout.readline())
        if match is None:
            sys.exit(f"the server did not start: {log.read_text()}")
        yield int(match[1]), process.pid
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()


@contextmanager
def http_server(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Answer requests by a handler, in a thread; give the address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def machine(threads: int, packages: Sequence[str]) -> str:
    """Describe the machine in one paragraph: processor, threads, load, versions."""
    load = ", ".join(f"{value:.2f}" for value in os.getloadavg())
    versions = ", ".join(f"{package} {metadata.version(package)}" for package in packages)
    return (
        f"{processor()}; {threads} threads; load average before {load}; "
        f"Python {platform.python_version()}, {versions}; {time.strftime('%Y-%m-%d')}"
    )


def processor() -> str:
    """The processor and which of its instructions matter."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or platform.machine()
    fields = dict(line.split(":", 1) for line in text.split("\n\n")[0].splitlines() if ":" in line)
    described = {key.strip(): value.strip() for key, value in fields.items()}
    flags = described.get("flags", "").split()
    notable = [flag for flag in ("avx2", "avx512f", "avx512_vnni", "amx_int8", "amx_bf16") if flag in flags]
    return f"{described.get('model name', platform.machine())} with {', '.join(notable) or 'no AVX2'}"

"""``python -m benchmarks.serving``: what a server answers under load, beside the library alone.

Some clients at a time ask a server of an index for the papers that are like papers of the index in one
facet; a client asks again as soon as it has its answer, or after the time that it is told to wait. The same
queries go to `Pipeline.batch_search` in one process, without a server. Servers of several numbers of workers
and the library take turns. Processor time is that of all processes of a side; memory is the proportional set
size of the server, in which what processes share counts once, and its anonymous part, at the end.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.common import machine, median_p95, positive, table
from qbe.cli import common as _cli

PACKAGES = ("fastapi", "uvicorn", "faiss-cpu", "numpy", "onnxruntime")
HITS = 20
BLOCK = 16
START_SECONDS = 300
HEADER = [
    *(
        "side",
        "answers",
        "refused",
        "other",
        "a second",
        "of batch_search",
        "ms / p95",
        "processor ms an answer",
    ),
    *("processors", "those of clients", "MiB", "anonymous"),
]
IDLE_SECONDS = 0.1
"""Of a processor within a second."""
TICKS = os.sysconf("SC_CLK_TCK")


class Answered(NamedTuple):
    """What clients saw: how often each status, and the seconds of each answer of status 200."""

    statuses: Counter[int]
    seconds: list[float]


class Measured(NamedTuple):
    """A side in one round: what was answered, how long that took, processor time of it and of the clients
    (seconds), and memory (MiB; whole, anonymous).
    """

    answers: Answered
    seconds: float
    processor: float
    clients: float = 0.0
    memory: tuple[float, float] = (0.0, 0.0)

    @property
    def rate(self) -> float:
        """Answers a second."""
        return len(self.answers.seconds) / self.seconds


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.serving", description=__doc__.split("\n\n")[0])
    parser.add_argument("--index", type=Path, required=True, metavar="DIR")
    parser.add_argument("--workers", type=positive, nargs="+", default=[1, 2], help="default: 1 2")
    parser.add_argument("--clients", type=positive, default=16, help="default: %(default)s")
    parser.add_argument("--seconds", type=positive, default=60, help="of a side and round (default: 60)")
    parser.add_argument("--rounds", type=positive, default=3, help="default: %(default)s")
    parser.add_argument("--papers", type=positive, default=500, help="queries, used in turn (default: 500)")
    parser.add_argument(
        "--searches", type=positive, help="go on until so many were answered, and watch the memory"
    )
    parser.add_argument("--rerank", action="store_true", help="have hits reranked")
    return parser


@contextmanager
def server(index: Path, workers: int, log: Path) -> Iterator[tuple[int, int]]:
    """The port and the process id of a server that is ready."""
    command = [sys.executable, "-m", "qbe", "serve", "--index", str(index), "--port", "0"]
    with log.open("w") as errors:
        process = subprocess.Popen(
            [*command, "--workers", str(workers)], stdout=subprocess.PIPE, stderr=errors, text=True
        )
    assert process.stdout is not None
    try:
        match = re.search(r":(\d+)/", process.stdout.readline())
        if match is None:
            sys.exit(f"the server did not start: {log.read_text()}")
        port, deadline = int(match[1]), time.monotonic() + START_SECONDS
        while not _is_ready(port, workers, log) and time.monotonic() < deadline:
            time.sleep(0.2)
        yield port, process.pid
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()


def _is_ready(port: int, workers: int, log: Path) -> bool:
    """Whether a server answers searches with all of its workers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=START_SECONDS)
    connection.request("GET", "/health")
    status = connection.getresponse().status
    connection.close()
    return status == 200 and (workers == 1 or log.read_text().count("] ready") == workers)


def tree(pid: int) -> list[int]:
    """A process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *map(int, children)]


def processor_seconds(pids: Sequence[int]) -> float:
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(field[11]) + int(field[12]) for field in fields) / TICKS


def _wait_until_idle(pid: int) -> None:
    """Wait until titles are read, and whatever else a server does once it is ready."""
    before = processor_seconds(tree(pid))
    while True:
        time.sleep(1)
        now = processor_seconds(tree(pid))
        if now - before < IDLE_SECONDS:
            return
        before = now


def memory(pids: Sequence[int]) -> tuple[float, float]:
    """MiB that processes take, what they share counted once; and those of no file."""
    texts = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in pids]
    whole, anonymous = (
        sum(int(value) for text in texts for value in re.findall(rf"^{name}:\s+(\d+)", text, re.MULTILINE))
        for name in ("Pss", "Pss_Anon")
    )
    return whole / 1024, anonymous / 1024


def client(port: int, requests: Sequence[bytes], first: int, step: int, end: threading.Event) -> Answered:
    """Ask over one connection until the end, every ``step``-th query from the ``first`` on."""
    answered, place = Answered(Counter(), []), first
    connection = socket.create_connection(("127.0.0.1", port))
    stream = connection.makefile("rb")
    while not end.is_set():
        begin = time.perf_counter()
        connection.sendall(requests[place % len(requests)])
        head = b"".join(iter(stream.readline, b"\r\n")).lower()
        stream.read(_number(rb"content-length", head))
        status = int(head[9:12])
        answered.statuses[status] += 1
        if status == 200:
            answered.seconds.append(time.perf_counter() - begin)
            place += step
        if b"connection: close" in head:
            connection.close()
            connection = socket.create_connection(("127.0.0.1", port))
            stream = connection.makefile("rb")
        if status != 200:
            end.wait(_number(b"retry-after", head))
    connection.close()
    return answered


def _number(name: bytes, head: bytes) -> int:
    match = re.search(name + rb": (\d+)", head)
    return int(match[1]) if match else 0


def served(
    index: Path, workers: int, bodies: Sequence[bytes], log: Path, options: argparse.Namespace
) -> Measured:
    """What a server answers some clients."""
    end, answers, count = threading.Event(), list[Answered](), options.clients
    head = (
        "POST /api/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
    )
    requests = [f"{head}{len(body)}\r\n\r\n".encode() + body for body in bodies]
    with server(index, workers, log) as (port, pid):

        def ask(first: int) -> None:
            answers.append(client(port, requests, first, count, end))

        clients = [threading.Thread(target=ask, args=(number,)) for number in range(count)]
        _wait_until_idle(pid)
        begin, own, before = time.perf_counter(), time.process_time(), processor_seconds(tree(pid))
        for each in clients:
            each.start()
        while time.perf_counter() - begin < options.seconds or _fewer(port, options.searches):
            time.sleep(0.5)
        end.set()
        for each in clients:
            each.join()
        seconds, own = time.perf_counter() - begin, time.process_time() - own
        processor = processor_seconds(tree(pid)) - before
        statuses = sum((each.statuses for each in answers), Counter[int]())
        together = Answered(statuses, [each for answer in answers for each in answer.seconds])
        return Measured(together, seconds, processor, own, memory(tree(pid)))


def _fewer(port: int, wanted: int | None) -> bool:
    """Whether the server has answered fewer searches than wanted."""
    if wanted is None:
        return False
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    match = re.search(r'route="/api/search",status="200"} (\S+)', text)
    return match is None or float(match[1]) < wanted


def alone(index: Path, ids: Sequence[str], options: argparse.Namespace) -> Measured:
    """What the library answers, in blocks and with all processors, for as long as the server was asked."""
    from qbe import Facet, Fused, Pipeline, Query, default_stages, open_index

    with (
        open_index(index) as opened,
        Pipeline(opened, default_stages(opened) if options.rerank else Fused()) as pipeline,
    ):
        queries = [Query(opened.paper(paper_id), Facet.METHOD) for paper_id in ids]
        pipeline.batch_search(queries[:BLOCK], HITS + 1)
        begin, own, count, times = time.perf_counter(), time.process_time(), 0, list[float]()
        while time.perf_counter() - begin < options.seconds:
            block = [queries[(count + place) % len(queries)] for place in range(BLOCK)]
            start = time.perf_counter()
            count += len(pipeline.batch_search(block, HITS + 1))
            times += [time.perf_counter() - start] * BLOCK
        seconds = time.perf_counter() - begin
        return Measured(Answered(Counter({200: count}), times), seconds, time.process_time() - own)


def row(side: str, rounds: Sequence[Measured], library: Sequence[Measured]) -> list[object]:
    """The medians of a side's rounds, and the range of its share of the library's rate in the same round."""
    statuses = sum((each.answers.statuses for each in rounds), Counter[int]())
    shares = [each.rate / other.rate for each, other in zip(rounds, library, strict=True)]
    other = sum(count for status, count in statuses.items() if status not in (200, 429))

    def median(values: Iterable[float], form: str = ".0f") -> str:
        return format(statistics.median(values), form)

    return [
        *(side, statuses[200], statuses[429], other, median((each.rate for each in rounds), ".1f")),
        f"{statistics.median(shares):.0%} ({min(shares):.0%} to {max(shares):.0%})",
        " / ".join(median_p95([each for round in rounds for each in round.answers.seconds])),
        median(1000 * each.processor / len(each.answers.seconds) for each in rounds),
        median((each.processor / each.seconds for each in rounds), ".2f"),
        median((each.clients / each.seconds for each in rounds), ".2f"),
        *(median(each.memory[place] for each in rounds) for place in (0, 1)),
    ]


def main(argv: list[str]) -> None:
    from qbe import Facet, open_index

    options = parser().parse_args(argv)
    print(machine(_cli.threads(None), PACKAGES))
    with open_index(options.index) as index:
        papers = index.papers.ids
        ids = papers[:: max(1, len(papers) // options.papers)][: options.papers]
        ids = [paper_id for paper_id in ids if index.paper(paper_id).facet_positions(Facet.METHOD)[0]]
        stage = "reranked" if options.rerank else "first stage"
        print(
            f"{len(index):,} papers, {len(ids)} queries by method, {stage}, {options.clients} clients, "
            f"{options.rounds} rounds of {options.seconds} s\n"
        )

    def body(paper_id: str) -> bytes:
        request: dict[str, Any] = {"paper_ids": [paper_id], "facet": "method", "k": HITS}
        return json.dumps({**request, "rerank": options.rerank}).encode()

    bodies, library = list(map(body, ids)), list[Measured]()
    sides: dict[int, list[Measured]] = {count: [] for count in options.workers}
    with tempfile.TemporaryDirectory(prefix="qbe-") as work:
        for _ in range(options.rounds):
            for count, rounds in sides.items():
                rounds.append(served(options.index, count, bodies, Path(work) / "log", options))
            library.append(alone(options.index, ids, options))
    rows = [row(f"{count} worker{'s' * (count > 1)}", rounds, library) for count, rounds in sides.items()]
    print(table(HEADER, [*rows, row("batch_search", library, library)]))


if __name__ == "__main__":
    _cli.run("benchmarks.serving", main)

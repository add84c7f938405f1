"""``python -m benchmarks.serving``: what a server answers under load, beside the library alone.

Some clients at a time ask a server of an index for the papers that are like papers of the index in one
facet; a client asks again as soon as it has its answer, or after the time that it is told to wait. The same
queries go to `Pipeline.batch_search` in one process, without a server. The memory of the server is read
while it answers.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.common import machine, median_p95, positive, table
from qbe import _cli

PACKAGES = ("fastapi", "uvicorn", "faiss-cpu", "numpy", "onnxruntime")
HITS = 20
BLOCK = 16
START_SECONDS = 300
HEADER = ["stage", "clients", "seconds", "answers", "refused", "other", "answers a second", "ms / p95"]


class Answered(NamedTuple):
    """What one client saw: how often each status, and the seconds of each answer of status 200."""

    statuses: Counter[int]
    seconds: list[float]


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.serving", description=__doc__.split("\n\n")[0])
    parser.add_argument("--index", type=Path, required=True, metavar="DIR")
    parser.add_argument("--clients", type=positive, default=16, help="default: %(default)s")
    parser.add_argument("--seconds", type=positive, default=60, help="default: %(default)s")
    parser.add_argument("--papers", type=positive, default=500, help="queries, used in turn (default: 500)")
    parser.add_argument(
        "--searches", type=positive, help="go on until so many were answered, and watch the memory"
    )
    parser.add_argument("--rerank", action="store_true", help="have hits reranked")
    parser.add_argument("--threads", type=int, help="default: all processors this process may use")
    return parser


@contextmanager
def server(index: Path, threads: int, log: Path) -> Iterator[tuple[int, int]]:
    """The port and the process id of a server that is ready."""
    command = [sys.executable, "-m", "qbe.serve", "--index", str(index), "--port", "0"]
    with log.open("w") as errors:
        process = subprocess.Popen(
            [*command, "--threads", str(threads)], stdout=subprocess.PIPE, stderr=errors, text=True
        )
    assert process.stdout is not None
    try:
        match = re.search(r":(\d+)/", process.stdout.readline())
        if match is None:
            sys.exit(f"the server did not start: {log.read_text()}")
        port, deadline = int(match[1]), time.monotonic() + START_SECONDS
        while _status(port) != 200 and time.monotonic() < deadline:
            time.sleep(0.2)
        yield port, process.pid
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()


def _status(port: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/health")
    status = connection.getresponse().status
    connection.close()
    return status


def resident(pid: int) -> float:
    """MiB of memory that a process holds, files that it maps apart."""
    status = Path(f"/proc/{pid}/status").read_text()
    match = re.search(r"RssAnon:\s+(\d+) kB", status)
    return int(match[1]) / 1024 if match else 0.0


def client(port: int, bodies: Sequence[bytes], first: int, step: int, end: threading.Event) -> Answered:
    """Ask over one connection until the end, every ``step``-th query from the ``first`` on."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    answered, place = Answered(Counter(), []), first
    while not end.is_set():
        begin = time.perf_counter()
        connection.request(
            "POST", "/api/search", bodies[place % len(bodies)], {"Content-Type": "application/json"}
        )
        answer = connection.getresponse()
        answer.read()
        answered.statuses[answer.status] += 1
        if answer.status == 200:
            answered.seconds.append(time.perf_counter() - begin)
            place += step
        else:
            end.wait(float(answer.headers.get("Retry-After", 0)))
    connection.close()
    return answered


def run_clients(
    port: int, pid: int, bodies: Sequence[bytes], options: argparse.Namespace
) -> tuple[list[Answered], float, list[float]]:
    """What the clients saw, the seconds that took, and the server's memory (MiB) meanwhile."""
    end, answers, memory = threading.Event(), list[Answered](), list[float]()
    count = options.clients

    def ask(first: int) -> None:
        answers.append(client(port, bodies, first, count, end))

    clients = [threading.Thread(target=ask, args=(number,)) for number in range(count)]
    begin = time.perf_counter()
    for each in clients:
        each.start()
    while time.perf_counter() - begin < options.seconds or _fewer(port, options.searches):
        memory.append(resident(pid))
        time.sleep(1)
    end.set()
    for each in clients:
        each.join()
    return answers, time.perf_counter() - begin, memory


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


def alone(index: Path, ids: Sequence[str], rerank: bool, threads: int, seconds: float) -> float:
    """Queries that the library answers in a second, in blocks, for as long as the server was asked."""
    from qbe import Facet, Fused, Pipeline, Query, default_stages, open_index

    with (
        open_index(index, threads=threads) as opened,
        Pipeline(opened, default_stages(opened) if rerank else Fused()) as pipeline,
    ):
        queries = [Query(opened.paper(paper_id), Facet.METHOD) for paper_id in ids]
        pipeline.batch_search(queries[:BLOCK], HITS + 1)
        begin, count = time.perf_counter(), 0
        while time.perf_counter() - begin < seconds:
            block = [queries[(count + place) % len(queries)] for place in range(BLOCK)]
            count += len(pipeline.batch_search(block, HITS + 1))
        return count / (time.perf_counter() - begin)


def main(argv: list[str]) -> None:
    from qbe import Facet, open_index

    options = parser().parse_args(argv)
    threads = _cli.threads(options.threads)
    print(machine(threads, PACKAGES))
    with open_index(options.index) as index:
        papers = index.papers.ids
        ids = papers[:: max(1, len(papers) // options.papers)][: options.papers]
        ids = [paper_id for paper_id in ids if index.paper(paper_id).facet_positions(Facet.METHOD)[0]]
        print(f"{len(index):,} papers, {len(ids)} queries by method\n")

    def body(paper_id: str) -> bytes:
        request: dict[str, Any] = {"paper_ids": [paper_id], "facet": "method", "k": HITS}
        return json.dumps({**request, "rerank": options.rerank}).encode()

    with (
        tempfile.TemporaryDirectory(prefix="qbe-") as work,
        server(options.index, threads, Path(work) / "log") as (port, pid),
    ):
        answers, seconds, memory = run_clients(port, pid, list(map(body, ids)), options)
    statuses = sum((each.statuses for each in answers), Counter[int]())
    times = [each for answer in answers for each in answer.seconds]
    rate = statuses[200] / seconds
    other = sum(count for status, count in statuses.items() if status not in (200, 429))
    stage = "reranked" if options.rerank else "first stage"
    row = [stage, options.clients, f"{seconds:.0f}", statuses[200], statuses[429], other, f"{rate:.1f}"]
    print(table(HEADER, [[*row, " / ".join(median_p95(times))]]))
    tenth = max(1, len(memory) // 10)
    print(
        f"\nmemory of the server: {memory[tenth]:.0f} MiB after a tenth of the time, {memory[-1]:.0f} MiB at "
        f"the end, at most {max(memory):.0f} MiB"
    )
    library = alone(options.index, ids, options.rerank, threads, min(options.seconds, 60))
    print(f"batch_search alone: {library:.1f} queries a second; the server has {rate / library:.0%} of that")


if __name__ == "__main__":
    _cli.run("benchmarks.serving", main)

"""``python -m benchmarks.serving``: what a server answers under load, beside the library alone.

Some clients at a time ask a server of an index for the papers that are like papers of the index in one
facet; a client asks again as soon as it has its answer, or after the time that it is told to wait. The same
queries go to the library in one process, for the same answers (grades, matches and records of the hits in
JSON). Servers of several numbers of workers and the library take turns. Processor time is that of all
processes of a side; memory is the proportional set size of the server, in which what processes share counts
once, and its anonymous part, at the end.
"""

import argparse
import http.client
import itertools
import json
import os
import re
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from benchmarks.common import machine, median_p95, parsed, positive, serving, table
from qbe.cli import common as _cli
from qbe.util.work import thread_count

PACKAGES = ("starlette", "uvicorn", "faiss-cpu", "numpy", "onnxruntime")
HITS = 20
BLOCK = 16
IDLE_SECONDS = 0.1  # of a processor within a second
TICKS = os.sysconf("SC_CLK_TCK")
HEADER = (
    *("side", "answers", "refused", "other", "a second", "of the library", "ms / p95"),
    *("processor ms an answer", "MiB", "anonymous"),
)


class Measured(NamedTuple):
    """Answers of a side in one round: seconds of each, of the round and of processors; memory (MiB)."""

    statuses: Counter[int]
    answers: list[float]
    seconds: float
    processor: float
    memory: tuple[float, float] = (0.0, 0.0)


def tree(pid: int) -> list[int]:
    """Return a process and its children."""
    return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


def processor_seconds(pids: Sequence[int]) -> float:
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(field[11]) + int(field[12]) for field in fields) / TICKS


def wait_until_idle(pid: int) -> None:
    """Wait until titles are read, and whatever else a server does once it is ready."""
    before, now = -1.0, processor_seconds(tree(pid))
    while now - before >= IDLE_SECONDS:
        time.sleep(1)
        before, now = now, processor_seconds(tree(pid))


def memory(pids: Sequence[int]) -> tuple[float, float]:
    """Return the MiB that processes take, counting what they share once, and the anonymous part of it."""
    texts = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in pids]
    whole, anonymous = (
        sum(int(value) for text in texts for value in re.findall(rf"^{name}:\s+(\d+)", text, re.MULTILINE))
        for name in ("Pss", "Pss_Anon")
    )
    return whole / 1024, anonymous / 1024


def client(port: int, bodies: Iterable[str], end: threading.Event) -> tuple[Counter[int], list[float]]:
    """Ask over one connection until the end; how often each status came, and the seconds of each answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    statuses, seconds = Counter[int](), list[float]()
    for body in bodies:
        status = 0
        while status != 200 and not end.is_set():
            begin = time.perf_counter()
            connection.request("POST", "/api/search", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            status = answer.status
            statuses[status] += 1
            if status == 200:
                seconds.append(time.perf_counter() - begin)
            else:
                end.wait(int(answer.headers.get("Retry-After", 0)))
        if end.is_set():
            break
    connection.close()
    return statuses, seconds


def served(
    index: Path, workers: int, bodies: Sequence[str], log: Path, options: argparse.Namespace
) -> Measured:
    """Measure a server that some clients ask."""
    end, count = threading.Event(), options.clients
    with serving(index, log, "--workers", workers) as (port, pid), ThreadPoolExecutor(count) as threads:
        while workers > 1 and log.read_text().count("] ready") < workers:
            time.sleep(0.2)
        wait_until_idle(pid)
        begin, before = time.perf_counter(), processor_seconds(tree(pid))
        queries = (itertools.islice(itertools.cycle(bodies), each, None, count) for each in range(count))
        asking = [threads.submit(client, port, some, end) for some in queries]
        time.sleep(options.seconds)
        end.set()
        answered = [each.result() for each in asking]
        seconds = time.perf_counter() - begin
        processor = processor_seconds(tree(pid)) - before
        statuses = sum((each for each, _ in answered), Counter[int]())
        answers = [each for _, of_client in answered for each in of_client]
        return Measured(statuses, answers, seconds, processor, memory(tree(pid)))


def alone(index: Path, ids: Sequence[str], options: argparse.Namespace) -> Measured:
    """The same answers by the library, in blocks with all processors, for as long as the server was asked."""
    from qbe import Facet, Query, Stages, default_stages, open_index
    from qbe.search.request import SearchRequest
    from qbe.search.session import SearchSession
    from qbe.search.writers import Result, to_record

    with (
        open_index(index) as opened,
        SearchSession(opened, default_stages(opened) if options.rerank else Stages()) as session,
    ):
        queries = [Query(opened.paper(paper_id), Facet.METHOD) for paper_id in ids]
        requests = [SearchRequest(each, HITS + 1, grades=True) for each in queries]

        def answer(block: list[SearchRequest]) -> None:
            for each in session.batch(block):
                result = Result(each.query.query_id, each.query, each.hits[:HITS])
                json.dumps(to_record(opened.paper, result))

        answer(requests[:BLOCK])
        begin, own, count, times = time.perf_counter(), time.process_time(), 0, list[float]()
        while time.perf_counter() - begin < options.seconds:
            block = [requests[(count + place) % len(requests)] for place in range(BLOCK)]
            start = time.perf_counter()
            answer(block)
            count += BLOCK
            times += [time.perf_counter() - start] * BLOCK
        seconds = time.perf_counter() - begin
        return Measured(Counter({200: count}), times, seconds, time.process_time() - own)


def row(side: str, rounds: Sequence[Measured], library: Sequence[Measured]) -> list[object]:
    """Return the medians of a side's rounds, and the range of its share of the library's rate in a round."""
    statuses = sum((each.statuses for each in rounds), Counter[int]())
    rates, of_library = (
        [len(each.answers) / each.seconds for each in measured] for measured in (rounds, library)
    )
    shares = [rate / other for rate, other in zip(rates, of_library, strict=True)]

    def median(values: Iterable[float], form: str = ".0f") -> str:
        return format(statistics.median(values), form)

    return [
        *(side, statuses[200], statuses[429], statuses.total() - statuses[200] - statuses[429]),
        median(rates, ".1f"),
        f"{statistics.median(shares):.0%} ({min(shares):.0%} to {max(shares):.0%})",
        " / ".join(median_p95([each for measured in rounds for each in measured.answers])),
        median(1000 * each.processor / len(each.answers) for each in rounds),
        *(median(each.memory[place] for each in rounds) for place in (0, 1)),
    ]


def main(argv: list[str]) -> None:
    from qbe import Facet, open_index

    options = parsed(
        "serving",
        __doc__,
        argv,
        index={"required": True, "help": "as of `make whole`"},
        workers={"type": positive, "nargs": "+", "default": [1, 2]},
        clients=16,
        seconds={"type": positive, "default": 60, "help": "of a side and round (default: 60)"},
        rounds=3,
        papers={"type": positive, "default": 500, "help": "queries, used in turn (default: 500)"},
        rerank={"action": "store_true", "help": "have hits reranked"},
    )
    print(machine(thread_count(None), PACKAGES))
    with open_index(options.index) as index:
        papers = index.papers.ids
        ids = papers[:: max(1, len(papers) // options.papers)][: options.papers]
        ids = [paper_id for paper_id in ids if index.paper(paper_id).facet_positions(Facet.METHOD)[0]]
        stage = "reranked" if options.rerank else "first stage"
        print(
            f"{len(index):,} papers, {len(ids)} queries by method, {stage}, {options.clients} clients, "
            f"{options.rounds} rounds of {options.seconds} s\n"
        )

    request, library = {"facet": "method", "k": HITS, "rerank": options.rerank}, list[Measured]()
    bodies = [json.dumps({"paper_ids": [paper_id], **request}) for paper_id in ids]
    sides: dict[int, list[Measured]] = {count: [] for count in options.workers}
    with tempfile.TemporaryDirectory(prefix="qbe-") as work:
        for _ in range(options.rounds):
            for count, rounds in sides.items():
                rounds.append(served(options.index, count, bodies, Path(work) / "log", options))
            library.append(alone(options.index, ids, options))
    rows = [row(f"{count} worker{'s' * (count > 1)}", rounds, library) for count, rounds in sides.items()]
    print(table(HEADER, [*rows, row("the library", library, library)]))


if __name__ == "__main__":
    _cli.run("benchmarks.serving", main)

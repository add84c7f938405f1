"""``python -m benchmarks.kills``: what becomes of an index under kills, full disks, readers and damage.

Each process that is killed, and each that may be ended by a signal, is forked from this one, which has loaded
all but Java. An index has old papers, or new ones, and answers of each state are known to the last bit.
"""

import argparse
import contextlib
import errno
import http.client
import itertools
import json
import logging
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.common import SAMPLE, parsed, serving
from qbe.cli import common as _cli
from qbe.corpus.json_formats import read_jsonl
from qbe.errors import IndexFormatError, QbeError
from qbe.index.build import build
from qbe.index.index import Index
from qbe.index.source import BuildSettings
from qbe.index.store import CURRENT
from qbe.index.update import append_papers, delete_papers
from qbe.models.cards import DEFAULT_ENCODER
from qbe.query import Query
from qbe.search.pipeline import Pipeline
from qbe.search.stages import BM25, Dense, Fused

PAPERS, NEW = 40, 8
QUERIES = ("s003", "s020", "s036")
DAMAGES = ("emptied", "halved", "lengthened", "exchanged", "flipped")


def main(argv: list[str]) -> None:
    counts = {"kills": 60, "disks": 60, "updates": 200, "clients": 8, "damages": 500, "seed": 1}
    own: dict[str, Any] = {name: {"type": int, "default": count} for name, count in counts.items()}
    encoder = {"default": DEFAULT_ENCODER}
    options = parsed("kills", __doc__, argv, **own, encoder=encoder)
    logging.disable()  # of sentences that the encoder cuts
    wrong = list[str]()
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(Path(folder), options)
        print(
            "| what | times | old | new | told | same | wrong | seconds |\n|---|--:|--:|--:|--:|--:|--:|--:|"
        )
        for what, count, attempts in (
            ("killed before a step of an update", options.kills, trial.kills),
            ("a full disk at a step of an update", options.disks, trial.full_disks),
            (f"updates under {options.clients} clients and a server", options.updates, trial.updates),
            ("a file damaged", options.damages, trial.damages),
        ):
            started, outcomes = time.monotonic(), list(attempts(count) if count else ())
            counted = Counter(outcome.partition(":")[0] for outcome in outcomes)
            wrong += [f"{what}: {outcome}" for outcome in outcomes if outcome.startswith("wrong")]
            numbers = [counted[kind] for kind in ("old", "new", "told", "same", "wrong")]
            cells = [what, count, *numbers, f"{time.monotonic() - started:.0f}"]
            print(f"| {' | '.join(map(str, cells))} |", flush=True)
    if wrong:
        raise SystemExit("\n".join(["FAILED", *wrong]))


class Trial:
    """Indexes of old papers and of new ones, and what each answers."""

    def __init__(self, work: Path, options: argparse.Namespace) -> None:
        self.work, self.index, self.clients = work, work / "place" / "index", options.clients
        self.chance = random.Random(options.seed)
        self.papers = [
            replace(each, title=f"{each.title} {each.paper_id}")
            for each in itertools.islice(read_jsonl(SAMPLE / "corpus.jsonl"), PAPERS + NEW)
        ]
        self.new = [*self.papers[PAPERS:], replace(self.papers[5], title="Another title s006")]
        self.settings = BuildSettings(encoder=options.encoder)

        def build_all() -> list[Any]:
            build(work / "old", self.papers[:PAPERS], self.settings)
            build(work / "other", self.papers[:PAPERS][::-1], self.settings)
            shutil.copytree(work / "old", work / "new")
            append_papers(work / "new", self.new, update=True)
            return [answers(work / "old"), answers(work / "new")]

        self.old, self.updated = forked(build_all)

    def prepare(self) -> None:
        shutil.rmtree(self.index.parent, ignore_errors=True)
        shutil.copytree(self.work / "old", self.index)

    def build(self, papers: int) -> None:
        build(self.index, self.papers[:papers], self.settings)

    def update(self) -> None:
        append_papers(self.index, self.new, update=True)

    def state(self) -> str:
        """Compare every answer of the index with those before and after the update."""
        found = answers(self.index)
        return "old" if found == self.old else "new" if found == self.updated else f"wrong: {found[-1]}"

    def chosen(self, count: int, *, removals: bool) -> list[int]:
        """Steps of an update, evenly spread, the first and the last among them."""
        self.prepare()

        def counted() -> int:
            passed = list[int]()
            before_step(passed.append, removals=removals)
            self.update()
            return len(passed)

        steps = forked(counted)
        return sorted({round(1 + number * (steps - 1) / max(count - 1, 1)) for number in range(count)})

    def kills(self, count: int) -> Iterator[str]:
        """Kill an update before some steps; the index is old or new, and repeating it leaves nothing."""
        steps = self.chosen(count, removals=True)
        steps += [self.chance.choice(steps) for _ in range(count - len(steps))]
        for number in steps:
            self.prepare()

            def killed(number: int = number) -> None:
                before_step(lambda step: os.kill(os.getpid(), signal.SIGKILL) if step == number else None)
                self.update()

            def repeated(number: int = number) -> str:
                state = self.state()
                self.update()
                again, left = self.state(), sorted(path.name for path in self.index.iterdir())
                if again != "new" or len(left) != 2 or CURRENT not in left:
                    return f"wrong: step {number}: afterwards {again}, {left}"
                return state

            code, _ = ended(killed)
            yield forked(repeated) if code == -signal.SIGKILL else f"wrong: step {number}: status {code}"

    def full_disks(self, count: int) -> Iterator[str]:
        """No space left at some steps, or in big files: told, and the index is the old or the new one."""

        def attempt(number: int, kilobytes: int) -> str:
            def step_fails(step: int) -> None:
                if step == number:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

            told, limits = "", resource.getrlimit(resource.RLIMIT_FSIZE)
            if number:
                before_step(step_fails, removals=False)
            else:
                resource.setrlimit(resource.RLIMIT_FSIZE, (kilobytes << 10, limits[1]))
            try:
                self.update()
            except QbeError as error:
                told = str(error)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            state, left = self.state(), sorted(path.name for path in self.index.iterdir())
            if "\n" in told or (state != "new" and (not told or left != ["000001", CURRENT])):
                return f"wrong: step {number}, {kilobytes} kB: {state}, {left}, told {told!r}"
            return state

        sizes = [(0, size) for size in (1, 64, 4, 16, 32, 128)][: count // 2]
        steps = self.chosen(count - len(sizes), removals=False)
        for number, kilobytes in [*((step, 0) for step in steps), *sizes]:
            self.prepare()
            yield forked(partial(attempt, number, kilobytes))

    def updates(self, count: int) -> Iterator[str]:
        """Append and delete while clients ask a server and open the index: answers are old or new."""
        expected: dict[int, Any] = {}
        self.prepare()
        for papers in (PAPERS + NEW, PAPERS):  # the order is the same afterwards
            shutil.rmtree(self.index)
            forked(partial(self.build, papers))
            expected[papers] = forked(lambda: answers(self.index))
        stop, counted, wrong = threading.Event(), Counter[str](), list[str]()
        served: dict[bool, list[Any]] = {}
        with (
            serving(self.index, self.work / "log", "--threads", 1, "--rerank", "none") as (port, _),
            ThreadPoolExecutor(self.clients) as threads,
        ):

            def ask() -> None:
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                body = json.dumps({"paper_ids": [QUERIES[0]], "k": 20, "rerank": False})
                connection.request("POST", "/api/search", body, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                content = json.loads(answer.read())
                if answer.status == 429:  # asked too often
                    return
                hits = [[hit["paper_id"], hit["title"]] for hit in content.get("hits", [])]
                first = served.setdefault(any(int(each[1:]) > PAPERS for each, _ in hits), hits)
                mixed = hits != first or any(not title.endswith(each) for each, title in hits)
                if answer.status != 200 or mixed:
                    wrong.append(f"wrong: {answer.status} {content}"[:500])

            def read() -> None:
                with Index(self.index, threads=1) as index:
                    time.sleep(0.1)  # what is opened from now on may be superseded
                    if answered(index) != expected[len(index)]:
                        wrong.append(f"wrong: another answer of {len(index)} papers")

            def repeat(target: Callable[[], None]) -> None:
                while not stop.is_set():
                    try:
                        target()
                    except Exception as error:
                        wrong.append(f"wrong: {target.__name__}: {error!r}")
                    counted[target.__name__] += 1

            for number in range(self.clients):
                threads.submit(repeat, (ask, read)[number % 2])
            for number in range(count):
                if number % 2:
                    delete_papers(self.index, [paper.paper_id for paper in self.papers[PAPERS:]])
                else:
                    append_papers(self.index, self.papers[PAPERS:])
            stop.set()
        print(f"{counted['ask']:,} answers of the server, {counted['read']:,} of readers", file=sys.stderr)
        yield from wrong
        yield from ("new" if number % 2 == 0 else "old" for number in range(count))

    def damages(self, count: int) -> Iterator[str]:
        """Change a file in each way, then single bits at random: it is told, or the answers are the same."""
        self.prepare()
        result, chance = self.work / "damages", self.chance

        def attempts() -> None:
            files = sorted(path for path in self.index.rglob("*") if path.is_file())
            each = [(path, kind) for path in files for kind in DAMAGES]
            chance.shuffle(each)
            with result.open("w") as outcomes:
                done = 0
                while done < count:
                    path, kind = each.pop() if each else (chance.choice(files), "flipped")
                    other = self.work / "other" / path.relative_to(self.index)
                    content = path.read_bytes()
                    changed = damaged(content, kind, other, chance)
                    if changed is None:
                        continue
                    done += 1
                    path.write_bytes(changed)
                    try:
                        outcome = "same" if answers(self.index) == self.old else "wrong: another answer"
                    except IndexFormatError as error:
                        outcome = "told" if "\n" not in str(error) else f"wrong: {error!r}"
                    except Exception as error:  # what a command would end in
                        outcome = f"wrong: {error!r}"
                    path.write_bytes(content)
                    where = f"({path.relative_to(self.index)} {kind})"
                    print(f"{outcome} {where}".replace("\n", " "), file=outcomes, flush=True)

        code, _ = ended(attempts)
        lines = result.read_text().splitlines()
        yield from (line if line.startswith("wrong") else line.partition(" ")[0] for line in lines)
        if code:
            yield f"wrong: ended by {code} after {len(lines)} damages"


def damaged(content: bytes, kind: str, other: Path, chance: random.Random) -> bytes | None:
    """The content of a damaged file; None where this kind leaves it as it is."""
    if kind == "exchanged":  # for a file of the same length of another index
        changed = other.read_bytes() if other.is_file() else b""
        return changed if len(changed) == len(content) and changed != content else None
    if not content:
        return None
    if kind == "flipped":
        place = chance.randrange(len(content))
        return content[:place] + bytes([content[place] ^ 1 << chance.randrange(8)]) + content[place + 1 :]
    return {"emptied": b"", "halved": content[: len(content) // 2], "lengthened": content + bytes(16)}[kind]


def answers(folder: Path) -> list[Any]:
    """What an index answers; the last are its papers."""
    with Index(folder, threads=1) as index:
        return answered(index)


def answered(index: Index) -> list[Any]:
    found: list[Any] = []
    for stage in (BM25(), Dense(), Fused()):
        with Pipeline(index, stage) as pipeline:
            for paper_id in QUERIES:
                hits = pipeline.search(Query(index.paper(paper_id)), k=200)
                found.append([[hit.paper_id, hit.score] for hit in hits])
    found.append([len(metadata) for metadata in index.papers.read_metadata()])
    return [*found, [[paper.paper_id, paper.title] for paper in index]]


def before_step(reached: Callable[[int], object], *, removals: bool = True) -> None:
    """Have a function called before each step on the disk, with the step's number."""
    numbers, fsync = itertools.count(1), os.fsync
    events = ["os.rename", "os.link", "os.mkdir", *(["os.remove", "os.rmdir"] if removals else [])]

    def hook(event: str, values: tuple[Any, ...]) -> None:
        written = event == "open" and isinstance(values[1], str) and set(values[1]) & set("wax+")
        if (written or event in events) and "/place/" in str(values[0]):
            reached(next(numbers))

    def synced(descriptor: int) -> None:
        reached(next(numbers))
        fsync(descriptor)

    sys.addaudithook(hook)
    os.fsync = synced  # type: ignore[assignment]


def ended(task: Callable[[], Any]) -> tuple[int | None, Any]:
    """The exit code of a process of its own that runs a task, and what this returns."""
    fork, result = multiprocessing.get_context("fork"), None
    receiver, sender = fork.Pipe(duplex=False)
    process = fork.Process(target=lambda: sender.send(task()))
    process.start()
    sender.close()
    with contextlib.suppress(EOFError):  # it sent nothing
        result = receiver.recv()
    process.join()
    return process.exitcode, result


def forked(task: Callable[[], Any]) -> Any:
    """What a task returns in a process of its own."""
    code, result = ended(task)
    if code:
        raise SystemExit(f"FAILED: a process ended with {code}")
    return result


if __name__ == "__main__":
    _cli.run("benchmarks.kills", main)

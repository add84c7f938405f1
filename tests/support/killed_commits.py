"""Writes to an index, killed just before one of their steps on the disk: flushing, renaming, removing.

Usage: killed_commits.py FOLDER ENCODER KILLS SEED. FOLDER holds ``first.jsonl`` and ``second.jsonl``. KILLS
is how many steps are chosen, those that replace a commit or an index and the next ones first. Afterwards the
index must hold what it held before, or what it was to hold, with the vectors of its papers; and the write
succeeds when it is repeated. Each write and each check is a process of its own, forked from this one, which
has loaded all. To standard output goes how often there was the old and the new index, and what was wrong.
"""

import json
import os
import random
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from qbe.index.building.compaction import compact

from qbe.index.building.build import build
from qbe.index.building.changes import append_papers, delete_papers
from qbe.index.building.settings import BuildSettings
from qbe.index.dense import faiss_build  # noqa: F401  (loaded before there are processes)
from qbe.index.index import Index
from qbe.util import files

COMMITS = ("segments.json", "index", "exchange")
"""What is renamed, or what is done, where another index becomes visible."""

Write = Callable[[Path], object]


def steps(reached: Callable[[str], object]) -> None:
    """Have a function called with the name of each step before it is done."""

    def before(module: Any, name: str) -> None:
        original = getattr(module, name)

        def step(*arguments: Any, **options: Any) -> Any:
            last = str(arguments[-1] if name in ("rename", "replace") else name)
            reached(Path(last).name.strip("_"))
            return original(*arguments, **options)

        setattr(module, name, step)

    for name in ("fsync", "rename", "replace", "unlink", "rmdir"):
        before(os, name)
    before(files, "_exchange")


def forked(task: Callable[[], Any], result: Path) -> tuple[int, Any]:
    """The status of a process that carries out a task, and what that returned."""
    result.unlink(missing_ok=True)
    child = os.fork()
    if not child:
        try:
            result.write_text(json.dumps(task()))
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return status, json.loads(result.read_text()) if result.exists() and result.stat().st_size else None


def content(folder: Path) -> Any:
    """The titles of an index by id, and the first numbers of its vectors; None where there is none."""
    if not folder.exists():
        return None
    with Index(folder, threads=1) as index:
        papers = {paper.paper_id: paper.title for paper in index}
        rows = [index.papers.row(paper_id) for paper_id in papers]
        whole = np.asarray(index.whole_vectors[np.array(rows)])[:, 0].astype(float).round(3).tolist()
        sentences = index.sentence_vectors[:1].astype(np.float32)
        (candidates,) = index.candidate_source().nearest([sentences], 9)
        return [papers, dict(zip(papers, whole, strict=True)), len(index), len(candidates)]


def killed(write: Write, folder: Path, step: int, result: Path) -> int:
    """The status of a write that is killed before a step."""
    count = 0

    def reached(_: str) -> None:
        nonlocal count
        count += 1
        if count == step:
            os.kill(os.getpid(), signal.SIGKILL)

    def task() -> None:
        steps(reached)
        write(folder)

    return forked(task, result)[0]


def main(work: Path, encoder: str, kills: int, seed: int) -> None:
    first, second = work / "first.jsonl", work / "second.jsonl"
    settings, result = BuildSettings(bm25=False, encoder=encoder), work / "result"
    bases: dict[str, Path | None] = {"none": None, "plain": work / "plain", "updated": work / "updated"}
    forked(lambda: build(work / "plain", [str(first)], settings) and None, result)
    shutil.copytree(work / "plain", work / "updated")
    forked(lambda: append_papers(work / "updated", [str(second)]) and None, result)
    some = [json.loads(line)["paper_id"] for line in first.read_text().splitlines()[:3]]
    writes: list[tuple[str, str, Write]] = [
        ("build", "none", lambda folder: build(folder, [str(first)], settings, overwrite=True)),
        ("overwrite", "plain", lambda folder: build(folder, [str(second)], settings, overwrite=True)),
        ("append", "plain", lambda folder: append_papers(folder, [str(second)])),
        ("delete", "updated", lambda folder: delete_papers(folder, some)),
        ("compact", "updated", compact),
    ]
    outcomes, wrong, chance = Counter[str](), [], random.Random(seed)
    chosen = []
    index = work / "place" / "index"

    def prepare(base: str) -> None:
        shutil.rmtree(index.parent, ignore_errors=True)
        index.parent.mkdir()
        if (source := bases[base]) is not None:
            shutil.copytree(source, index)

    states = {}
    for name, base, write in writes:
        prepare(base)
        _, old = forked(lambda: content(index), result)
        passed: list[str] = []

        def counted(write: Write = write, passed: list[str] = passed) -> list[str]:
            steps(passed.append)
            write(index)
            return passed

        _, reached = forked(counted, result)
        states[name] = [old, forked(lambda: content(index), result)[1]]
        at = [number for number, step in enumerate(reached, start=1) if step in COMMITS]
        near = {number + by for number in at for by in (0, 1)}
        chosen += [
            (number not in near, chance.random(), name, base, number) for number in range(1, len(reached) + 1)
        ]
    for _, _, name, base, number in sorted(chosen)[:kills]:
        (write,) = (write for each, _, write in writes if each == name)
        prepare(base)
        status = killed(write, index, number, result)
        _, found = forked(lambda: content(index), result)
        place = f"{name}, before step {number}"
        if status != signal.SIGKILL or found not in states[name]:
            wrong.append(f"{place}: status {status}, {found}")
            continue
        is_new = found == states[name][1]
        outcomes["new" if is_new else "old"] += 1
        if name != "compact" and not is_new:
            forked(lambda write=write: write(index) and None, result)
            if forked(lambda: content(index), result)[1] != states[name][1]:
                wrong.append(f"{place}: cannot be repeated")
    print(json.dumps({**outcomes, "steps": len(chosen), "wrong": wrong}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))

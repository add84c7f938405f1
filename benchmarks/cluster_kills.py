"""``python -m benchmarks.cluster_kills``: random kills of replicas, nodes and drivers under clients.

Clients search an index of shards on several nodes of this machine, and compare each answer with that of one
index; now and then papers are appended. At random moments a replica, a node or a whole client is killed with
SIGKILL; a killed node is replaced. In the end no answer may have been wrong, no paper lost, and no process or
hidden file left.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import IO, Any

from benchmarks.cluster import nodes
from benchmarks.common import positive, table

REPLICAS = 2
SETTLE_SECONDS = 20.0
"""Within which all processes must be gone at the end."""


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.cluster_kills", description=__doc__.split("\n\n")[0])
    parser.add_argument("--kills", type=positive, default=30, help="default: %(default)s")
    parser.add_argument("--clients", type=positive, default=4, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--client", nargs=3, metavar=("ADDRESS", "INDEX", "SEED"), help=argparse.SUPPRESS)
    return parser


def main(argv: list[str]) -> None:
    options = parser().parse_args(argv)
    if options.client:
        client(*options.client)
        return
    with tempfile.TemporaryDirectory() as work:
        run(Path(work), options.kills, options.clients, random.Random(options.seed))


def run(work: Path, kills: int, clients: int, chance: random.Random) -> None:
    """Kill, and then look at what is left."""
    from qbe.datasets.embedded import copy_sample
    from qbe.index.building.sharding import IndexShards, build_shards
    from qbe.index.opening import Index, build_index

    copy_sample(work / "sample")
    with build_index(work / "one", work / "sample" / "corpus.jsonl"):
        pass
    build_shards(work / "index", IndexShards(work / "one"), 2)
    killed: Counter[str] = Counter()
    added = 0
    with nodes(3) as cluster:
        running = [_start(work, cluster.address, number) for number in range(clients)]
        for kill in range(kills):
            time.sleep(chance.uniform(2, 8))
            what = chance.choice(["replica", "replica", "replica", "node", "driver"])
            if what == "replica":
                _kill_replica(chance)
            elif what == "node":
                workers = list(cluster.worker_nodes)
                cluster.remove_node(chance.choice(workers), False)
                cluster.add_node(num_cpus=1)
            else:
                place = chance.randrange(clients)
                running[place].kill()
                running[place].wait()
                running[place] = _start(work, cluster.address, clients + kill)
            killed[what] += 1
            if kill % 5 == 0:
                with Index(work / "index") as index:
                    index.append(_new(index, kill))
                added += 1
        for process in running:
            process.send_signal(signal.SIGTERM)
        codes = [process.wait(60) for process in running]
    results = [json.loads(line) for path in work.glob("client-*.jsonl") for line in _whole_lines(path)]
    left = _left(SETTLE_SECONDS)
    with Index(work / "index") as index:
        papers = len(index)
    hidden = sorted(path.name for path in work.iterdir() if path.name.startswith(".") and path.is_dir())
    rows: list[list[object]] = [
        ["kills", ", ".join(f"{count} {what}s" for what, count in sorted(killed.items()))],
        ["answers", f"{len(results)}, {sum(r['wrong'] for r in results)} wrong"],
        ["searches that failed", sum("error" in r for r in results)],
        ["clients' exit codes", Counter(codes)],
        ["papers", f"{papers} of {128 + added}"],
        ["processes left", len(left)],
        ["hidden folders left", ", ".join(hidden) or "none"],
    ]
    print(table(["", ""], rows))
    for result in results:
        if result["wrong"] or "error" in result:
            print(result)


def client(address: str, folder: str, seed: str) -> None:
    """Search without end, and write whether each answer is that of one process over the same commit."""
    from qbe.cluster.index import Fleet, open_index
    from qbe.index.opening import Index
    from qbe.query import Query
    from qbe.search.pipeline import Pipeline
    from qbe.search.stages import Dense

    chance, config = random.Random(seed), Dense()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    fleet = Fleet(replicas=REPLICAS)
    with (
        (Path(folder).parent / f"client-{seed}.jsonl").open("w") as target,
        open_index(folder, address, fleet=fleet, deadline=120) as there,
        Pipeline(there, config) as pipeline,
    ):
        while True:
            there.refresh()
            query = Query(there.paper(f"s{chance.randrange(1, 129):03d}"))
            try:
                hits = pipeline.search(query, 50)
            except Exception as error:
                _write(target, {"wrong": False, "error": repr(error)})
                continue
            with Index(folder) as here, Pipeline(here, config) as expected:
                is_same = hits == expected.search(query, 50)
                if not is_same and here.generation != there.generation:
                    continue  # a commit between the two searches
            _write(target, {"wrong": not is_same})


def _write(target: IO[str], record: dict[str, Any]) -> None:
    target.write(json.dumps(record) + "\n")
    target.flush()


def _start(work: Path, address: str, seed: int) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-m",
        "benchmarks.cluster_kills",
        "--client",
        address,
        str(work / "index"),
        str(seed),
    ]
    return subprocess.Popen(command, stderr=(work / f"errors-{seed}").open("wb"))


def _new(index: Any, number: int) -> list[Any]:
    import dataclasses

    return [dataclasses.replace(index.paper("s001"), paper_id=f"n{number}")]


def _kill_replica(chance: random.Random) -> None:
    processes = _actors()
    if processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(chance.choice(processes), signal.SIGKILL)


def _actors() -> list[int]:
    return [
        int(folder.name) for folder in Path("/proc").glob("[0-9]*") if "ray::ShardActor" in _title(folder)
    ]


def _title(folder: Path) -> str:
    with contextlib.suppress(OSError):
        return (folder / "cmdline").read_text()
    return ""


def _left(seconds: float) -> list[int]:
    """Processes of replicas that are still there after so many seconds."""
    deadline = time.monotonic() + seconds
    while _actors() and time.monotonic() < deadline:
        time.sleep(0.2)
    return _actors()


def _whole_lines(path: Path) -> list[str]:
    return [line for line in path.read_text().split("\n")[:-1] if line]


if __name__ == "__main__":
    main(sys.argv[1:])

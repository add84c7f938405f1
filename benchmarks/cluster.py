"""``python -m benchmarks.cluster``: shards on several Ray nodes beside the same papers in one index.

``same`` compares every run, ``overhead`` the time of one query with and without Ray, ``killed`` answers while
a node is killed, ``encoding`` the papers a second of two Ray workers and of two processes without Ray. Nodes
are processes of this machine.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.common import interleaved, machine, median_p95, positive, table
from qbe.cli import common as _cli

if TYPE_CHECKING:
    from qbe.query import Query
    from qbe.search.stages import Stages
    from qbe.types import Hit

PACKAGES = ("ray", "onnxruntime", "faiss-cpu", "pyserini")


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.cluster", description=__doc__.split("\n\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("same", "overhead", "killed"):
        command = commands.add_parser(name)
        command.add_argument("--index", type=Path, default=Path("indexes/whole"), metavar="DIR")
        command.add_argument("--topics", type=Path, default=Path("qrels/topics.tsv"), metavar="FILE")
        if name != "overhead":
            command.add_argument(
                "--shards",
                type=Path,
                default=Path("indexes/whole-4"),
                metavar="DIR",
                help="of the same papers",
            )
            command.add_argument("--nodes", type=positive, default=3, help="default: %(default)s")
        if name == "overhead":
            command.add_argument("--rounds", type=positive, default=3, help="default: %(default)s")
        if name == "killed":
            command.add_argument("--searches", type=positive, default=200, help="default: %(default)s")
    encoding = commands.add_parser("encoding")
    encoding.add_argument("--corpus", type=Path, required=True, metavar="FILE")
    encoding.add_argument("--papers", type=positive, default=4096, help="default: %(default)s")
    return parser


@contextlib.contextmanager
def nodes(count: int) -> Iterator[Any]:
    """A cluster of so many nodes on this machine, to which this process is connected."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    from qbe.cluster.ray_runtime import connected

    head = {"num_cpus": 1, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(count - 1):
        cluster.add_node(num_cpus=1)
    try:
        with connected(cluster.address):
            cluster.wait_for_nodes()
            yield cluster
    finally:
        cluster.shutdown()  # type: ignore[no-untyped-call]


def stages() -> dict[str, Stages]:
    """The searches that are compared."""
    from qbe.search.stages import BM25, Dense, Fused, Projections, Stages

    return {
        "bm25": Stages(BM25()),
        "dense": Stages(Dense()),
        "fused": Stages(Fused()),
        "fused, projections": Fused() >> Projections(),
    }


def queries_for(index: Any, topics: Path) -> list[Query]:
    from qbe.search.queries import queries_of, topics_of

    return list(queries_of(index, topics_of(index, topics)))


def same(options: argparse.Namespace) -> None:
    """All runs over both: how many rankings are the same, and the largest difference of scores."""
    from qbe.cluster.index import open_index
    from qbe.index.index import Index
    from qbe.search.session import Pipeline

    rows = []
    with nodes(options.nodes), Index(options.index) as single, open_index(options.shards, "auto") as several:
        queries = queries_for(single, options.topics)
        for name, config in stages().items():
            with Pipeline(single, config) as expected, Pipeline(several, config) as actual:
                pairs = [(expected.search(query, 1000), actual.search(query, 1000)) for query in queries]
            rows.append([name, len(pairs), sum(map(_same_order, pairs)), f"{max(map(_difference, pairs)):g}"])
            print(rows[-1], flush=True)
    print(table(["search", "queries", "same ids in the same order", "largest difference of scores"], rows))


def _same_order(pair: tuple[Sequence[Hit], Sequence[Hit]]) -> bool:
    expected, actual = ([hit.paper_id for hit in hits] for hits in pair)
    return expected == actual


def _difference(pair: tuple[Sequence[Hit], Sequence[Hit]]) -> float:
    scores = {hit.paper_id: hit.score for hit in pair[0]}
    return max(abs(scores.get(hit.paper_id, float("inf")) - hit.score) for hit in pair[1])


def overhead(options: argparse.Namespace) -> None:
    """One query at a time over an index in one shard: with Ray and without."""
    from qbe.cluster.index import Fleet, open_index
    from qbe.index.index import Index
    from qbe.search.session import Pipeline

    threads = _cli.threads(None)
    rows = []
    with (
        nodes(1),
        Index(options.index) as here,
        open_index(options.index, "auto", fleet=Fleet(threads=threads)) as there,
    ):
        queries = queries_for(here, options.topics)
        for name, config in stages().items():
            with Pipeline(here, config) as plain, Pipeline(there, config) as on_ray:
                pairs = [(plain.search(query, 100), on_ray.search(query, 100)) for query in queries]
                assert all(expected == actual for expected, actual in pairs)
                times: dict[str, list[float]] = {"without": [], "on Ray": []}
                for _ in range(options.rounds):
                    for query in queries:
                        for side, pipeline in (("without", plain), ("on Ray", on_ray)):
                            begin = time.perf_counter()
                            pipeline.search(query, 100)
                            times[side].append(time.perf_counter() - begin)
            medians = {side: statistics.median(seconds) for side, seconds in times.items()}
            more = medians["on Ray"] - medians["without"]
            both = [" / ".join(median_p95(seconds)) for seconds in times.values()]
            rows.append([name, *both, f"{1000 * more:.1f}"])
            print(rows[-1], flush=True)
    print(table(["search", "without Ray, ms", "on Ray, ms", "more, ms"], rows))


def killed(options: argparse.Namespace) -> None:
    """Searches while a node is killed with SIGKILL: with two replicas, and with one."""
    from qbe.cluster.index import Fleet, open_index
    from qbe.index.index import Index
    from qbe.search.session import Pipeline
    from qbe.search.stages import Fused

    config = Fused()
    rows = []
    with Index(options.index) as single, Pipeline(single, config) as pipeline:
        queries = queries_for(single, options.topics)
        expected = [pipeline.search(query, 100) for query in queries]
    for name, replicas in (("2 replicas", 2), ("1, waits", 1)):
        with nodes(options.nodes) as cluster:
            victim = cluster.add_node(num_cpus=1)
            cluster.wait_for_nodes()
            fleet = Fleet(replicas=replicas)
            with (
                open_index(options.shards, "auto", fleet=fleet, deadline=120) as index,
                Pipeline(index, config) as pipeline,
            ):
                pipeline.search(queries[0], 100)
                moment = threading.Timer(3.0, cluster.remove_node, [victim, False])
                moment.start()
                same_answers = failed = 0
                slowest = 0.0
                for number in range(options.searches):
                    place = number % len(queries)
                    begin = time.perf_counter()
                    try:
                        hits = pipeline.search(queries[place], 100)
                    except Exception as error:
                        failed += 1
                        print(error, flush=True)
                        continue
                    slowest = max(slowest, time.perf_counter() - begin)
                    same_answers += hits == expected[place]
                moment.join()
        wrong = options.searches - same_answers - failed
        rows.append([name, options.searches, same_answers, failed, wrong, f"{slowest:.1f}"])
        print(rows[-1], flush=True)
    print(table(["", "searches", "as one index", "failed", "wrong", "slowest, s"], rows))


def encoding(options: argparse.Namespace) -> None:
    """Two parts encoded by two Ray workers, and by two processes of ``qbe index --part``."""
    with tempfile.TemporaryDirectory() as work:
        corpus = Path(work) / "corpus.jsonl"
        with corpus.open("w") as target, options.corpus.open() as source:
            for _, line in zip(range(options.papers), source, strict=False):
                target.write(line)
        sides: dict[str, Callable[[], object]] = {
            "two processes": lambda: _by_processes(Path(work), corpus),
            "two Ray workers": lambda: _by_ray(Path(work), corpus),
        }
        with nodes(2):
            times = interleaved(sides, rounds=2, warm_up=False)
    best = {side: options.papers / min(seconds) for side, seconds in times.items()}
    share = best["two Ray workers"] / best["two processes"]
    print(table(["side", "papers/s"], [[side, f"{speed:.1f}"] for side, speed in best.items()]))
    print(f"share: {share:.2f}")


def _by_processes(work: Path, corpus: Path) -> None:
    running = []
    for number in (1, 2):
        command = [sys.executable, "-m", "qbe", "index", "--corpus", str(corpus), "--threads", "1"]
        command += ["--part", f"{number}/2", "--output", str(work / f"part-{number}"), "--overwrite"]
        running.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))
    assert [process.wait() for process in running] == [0, 0]


def _by_ray(work: Path, corpus: Path) -> None:
    import shutil

    import ray

    from qbe.cluster.build import PartTask, run_tasks
    from qbe.corpus.records import Reading
    from qbe.index.building.settings import BuildSettings

    shutil.rmtree(work / "parts", ignore_errors=True)
    (work / "parts").mkdir()
    encode = PartTask(work / "parts", [str(corpus)], BuildSettings(), Reading(), 2, str(Path.cwd()))
    list(run_tasks(ray, encode, (1, 2)))


COMMANDS = {"same": same, "overhead": overhead, "killed": killed, "encoding": encoding}


def main(argv: list[str]) -> None:
    options = parser().parse_args(argv)
    print(machine(_cli.threads(None), PACKAGES))
    COMMANDS[options.command](options)


if __name__ == "__main__":
    main(sys.argv[1:])

# ruff: noqa: E402
"""Searching and building on a Ray cluster of several nodes: the results of one index, whatever dies."""

import contextlib
import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.skip("to be rewritten over several ordinary indexes", allow_module_level=True)

from qbe.cluster.build import ClusterBuild, build_on_cluster
from qbe.cluster.calls import ShardCalls
from qbe.cluster.index import Fleet, open_index
from qbe.cluster.placement import placed, shard_count
from qbe.index.building.sharding import IndexShards, build_shards
from qbe.index.snapshot import open_snapshot
from support.builds import Job, build_job, dated_job
from support.serving import wait_until

from qbe.cluster.ray_runtime import ClusterError, connected
from qbe.corpus.records import Reading, dump_record, paper_to_record
from qbe.errors import IndexBuildError, UsageError
from qbe.index.opening import Index
from qbe.index.store import read_manifest
from qbe.query import Aspect, Query
from qbe.search.filters import PaperFilter
from qbe.search.session import Pipeline
from qbe.search.stages import BM25, CrossEncoder, Dense, Fused, Matching, Stages
from qbe.types import Facet

pytestmark = pytest.mark.slow

pytest.importorskip("ray")

LISTS = "IVF8,PQ4x4fs"
SHARDS = 3


@pytest.fixture(scope="module")
def nodes():
    """A cluster of three nodes on this machine, with one processor each, to which the tests are connected."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.add_node(num_cpus=1)
    cluster.add_node(num_cpus=1)
    try:
        with connected(cluster.address) as ray:
            cluster.wait_for_nodes()
            yield ray, cluster
    finally:
        cluster.shutdown()


@pytest.fixture(scope="module")
def job(tmp_path_factory, papers, tiny_encoder) -> Job:
    """The sample, with years of publication."""
    folder = tmp_path_factory.mktemp("corpus")
    return dated_job(folder, papers, tiny_encoder, faiss=LISTS, stored="int8")


@pytest.fixture(scope="module")
def whole(tmp_path_factory, job) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "index"
    build_job(folder, job)
    return folder


@pytest.fixture(scope="module")
def several(tmp_path_factory, whole) -> Path:
    folder = tmp_path_factory.mktemp("several") / "index"
    build_shards(folder, IndexShards(whole), SHARDS)
    return folder


@pytest.fixture(scope="module")
def held(nodes, several):
    """The index of shards, opened on the cluster with two replicas of each shard."""
    with open_index(several, "auto", fleet=Fleet(replicas=2), threads=2) as index:
        yield index


def configurations(rerankers: Path) -> dict[str, Stages]:
    return {
        "bm25": Stages(BM25()),
        "dense": Stages(Dense()),
        "dense, more lists": Stages(Dense(nprobe=8)),
        "fused": Stages(Fused()),
        "matched": Fused() >> Matching(depth=20),
        "reranked": Fused() >> CrossEncoder(str(rerankers), depth=20),
        "pure facets": Fused(background_penalty=1.0)
        >> CrossEncoder(str(rerankers), depth=20, background_penalty=1.0),
    }


@pytest.mark.parametrize("name", [*configurations(Path())])
def test_a_cluster_finds_what_one_index_finds_to_the_last_digit(whole, held, name, tiny_joint_grades):
    config = configurations(tiny_joint_grades)[name]
    with Index(whole) as one, Pipeline(one, config) as expected, Pipeline(held, config) as found:
        papers = [one.papers[row] for row in (0, 40, 77)]
        queries = [
            Query(papers[0], Facet.METHOD),
            Query(papers[1]),
            Query.of(Aspect(papers[2], Facet.RESULT), Aspect(papers[0], Facet.METHOD, weight=-0.5)),
        ]
        pool = [f"s{number:03d}" for number in range(20, 60)]
        some, few = PaperFilter(years=(None, 2010)), PaperFilter(years=(2019, 2019))
        for selected in (None, some, few):
            hits = found.batch_search(queries, 128, filter=selected, explain=True)
            assert hits == expected.batch_search(queries, 128, filter=selected, explain=True)
            assert all(hits)
        pools = [pool, None, pool[:5]]
        assert found.batch_search(queries, 30, pools) == expected.batch_search(queries, 30, pools)


def test_replicas_of_a_shard_are_on_different_nodes_and_end_with_the_index(nodes, several):
    ray, _ = nodes
    with open_index(several, "auto", fleet=Fleet(replicas=2)) as index:
        processes = _of(index)
        assert len(set(processes)) == 2 * SHARDS
        for replicas in index._calls.replicas:
            asked = [
                actor.__ray_call__.remote(lambda _: ray.get_runtime_context().get_node_id())
                for actor in replicas
            ]
            assert len(set(ray.get(asked))) == 2
    wait_until(lambda: not any(map(_is_alive, processes)))


def test_a_replica_that_is_killed_changes_no_answer(several, whole, nodes):
    config = Dense()
    with (
        Index(whole) as one,
        open_index(several, "auto", fleet=Fleet(replicas=2)) as index,
        Pipeline(one, config) as expected,
        Pipeline(index, config) as found,
    ):
        query = Query(one.paper("s036"), Facet.METHOD)
        hits = expected.search(query, 50)
        assert found.search(query, 50) == hits
        mine = _of(index)
        for process in mine[:2]:
            os.kill(process, signal.SIGKILL)
            for _ in range(3):
                assert found.search(query, 50) == hits
        for process in _of(index):
            os.kill(process, signal.SIGKILL)  # all at once: the search waits until they are back
        assert found.search(query, 50) == hits


def test_a_commit_is_seen_as_a_whole_or_not_at_all(several, tmp_path, papers, nodes):
    folder = Path(shutil.copytree(several, tmp_path / "index"))
    config = Dense()
    new = [dataclasses.replace(paper, paper_id=f"n{paper.paper_id}") for paper in papers[:9]]
    with open_index(folder, "auto") as index, Index(folder) as here, Pipeline(index, config) as pipeline:
        query = Query(here.paper("s001"), Facet.METHOD)
        before = pipeline.search(query, 200)
        here.append(new)
        here.delete(["s005"])
        assert pipeline.search(query, 200) == before  # of the former commit, as any open index
        assert index.refresh()
        with Pipeline(here, config) as there:
            after = there.search(query, 200)
        assert pipeline.search(query, 200) == after != before
        # Shards that start again know the newest commit only: the search is carried out anew over that.
        here.delete(["s006"])
        for process in _of(index):
            os.kill(process, signal.SIGKILL)
        with Pipeline(here, config) as there:
            assert pipeline.search(query, 200) == there.search(query, 200)


def _slow(ray, *seconds: float) -> list:
    """Actors that answer after so many seconds."""

    class Slow:
        def __init__(self, seconds: float) -> None:
            self._seconds = seconds

        def answer(self, value: object) -> object:
            time.sleep(self._seconds)
            return value

        def fail(self) -> None:
            raise UsageError("expected sense, found none")

    actor = ray.remote(num_cpus=0)(Slow)
    return [actor.remote(each) for each in seconds]


def test_a_deadline_is_kept_and_errors_come_back_as_they_are(nodes):
    ray, _ = nodes
    replicas = [_slow(ray, 30.0), _slow(ray, 0.0)]
    ShardCalls(replicas).to_each("answer", {1: (0,)})  # its process is there
    calls = ShardCalls(replicas, deadline=1.0)
    started = time.monotonic()
    with pytest.raises(ClusterError, match="expected answers within 1 s of shard 1, found none"):
        calls.to_all("answer", 7)
    assert time.monotonic() - started < 5
    with pytest.raises(UsageError, match="expected sense"):
        calls.to_each("fail", {1: ()})


def test_segments_are_placed_where_there_is_least(several):
    """The largest is alone, and the other two together."""
    snapshot = open_snapshot(several)
    by_two = placed(snapshot.segments, 2)
    snapshot.close()
    sizes = [[each.sentences for each in shard] for shard in by_two]
    assert sorted(map(len, sizes)) == [1, 2]
    assert max(map(max, sizes)) == min(sizes, key=len)[0]
    assert sum(map(sum, sizes)) == 594
    assert shard_count(snapshot.segments) == SHARDS


@pytest.fixture(scope="module")
def longer(tmp_path_factory, papers, tiny_encoder) -> Job:
    """Enough papers for three parts."""
    corpus = tmp_path_factory.mktemp("longer") / "corpus.jsonl"
    copies = [
        dataclasses.replace(paper, paper_id=f"{copy}-{paper.paper_id}")
        for copy in range(9)
        for paper in papers
    ]
    corpus.write_bytes(b"".join(dump_record(paper_to_record(paper)) for paper in copies))
    return Job(corpus=(str(corpus),), encoder=str(tiny_encoder))


@pytest.fixture(scope="module")
def longer_whole(tmp_path_factory, longer) -> Path:
    """The index of these papers that one process builds."""
    folder = tmp_path_factory.mktemp("longer") / "index"
    build_job(folder, longer)
    return folder


def test_a_build_whose_node_dies_has_the_digest_of_a_whole_one(tmp_path, longer, longer_whole, nodes):
    ray, cluster = nodes
    victim = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    killer = threading.Timer(1.0, lambda: cluster.remove_node(victim, allow_graceful=False))
    killer.start()
    parts, output = ClusterBuild(parts=3), tmp_path / "index"
    manifest = build_on_cluster(ray, output, longer.corpus, longer.settings, parts, reading=Reading())
    killer.join()
    assert manifest.digest == read_manifest(longer_whole).digest
    assert [path.name for path in tmp_path.iterdir() if "lock" not in path.name] == ["index"]


def test_shards_are_those_that_one_process_makes(tmp_path, longer, longer_whole, nodes):
    ray, _ = nodes
    spread = ClusterBuild(parts=3, shards=3)
    manifest = build_on_cluster(
        ray, tmp_path / "index", longer.corpus, longer.settings, spread, reading=Reading()
    )
    build_shards(tmp_path / "split", IndexShards(longer_whole), 3)
    with Index(tmp_path / "split") as expected:
        assert manifest.digest == expected.manifest.digest


def test_a_build_goes_on_where_its_driver_was_killed(tmp_path, longer, longer_whole):
    """The driver and its one-machine cluster are killed; what they finished is not encoded again."""
    output = tmp_path / "index"
    command = [sys.executable, "-m", "qbe", "cluster", "index", "--corpus", *longer.corpus]
    command += ["--output", str(output), "--encoder", longer.encoder]
    command += ["--address", "local", "--parts", "3", "--threads", "1"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    driver = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)
    first = tmp_path / ".index.parts" / "1" / "part.json"
    deadline = time.monotonic() + 60
    while not first.exists() and driver.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    driver.kill()
    driver.wait()
    assert first.exists()
    wait_until(lambda: not any(str(tmp_path) in line and "pytest" not in line for line in _command_lines()))
    parts, read = ClusterBuild(parts=3), Reading()
    with pytest.raises(IndexBuildError, match="expected no unfinished build"), connected("local", 1) as ray:
        build_on_cluster(ray, output, longer.corpus, longer.settings, parts, reading=read)
    done = subprocess.run(
        [*command, "--resume"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert read_manifest(longer_whole).digest[:12] in done.stdout


def test_without_ray_or_a_cluster_one_line_says_what_to_do():
    def run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
        command, there = [sys.executable, "-c", program], {**os.environ, **environment}
        return subprocess.run(command, capture_output=True, text=True, check=False, env=there)

    program = (
        "import importlib.util, sys; find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *a: None if name == 'ray' else find(name, *a)\n"
        "sys.argv = 'qbe cluster search --index x --paper s001 --address local'.split()\n"
        "from qbe.__main__ import main; main()"
    )
    done = run(program)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.endswith("needs the package ray, found none; run: pip install 'qbe[cluster]'\n")
    program = (
        "from qbe.cluster.ray_runtime import ClusterError, connected\n"
        "try:\n    connected('127.0.0.1:1').__enter__()\n"
        "except ClusterError as error: print(error)"
    )
    done = run(program, RAY_gcs_rpc_server_reconnect_timeout_s="1", RAY_NUM_REDIS_GET_RETRIES="1")
    assert "expected a Ray cluster at 127.0.0.1:1, found none" in done.stdout


def test_java_keeps_its_handlers_of_signals_where_a_process_connects_and_disconnects(whole):
    program = f"""
import ctypes
from qbe import BM25, Query, open_index
from qbe.cluster.ray_runtime import ClusterError, connected
from qbe.search.session import Pipeline

def handlers():
    action = ctypes.create_string_buffer(256)
    sigaction = ctypes.CDLL(None).sigaction
    return [sigaction(number, None, action) or int.from_bytes(action[:8], "little") for number in (11, 7)]

default = handlers()
index = open_index({str(whole)!r})
pipeline = Pipeline(index, BM25())
hits = pipeline.search(Query(index.paper("s001")))
java = handlers()
with connected("local", 1):
    within = handlers()
print(default != java == within == handlers(), pipeline.search(Query(index.paper("s001"))) == hits)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "True True\n"


def _is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _of(index) -> list[int]:
    """The processes that hold the shards of an index."""
    import ray

    actors = (actor for replicas in index._calls.replicas for actor in replicas)
    return [ray.get(actor.__ray_call__.remote(lambda _: os.getpid())) for actor in actors]


def _command_lines() -> Iterator[str]:
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            yield (folder / "cmdline").read_text()

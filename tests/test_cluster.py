"""Several indexes searched as one, side by side and on a Ray cluster."""

import contextlib
import dataclasses
import os
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from support.messages import messages_of
from support.searching import ids

import qbe
from qbe import BM25, Aspect, BuildSettings, Dense, Fused, Matching, PaperFilter, Pipeline, Query, Stages
from qbe.corpus.records import Reading, dump_record, paper_to_record
from qbe.errors import EncoderMismatchError, IndexBuildError, IndexFormatError, UsageError
from qbe.index.build import build
from qbe.index.reader import SeveralReader
from qbe.index.store import read_manifest
from qbe.types import Facet, Paper

pytestmark = pytest.mark.slow

SHARDS = 3


@pytest.fixture(scope="module")
def settings(tiny_encoder) -> BuildSettings:
    return BuildSettings(encoder=str(tiny_encoder))


@pytest.fixture(scope="module")
def dated(papers) -> list[Paper]:
    return [
        dataclasses.replace(paper, metadata={**paper.metadata, "year": 2000 + number % 20})
        for number, paper in enumerate(papers)
    ]


@pytest.fixture(scope="module")
def whole(tmp_path_factory, dated, settings) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "index"
    build(folder, dated, settings)
    return folder


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, dated) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "corpus.jsonl"
    path.write_bytes(b"".join(dump_record(paper_to_record(paper)) for paper in dated))
    return path


@pytest.fixture(scope="module")
def nodes():
    """A cluster of two nodes on this machine, with one processor each, to which the tests are connected."""
    pytest.importorskip("ray")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    from ray.cluster_utils import Cluster

    from qbe.cluster import connected

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.add_node(num_cpus=1)
    try:
        with connected(cluster.address) as ray:
            cluster.wait_for_nodes()
            yield ray
    finally:
        cluster.shutdown()


@pytest.fixture(scope="module")
def shards(nodes, tmp_path_factory, corpus, settings) -> Path:
    from qbe.cluster import build_on_cluster

    folder = tmp_path_factory.mktemp("shards") / "indexes"
    manifest = build_on_cluster(nodes, folder, [str(corpus)], settings, SHARDS, reading=Reading())
    sizes = [read_manifest(folder / str(number)).corpus["papers"] for number in (1, 2, 3)]
    assert (sizes, manifest.corpus["papers"]) == ([43, 43, 42], 128)
    with pytest.raises(IndexBuildError, match="replace it with `overwrite`"):
        build_on_cluster(nodes, folder, [str(corpus)], settings, SHARDS, reading=Reading())
    assert [path.name for path in folder.parent.iterdir()] == ["indexes"]
    return folder


@pytest.fixture(params=["side by side", "cluster"])
def several(request, shards):
    if request.param == "side by side":
        with qbe.open_index(sorted(shards.iterdir()), threads=2) as index:
            assert isinstance(index.reader, SeveralReader)
            yield index
    else:
        from qbe.cluster import open_index

        with open_index(shards, "auto", replicas=2, threads=2) as index:
            yield index


@pytest.mark.parametrize("stages", [Stages(Dense()), Dense() >> Matching(depth=20)], ids=["dense", "matched"])
def test_dense_hits_are_those_of_one_index_to_the_last_bit(whole, several, stages):
    with qbe.open_index(whole) as one, Pipeline(one, stages) as expected, Pipeline(several, stages) as found:
        papers = [one.papers[row] for row in (0, 40, 77)]
        queries = [
            Query(papers[0], Facet.METHOD),
            Query(papers[1]),
            Query.of(Aspect(papers[2], Facet.RESULT), Aspect(papers[0], Facet.METHOD, weight=-0.5)),
        ]
        pool = [f"s{number:03d}" for number in range(20, 60)]
        for selected in (None, PaperFilter(years=(None, 2010)), PaperFilter(years=(2019, 2019))):
            hits = found.batch_search(queries, 128, filter=selected, explain=True)
            assert hits == expected.batch_search(queries, 128, filter=selected, explain=True)
            assert all(hits)
        pools = [pool, None, pool[:5]]
        assert found.batch_search(queries, 30, pools) == expected.batch_search(queries, 30, pools)


@pytest.mark.parametrize("stage", [BM25(), Fused()], ids=["bm25", "fused"])
def test_bm25_is_that_of_each_index(whole, several, stage):
    with qbe.open_index(whole) as one, Pipeline(one, stage) as expected, Pipeline(several, stage) as found:
        shared = 0
        for row in range(0, 100, 10):
            query = Query(one.papers[row])
            hits = found.search(query, k=20)
            assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
            shared += len({*ids(hits)} & {*ids(expected.search(query, k=20))})
            some = found.search(query, k=20, filter=PaperFilter(years=(2005, 2007)))
            assert {several.paper(hit.paper_id).metadata["year"] for hit in some} <= {2005, 2006, 2007}
        assert shared >= 150  # of 200, in indexes of 43 papers


def test_what_is_read_of_several_is_what_is_read_of_one(whole, shards, dated, tmp_path):
    folders = [shutil.copytree(each, tmp_path / each.name) for each in sorted(shards.iterdir())]
    with qbe.open(folders) as several, qbe.open(whole) as one:
        assert sorted(several, key=lambda paper: paper.paper_id) == dated
        assert several.find("Two Crops of a Paragraph") == one.find("s036")
        paper = one.paper("s036")
        assert several.vectors(paper).sentences.tolist() == one.vectors(paper).sentences.tolist()
        counts = ("papers", "sentences", "labelled")
        assert all(several.manifest.corpus[key] == one.manifest.corpus[key] for key in counts)
        with pytest.raises(UsageError, match="open the one that is to be changed"):
            several.delete(["s036"])
        with qbe.open(folders[0]) as first:
            gone = first.papers.ids[0]
            first.delete([gone])
        assert gone in several
        assert several.refresh()
        assert gone not in several
        assert len(several) == 127


def test_indexes_that_do_not_go_together(whole, shards, tiny_encoder, dated, tmp_path, settings, told):
    words, other = tmp_path / "words", tmp_path / "other"
    build(words, dated[:2], BuildSettings(dense=False))
    build(other, dated[:2], BuildSettings(encoder="facet-encoder"))
    pairs = [(shards / "1", words), (shards / "1", other), (whole, shards / "1")]
    actions = [partial(qbe.open, pair) for pair in pairs]
    text = "\n".join(messages_of(actions, (IndexFormatError, EncoderMismatchError)))
    folders = (f"{each}/" for each in (tmp_path, whole.parent, shards.parent))
    for gone in (*folders, "IndexFormatError: ", "EncoderMismatchError: "):
        text = text.replace(gone, "")
    told("several indexes", text.split("\n"))
    with pytest.raises(UsageError, match="found none"):
        qbe.open_index([])


def test_a_replica_that_is_killed_changes_no_answer(nodes, shards, whole):
    from qbe.cluster import open_index

    with open_index(shards, "auto") as index, Pipeline(index, Dense()) as pipeline, qbe.open(whole) as one:
        query = Query(one.papers[3])
        before = pipeline.search(query, k=50)
        replicas = [replica for each in index.replicas for replica in each]
        for process in nodes.get([each.__ray_call__.remote(lambda _: os.getpid()) for each in replicas]):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        assert pipeline.search(query, k=50) == before


def test_processes_of_the_cluster_answer(nodes, shards):
    from qbe.cluster import ClusterError, open_index

    with open_index(shards, "auto", deadline=0.5) as index, Pipeline(index, Dense()) as pipeline:
        for replicas in index.replicas:
            nodes.kill(replicas[0], no_restart=True)
        with pytest.raises(ClusterError, match="no answer from"):
            pipeline.search(Query(index.papers[3]))


def test_from_the_command_line(corpus, settings, tmp_path):
    pytest.importorskip("ray")
    command = [sys.executable, "-m", "qbe", "cluster"]
    here = ["--address", "local", "--threads", "1"]
    built = [*command, "index", "--corpus", str(corpus), "--output", "indexes", "--shards", "2"]
    searched = ["search", "--index", "indexes", "--paper=s036", "--first-stage=dense", "--rerank=none"]
    commands = [*built, "--encoder", settings.encoder, *here], [*command, *searched, *here]
    how = {"capture_output": True, "text": True, "cwd": tmp_path, "check": False}
    runs = [subprocess.run(each, **how) for each in commands]
    assert [(run.returncode, run.stderr[-300:]) for run in runs] == [(0, ""), (0, "")]
    assert "128 papers" in runs[0].stdout
    assert runs[1].stdout.splitlines()[0].startswith("s036 Q0 ")

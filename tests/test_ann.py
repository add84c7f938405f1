"""Approximate candidates, exact scores: every kind of FAISS index, against brute force."""

import hashlib
import shutil
from dataclasses import replace
from pathlib import Path

import faiss
import hypothesis
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builds import Job, build_job
from support.damage import change_manifest
from support.killed_build import SHARD_PAPERS
from support.searching import first_stage, paper_of

from qbe.errors import IndexFormatError, UsageError
from qbe.index.__main__ import main
from qbe.index.building import shards
from qbe.index.dense import lists
from qbe.index.dense.ann import IN_LISTS, KINDS, AnnParams, AnnSettings, resolve, usual_nlist, usual_pq
from qbe.index.dense.faiss_build import write_faiss_segment
from qbe.index.dense.faiss_segment import FAISS, FaissSegment, nearer
from qbe.index.index import Index
from qbe.query import Query
from qbe.types import Facet

SIMILARITIES = ("cosine", "l2")


@pytest.fixture(scope="module")
def stored(tiny_index):
    """Sentence vectors (sentences, 16) of the sample, moved apart: the tiny model's are nearly parallel."""
    vectors = Index(tiny_index).sentence_vectors.astype(np.float32)
    apart = vectors - vectors.mean(axis=0)
    return (apart / np.linalg.norm(apart, axis=1, keepdims=True)).astype(np.float16)


def planned(kind: str, stored, **settings) -> AnnParams:
    return resolve(AnnSettings(kind, **settings), *stored.shape)


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("kind", KINDS)
def test_all_lists_give_the_nearest_of_all(tmp_path, stored, kind, similarity):
    """With all lists read, as many as codes can tell apart: the exact nearest are among them."""
    made = planned(kind, stored)
    write_faiss_segment(tmp_path, stored, similarity, made)
    neighbours = FaissSegment(tmp_path, 1, made, made.nlist)
    query_vectors = stored[:9].astype(np.float64)
    everything = stored.astype(np.float64)
    distances = ((query_vectors[:, None] - everything[None]) ** 2).sum(axis=2)
    exact = np.argsort(distances if similarity == "l2" else -(query_vectors @ everything.T), axis=1)[:, :10]
    nearest = neighbours.nearest(query_vectors.astype(np.float32), 100)
    assert nearest.shape == (9, 100)
    for near, best in zip(nearest, exact, strict=True):
        assert np.isin(best, near).all()
        real = near[near >= 0]
        assert len(set(real.tolist())) == len(real) > 80
    if kind != "hnsw":
        for every in neighbours.nearest(query_vectors.astype(np.float32), 10**6):
            assert len(set(every.tolist()) - {-1}) >= len(stored) - 5  # FAISS drops sums of parts near 0


@pytest.mark.parametrize("kind", IN_LISTS)
def test_lists_on_the_disk_are_those_in_memory_and_move_with_the_index(tmp_path, stored, kind, monkeypatch):
    made = planned(kind, stored, on_disk=True)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    write_faiss_segment(tmp_path / "a", stored, "cosine", made)
    monkeypatch.setattr(lists, "SHARD_ROWS", 300)
    write_faiss_segment(tmp_path / "b", stored, "cosine", made)
    assert digests(tmp_path / "a") == digests(tmp_path / "b")
    assert digests(tmp_path / "a").keys() == {FAISS, lists.LISTS}
    query_vectors = stored[:5].astype(np.float32)
    before = FaissSegment(tmp_path / "a", 1, made).nearest(query_vectors, 50)
    assert (before[:, 0] == np.arange(5)).sum() >= 4
    moved = (tmp_path / "a").rename(tmp_path / "elsewhere")
    monkeypatch.chdir("/")
    assert (FaissSegment(moved, 1, made).nearest(query_vectors, 50) == before).all()
    if kind == "ivf-sq":  # the same codes in memory
        (tmp_path / "c").mkdir()
        write_faiss_segment(tmp_path / "c", stored, "cosine", replace(made, on_disk=False))
        assert (FaissSegment(tmp_path / "c", 1, made).nearest(query_vectors, 50) == before).all()


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_bytes_again_and_with_other_threads(tmp_path, stored, kind):
    made = planned(kind, stored)
    results = []
    for number, threads in enumerate((1, 1, 2)):
        folder = tmp_path / str(number)
        folder.mkdir()
        write_faiss_segment(folder, stored, "cosine", made, threads)
        opened = FaissSegment(folder, threads, made)
        results.append((digests(folder), opened.nearest(stored[:20].astype(np.float32), 60)))
    assert results[0][0] == results[1][0] == results[2][0]
    for other in results[1:]:
        assert (np.sort(other[1], axis=1) == np.sort(results[0][1], axis=1)).all()


def test_a_gpu_that_is_there_finds_the_centroids(tmp_path, stored, monkeypatch):
    """A stand-in: the quantizer handed to the GPU is the one that is used, and comes back trained."""
    made = planned("ivf-pq", stored)
    handed = []

    def to_gpu(resources, device, index):
        handed.append((resources, device, index.ntotal))
        return faiss.clone_index(index)

    (tmp_path / "cpu").mkdir()
    (tmp_path / "gpu").mkdir()
    write_faiss_segment(tmp_path / "cpu", stored, "cosine", made)
    monkeypatch.setattr(faiss, "get_num_gpus", lambda: 1)
    monkeypatch.setattr(faiss, "StandardGpuResources", lambda: "resources", raising=False)
    monkeypatch.setattr(faiss, "index_cpu_to_gpu", to_gpu, raising=False)
    monkeypatch.setattr(faiss, "index_gpu_to_cpu", faiss.clone_index, raising=False)
    write_faiss_segment(tmp_path / "gpu", stored, "cosine", made)
    assert handed == [("resources", 0, 0), ("resources", 0, made.nlist)]
    assert digests(tmp_path / "cpu") == digests(tmp_path / "gpu")


def test_rules():
    assert [usual_nlist(count) for count in (1, 2, 6, 800, 219_342, 5_600_000)] == [1, 1, 2, 32, 512, 2048]
    assert [usual_pq(dimension) for dimension in (384, 768, 1024, 16, 12)] == [64, 128, 128, 2, 2]
    auto = AnnSettings()
    assert resolve(auto, 200_000, 384) == AnnParams("flat")
    assert resolve(auto, 5_600_000, 384) == AnnParams("ivf-pq", 2048, 512, 64)
    assert resolve(replace(auto, nlist=7), 100, 384) == AnnParams("ivf-pq", 7, 4, 64)
    assert resolve(AnnSettings("ivf-sq", nlist=64, nprobe=99), 100, 5) == AnnParams("ivf-sq", 64, 64)
    assert resolve(AnnSettings("hnsw"), 10, 5) == AnnParams("hnsw")
    assert AnnParams.read({}) == AnnParams()
    large = resolve(auto, 10**7, 384)
    assert large.record()["depth"] == 2000
    assert AnnParams.read({"ann": {**large.record(), "tuned": {}}}) == resolve(auto, 10**7, 384)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "lsh"}, r"expected `kind` of auto, flat, .*, found 'lsh'"),
        ({"nlist": 0}, "expected `nlist` of at least 1, found 0"),
        ({"tune_recall": 1.5}, "expected `tune_recall` above 0, up to 1, found 1.5"),
        ({"tune_recall": 0.9, "nprobe": 3}, "`tune_recall` chooses `nprobe`; drop one of them"),
        ({"kind": "flat", "on_disk": True}, "`on_disk` goes with `kind` ivf-sq, .*, found flat"),
        ({"kind": "hnsw", "nprobe": 2}, "`nprobe` goes with `kind` ivf-sq, .*, found hnsw"),
        ({"kind": "ivf-sq", "pq": 2}, "`pq` goes with `kind` ivf-pq or ivf-opq-pq, found ivf-sq"),
        ({"nlist": 101}, "expected `nlist` of at most the 100 sentences, found 101"),
        ({"pq": 3}, "whose 2 parts each divide the dimension 16, found 3; choose another"),
        ({"kind": "ivf-pq", "on_disk": True}, "at least 256 sentences to learn codes from, found 100"),
    ],
)
def test_what_does_not_fit_is_refused(options, message):
    with pytest.raises(UsageError, match=message):
        resolve(AnnSettings(**options), 100, 16)


def test_positions_that_cannot_be_are_told(tmp_path, stored):
    made = planned("ivf-sq", stored, on_disk=True)
    write_faiss_segment(tmp_path, stored, "cosine", made)
    path = tmp_path / lists.LISTS
    path.write_bytes(b"\x7f" * path.stat().st_size)
    with pytest.raises(IndexFormatError, match=r"expected positions below \d+, found \d+; the index is dam"):
        FaissSegment(tmp_path, 1, made).nearest(stored[:2].astype(np.float32), 5)
    path.unlink()
    with pytest.raises(IndexFormatError, match=r"expected a FAISS index, found .*; the index is damaged"):
        FaissSegment(tmp_path, 1, made)
    write_faiss_segment(tmp_path, stored, "cosine")  # an exact one, where the manifest states lists
    with pytest.raises(IndexFormatError, match="the index is damaged: build it again"):
        FaissSegment(tmp_path, 1, made)
    with pytest.raises(UsageError, match=r"`nprobe` goes with an index of kind ivf-sq, .*, found flat"):
        FaissSegment(tmp_path, 1, AnnParams(), 4)


def test_last_ties_are_left_out_unless_nothing_else_was_found():
    distances = np.array([[4, 3, 2, 2], [1, 1, 1, 1], [3, 2, -9, -9], [5, 4, 3, 2]], np.float32)
    positions = np.array([[9, 8, 7, 6], [5, 4, 3, 2], [1, 2, -1, -1], [3, 4, 5, 6]])
    assert nearer(distances, positions, 3).tolist() == [[9, 8, -1], [5, 4, 3], [1, 2, -1], [3, 4, 5]]
    assert (nearer(distances, positions, 4) == positions).all()


@hypothesis.settings(deadline=None)
@given(st.lists(st.integers(0, 3), min_size=2, max_size=9), st.integers(1, 8))
def test_what_is_kept_does_not_depend_on_the_order_of_ties(values, count):
    count = min(count, len(values) - 1)
    distances = np.sort(np.array(values, np.float32))[::-1][None]
    kept = nearer(distances, np.arange(len(values))[None], count)[0]
    known = {place for place in range(count) if distances[0, place] > distances[0, count]}
    assert set(kept[kept >= 0].tolist()) == (known or set(range(count)))


@pytest.fixture(scope="module")
def settings(sample, tiny_encoder) -> Job:
    return Job(corpus=(str(sample / "corpus.jsonl"),), bm25=False, encoder=str(tiny_encoder))


def queries(index: Index) -> list[Query]:
    return [Query(index.paper(name), facet) for name in ("s001", "s024", "s100") for facet in (*Facet, None)]


@pytest.mark.parametrize("options", [[], ["--stored", "int8", "--ann-on-disk", "--pq", "1"]])
def test_an_approximate_index_from_end_to_end(tmp_path, sample, tiny_encoder, options, search, capsys):
    corpus, folder = str(sample / "corpus.jsonl"), tmp_path / "index"
    command = ["--corpus", corpus, "--output", str(folder), "--dense-only", "--encoder", str(tiny_encoder)]
    main([*command, "--ann", "ivf-pq", "--nlist", "16", "--nprobe", "16", *options])
    capsys.readouterr()
    with Index(folder) as index:
        assert index.manifest.dense["stored"] == ("int8" if options else "float16")
        assert index.manifest.settings["ann"]["nlist"] == 16
        assert AnnParams.read(index.manifest.dense) == AnnParams(
            "ivf-pq", 16, 16, 1 if options else 2, on_disk=bool(options)
        )
        for query in queries(index):
            hits = first_stage(index, "dense").search(query, 20)
            everything = [name for name in index.papers.ids if name != paper_of(query)]
            assert hits == first_stage(index, "dense").search(query, 20, everything)
    moved = folder.rename(tmp_path / "moved")
    stages = ("--paper", "s024", "--first-stage", "dense", "--rerank", "none", "--hits", "7")
    assert len(search(*stages, "--nprobe", "1", folder=moved).splitlines()) == 7
    with Index(moved) as index:
        first = index.sentence_vectors[:4].astype(np.float32)
        few, many = (
            (index.candidate_source(nprobe).sentences.nearest(first, 500) >= 0).sum() for nprobe in (1, None)
        )
        assert few < many / 4


def test_a_resumed_build_ends_in_the_same_bytes(tmp_path, settings, monkeypatch):
    monkeypatch.setattr(shards, "SHARD_PAPERS", SHARD_PAPERS)
    settings = replace(settings, ann=AnnSettings("ivf-sq", on_disk=True), stored="int8")
    whole = build_job(tmp_path / "whole", settings)
    with monkeypatch.context() as patch:
        patch.setattr(faiss, "write_index", _fails_once_written)
        with pytest.raises(KeyboardInterrupt):
            build_job(tmp_path / "index", settings)
    assert (tmp_path / ".index.building" / f".{lists.LISTS}.0.partial").exists()
    again = build_job(tmp_path / "index", settings, resume=True)
    assert again.files == whole.files
    assert again.digest == whole.digest


def _fails_once_written(index, path: str) -> None:
    Path(path).write_text("half of it")
    raise KeyboardInterrupt


def test_settings_that_do_not_fit_leave_nothing(tmp_path, settings):
    for ann, message in (
        (AnnSettings(pq=5), "divide the dim"),
        (AnnSettings(nlist=10**6), "at most"),
    ):
        with pytest.raises(UsageError, match=message):
            build_job(tmp_path / "index", replace(settings, ann=ann))
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "told"),
    [({"stored": "int4"}, "vectors stored as int4"), ({"ann": {"kind": "lsh"}}, "FAISS index of kind lsh")],
)
def test_an_unknown_form_is_told(tmp_path, tiny_index, change, told):
    copy = shutil.copytree(tiny_index, tmp_path / "copy")
    change_manifest(copy, lambda record: record["dense"].update(change))
    with pytest.raises(IndexFormatError, match=rf"expected a manifest, found .*{told}"):
        Index(copy)


def test_vectors_of_another_form_are_told(tmp_path, tiny_index):
    copy = shutil.copytree(tiny_index, tmp_path / "copy")
    change_manifest(copy, lambda record: record["dense"].update(stored="int8"))
    with pytest.raises(
        IndexFormatError, match=r"vectors.npy: expected an array of int8 .* found one of float16"
    ):
        Index(copy).sentence_vectors  # noqa: B018

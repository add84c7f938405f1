"""Approximate candidates, exact scores: FAISS indexes of several kinds, against brute force."""

from dataclasses import asdict, replace

import faiss
import numpy as np
import pytest
from support.builds import Job, build_job
from support.factories import FACTORIES, GRAPH, ROUNDED, vectors_apart
from support.searching import first_stage, paper_of

from qbe import Facet, IndexFormatError, Query, UsageError
from qbe.cli.index import main
from qbe.index.faiss import FAISS, CandidateSource, FaissIndex, check_factory, write_faiss
from qbe.index.index import Index
from qbe.index.source import Execution
from qbe.index.store import EXACT, FaissParams, Files, resolve

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def stored(tiny_index):
    return vectors_apart(tiny_index)


def planned(factory: str, stored) -> FaissParams:
    return resolve(factory, *stored.shape)


@pytest.mark.parametrize("similarity", ("cosine", "l2"))
@pytest.mark.parametrize("factory", FACTORIES)
def test_all_lists_give_the_nearest_of_all(tmp_path, stored, factory, similarity):
    """With all lists read, as many as codes can tell apart: the exact nearest are among them."""
    made, everything, query_vectors = planned(factory, stored), stored.astype(float), stored[:9].astype(float)
    write_faiss(tmp_path, stored, similarity, made)
    neighbours = FaissIndex(Files(tmp_path), 1, made, made.nlist)
    distances = ((query_vectors[:, None] - everything[None]) ** 2).sum(axis=2)
    exact = np.argsort(distances if similarity == "l2" else -(query_vectors @ everything.T), axis=1)[:, :10]
    nearest = neighbours.nearest(query_vectors.astype(np.float32), 100)
    assert nearest.shape == (9, 100)
    for near, best in zip(nearest, exact, strict=True):
        assert np.isin(best, near).sum() == 10
        real = near[near >= 0]
        assert len(set(real.tolist())) == len(real) > 80
    if factory != GRAPH:
        for every in neighbours.nearest(query_vectors.astype(np.float32), 10**6):
            assert len(set(every.tolist()) - {-1}) >= len(stored) - 5  # FAISS drops sums of parts near 0


def test_centroids_are_learned_on_gpus_where_faiss_sees_some(tmp_path, stored, monkeypatch):
    """With a stand-in for GPUs."""
    made, copied, files = planned("IVF16,SQ8", stored), [], []
    for gpus in (0, 1):
        monkeypatch.setattr(faiss, "get_num_gpus", lambda gpus=gpus: gpus)
        monkeypatch.setattr(faiss, "index_cpu_to_all_gpus", lambda index: copied.append(index) or index)
        write_faiss(tmp_path, stored, "cosine", made)
        files.append((tmp_path / FAISS).read_bytes())
        assert len(copied) == gpus
    assert copied[0].is_trained
    assert files[0] == files[1]


@pytest.mark.parametrize("factory", FACTORIES)
def test_the_same_bytes_with_other_threads(tmp_path, stored, factory):
    made = planned(factory, stored)
    results = []
    for threads in (1, 2):
        write_faiss(tmp_path, stored, "cosine", made, Execution(threads))
        found = FaissIndex(Files(tmp_path), threads, made).nearest(stored[:20].astype(np.float32), 60)
        results.append(((tmp_path / FAISS).read_bytes(), np.sort(found, axis=1).tolist()))
    assert results[0] == results[1]


def test_lists_whose_search_takes_no_parameters(tmp_path, stored):
    write_faiss(tmp_path, stored, "cosine", made := planned("IVF4,RQ2x4fs", stored))
    nearest = FaissIndex(Files(tmp_path), 1, made).nearest(stored[:9].astype(np.float32), 60)
    assert set(nearest[:, 0]) <= set(range(len(stored)))


def test_rules():
    assert resolve("auto", 219_342, 384).nlist == 512
    factories = [resolve("auto", 5_600_000, dimension).factory for dimension in (768, 1024, 16, 12, 7)]
    assert factories == [f"IVF2048,PQ{size}x4fs" for size in (256, 256, 4, 4, 7)]
    assert resolve("auto", 200_000, 384) == FaissParams(EXACT)
    large = FaissParams("IVF2048,PQ128x4fs", 512)
    assert resolve("auto", 5_600_000, 384) == large
    assert resolve("IVF7,SQ8", 100, 5).nprobe == 4
    assert resolve("IVF2,Flat", 100, 5).nprobe == 2
    assert resolve(GRAPH, 10, 5) == FaissParams(GRAPH)
    assert asdict(large) == {"factory": large.factory, "nprobe": 512, "depth": 2000, "seed": 0}
    assert [factory for factory in FACTORIES if not FaissParams(factory).learns] == [EXACT, GRAPH, "Flat"]
    for factory in ("IVF101,SQ8", "IVF8,PQ4", "PQ4x9"):
        told = f"`faiss` of at most 100 lists and values of a code, .* {factory}"
        with pytest.raises(UsageError, match=told):
            resolve(factory, 100, 16)


@pytest.mark.parametrize(
    "factory", ["lsh", "", "IVF8,PQ7", "IVF8,PQ4x4fs,RFlat", "IDMap,Flat", "NSG32", "PQ4x4fs", "IMI2x4,PQ4"]
)
def test_what_faiss_does_not_take_or_cannot_select_from_is_refused(factory):
    with pytest.raises(UsageError, match=rf"`faiss` as auto or a FAISS .* found '{factory}' \(.+\)$"):
        check_factory(factory, 16, "cosine")


@pytest.mark.parametrize("factory", ["auto", *FACTORIES, "PCA8,IVF8_HNSW32,SQfp16", "PQ4"])
def test_what_faiss_takes(factory):
    check_factory(factory, 16, "cosine")
    check_factory(factory, 16, "l2")


def test_another_index_than_the_manifest_states_is_told(tmp_path, stored):
    write_faiss(tmp_path, stored, "cosine", FaissParams())  # an exact one, where the manifest states lists
    with pytest.raises(IndexFormatError, match="the index is damaged: build it again"):
        FaissIndex(Files(tmp_path), 1, planned(ROUNDED, stored))
    faiss.write_index(faiss.index_factory(16, "IDMap,Flat"), str(tmp_path / FAISS))
    with pytest.raises(IndexFormatError, match="expected a FAISS index SQfp16, found IndexIDMap; the index"):
        FaissIndex(Files(tmp_path), 1, FaissParams())
    with pytest.raises(UsageError, match=r"`nprobe` goes with an index of lists, found SQfp16; drop it"):
        FaissIndex(Files(tmp_path), 1, FaissParams(), 4)


def test_last_ties_are_left_out_unless_nothing_else_was_found():
    distances = np.array([[4, 3, 2, 2], [1, 1, 1, 1], [3, 2, -9, -9], [5, 4, 3, 2]], np.float32)
    positions = np.array([[9, 8, 7, 6], [5, 4, 3, 2], [1, 2, -1, -1], [3, 4, 5, 6]])
    segment = object.__new__(FaissIndex)
    segment.search = lambda *_: (distances, positions)
    assert segment.nearest(distances, 3).tolist() == [[9, 8, -1], [5, 4, 3], [1, 2, -1], [3, 4, 5]]
    assert (segment.nearest(distances, 4) == positions).all()


@pytest.fixture(scope="module")
def settings(sample, tiny_encoder) -> Job:
    return Job(corpus=(str(sample / "corpus.jsonl"),), bm25=False, encoder=str(tiny_encoder))


def queries(index: Index) -> list[Query]:
    return [Query(index.paper(name), facet) for name in ("s001", "s024", "s100") for facet in (*Facet, None)]


def test_an_approximate_index_from_end_to_end(tmp_path, sample, tiny_encoder, capsys):
    corpus, folder = str(sample / "corpus.jsonl"), tmp_path / "index"
    command = ["--corpus", corpus, "--output", str(folder), "--only=dense", "--encoder", str(tiny_encoder)]
    main([*command, "--faiss", "IVF16,PQ4x4fs", "--store", "int8"])
    capsys.readouterr()
    with Index(folder) as index:
        assert index.manifest.dense["stored"] == "int8"
        assert index.manifest.settings["faiss"] == "IVF16,PQ4x4fs"
        assert FaissParams.read(index.manifest.dense) == FaissParams("IVF16,PQ4x4fs", 4)
        everything = first_stage(index, "dense", nprobe=16)
        for query in queries(index):
            hits = everything.search(query, 20)
            pool = [name for name in index.papers.ids if name != paper_of(query)]
            assert hits == everything.search(query, 20, pool)
    with Index(folder.rename(tmp_path / "moved")) as index:
        first = index.sentence_vectors[:4].astype(np.float32)
        sources: list = [index.reader.candidate_source(nprobe) for nprobe in (1, 16)]
        few, many = ((source.sentences.nearest(first, 500) >= 0).sum() for source in sources)
        assert few < many / 4


def test_settings_that_do_not_fit_leave_nothing(tmp_path, settings):
    for factory, message in (("IVF8,PQ5", "as auto or a"), ("IVF999,SQ8", "at most 594")):
        with pytest.raises(UsageError, match=f"expected `faiss` .*{message}"):
            build_job(tmp_path / "index", replace(settings, faiss=factory))
        assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("factory", [EXACT, "IVF4,SQfp16"])
def test_one_long_paper_does_not_hide_the_others(tmp_path, stored, factory):
    """A paper of more sentences near the query than are looked up."""
    near = np.repeat(stored[:1], 5000, axis=0)
    vectors, starts = np.concatenate([near, stored]), np.array([0, 5000, *range(5001, 5001 + len(stored))])
    made = planned(factory, vectors)
    write_faiss(tmp_path, vectors, "cosine", made)
    source = CandidateSource(FaissIndex(Files(tmp_path), 1, made, made.nlist), starts)
    for by_mean in (False, True):
        (found,) = source.nearest([stored[:1].astype(np.float32)], 50, by_mean=by_mean)
        assert len(found) >= 50


@pytest.mark.parametrize("factory", ["Flat", "IVF4,SQfp16"])
def test_a_search_does_not_depend_on_the_other_queries(tmp_path, stored, monkeypatch, factory):
    made, queries = planned(factory, stored), stored[:40].astype(np.float32)
    write_faiss(tmp_path, stored, "cosine", made)
    monkeypatch.setattr(faiss.cvar, "distance_compute_blas_threshold", 8 * stored.shape[1])
    index = FaissIndex(Files(tmp_path), 1, made)
    alone = np.concatenate([index.search(query, 20)[0] for query in queries[:, None]])
    assert np.array_equal(index.search(queries, 20)[0], alone)

"""Segments of different kinds: vectors in bytes beside half precision, lists beside an exact FAISS index."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from qbe.index.building.compaction import compact
from support.builds import Job, build_job
from support.factories import EXACT, FACTORIES, GRAPH, vectors_apart
from support.live import corpus
from support.searching import first_stage

from qbe.index.building.changes import append_papers, delete_papers
from qbe.index.dense import ann
from qbe.index.dense.ann import FaissParams, resolve
from qbe.index.dense.faiss_build import write_faiss_segment
from qbe.index.dense.faiss_segment import FaissSegment, FaissSegments
from qbe.index.index import Index
from qbe.index.manifest import read_manifest
from qbe.index.snapshot import read_commit
from qbe.query import Query

pytestmark = pytest.mark.slow

LARGE, SMALL = ("int8", "IVF*,PQ4x4fs"), ("float16", EXACT)


@pytest.fixture(autouse=True, scope="module")
def small_is_large():
    """``auto`` takes bytes and lists from 200 sentences on, of the sample's 594."""
    before, ann.AUTO_SENTENCES = ann.AUTO_SENTENCES, 200
    yield
    ann.AUTO_SENTENCES = before


@pytest.fixture(scope="module")
def settings(tmp_path_factory, papers, tiny_encoder) -> Job:
    folder = tmp_path_factory.mktemp("corpus")
    return Job(corpus=(corpus(folder, "all", papers),), bm25=False, encoder=str(tiny_encoder))


@pytest.fixture(scope="module")
def whole(tmp_path_factory, settings) -> Path:
    """A build of all papers, in bytes and lists."""
    folder = tmp_path_factory.mktemp("whole") / "index"
    build_job(folder, settings)
    return folder


@pytest.fixture(scope="module")
def halves(tmp_path_factory, settings) -> Path:
    """The same in half precision, with an exact FAISS index."""
    folder = tmp_path_factory.mktemp("halves") / "index"
    build_job(folder, replace(settings, stored="float16", faiss=EXACT))
    return folder


@pytest.fixture(scope="module")
def mixed(tmp_path_factory, papers, settings) -> Path:
    """A hundred papers in bytes and lists, the others appended in half precision."""
    folder = tmp_path_factory.mktemp("mixed")
    build_job(folder / "index", replace(settings, corpus=(corpus(folder, "first", papers[:100]),)))
    append_papers(folder / "index", [corpus(folder, "second", papers[100:])])
    return folder / "index"


@pytest.fixture
def index(tmp_path, mixed) -> Path:
    """A copy of it, to be written to."""
    return Path(shutil.copytree(mixed, tmp_path / "index"))


def kinds(folder: Path) -> list[tuple[str, str]]:
    """How each segment stores vectors and finds candidates."""
    commit = read_commit(folder)
    names = ["."] if commit is None else [segment.name for segment in commit.segments]
    manifests = [read_manifest(folder / name).dense for name in names]
    factories = [re.sub(r"IVF\d+", "IVF*", FaissParams.read(dense).factory) for dense in manifests]
    return [(dense["stored"], factory) for dense, factory in zip(manifests, factories, strict=True)]


def scores(folder: Path, query: Query, pool: list[str] | None) -> dict[str, float]:
    with Index(folder) as opened:
        pipeline = first_stage(opened, "dense", nprobe=16 if pool is None else None)
        return {hit.paper_id: hit.score for hit in pipeline.search(query, 200, pool)}


def test_each_segment_is_scored_by_what_it_stores(mixed, whole, halves, papers):
    """To the bit, beside whatever other segments."""
    assert kinds(mixed) == [LARGE, SMALL]
    assert (kinds(whole), kinds(halves)) == ([LARGE], [SMALL])
    query = Query(replace(papers[40], paper_id="outside"))
    ids = [paper.paper_id for paper in papers]
    quantized, exact = (scores(folder, query, ids) for folder in (whole, halves))
    assert quantized != exact
    expected = {one: (exact if row >= 100 else quantized)[one] for row, one in enumerate(ids)}
    assert scores(mixed, query, ids) == expected
    found = scores(mixed, query, None)
    assert len(found) > 120  # with all lists read
    assert found.items() <= expected.items()


def test_vectors_of_all_segments_are_one_array(mixed, whole, halves):
    with Index(mixed) as opened, Index(whole) as large, Index(halves) as small:
        begin = int(opened.layout.starts[100])
        for ours, quantized, exact in (
            (opened.sentence_vectors, large.sentence_vectors, small.sentence_vectors[begin:]),
            (opened.whole_vectors, large.whole_vectors, small.whole_vectors[100:]),
        ):
            first = len(ours) - len(exact)
            expected = np.concatenate([quantized.astype(np.float32)[:first], exact.astype(np.float32)])
            assert ours.shape == expected.shape
            assert (np.asarray(ours) == expected).all()
            rows = np.array([len(ours) - 1, 0, first, first - 1])
            assert (ours[rows] == expected[rows]).all()
            assert (ours[first - 2 : first + 2] == expected[first - 2 : first + 2]).all()
            assert (ours[: first - 1].astype(np.float32) == expected[: first - 1]).all()
            assert (ours[first - 1] == expected[first - 1]).all()


def test_codes_do_not_compete_with_stored_vectors(mixed):
    """Either kind brings its own nearest, with -1 for none."""
    with Index(mixed) as opened:
        begin = int(opened.layout.starts[100])
        queries = opened.sentence_vectors[[3, begin + 3]].astype(np.float32)
        near = opened.candidate_source().sentences.nearest(queries, 40)  # type: ignore[attr-defined]
        assert near.shape == (2, 80)
        assert (near[:, :40] >= begin).all()
        assert (near[:, 40:] < begin).all()
        assert near[1, 0] == begin + 3


def test_compacted_it_is_a_build_of_the_papers(index, mixed, whole, papers, settings, tmp_path):
    """Bytes are copied, half precision becomes bytes as when it was encoded; what shrinks keeps them."""
    compact(index)
    assert kinds(index) == [LARGE]
    assert read_manifest(index / "segments/000002").digest == read_manifest(whole).digest
    delete_papers(index, [paper.paper_id for paper in papers[20:]])
    compact(index)
    assert kinds(index) == [("int8", EXACT)]
    with Index(index) as small, Index(mixed) as large:
        assert len(small) == 20
        for name in ("sentence_vectors", "whole_vectors"):
            ours, theirs = getattr(small, name), getattr(large, name)
            assert (ours.astype(np.float32) == theirs[: len(ours)].astype(np.float32)).all()
    append_papers(index, [corpus(tmp_path, "rest", papers[20:])])
    assert kinds(index) == [("int8", EXACT), LARGE]
    compact(index)
    with Index(index) as opened:
        assert opened.manifest.digest == read_manifest(whole).digest


def test_settings_by_hand_hold_where_they_fit(papers, settings, tmp_path):
    by_hand = "IVF20,SQ8"
    first = corpus(tmp_path, "first", papers[:20])
    build_job(tmp_path / "index", replace(settings, corpus=(first,), faiss=by_hand, stored="int8"))
    append_papers(tmp_path / "index", [corpus(tmp_path, "second", papers[20:40])])
    append_papers(tmp_path / "index", [corpus(tmp_path, "third", papers[40:41])])
    assert kinds(tmp_path / "index") == [("int8", "IVF*,SQ8"), ("int8", "IVF*,SQ8"), ("int8", EXACT)]
    with Index(tmp_path / "index") as opened:
        assert len(first_stage(opened, "dense", nprobe=20).search(Query(papers[3]), 50)) == 40


@pytest.mark.parametrize("factory", FACTORIES)
def test_dead_sentences_take_no_places(halves, tmp_path, factory):
    stored = vectors_apart(halves)
    made = resolve(factory, *stored.shape)
    write_faiss_segment(tmp_path, stored, "cosine", made)
    live = np.random.default_rng(1).random(len(stored)) < 0.4
    query_vectors = stored[np.flatnonzero(live)[:20]].astype(np.float32)

    def opened(nprobe, live=None) -> FaissSegments:
        return FaissSegments([FaissSegment(tmp_path, 1, made, nprobe, live)])

    every, some = opened(made.nlist), opened(made.nlist, live)
    nearest = some.nearest(query_vectors, 30)
    assert live[nearest[nearest >= 0]].all()
    if factory == GRAPH:
        assert (nearest[:, 0] == np.flatnonzero(live)[:20]).all()
        return
    for ours, theirs in zip(nearest, every.nearest(query_vectors, len(stored)), strict=True):
        alive = [row for row in theirs.tolist() if row >= 0 and live[row]]
        assert len(set(ours[ours >= 0].tolist())) > 15  # but for the last ties
        assert set(ours[ours >= 0].tolist()) <= set(alive)
    one = 1 if made.nlist else None
    narrow = opened(one, live).nearest(query_vectors, len(stored))
    reach = opened(one).nearest(query_vectors, len(stored))
    for ours, theirs in zip(narrow, reach, strict=True):
        assert set(ours[ours >= 0].tolist()) == {row for row in theirs.tolist() if row >= 0 and live[row]}

"""An index of vectors that are compared by distance, from end to end against plain numpy."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from qbe.search.searcher import Searcher
from support.builds import Job, build_job

from qbe.encode.encoder import Encoder
from qbe.errors import EncoderMismatchError, IndexFormatError
from qbe.index.dense.compare import nearness
from qbe.index.index import Index
from qbe.models.encoder_files import CARD, resolve_encoder
from qbe.models.encoder_format import CLS, L2, TITLE_SEP_ABSTRACT, EncoderFormat
from qbe.query import Query
from qbe.rerank.vector_matching import MATCHINGS, VectorMatching
from qbe.search.dense import DenseSearcher, QueryVectors
from qbe.types import Facet, Paper, Sentence

OUTSIDE = Paper("outside", "Ranking code", (Sentence("Developers search for code."), Sentence("We rank it.")))
CONVENTION = EncoderFormat.pooled(TITLE_SEP_ABSTRACT, CLS, L2, 64)


@pytest.fixture(scope="module")
def l2_encoder(tmp_path_factory, tiny_encoder) -> Path:
    """The tiny encoder, read as SPECTER and ASPIRE are, in passes that some papers do not fit into."""
    folder = tmp_path_factory.mktemp("exported") / "l2"
    shutil.copytree(tiny_encoder, folder)
    card = json.loads((folder / CARD).read_text())
    card |= {"convention": dataclasses.asdict(CONVENTION), "max_tokens": 64}
    (folder / CARD).write_text(json.dumps(card))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory, sample, l2_encoder) -> Path:
    folder = tmp_path_factory.mktemp("indexes") / "l2"
    corpus = (str(sample / "corpus.jsonl"),)
    build_job(folder, Job(corpus=corpus, encoder=str(l2_encoder)))
    return folder


@pytest.fixture(scope="module")
def index(folder):
    with Index(folder) as index:
        yield index


@pytest.fixture(scope="module")
def encoded(l2_encoder, papers) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Vectors of sentences and of whole papers by id, in double precision."""
    vectors = Encoder(resolve_encoder(str(l2_encoder))).encode([*papers, OUTSIDE])
    ids = [*(paper.paper_id for paper in papers), OUTSIDE.paper_id]
    return {
        name: (found[0].astype(float), found[1].astype(float))
        for name, found in zip(ids, vectors, strict=True)
    }


@pytest.fixture(scope="module")
def queries(index) -> list[Query]:
    paper = index.paper("s024")
    return [Query(paper, Facet.METHOD), Query(paper), Query(paper, positions=(3, 0)), Query(OUTSIDE)]


def test_the_manifest_says_how_vectors_compare(index, l2_encoder):
    dense = index.manifest.dense
    assert (dense["similarity"], index.similarity, index.manifest.format_version) == ("l2", L2, 4)
    assert dense["encoder"] == resolve_encoder(str(l2_encoder)).identity
    assert dense["encoder"]["convention"] == dataclasses.asdict(CONVENTION)
    vectors = index.whole_vectors.astype(float)
    assert np.linalg.norm(vectors, axis=1).min() > 1.5
    assert (vectors * 2**16 % 1 == 0).all()


def expected(query: Query, encoded, reduce) -> dict[str, float]:
    """Minus a paper's distance: what ``reduce`` makes of the least distances of the query's sentences."""
    positions = query.positions or query.paper.positions(query.facet)
    asked = encoded[query.paper.paper_id][0][list(positions)]
    scores = {}
    for paper_id, (sentences, _) in encoded.items():
        distances = np.sqrt(((asked[:, None] - sentences[None]) ** 2).sum(axis=2))
        scores[paper_id] = -reduce(distances.min(axis=1))
    return {name: score for name, score in scores.items() if name not in (query.paper.paper_id, "outside")}


@pytest.mark.parametrize(("match", "reduce"), [("mean-max", np.mean), ("single-match", np.min)])
def test_dense_search_is_by_distance(index, encoded, queries, match, reduce):
    for query in queries:
        scores = expected(query, encoded, reduce)
        for pool in (None, list(scores)):
            found = Searcher(index, "dense", match=match).search(query, 1000, pool)
            assert {hit.paper_id for hit in found} == set(scores)
            for hit in found:
                assert hit.score == pytest.approx(scores[hit.paper_id], rel=1e-6)
            assert found == sorted(found, key=lambda hit: (-hit.score, hit.paper_id))
            pairs = [pair.score for pair in found[0].matches]
            assert -reduce(np.negative(pairs)) == pytest.approx(found[0].score, rel=1e-6)


def test_the_nearest_sentences_are_the_least_distant(index, encoded, papers):
    vectors = np.concatenate([encoded[paper.paper_id][0] for paper in papers])
    asked = vectors[::97]
    distances = np.sqrt(((asked[:, None] - vectors[None]) ** 2).sum(axis=2))
    nearest = index.candidate_source().sentences.nearest(asked.astype(np.float32), 20)
    np.testing.assert_allclose(
        np.take_along_axis(distances, nearest, axis=1), np.sort(distances, axis=1)[:, :20], atol=1e-3
    )


def test_whole_papers_are_compared_by_distance(index, encoded, queries):
    """SPECTER's own way of ranking: the distance of [CLS] to [CLS]."""
    whole = Searcher(index, "fused", weights={"whole": 1.0})
    for query in queries:
        asked = encoded[query.paper.paper_id][1]
        pool = [name for name in encoded if name not in (query.paper.paper_id, "outside")]
        scores = {name: -np.linalg.norm(asked - encoded[name][1]) for name in pool}
        found = whole.search(query, 1000, pool, explain=True)
        for hit in found:
            assert hit.parts["whole"] == pytest.approx(scores[hit.paper_id], rel=1e-6)
        assert [hit.paper_id for hit in found] == sorted(pool, key=lambda name: (-scores[name], name))


@pytest.mark.parametrize("name", MATCHINGS)
def test_matchings_go_by_distance(index, encoded, queries, name):
    source = index.vectors
    matching = VectorMatching(name, lambda paper: source(paper).sentences, similarity=index.similarity)
    for query in queries:
        pool = [paper_id for paper_id in encoded if paper_id not in (query.paper.paper_id, "outside")]
        found = [judged.score for judged in matching.score(query, list(map(index.paper, pool)))]
        least, mean = (expected(query, encoded, reduce) for reduce in (np.min, np.mean))
        if name == "single-match":
            np.testing.assert_allclose(found, [least[paper_id] for paper_id in pool], rtol=1e-9)
        elif name == "mean-max":
            np.testing.assert_allclose(found, [mean[paper_id] for paper_id in pool], rtol=1e-9)
        else:
            assert all(score < least[paper_id] for score, paper_id in zip(found, pool, strict=True))


def test_distances_are_exact(index, queries):
    """Neither the order of numbers nor other vectors show, and equal vectors have distance 0."""
    vectors = index.sentence_vectors[:500]
    asked = QueryVectors(index, queries[0]).sentences
    found = nearness(asked, vectors)
    assert (nearness(asked[:, ::-1], vectors[::-1, ::-1]) == found[:, ::-1]).all()
    assert (nearness(vectors[:3].astype(np.float32), vectors[:3]).diagonal() == 0).all()
    assert (nearness(asked, vectors[7:8])[:, 0] == found[:, 7]).all()


def test_an_encoder_that_is_read_otherwise_is_refused(folder, tiny_index, tiny_encoder, l2_encoder):
    read = "read as layout title-sep-abstract, sentences mean, whole cls, similarity l2, max_tokens 64"
    with pytest.raises(EncoderMismatchError, match=f"{read}, found it read as the default encoder; give the"):
        Index(folder, encoder=str(tiny_encoder))
    with pytest.raises(EncoderMismatchError, match=f"read as the default encoder, found it {read}; give the"):
        Index(tiny_index, encoder=str(l2_encoder))


def test_an_index_of_format_2_can_be_read(tmp_path, tiny_index):
    """It says nothing of conventions: there was one."""
    copy = shutil.copytree(tiny_index, tmp_path / "copy")
    record = json.loads((copy / "manifest.json").read_text())
    (copy / "manifest.json").write_text(json.dumps(record | {"format_version": 2}))
    with Index(copy) as old, Index(tiny_index) as new:
        for query in (Query(new.paper("s024"), Facet.METHOD), Query(OUTSIDE)):
            assert DenseSearcher(old).search(query, 50) == DenseSearcher(new).search(query, 50)


def test_an_unknown_similarity_is_told(tmp_path, tiny_index):
    copy = shutil.copytree(tiny_index, tmp_path / "copy")
    record = json.loads((copy / "manifest.json").read_text())
    record["dense"]["similarity"] = "hamming"
    (copy / "manifest.json").write_text(json.dumps(record))
    with pytest.raises(IndexFormatError, match=r"expected a manifest, found .*the similarity hamming"):
        Index(copy)

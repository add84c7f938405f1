"""An index of vectors that are compared by distance, from end to end against plain numpy."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from support.builds import Job, build_job
from support.rerankers import over_index, score
from support.searching import first_stage, paper_of

from qbe.errors import EncoderMismatchError
from qbe.index.index import Index
from qbe.index.store import FORMAT_VERSION
from qbe.models.cards import ENCODER
from qbe.models.encoder import Encoder
from qbe.models.folders import resolve_encoder
from qbe.models.formats import CLS, L2, TITLE_SEP_ABSTRACT, EncoderFormat
from qbe.query import Query
from qbe.search.stages import MATCHINGS
from qbe.types import Facet, Paper, Sentence

OUTSIDE = Paper("outside", "Ranking code", (Sentence("Developers search for code."), Sentence("We rank it.")))
CONVENTION = EncoderFormat(TITLE_SEP_ABSTRACT, CLS, L2, 64)


@pytest.fixture(scope="module")
def l2_encoder(tmp_path_factory, tiny_encoder) -> Path:
    """The tiny encoder, read as SPECTER and ASPIRE are, in passes that some papers do not fit into."""
    folder = tmp_path_factory.mktemp("exported") / "l2"
    shutil.copytree(tiny_encoder, folder)
    card = json.loads((folder / ENCODER.metadata_file).read_text())
    card |= {"convention": dataclasses.asdict(CONVENTION), "max_tokens": 64}
    (folder / ENCODER.metadata_file).write_text(json.dumps(card))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory, sample, l2_encoder) -> Path:
    folder = tmp_path_factory.mktemp("indexes") / "l2"
    build_job(folder, Job(corpus=(str(sample / "corpus.jsonl"),), encoder=str(l2_encoder)))
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
        name: (paper_vectors.sentences.astype(float), paper_vectors.whole.astype(float))
        for name, paper_vectors in zip(ids, vectors, strict=True)
    }


@pytest.fixture(scope="module")
def queries(index) -> list[Query]:
    paper = index.paper("s024")
    return [Query(paper, Facet.METHOD), Query(paper), Query(paper, positions=(3, 0)), Query(OUTSIDE)]


def test_the_manifest_says_how_vectors_compare(index, l2_encoder):
    dense, version = index.manifest.dense, index.manifest.format_version
    assert (dense["similarity"], index.similarity, version) == ("l2", L2, FORMAT_VERSION)
    assert dense["encoder"] == resolve_encoder(str(l2_encoder)).identity
    assert dense["encoder"]["convention"] == dataclasses.asdict(CONVENTION)
    vectors = index.reader.whole_vectors.astype(float)
    assert np.linalg.norm(vectors, axis=1).min() > 1.5
    assert (vectors * 2**16 % 1 == 0).all()


def expected(query: Query, encoded, reduce=np.mean) -> dict[str, float]:
    """Minus a paper's distance: the mean of the least distances of the query's sentences."""
    (aspect,) = query.aspects
    positions = aspect.positions or aspect.paper.positions(aspect.facet)
    query_vectors = encoded[paper_of(query)][0][list(positions)]
    scores = {}
    for paper_id, (sentences, _) in encoded.items():
        distances = np.sqrt(((query_vectors[:, None] - sentences[None]) ** 2).sum(axis=2))
        scores[paper_id] = -reduce(distances.min(axis=1))
    return {name: score for name, score in scores.items() if name not in (paper_of(query), "outside")}


def test_dense_search_is_by_distance(index, encoded, queries):
    for query in queries:
        scores = expected(query, encoded)
        for pool in (None, list(scores)):
            hits = first_stage(index, "dense").search(query, 1000, pool)
            assert {hit.paper_id for hit in hits} == set(scores)
            for hit in hits:
                assert hit.score == pytest.approx(scores[hit.paper_id], rel=1e-6)
            assert hits == sorted(hits, key=lambda hit: (-hit.score, hit.paper_id))
            pairs = [pair.score for pair in hits[0].matches]
            assert np.mean(pairs) == pytest.approx(hits[0].score, rel=1e-6)


def test_whole_papers_are_compared_by_distance(index, encoded, queries):
    """SPECTER's own way of ranking: the distance of [CLS] to [CLS]."""
    whole = first_stage(index, "fused", weights={"whole": 1.0}, background_penalty=0)
    for query in queries:
        query_vector = encoded[paper_of(query)][1]
        pool = [name for name in encoded if name not in (paper_of(query), "outside")]
        scores = {name: -np.linalg.norm(query_vector - encoded[name][1]) for name in pool}
        hits = whole.search(query, 1000, pool, explain=True)
        for hit in hits:
            assert hit.component_scores["whole"] == pytest.approx(scores[hit.paper_id], rel=1e-6)
        assert [hit.paper_id for hit in hits] == sorted(pool, key=lambda name: (-scores[name], name))


@pytest.mark.parametrize("name", MATCHINGS)
def test_matchings_go_by_distance(index, encoded, queries, name):
    matching = over_index(name, index)
    for query in queries:
        pool = [paper_id for paper_id in encoded if paper_id not in (paper_of(query), "outside")]
        papers = list(map(index.paper, pool))
        scores = [scored.score for scored in score(matching, query, papers, vectors=index.vectors)]
        least, mean = (expected(query, encoded, reduce) for reduce in (np.min, np.mean))
        if name in ("single-match", "mean-max"):
            wanted = least if name == "single-match" else mean
            np.testing.assert_allclose(scores, [wanted[paper_id] for paper_id in pool], rtol=1e-9)
        else:
            assert all(value < least[paper_id] for value, paper_id in zip(scores, pool, strict=True))


def test_an_encoder_that_is_read_otherwise_is_refused(folder, tiny_index, tiny_encoder, l2_encoder):
    read = "read as layout title-sep-abstract, sentences mean, whole cls, similarity l2, max_tokens 64"
    with pytest.raises(EncoderMismatchError, match=f"{read}, found it read as the default encoder; give the"):
        Index(folder, encoder=str(tiny_encoder))
    with pytest.raises(EncoderMismatchError, match=f"read as the default encoder, found it {read}; give the"):
        Index(tiny_index, encoder=str(l2_encoder))

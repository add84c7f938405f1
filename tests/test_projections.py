"""Late interaction of projected vectors, its model on the disk, and searches with it."""

import numpy as np
import pytest
from support.searching import ids

from qbe.errors import UsageError
from qbe.index.index import Index
from qbe.models.cards import PACKAGE as MODELS
from qbe.query import Query
from qbe.search import projections
from qbe.search.pipeline import Pipeline
from qbe.search.stages import Fused, Projections
from qbe.types import Facet

SMALL = MODELS / "facet-projections"


def test_terms_worked_by_hand():
    """Two papers of two and one sentences; the matrix turns the first axis into the second, twice as long."""
    sentences = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    papers = projections.StoredPapers(sentences, np.array([0, 2]), np.array([[1.0, 0.0], [0.0, 1.0]]))
    matrix = np.array([[0.0, 1.0], [2.0, 0.0]])  # (x, y) becomes (y, 2 x)
    query = np.array([[1.0, 0.0], [0.6, 0.8]])  # projected and at unit length: (0, 1), (0.5547, 0.8321)
    facet = np.array([False, True, True])
    there = papers.projected(matrix)
    space = projections.Space.of(query, np.array([0.0, 1.0]), there, matrix)
    terms = space.terms(slice(None), facet, there.sums(facet), papers.starts)
    slanted = np.array([0.8, 1.2]) / np.hypot(0.8, 1.2)
    assert np.allclose(space.cosines, [[1, 0, slanted[1]], [slanted[1], slanted[0], 1]])
    sums = np.array([0, 1]) + slanted
    expected = {
        "sentences": [(1 + slanted[1]) / 2, (slanted[1] + 1) / 2],
        "facet": [(0 + slanted[0]) / 2, (slanted[1] + 1) / 2],
        "whole": [0, 1],
        "mean": [sums[0] / np.hypot(*sums), slanted @ sums / np.hypot(*sums)],
    }
    for name, row in zip(projections.TERMS, terms, strict=True):
        assert np.allclose(row, expected[name]), name


def test_a_search_mixes_both_stages(graded_index):
    with Index(graded_index) as index:
        query = Query(index.paper("s036"), Facet.METHOD)
        pool = [f"s{number:03d}" for number in range(1, 30)]
        with Pipeline(index, Fused(), Projections(weight=1.0, background_penalty=0)) as pipeline:
            alone = pipeline.search(query, 30, pool, explain=True)
            fewer = pipeline.search(query, 30, pool[:10], explain=True)
        scores = {hit.paper_id: hit.component_scores["reranker"] for hit in alone}
        assert ids(alone) == sorted(scores, key=lambda name: -scores[name])
        assert all(hit.component_scores["reranker"] == scores[hit.paper_id] for hit in fewer)
        assert all(hit.driven_by.query_position in query.aspects[0].selected_positions() for hit in alone)
        with Pipeline(index, Fused(), Projections()) as pipeline:
            whole = pipeline.search(Query(index.paper("s036")), 5)
        with Pipeline(index, Fused()) as pipeline:
            first = pipeline.search(Query(index.paper("s036")), 5)
        assert ids(whole) == ids(first)


def test_vectors_of_another_encoder_or_version_are_refused(tiny_index):
    message = "expected vectors of facet-encoder or facet-encoder-large for `rerank`"
    with Index(tiny_index) as index, pytest.raises(UsageError, match=message):
        Pipeline(index, Fused(), Projections())
    earlier = {"name": "facet-encoder", "weights_sha256": "5f" * 32}
    with pytest.raises(
        UsageError, match=r"of facet-encoder with other weights \(5f5f5f5f5f5f\) than this version's"
    ):
        projections.find_model(earlier)


def test_projections_of_other_vectors_are_given_by_their_folder(tmp_path, tiny_index):
    with Index(tiny_index) as index:
        encoder = index.manifest.dense["encoder"]
        whole = [index.vectors(index.paper(name)).whole.astype(np.float64) for name in ("s036", "s051")]
        only_whole = projections.FacetProjection(np.eye(len(whole[0])), np.array([0.0, 0.0, 1.0, 0.0]))
        model = projections.ProjectionModel(dict.fromkeys(Facet, only_whole), encoder, {})
        projections.write_model(tmp_path, model)
        stage = Projections(str(tmp_path), weight=1.0, background_penalty=0)
        query = Query(index.paper("s036"), Facet.METHOD)
        with Pipeline(index, Fused(), stage) as pipeline:
            (hit,) = pipeline.search(query, 1, ["s051"], explain=True)
        cosine = float(whole[0] @ whole[1] / np.linalg.norm(whole[0]) / np.linalg.norm(whole[1]))
        assert hit.component_scores["reranker"] == pytest.approx(cosine, abs=1e-6)
        with pytest.raises(UsageError, match=f"found {SMALL}, which reads those of facet-encoder; leave out"):
            Pipeline(index, Fused(), Projections(str(SMALL)))

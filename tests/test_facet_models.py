"""A cross-encoder for each facet; the temperature of attention; dense search by a single match."""

from collections import defaultdict

import numpy as np
import pytest
from support.rerankers import ByHand, over_index, score

from qbe import CrossEncoder, Dense, Facet, Fused, Matching, Pipeline, Query, Stages, UsageError
from qbe.search.matching import attention
from qbe.search.rerankers import open_rerank_stage
from qbe.search.stages import parse_first_stage, parse_reranker
from qbe.util.work import Workers

pytestmark = pytest.mark.slow


def test_each_facet_has_its_model(index):
    """Others have that of ``model``; said in text, in JSON and in Python."""
    models = {"method": ByHand(defaultdict(float)), "model": ByHand(defaultdict(float))}
    query = index.paper("s036")
    with Pipeline(index, Fused(), CrossEncoder(**models)) as pipeline:
        pipeline.batch_search([Query(query, facet) for facet in (*Facet, None)], 5)
    assert {name: len(each.requested) for name, each in models.items()} == {"method": 1, "model": 3}
    with pytest.raises(UsageError, match="`device` is of a named `model`, found an object or a function"):
        CrossEncoder(**models, device="cpu")
    stage = parse_reranker("cross-encoder:background=a/b,method=c/d,result=e/f,depth=9")
    assert stage == CrossEncoder(background="a/b", method="c/d", result="e/f", depth=9)
    assert Stages.from_json(Stages(Fused(), stage).to_json()).reranker == stage


def test_folders_of_facets_are_opened_beside_joint_grades(index, tiny_cross_encoder):
    folder = str(tiny_cross_encoder)
    given = CrossEncoder(method=folder), CrossEncoder(folder), CrossEncoder()
    stages = [open_rerank_stage(stage, index, Workers()) for stage in given]
    assert [stage.needs_vectors for stage in stages] == [False, False, True]  # for the background penalty
    some, alone, joint = (stage.reranker for stage in stages)
    assert (some.name, some.takes_whole_abstracts) == ("tiny-classifier", False)
    paper, papers = index.paper("s036"), [index.paper("s051"), index.paper("s059")]
    for facet, expected in ((Facet.METHOD, alone), (Facet.RESULT, joint)):
        query = Query(paper, facet)
        assert score(some, query, papers) == score(expected, query, papers)


def test_attention_has_a_temperature(index):
    distances, columns = np.array([[[1.0, 3.0]]]), np.array([[True, True]])
    for tau in (1.0, 0.5, 5.0):
        near, far = np.exp(-1 / tau), np.exp(-3 / tau)
        assert attention(distances, columns, tau) == pytest.approx(-(near + 3 * far) / (near + far))
    query, papers = Query(index.paper("s036"), Facet.METHOD), [index.paper("s051")]
    (usual,), (sharp,) = (
        score(over_index("attention", index, temperature=tau), query, papers, vectors=index.vectors)
        for tau in (None, 0.01)
    )
    assert usual.score < sharp.score
    assert parse_reranker("matching:kind=attention,temperature=0.5") == Matching("attention", temperature=0.5)
    with pytest.raises(UsageError, match="`regularization` is not read with `kind` attention"):
        Matching("attention", regularization=20)


@pytest.mark.parametrize("pooled", [False, True])
def test_dense_ranks_by_the_best_match_of_any_sentence(index, pooled):
    paper = index.paper("s036")
    query = Query(paper, Facet.METHOD)
    vectors = {name: index.vectors(index.paper(name)).sentences for name in index.papers.ids}
    positions, _ = paper.facet_positions(Facet.METHOD)
    asked = vectors["s036"][list(positions)].astype(np.float64)
    best = {name: float((asked @ each.T.astype(np.float64)).max()) for name, each in vectors.items()}
    del best["s036"]
    expected = sorted(best, key=lambda name: (-best[name], name))[:10]
    with Pipeline(index, parse_first_stage("dense:match=single")) as pipeline:
        hits = pipeline.search(query, 10, sorted(best) if pooled else None)
    assert [hit.paper_id for hit in hits] == expected
    assert [hit.score for hit in hits] == pytest.approx([best[name] for name in expected], abs=1e-6)
    with pytest.raises(UsageError, match="expected `match` as one of mean-max, single, found 'max'"):
        Dense(match="max")

"""Models and pipelines of other libraries, the real ones: PyTerrier, sentence-transformers."""

import math
import sys

import pandas as pd
import pyterrier as pt
import pytest
from sentence_transformers import CrossEncoder, SentenceTransformer
from support.searching import ids

import qbe
from qbe import Dense, Facet, Pipeline, Query, Topic, from_transformer
from qbe.errors import MissingDependencyError, PaperNotFoundError, UsageError
from qbe.search.rerankers import paper_text, query_text, scoring_of

pytestmark = pytest.mark.slow

TOPICS = [Topic(f"s036_{facet}", "s036", facet) for facet in Facet]
FRAME = pd.DataFrame(
    [(t.query_id, t.paper_id, str(t.facet)) for t in TOPICS], columns=["qid", "query", "facet"]
)


@pytest.fixture(scope="module")
def dense(index):
    with Pipeline(index, Dense()) as pipeline:
        yield pipeline


# PyTerrier


def test_a_pipeline_is_a_transformer(dense, monkeypatch):
    results = dense.as_transformer(k=5)(FRAME)
    assert results.columns.tolist() == ["qid", "query", "facet", "docno", "score", "rank"]
    run = dense.run(TOPICS, k=5)
    for query_id, rows in results.groupby("qid"):
        assert rows["docno"].tolist() == ids(run[query_id])
        assert rows["score"].tolist() == [hit.score for hit in run[query_id]]
        assert rows["rank"].tolist() == [0, 1, 2, 3, 4]
    assert not pt.java.started()
    monkeypatch.setitem(sys.modules, "pyterrier", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'qbe\[pyterrier\]'"):
        dense.as_transformer()


def test_transformers_are_composed_and_reranked(dense, index):
    first = dense.as_transformer(k=50) % 10
    shortest = from_transformer(pt.apply.doc_score(lambda row: -len(row["text"])))
    with Pipeline(index, Dense(), shortest) as short:
        results = (first >> short.as_transformer())(FRAME)
    pairs, expected = ({*zip(each["qid"], each["docno"], strict=True)} for each in (results, first(FRAME)))
    assert pairs == expected


def test_queries_are_ids_or_texts_with_a_facet_or_none(dense, index):
    text = "Nurses lose hours in traffic. We generate rounds one by one."
    frame = pd.DataFrame([("1", "s036"), ("2", text)], columns=["qid", "query"])
    results = dense.as_transformer(k=3)(frame)
    expected = [Query(index.paper("s036")), Query(qbe.paper_from_text("", text))]
    hits = dense.batch_search(expected, 3)
    assert [rows["docno"].tolist() for _, rows in results.groupby("qid")] == [ids(each) for each in hits]
    by_method = dense.as_transformer(k=3, facet=Facet.METHOD)(frame.head(1))
    assert by_method["docno"].tolist() == ids(dense.search(Query(index.paper("s036"), Facet.METHOD), 3))
    columns = dense.as_transformer()(frame.head(0)).columns.tolist()
    assert columns == ["qid", "query", "docno", "score", "rank"]
    with pytest.raises(UsageError, match="in the column facet, found 'title'"):
        dense.as_transformer()(frame.assign(facet="title"))
    with pytest.raises(PaperNotFoundError, match="s999"):
        dense.as_transformer()(frame.assign(query="s999"))
    for wrong in (frame.assign(query=[None, text]), frame.assign(qid=[math.nan, 1])):
        with pytest.raises(UsageError, match="a qid and a query in each row"):
            dense.as_transformer()(wrong)
    for wrong in (frame.assign(qid="1"), FRAME.assign(qid="1")):
        with pytest.raises(UsageError, match="one query and facet for each qid"):
            dense.as_transformer()(wrong)
    with pytest.raises(pt.validate.InputValidationError):
        dense.as_transformer()(frame.drop(columns="query"))


def test_a_transformer_is_a_first_stage(dense, index, caplog):
    query = Query(index.paper("s036"), Facet.METHOD)
    by_id = {"s001": 3.0, "s002": 3.0, "s036": 9.0, "s003": 1.0}
    retriever = pt.apply.generic(
        lambda frame: pd.DataFrame(
            [(qid, docno, score) for qid in frame["qid"] for docno, score in by_id.items()],
            columns=["qid", "docno", "score"],
        )
    )
    with Pipeline(index, from_transformer(retriever)) as pipeline:
        assert ids(pipeline.search(query)) == ["s001", "s002", "s003"]
        assert ids(pipeline.search(query, pool=["s003", "s009", "s002"])) == ["s002", "s003", "s009"]
        (told,) = caplog.messages
        assert "no score to 1 of the 3 papers of a pool, such as s009" in told
        with pytest.raises(UsageError, match="a `filter` needs a first stage of qbe's own"):
            pipeline.search(query, filter=qbe.PaperFilter(years=(2000, 2020)))
        by_id["elsewhere"] = 9.0
    reranked = Pipeline(index, from_transformer(retriever), lambda aspect, papers: [0.0] * len(papers))
    with reranked, pytest.raises(PaperNotFoundError):
        reranked.search(query)
    for wrong in (len, type(retriever)):
        with pytest.raises(TypeError, match="a transformer with a method transform"):
            from_transformer(wrong)


# sentence-transformers


@pytest.mark.parametrize("kind", ["encoder", "cross-encoder", "function", "transformer"])
def test_any_model_reranks(kind, index, tiny_model):
    """The best of ten papers is that of the model's own scores."""
    query = Query(index.paper("s036"), Facet.METHOD)
    (aspect,) = query.aspects
    model = {
        "encoder": lambda: SentenceTransformer(str(tiny_model)),
        "cross-encoder": lambda: CrossEncoder(str(tiny_model), num_labels=1),
        "function": lambda: lambda aspect, papers: [len(paper.abstract) for paper in papers],
        "transformer": lambda: from_transformer(pt.apply.doc_score(lambda row: len(row["text"]))),
    }[kind]()
    function = scoring_of(model) or model
    with Pipeline(
        index, Dense() >> qbe.CrossEncoder(model, depth=10, weight=1, background_penalty=0)
    ) as pipeline:
        hits = pipeline.search(query, 10)
        candidates = [index.paper(hit.paper_id) for hit in hits]
    scores = dict(zip(ids(hits), function(aspect, candidates), strict=True))
    assert ids(hits) == sorted(scores, key=lambda name: (-scores[name], name))
    if kind == "encoder":
        vectors = model.encode([query_text(aspect), paper_text(candidates[0])], normalize_embeddings=True)
        assert scores[hits[0].paper_id] == pytest.approx(float(vectors[0] @ vectors[1]), abs=1e-5)

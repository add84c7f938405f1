"""Python as people type it: names and texts, results that show themselves, models of one's own."""

import warnings

import numpy as np
import pytest
from support.searching import ids

import qbe
from qbe import Dense, Facet, Fused, Query, errors
from qbe.errors import EncoderMismatchError, PaperNotFoundError, UsageError

DRAFT = "Nurses lose hours in traffic. We generate rounds one by one."


@pytest.fixture(scope="module")
def index(graded_index):
    with qbe.open(graded_index) as opened:
        yield opened


def test_searches_are_by_ids_titles_papers_and_texts(index):
    paper = index.paper("s036")
    expected = index.search(Query(paper, Facet.RESULT), 3)
    for name in ("s036", paper.title, paper):
        assert index.search(name, facet="findings", k=3) == expected
    assert expected == index.search("s036", 3, stages=qbe.default_stages(index), facet=Facet.RESULT)
    assert all(set(hit.grades) == {"background", "method", "result"} for hit in expected)
    named = index.search(DRAFT, 2, stages=Dense(), matches=False)
    assert ids(named) == ids(index.search(qbe.paper_from_text("", DRAFT), 2, stages=Dense()))
    liked = index.search("s036", 2, like=["problem"], unlike="method")
    assert ids(liked) == ids(index.search("s036", 2, like="same-problem-other-method"))
    question = index.search("graph neural networks for traffic forecasting", 1)
    assert question.query.papers[0].metadata["question"]["problem"] == "traffic forecasting"
    longest = index.search("s036", 1, stages=Dense(), reranker=lambda _, papers: [0.0] * len(papers))
    assert longest[0].paper_id not in ("s036", "")
    with pytest.raises(PaperNotFoundError):
        index.search("s999")
    for wrong in ({"facet": "title"}, {"facet": "method", "like": ["method"]}):
        with pytest.raises(UsageError):
            index.search("s036", **wrong)
    with pytest.raises(UsageError):
        index.search(Query(paper), facet="method")


def test_results_and_indexes_show_themselves(index):
    hits = index.search("s036", facet="method", k=4)
    first = ", ".join(f"{hit.paper_id} {hit.score:.2f}" for hit in hits[:3])
    assert repr(hits) == f"<4 hits of s036_method: {first}, ...>"
    table = hits._repr_html_()
    assert table.count("<tr>") == 5
    assert index.paper(hits[0].paper_id).title.split("'")[0] in table
    best = hits[0].driven_by
    assert index.paper(hits[0].paper_id).sentences[best.position].text[:20] in table
    assert repr(index) == f"<Index {index.folder}: 128 papers, generation 1>"
    run = qbe.Run("mine", {"s036_method": hits})
    assert repr(run) == "<Run mine: 1 query, 4 hits>"
    assert repr(qbe.Pipeline(index, Fused())).startswith("<Pipeline qbe-fused over <Index")
    assert repr(qbe.Run("none", {})) == "<Run none: 0 queries, 0 hits>"


def test_eight_errors_are_public_and_others_have_moved():
    public = {name for name in qbe.__all__ if name.endswith("Error")}
    assert len(public) == 8
    with pytest.warns(DeprecationWarning, match=r"qbe\.errors\.OutputError"):
        assert qbe.OutputError is errors.OutputError
    with warnings.catch_warnings(), pytest.raises(AttributeError):
        _ = qbe.NoError


def letters(texts: list[str]) -> np.ndarray:
    return np.array([[text.lower().count(chr(97 + place)) for place in range(26)] for text in texts], float)


class Letters:
    def encode(self, texts: list[str]) -> np.ndarray:
        return letters(texts)


def test_an_encoder_is_an_object_or_a_function(papers, tmp_path):
    some, settings = papers[:20], qbe.BuildSettings(bm25=False)
    with qbe.build(tmp_path / "a", some, settings, encoder=Letters()) as index:
        expected = index.search(DRAFT, 3, stages=Dense())
        assert index.vectors(some[3]).sentences.shape == (len(some[3].sentences), 26)
    with qbe.build(tmp_path / "b", some[:-1], settings, encoder=letters) as index:
        index.update([some[-1], some[0]])
        assert index.search(DRAFT, 3, stages=Dense()) == expected
    with qbe.open(tmp_path / "b", encoder=Letters()) as index:
        assert index.search(DRAFT, 3, stages=Dense()) == expected
    for other in ({}, {"encoder": lambda texts: letters(texts)[:, ::-1]}):
        with pytest.raises(EncoderMismatchError), qbe.open(tmp_path / "b", **other) as index:
            index.search(DRAFT)


def test_an_encoder_may_be_the_vectors_of_the_papers(papers, tmp_path):
    some, settings = papers[:20], qbe.BuildSettings(bm25=False)
    vectors = letters([paper.abstract for paper in some])
    cosines = vectors @ vectors[4] / np.linalg.norm(vectors, axis=1)
    with qbe.build(tmp_path / "a", some, settings, encoder=vectors) as index:
        found = ids(index.search(some[4], 5, stages=Dense()))
        assert found == [some[place].paper_id for place in np.argsort(-cosines)[1:6]]
        with pytest.raises(UsageError, match="searched with its own papers"):
            index.search(DRAFT, stages=Dense())
    by_id = dict(reversed([(paper.paper_id, each) for paper, each in zip(some, vectors, strict=True)]))
    with qbe.build(tmp_path / "b", some, settings, encoder=by_id) as index:
        assert ids(index.search(some[4], 5, stages=Dense())) == found
    of_sentences = [letters([sentence.text for sentence in paper.sentences]) for paper in some]
    with qbe.build(tmp_path / "c", some, settings, encoder=of_sentences) as index:
        assert index.search(some[4], 2, stages=Dense())
    del by_id[some[7].paper_id]
    for wrong in (vectors[:-1], [*vectors, vectors[0]], by_id):
        with pytest.raises(UsageError, match="as `encoder`"):
            qbe.build(tmp_path / "d", some, settings, encoder=wrong, overwrite=True)

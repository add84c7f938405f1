"""Facets that a training predicts once and keeps."""

import pytest

from qbe.encode.encoder import Encoder
from qbe.tag.tagger import Tagger, TaggingEncoder
from qbe.train.reranker.papers import predict_facets

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def some(papers):
    return {paper.paper_id: paper for paper in papers[:4]}


@pytest.fixture(scope="module")
def expected(some):
    encoding = TaggingEncoder(Encoder.open(), Tagger.open(), "predicted").encode(some.values())
    return {paper.paper_id: paper for paper, _ in encoding}


def test_predictions_are_kept(some, expected, tmp_path, monkeypatch):
    cache = tmp_path / "facets.npz"
    encoder, tagger = Encoder.open(), Tagger.open()
    three = dict(list(some.items())[:3])
    assert predict_facets(three, encoder, tagger, cache) == {name: expected[name] for name in three}
    encoded = []
    encode = TaggingEncoder.encode

    def counted(self, papers):
        encoded.extend(papers)
        return encode(self, encoded)

    monkeypatch.setattr(TaggingEncoder, "encode", counted)
    assert predict_facets(some, encoder, tagger, cache) == expected
    assert [paper.paper_id for paper in encoded] == list(some)[3:]  # the others were known
    encoded.clear()
    assert predict_facets(some, encoder, tagger, cache) == expected
    assert encoded == []
    assert [path.name for path in tmp_path.iterdir()] == ["facets.npz"]

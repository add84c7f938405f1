"""Facets that a training predicts once and keeps."""

import numpy as np
import pytest

from qbe.encode.encoder import Encoder
from qbe.errors import ModelError
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


def test_without_a_file_nothing_is_kept(some, expected):
    assert predict_facets(some, Encoder.open(), Tagger.open()) == expected


@pytest.mark.parametrize("harm", ["cut", "empty", "other"])
def test_a_file_that_cannot_be_read(some, tmp_path, harm):
    cache = tmp_path / "facets.npz"
    np.savez(cache, other=np.zeros(9))
    if harm != "other":
        cache.write_bytes(cache.read_bytes()[:60] if harm == "cut" else b"")
    with pytest.raises(
        ModelError, match=r"facets\.npz: expected the predicted facets of this training, found"
    ):
        predict_facets(some, Encoder.open(), Tagger.open(), cache)

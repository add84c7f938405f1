"""The citation model on the disk: what is read is what was written, and one line for what cannot be read."""

import numpy as np
import pytest
from support.citing import model_of

from qbe.cite.model import default_model, read_model, write_model
from qbe.cite.scoring import FEATURE_SETS
from qbe.models.cards import PACKAGE as MODELS

ENCODER = {"name": "tiny", "weights_sha256": "9f86d081"}


@pytest.fixture
def folder(tmp_path):
    write_model(tmp_path, model_of(ENCODER))
    return tmp_path


def test_a_model_is_read_as_it_was_written(folder):
    written, read = model_of(ENCODER), read_model(folder)
    for name, array in written.projection._asdict().items():
        np.testing.assert_array_equal(getattr(read.projection, name), array)
        assert getattr(read.projection, name).dtype == np.float64
    assert read.heads.keys() == {known.key for known in FEATURE_SETS}
    for known in FEATURE_SETS:
        for actual, expected in zip(read.heads[known.key], written.heads[known.key], strict=True):
            np.testing.assert_array_equal(actual, expected)
    assert (read.encoder, read.training) == (ENCODER, {"made": "by a test"})
    assert sorted(path.name for path in folder.iterdir()) == ["citation.json", "citation.npz"]


def test_matrices_are_kept_in_half_precision(tmp_path):
    matrix = np.full((16, 16), 1 / 3)
    write_model(tmp_path, model_of(ENCODER, matrix))
    assert read_model(tmp_path).projection.whole[0, 0] == float(np.float16(1 / 3)) != 1 / 3


def test_features_that_were_never_known_survive(tmp_path):
    model = model_of(ENCODER)
    heads = {key: head._replace(mean=np.full_like(head.mean, np.nan)) for key, head in model.heads.items()}
    write_model(tmp_path, type(model)(model.projection, heads, model.encoder, model.training))
    head = read_model(tmp_path).heads[FEATURE_SETS[0].key]
    expected = np.tanh(head.bias) @ head.out
    np.testing.assert_allclose(head.scores(np.ones((1, len(head.mean)))), [expected])


def test_each_model_that_ships_reads_one_encoder():
    for folder in MODELS.glob("citation*"):
        assert default_model(read_model(folder).encoder) == folder

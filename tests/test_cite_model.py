"""The citation model on the disk: what is read is what was written, and one line for what cannot be read."""

import pytest
from support.citing import model_of

from qbe.cite.model import default_model, read_model, write_model
from qbe.models.cards import PACKAGE as MODELS

ENCODER = {"name": "tiny", "weights_sha256": "9f86d081"}


@pytest.fixture
def folder(tmp_path):
    write_model(tmp_path, model_of(ENCODER))
    return tmp_path


def test_each_model_that_ships_reads_one_encoder():
    for folder in MODELS.glob("citation*"):
        assert default_model(read_model(folder).encoder) == folder

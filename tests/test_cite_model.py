"""The citation models that ship."""

from qbe.cite.recommender import default_model, read_model
from qbe.models.cards import PACKAGE as MODELS


def test_each_model_that_ships_reads_one_encoder():
    for folder in MODELS.glob("citation*"):
        assert default_model(read_model(folder).encoder) == folder

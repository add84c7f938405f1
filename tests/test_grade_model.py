"""The grade model: estimates out of features, the file of it, and one line for what cannot be read."""

import numpy as np
import pytest

from qbe.models.cards import OUTPUTS, GradeModel, Head, read_model, write_model
from qbe.models.cards import PACKAGE as MODELS
from qbe.search.grading import FEATURES

SMALL = MODELS / "grades"
SHIPPED = sorted(path.parent for path in MODELS.glob("grades*/grades.json"))
ENCODER = {"name": "tiny", "weights_sha256": "9f86d081"}
NAMES = ("first", "second")


def head(seed: int = 0) -> Head:
    random = np.random.default_rng(seed)

    def numbers(*shape: int) -> np.ndarray:
        return random.integers(-8, 9, shape) / 4

    scale = np.array([1.0, 2.0])
    return Head(np.zeros(2), scale, numbers(2, 2), numbers(2), numbers(2, OUTPUTS), numbers(2, OUTPUTS))


@pytest.fixture
def model() -> GradeModel:
    return GradeModel(head(), ENCODER, {"made": "by a test"})


@pytest.fixture
def folder(tmp_path, model):
    write_model(tmp_path, model, NAMES)
    return tmp_path


def test_estimates_are_the_heads_scores_and_the_chances_of_its_log_odds():
    """The first feature is a grade by background, the second the log odds of a similar method."""
    direct = np.zeros((2, OUTPUTS))
    direct[0, 0] = direct[1, 4] = 1
    linear = Head(np.zeros(2), np.ones(2), np.zeros((2, 1)), np.zeros(1), direct, np.zeros((1, OUTPUTS)))
    estimates = GradeModel(linear, ENCODER, {}).estimates(np.array([[-0.5, np.log(3)], [3.5, -1e9]]))
    assert estimates.grades.tolist() == [[-0.5, 0, 0], [3.5, 0, 0]]
    assert estimates.grades.clip(0, 3).tolist() == [[0, 0, 0], [3, 0, 0]]
    assert estimates.similar.tolist() == [[0.5, 0.75, 0.5], [0.5, 0, 0.5]]
    assert estimates.other.tolist() == [[0.5] * 3] * 2


@pytest.mark.parametrize("folder", SHIPPED, ids=lambda folder: folder.name)
def test_of_a_model_that_ships_more_likeness_is_a_higher_grade(folder):
    model = read_model(folder, FEATURES)
    cosines = np.array(["sentences of" not in name and "of candidate" not in name for name in FEATURES])
    mean, scale = model.head.mean, model.head.scale * cosines
    low, middle, high = model.estimates(np.array([mean - scale, mean, mean + scale])).grades
    assert (low <= middle).all()
    assert (middle < high).all()

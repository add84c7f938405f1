"""The grade model: estimates out of features, the file of it, and one line for what cannot be read."""

import gc
import json
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from qbe.errors import ModelError
from qbe.models.cards import PACKAGE as MODELS
from qbe.models.folders import resolve_encoder
from qbe.models.heads import (
    GRADES,
    OUTPUTS,
    GradeModel,
    Head,
    mean_head,
    read_model,
    shipped_model,
    write_model,
)
from qbe.search.grading import FEATURES
from qbe.util.files import sha256

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


def test_the_mean_of_heads_scores_the_mean():
    parts = [head(seed) for seed in range(3)]
    features = np.random.default_rng(5).standard_normal((7, 2))
    features[2, 1] = np.nan
    expected = np.mean([part.scores(features) for part in parts], axis=0)
    np.testing.assert_allclose(mean_head(parts).scores(features), expected, rtol=1e-12)


def test_a_model_is_read_as_it_was_written(folder, model):
    read = read_model(folder, NAMES)
    for actual, expected in zip(read.head, model.head, strict=True):
        np.testing.assert_array_equal(actual, expected)
        assert actual.dtype == np.float64
    assert (read.encoder, read.training) == (ENCODER, {"made": "by a test"})
    assert sorted(path.name for path in folder.iterdir()) == [GRADES.card, GRADES.weights]


def test_weights_that_lack_a_part(folder):
    with np.load(folder / GRADES.weights) as stored:
        arrays = {name: stored[name] for name in stored.files if name != "head.out"}
    np.savez(folder / GRADES.weights, **arrays)
    card = json.loads((folder / GRADES.card).read_text())
    (folder / GRADES.card).write_text(
        json.dumps(card | {"files": {GRADES.weights: sha256(folder / GRADES.weights)}})
    )
    with pytest.raises(ModelError, match=r"found: KeyError\('head\.out'\); give its folder") as raised:
        read_model(folder, NAMES)
    assert "\n" not in str(raised.value)


def test_the_model_that_ships_reads_the_encoder_that_ships():
    encoder = resolve_encoder("facet-encoder", "int8").identity
    assert shipped_model(encoder) == SMALL
    assert read_model(SMALL, FEATURES).encoder == encoder


@pytest.mark.parametrize("folder", SHIPPED, ids=lambda folder: folder.name)
def test_of_a_model_that_ships_more_likeness_is_a_higher_grade(folder):
    model = read_model(folder, FEATURES)
    cosines = np.array(["sentences of" not in name and "of candidate" not in name for name in FEATURES])
    mean, scale = model.head.mean, model.head.scale * cosines
    low, middle, high = model.estimates(np.array([mean - scale, mean, mean + scale])).grades
    assert (low <= middle).all()
    assert (middle < high).all()


class Garbage:
    """An object that only the collector of garbage frees, which lets another thread run meanwhile."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        for _ in range(50):
            pass


def test_several_threads_read_models_at_a_time():
    def read(_: int) -> GradeModel:
        for _ in range(5):
            Garbage()
        return read_model(SMALL, FEATURES)

    thresholds, interval = gc.get_threshold(), sys.getswitchinterval()
    gc.set_threshold(20)
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            assert len(list(threads.map(read, range(200)))) == 200
    finally:
        gc.set_threshold(*thresholds)
        sys.setswitchinterval(interval)

"""The grade model: grades out of features, the file of it, and one line for what cannot be read."""

import gc
import json
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from qbe.errors import ModelError
from qbe.grade.head import Head, mean_head
from qbe.grade.model import (
    CARD,
    HIGHEST,
    NAMES,
    RERANKED,
    VECTORS,
    WEIGHTS,
    WHOLE,
    GradeModel,
    columns,
    default_model,
    of_best,
    of_facets,
    of_reranker,
    of_sentences,
    on_scale,
    read_model,
    write_model,
)
from qbe.models.encoder_files import resolve_encoder
from qbe.rerank.open import describe_reranker
from qbe.types import Facet

ENCODER = {"name": "tiny", "weights_sha256": "9f86d081"}
RERANKER = {"trunk.bin": "2c26b46b"}


def heads(known: str, seed: int = 0) -> dict[Facet, Head]:
    """Heads of random weights, two hidden units each."""
    random, width = np.random.default_rng(seed), len(NAMES[known])

    def numbers(*shape: int) -> np.ndarray:
        return random.integers(-8, 9, shape) / 4

    return {
        facet: Head(
            numbers(width), abs(numbers(width)) + 1, numbers(width, 2), numbers(2), numbers(width), numbers(2)
        )
        for facet in Facet
    }


def linear(name: str, known: str = VECTORS) -> Head:
    """A head whose score is one feature."""
    width = len(NAMES[known])
    direct = np.array([float(each == name) for each in NAMES[known]])
    return Head(np.zeros(width), np.ones(width), np.zeros((width, 1)), np.zeros(1), direct, np.zeros(1))


@pytest.fixture
def model() -> GradeModel:
    return GradeModel({known: heads(known) for known in NAMES}, ENCODER, RERANKER, {"made": "by a test"})


@pytest.fixture
def folder(tmp_path, model):
    write_model(tmp_path, model)
    return tmp_path


# Features


def test_the_rerankers_scores_come_last():
    assert NAMES[RERANKED][: len(NAMES[VECTORS])] == NAMES[VECTORS]
    assert NAMES[RERANKED][len(NAMES[VECTORS]) :] == tuple(of_reranker(facet) for facet in Facet)


@pytest.mark.parametrize("known", NAMES)
def test_each_feature_has_its_own_column(known):
    names = [WHOLE]
    for facet in Facet:
        names += [of_sentences(facet), *(of(facet, other) for of in (of_facets, of_best) for other in Facet)]
        names += [of_reranker(facet)] if known == RERANKED else []
    assert sorted(NAMES[known]) == sorted(names)
    features = {name: np.array([place, -place], float) for place, name in enumerate(NAMES[known])}
    matrix = columns(features, known, 2)
    assert matrix.tolist() == [[*range(len(names))], [-place for place in range(len(names))]]


def test_a_feature_that_is_missing_is_not_a_number():
    matrix = columns({WHOLE: np.array([0.5, 0.25]), "another": np.ones(2)}, VECTORS, 2)
    assert matrix[:, 0].tolist() == [0.5, 0.25]
    assert np.isnan(matrix[:, 1:]).all()


# Grades


def test_a_grade_is_the_score_of_the_facets_head():
    by_facet = {facet: linear(of_sentences(facet)) for facet in Facet}
    model = GradeModel({VECTORS: by_facet}, ENCODER, RERANKER, {})
    scores = {"background": [0.5, -1.0], "method": [3.5, 3.0], "result": [0.0, 1.25]}
    features = {f"{name}.sentences": np.array(column) for name, column in scores.items()}
    grades = model.grades(features, VECTORS, 2)
    assert grades.tolist() == [[0.5, 3.5, 0.0], [-1.0, 3.0, 1.25]]
    assert on_scale(grades).tolist() == [[0.5, HIGHEST, 0.0], [0.0, 3.0, 1.25]]


def test_what_is_missing_counts_as_the_mean_of_the_training():
    mean = np.full(len(NAMES[VECTORS]), 0.75)
    head = linear(WHOLE)._replace(mean=mean, scale=np.full(len(mean), 0.5))
    model = GradeModel({VECTORS: dict.fromkeys(Facet, head)}, ENCODER, RERANKER, {})
    assert model.grades({}, VECTORS, 2).tolist() == [[0.0] * 3] * 2
    assert model.grades({WHOLE: np.array([np.nan, 1.75])}, VECTORS, 2).tolist() == [[0.0] * 3, [2.0] * 3]


def test_no_candidates_have_no_grades(model):
    assert model.grades({}, VECTORS, 0).shape == model.grades({}, RERANKED, 0).shape == (0, 3)


def test_the_mean_of_heads_scores_the_mean():
    parts = [heads(VECTORS, seed)[Facet.METHOD] for seed in range(3)]
    parts = [part._replace(mean=parts[0].mean, scale=parts[0].scale) for part in parts]
    features = np.random.default_rng(5).standard_normal((7, len(NAMES[VECTORS])))
    features[2, 3] = np.nan
    expected = np.mean([part.scores(features) for part in parts], axis=0)
    np.testing.assert_allclose(mean_head(parts).scores(features), expected, rtol=1e-12)


# The file


def test_a_model_is_read_as_it_was_written(folder, model):
    read = read_model(folder)
    assert read.heads.keys() == set(NAMES)
    for known in NAMES:
        assert list(read.heads[known]) == list(Facet)
        for facet in Facet:
            for actual, expected in zip(read.heads[known][facet], model.heads[known][facet], strict=True):
                np.testing.assert_array_equal(actual, expected)
                assert actual.dtype == np.float64
    assert (read.encoder, read.reranker, read.training) == (ENCODER, RERANKER, {"made": "by a test"})
    assert sorted(path.name for path in folder.iterdir()) == [CARD, WEIGHTS]


def test_the_same_model_is_written_to_the_same_bytes(folder, model, tmp_path_factory):
    again = tmp_path_factory.mktemp("again")
    write_model(again, model)
    assert {path.name: path.read_bytes() for path in again.iterdir()} == {
        path.name: path.read_bytes() for path in folder.iterdir()
    }


def test_weights_that_lack_a_head(folder):
    from qbe.files import sha256

    with np.load(folder / WEIGHTS) as stored:
        arrays = {name: stored[name] for name in stored.files if name != "reranked.method.out"}
    np.savez(folder / WEIGHTS, **arrays)
    card = json.loads((folder / CARD).read_text())
    (folder / CARD).write_text(json.dumps(card | {"files": {WEIGHTS: sha256(folder / WEIGHTS)}}))
    with pytest.raises(ModelError, match=r"found: 'reranked\.method\.out'; give its folder") as raised:
        read_model(folder)
    assert "\n" not in str(raised.value)


# The model that ships


def test_the_model_that_ships_reads_the_encoder_and_the_rerankers_that_ship():
    model = read_model(default_model())
    assert model.encoder == resolve_encoder("facet-encoder", "int8").identity
    assert model.reranker == describe_reranker()


@pytest.mark.parametrize("known", NAMES)
def test_of_the_model_that_ships_more_likeness_is_a_higher_grade(known):
    """A candidate all of whose matches are better is graded higher in every facet."""
    model = read_model(default_model())
    mean = model.heads[known][Facet.METHOD].mean
    scale = model.heads[known][Facet.METHOD].scale
    features = {
        name: np.array([mean[place] - scale[place], mean[place], mean[place] + scale[place]])
        for place, name in enumerate(NAMES[known])
    }
    low, middle, high = model.grades(features, known, 3)
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
        return read_model(default_model())

    thresholds, interval = gc.get_threshold(), sys.getswitchinterval()
    gc.set_threshold(20)
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            assert len(list(threads.map(read, range(400)))) == 400
    finally:
        gc.set_threshold(*thresholds)
        sys.setswitchinterval(interval)

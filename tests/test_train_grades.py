"""Training of the grade model: losses and calibration by hand, what is learned, the whole, resuming."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from qbe.errors import CorpusError
from qbe.models.cards import OUTPUTS, Head, mean_head, read_model
from qbe.models.words import shipped_words
from qbe.runs import GradedPair, read_graded_pairs
from qbe.search.grading import FEATURES, Features, GradedQuery, stored_vectors
from qbe.search.projections import find_model
from qbe.search.projections import read_model as read_projections
from qbe.train.grades import GradeRecipe, calibrated, fit_grade_head, load_or_measure
from qbe.train.losses import grade_loss
from qbe.util.files import sha256
from qbe.util.work import Workers

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]
TRAINED = "grades"

RECIPE = GradeRecipe(epochs=3, batch=4, hidden=2)


@pytest.fixture(scope="module")
def reader(graded):
    return graded.reader


@pytest.fixture(scope="module")
def source(graded) -> Features:
    projections = read_projections(find_model(graded.manifest.dense["encoder"])).projections
    return Features(projections, shipped_words(), stored_vectors(graded))


@pytest.fixture(scope="module")
def pairs(trained) -> Path:
    return trained.sources.leave_out.parent


def test_errors_of_grades_and_of_their_differences():
    """Errors are 1, 0 and -2; their differences 1, 3 and 2. Grades by background and method are alike."""
    predicted, grades = torch.tensor([[2.0, 1.0, 0.0, *[0.0] * 6]]), torch.tensor([[1.0, 1.0, 2.0]])
    alone = {"differences": 0.0, "chances": 0.0, "crossed": 4.0}
    assert grade_loss(predicted, grades, **alone).item() == pytest.approx(5 / 3)
    both = {**alone, "differences": 0.5}
    assert grade_loss(predicted, grades, **both).item() == pytest.approx(5 / 3 + 0.5 * 14 / 3)
    crossed = torch.tensor([[1.0, 2.0, 2.0]])  # errors 1, -1, -2
    assert grade_loss(predicted, crossed, **{**alone, "crossed": 3.0}).item() == pytest.approx(4 * 2)


def test_calibrated_chances_are_the_shares_and_grades_stay():
    """A feature of 1 says odds of e to 1; a quarter of such pairs and a tenth of the others are similar."""
    direct = np.zeros((1, OUTPUTS))
    direct[0, 0], direct[0, 3:] = 0.5, 1.0
    head = Head(np.zeros(1), np.ones(1), np.zeros((1, 1)), np.zeros(1), direct, np.zeros((1, OUTPUTS)))
    features = np.repeat([[1.0], [0.0]], 200, axis=0)
    grades = np.zeros((400, 3))
    grades[:50] = grades[200:220] = 2.0
    scores = calibrated(head, features, grades).scores(features[[0, 200]])
    assert scores[:, 0].tolist() == [0.5, 0]
    chances = 1 / (1 + np.exp(-scores[:, 3:]))
    np.testing.assert_allclose(chances, [[0.25] * 3 + [0.75] * 3, [0.1] * 3 + [0.9] * 3], atol=1e-3)


def test_pairs_are_measured_over_the_index(reader, source, pairs, tmp_path):
    lists = read_graded_pairs(pairs / "train.tsv")
    features, grades = load_or_measure(reader, source, lists, tmp_path / "kept.npz", Workers())
    assert [path.name for path in tmp_path.iterdir()] == ["kept.npz"]
    paper = reader.paper("s036")
    candidates = [pair for pair in lists["s036"] if pair.paper_id != "s036"]
    query = GradedQuery(paper, reader.stored_vectors(paper))
    expected = source.compare(query, [reader.paper(pair.paper_id) for pair in candidates]).values
    first = list(lists).index("s036") * 3
    np.testing.assert_array_equal(features[first : first + len(candidates)], expected)
    assert grades[first : first + 3].tolist() == [list(pair.grades) for pair in candidates]


def test_papers_that_the_index_lacks_are_left_out(reader, source, tmp_path):
    """And the query's own paper, and lists of which nothing is left."""
    nought = (0.0, 0.0, 0.0)
    grades_of = {"s059": 1, "absent": 2, "s036": 3}
    graded = [GradedPair(name, (grade, 0.0, 0.0)) for name, grade in grades_of.items()]
    lists = {"absent": [GradedPair("s001", nought)], "s036": graded, "s118": [GradedPair("absent", nought)]}
    _, grades = load_or_measure(reader, source, lists, tmp_path / "kept.npz", Workers())
    assert grades.tolist() == [[1, 0, 0]]
    with pytest.raises(CorpusError, match="expected graded pairs of papers of the index, found none of 2"):
        load_or_measure(reader, source, {"absent": lists["absent"]}, tmp_path / "none.npz", Workers())
    assert not (tmp_path / "none.npz").exists()


def kept_features(trained, pairs: Path, split: str) -> tuple[np.ndarray, np.ndarray]:
    with np.load(trained.work / f"{split}-{split}-{sha256(pairs / f'{split}.tsv')[:12]}.npz") as kept:
        return kept["features"], kept["grades"]


def test_a_model_is_published(trained, graded, pairs):
    model, errors = read_model(trained.output, FEATURES), trained.result
    # Both seeds, each with a constant, and that of the calibration.
    assert model.head.hidden.shape == (len(FEATURES), 2 * (RECIPE.hidden + 1) + 1)
    assert (model.training["seeds"], model.training["pairs"]) == ([0, 1], 8)
    assert model.training["calibrated"] == f"{pairs.name}/dev.tsv"
    assert model.training["index"] == graded.manifest.digest
    assert model.encoder == graded.manifest.dense["encoder"]
    features, truth = kept_features(trained, pairs, "dev")
    predicted = model.estimates(features).grades.clip(0, 3)
    expected = np.sqrt(np.mean((predicted - truth) ** 2, axis=0))
    np.testing.assert_allclose(errors[f"{pairs.name}/dev.tsv"], expected, atol=1e-5)


def test_the_calibrated_mean_of_the_seeds_heads_is_published(trained, pairs, tmp_path):
    features, graded = kept_features(trained, pairs, "train")
    heads = [fit_grade_head(features, graded, RECIPE, seed, tmp_path / f"{seed}.pt") for seed in (0, 1)]
    expected = calibrated(mean_head(heads), *kept_features(trained, pairs, "dev"))
    for actual, array in zip(read_model(trained.output, FEATURES).head, expected, strict=True):
        np.testing.assert_array_equal(actual, array.astype(np.float32))


def test_a_file_to_measure_on_and_to_train_on_is_kept_twice(trained, pairs, reader, tmp_path):
    evaluated = {"paper_id": "e", "title": reader.paper("s036").title, "abstract": ["Other words."]}
    (tmp_path / "evaluated.jsonl").write_text(json.dumps(evaluated) + "\n")
    file, work = pairs / "train.tsv", tmp_path / "work"
    both = replace(trained.sources, train=(file,), dev=(file,), leave_out=tmp_path / "evaluated.jsonl")
    trained.again(tmp_path, both)
    counts = {}
    for part in ("dev", "train"):
        with np.load(work / f"{part}-train-{sha256(file)[:12]}.npz") as kept:
            counts[part] = len(kept["grades"])
    assert counts == {"dev": 8, "train": 5}  # not those of s036
    assert read_model(tmp_path / "model", FEATURES).training["pairs"] == 5

"""Training of the grade model: losses and figures by hand, what is learned, the whole, resuming."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from support.trainings import grades

from qbe.encode.aspect import EncodedAspect
from qbe.errors import CorpusError
from qbe.files import sha256
from qbe.grade.head import mean_head
from qbe.grade.model import NAMES, RERANKED, VECTORS, of_reranker, on_scale, read_model
from qbe.graded_pairs import GradedPair, read_graded_pairs
from qbe.index.index import Index
from qbe.index.reader import IndexReader
from qbe.parallel import Workers
from qbe.query import Aspect
from qbe.rerank.open import describe_reranker
from qbe.search.grading import GradeFeatures, GradeRequest
from qbe.train import grades as data
from qbe.train.artifacts import Folders, RunOptions, read_provenance
from qbe.train.grades import GradedFeatures, load_or_measure, sampled
from qbe.train.heads import GradeRecipe, fit_grade_heads, grade_loss
from qbe.types import Facet

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

METHOD = Facet.METHOD
RECIPE = GradeRecipe(sampled=3, epochs=3, batch=4, hidden=2)


@pytest.fixture(scope="module")
def toy_training(request):
    return grades(request)


@pytest.fixture(scope="module")
def reader(graded_index):
    reader = IndexReader(graded_index)
    yield reader
    reader.release()


@pytest.fixture(scope="module")
def by_vectors(reader) -> GradeFeatures:
    return GradeFeatures(reader, Workers())


@pytest.fixture(scope="module")
def pairs(toy_training) -> Path:
    """The folder of the graded pairs."""
    return toy_training.sources.leave_out.parent


# Fitting


def test_errors_of_grades_and_of_their_differences():
    """Errors are 1, 0 and -2; their differences 1, 3 and 2."""
    predicted, grades = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1.0, 1.0, 2.0]])
    assert grade_loss(predicted, grades, 0.0).item() == pytest.approx(5 / 3)
    assert grade_loss(predicted, grades, 0.5).item() == pytest.approx(5 / 3 + 0.5 * 14 / 3)
    assert grade_loss(grades, grades, 1.0).item() == 0


def relation(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Features on scales of their own, and grades that are linear in them."""
    features = np.random.default_rng(seed).standard_normal((count, 4)) * [1, 10, 0.1, 3] + [0, 5, -1, 2]
    standard = (features - [0, 5, -1, 2]) / [1, 10, 0.1, 3]
    return features, standard @ np.array([[0.5, 0, 0.1], [0, 0.7, 0], [0.2, -0.3, 0], [0, 0, 0]]) + [
        1,
        1.5,
        2,
    ]


@pytest.mark.parametrize("differences", [0.0, 1.0])
def test_a_linear_relation_is_learned(differences, tmp_path):
    recipe = GradeRecipe(epochs=60, batch=64, differences=differences)
    heads = fit_grade_heads(*relation(600, seed=1), recipe, 0, tmp_path / "heads.pt")
    assert list(heads) == list(Facet)
    features, grades = relation(200, seed=2)
    for place, head in enumerate(heads.values()):
        assert np.sqrt(np.mean((head.scores(features) - grades[:, place]) ** 2)) < 0.1


def test_features_that_are_missing_are_left_out_of_means_and_do_not_matter(tmp_path):
    features, grades = relation(300, seed=1)
    known = np.mean(features[100:, 1])
    features[:100, 1] = np.nan
    recipe = GradeRecipe(epochs=20, batch=64)
    head = fit_grade_heads(features, grades, recipe, 0, tmp_path / "heads.pt")[METHOD]
    assert head.mean[1] == pytest.approx(known)
    filled = np.where(np.isnan(features), known, features)
    np.testing.assert_allclose(head.scores(features), head.scores(filled))


# Data


def test_lists_are_drawn_at_random_whatever_their_order():
    lists = {name: [GradedPair(name, (0.0, 0.0, 0.0))] for name in "abcdefgh"}
    drawn = sampled(lists, 3, 7)
    assert len(drawn) == 3
    assert all(drawn[name] is lists[name] for name in drawn)
    assert list(sampled(dict(reversed(lists.items())), 3, 7)) == list(drawn)
    assert set(sampled(lists, 99, 7)) == set(lists)
    assert len({tuple(sorted(sampled(lists, 3, seed))) for seed in range(20)}) > 5


def test_pairs_are_measured_over_the_index(reader, by_vectors, pairs, tmp_path):
    lists = read_graded_pairs(pairs / "train.tsv")
    found = load_or_measure(reader, by_vectors, lists, tmp_path / "kept.npz")
    parts = zip(*(np.split(column, [3, 6]) for column in found), strict=True)
    for query, (measured, graded) in zip(lists, parts, strict=True):
        paper = reader.paper(query)
        vectors = reader.stored_vectors(paper)
        rows = np.array(sorted(reader.papers.row(pair.paper_id) for pair in lists[query]))
        facets = {facet: EncodedAspect.of(Aspect(paper, facet), vectors) for facet in Facet}
        features = by_vectors.by_vectors(GradeRequest(facets, rows))
        for place, name in enumerate(NAMES[VECTORS]):
            np.testing.assert_array_equal(measured[:, place], features[name])
        assert np.isnan(measured[:, len(NAMES[VECTORS]) :]).all()  # without a reranker
        by_id = {pair.paper_id: pair.grades for pair in lists[query]}
        assert graded.tolist() == [[*by_id[reader.papers.ids[row]]] for row in rows.tolist()]


def test_papers_that_the_index_lacks_are_left_out(reader, by_vectors, tmp_path):
    """And the query's own paper, and lists of which nothing is left."""
    nought = (0.0, 0.0, 0.0)
    lists = {
        "absent": [GradedPair("s001", nought)],
        "s036": [
            GradedPair(name, (grade, 0.0, 0.0)) for name, grade in (("s059", 1), ("absent", 2), ("s036", 3))
        ],
        "s118": [GradedPair("absent", nought)],
    }
    found = load_or_measure(reader, by_vectors, lists, tmp_path / "kept.npz")
    assert found.grades.tolist() == [[1, 0, 0]]
    with pytest.raises(CorpusError, match="expected graded pairs of papers of the index, found none of 2"):
        load_or_measure(reader, by_vectors, {"absent": lists["absent"]}, tmp_path / "none.npz")
    assert not (tmp_path / "none.npz").exists()


def test_what_was_measured_is_kept(reader, by_vectors, pairs, tmp_path, monkeypatch):
    lists = read_graded_pairs(pairs / "train.tsv")
    first = load_or_measure(reader, by_vectors, lists, tmp_path / "kept.npz")
    assert [path.name for path in tmp_path.iterdir()] == ["kept.npz"]
    monkeypatch.setattr(by_vectors, "batch", None)
    again = load_or_measure(reader, by_vectors, lists, tmp_path / "kept.npz")
    monkeypatch.undo()
    monkeypatch.setattr(data, "BLOCK", 1)
    by_one = load_or_measure(reader, by_vectors, lists, tmp_path / "other.npz")
    for other in (again, by_one):
        for left, right in zip(first, other, strict=True):
            np.testing.assert_array_equal(left, right)


# The whole


@pytest.fixture(scope="module")
def trained(toy_training, tmp_path_factory):
    """A tiny training by two seeds: its folders and errors."""
    folders = Folders(*(tmp_path_factory.mktemp("trained") / name for name in ("output", "work")))
    return folders, toy_training.train(folders, RunOptions(seeds=(0, 1)))


def kept_features(folders: Folders, pairs: Path, split: str) -> GradedFeatures:
    with np.load(folders.work / f"{split}-{split}-{sha256(pairs / f'{split}.tsv')[:12]}.npz") as kept:
        return GradedFeatures(**kept)


def test_a_model_is_published(trained, graded_index, pairs):
    folders, errors = trained
    model = read_model(folders.output)
    assert model.heads.keys() == set(NAMES)
    for known, heads in model.heads.items():
        for head in heads.values():
            assert head.hidden.shape == (len(NAMES[known]), 2 * (RECIPE.hidden + 1))  # of both seeds
    assert model.reranker == describe_reranker()
    assert (model.training["seeds"], model.training["pairs"]) == ([0, 1], 8)
    assert model.training["data"] == {
        f"{pairs.name}/{file}": sha256(pairs / file) for file in ("train.tsv", "dev.tsv", "evaluated.jsonl")
    }
    with Index(graded_index) as index:
        assert model.training["index"] == index.manifest.digest
        assert model.encoder == index.manifest.dense["encoder"]
    features, graded = kept_features(folders, pairs, "dev")
    named = dict(zip(NAMES[RERANKED], features.T, strict=True))
    predicted = on_scale(model.grades(named, RERANKED, len(graded)))
    expected = np.sqrt(np.mean((predicted - graded) ** 2, axis=0))
    np.testing.assert_allclose(errors[f"{pairs.name}/dev.tsv"], expected, atol=1e-5)


def test_the_mean_of_the_seeds_heads_is_published(trained, pairs, tmp_path):
    folders, _ = trained
    features, graded = kept_features(folders, pairs, "train")
    assert len(graded) == 8
    reranked = features[:, [NAMES[RERANKED].index(of_reranker(facet)) for facet in Facet]]
    assert np.isfinite(reranked).all()
    model = read_model(folders.output)
    for known, names in NAMES.items():
        chosen = features[:, : len(names)]
        paths = [tmp_path / f"{known}-{seed}.pt" for seed in (0, 1)]
        heads = [fit_grade_heads(chosen, graded, RECIPE, seed, path) for seed, path in enumerate(paths)]
        for facet in Facet:
            expected = mean_head([each[facet] for each in heads])
            for actual, array in zip(model.heads[known][facet], expected, strict=True):
                np.testing.assert_array_equal(actual, array.astype(np.float32))


def test_a_file_to_measure_on_and_to_train_on_is_kept_twice(toy_training, pairs, reader, tmp_path):
    """Of pairs to train on those of evaluated papers are left out, and a sample is used."""
    evaluated = {"paper_id": "e", "title": reader.paper("s036").title, "abstract": ["Other words."]}
    (tmp_path / "evaluated.jsonl").write_text(json.dumps(evaluated) + "\n")
    file, work = pairs / "train.tsv", tmp_path / "work"
    both = replace(toy_training.sources, train=(file,), dev=(file,), leave_out=tmp_path / "evaluated.jsonl")
    toy_training.train(Folders(tmp_path / "output", work), RunOptions(seeds=(0,)), both)
    counts = {}
    for part in ("dev", "train"):
        with np.load(work / f"{part}-train-{sha256(file)[:12]}.npz") as kept:
            counts[part] = len(kept["grades"])
    assert counts == {"dev": 8, "train": 5}  # not those of s036
    assert read_model(tmp_path / "output").training["pairs"] == 5


def test_the_note_is_in_the_metadata(trained):
    folders, _ = trained
    note, record = read_provenance(folders.work), read_model(folders.output).training
    assert note.pop("reranker") == describe_reranker()
    assert {key: record[key] for key in note} == note

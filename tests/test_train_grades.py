"""Training of the grade model: losses and figures by hand, what is learned, the whole, resuming."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from qbe.encode.aspect import EncodedAspect
from qbe.errors import CorpusError, IndexFormatError, ModelError, OutputError, UsageError
from qbe.files import sha256
from qbe.grade.features import NAMES, RERANKED, VECTORS, of_reranker
from qbe.grade.head import mean_head
from qbe.grade.model import CARD, WEIGHTS, read_model
from qbe.graded_pairs import GradedPair, read_graded_pairs
from qbe.index.building.build import build
from qbe.index.building.settings import BuildSettings
from qbe.index.index import Index
from qbe.index.reader import IndexReader
from qbe.parallel import Workers
from qbe.query import Aspect
from qbe.rerank.open import describe_reranker
from qbe.search.grading import GradeFeatures, GradeRequest
from qbe.train.__main__ import main
from qbe.train.grades import data
from qbe.train.grades.data import GradedFeatures, joined, measured, sampled
from qbe.train.grades.figures import UNLIKE_WEIGHTS, grade_figures
from qbe.train.grades.fitting import fit_heads, grade_loss
from qbe.train.grades.recipe import Recipe
from qbe.train.grades.training import Sources, train_grades
from qbe.train.artifacts import Folders, RunOptions
from qbe.types import Facet

pytestmark = pytest.mark.usefixtures("one_thread")

BACKGROUND, METHOD, RESULT = Facet
RECIPE = Recipe(sampled=3, epochs=3, batch=4, hidden=2)
LISTS = {
    "s036": ("s051 0 3 1", "s059 3 0 1", "s031 2.5 1 0"),
    "s118": ("s012 1 2 0.5", "s001 0 0 0", "s002 1 1 1"),
    "s024": ("s003 2 0 0", "s004 0 2 3"),
}
"""Candidates with their grades by background, method and result."""


@pytest.fixture(scope="module")
def reader(graded_index):
    reader = IndexReader(graded_index)
    yield reader
    reader.release()


@pytest.fixture(scope="module")
def by_vectors(reader) -> GradeFeatures:
    return GradeFeatures(reader, Workers())


@pytest.fixture(scope="module")
def pairs(tmp_path_factory) -> Path:
    """Graded pairs to train on, and to measure on, beside each other."""
    folder = tmp_path_factory.mktemp("pairs")
    header = "query_id paper_id background method result"
    rows = [f"{query} {row}" for query, of_query in LISTS.items() for row in of_query]
    for name, chosen in (("train.tsv", rows), ("dev.tsv", rows[:3])):
        (folder / name).write_text("".join("\t".join(row.split()) + "\n" for row in (header, *chosen)))
    evaluated = {"paper_id": "e", "title": "Beside the sample", "abstract": ["No paper of it."]}
    (folder / "evaluated.jsonl").write_text(json.dumps(evaluated) + "\n")
    return folder


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
def test_a_linear_relation_is_learned(differences):
    recipe = Recipe(epochs=60, batch=64, differences=differences)
    heads = fit_heads(*relation(600, seed=1), recipe, seed=0)
    assert list(heads) == list(Facet)
    features, grades = relation(200, seed=2)
    for place, head in enumerate(heads.values()):
        assert np.sqrt(np.mean((head.scores(features) - grades[:, place]) ** 2)) < 0.1


def test_the_same_seed_gives_the_same_heads():
    features, grades = relation(60, seed=1)
    one, same, other = (fit_heads(features, grades, RECIPE, seed) for seed in (0, 0, 1))
    for facet in Facet:
        for left, right in zip(one[facet], same[facet], strict=True):
            np.testing.assert_array_equal(left, right)
        assert not np.array_equal(one[facet].direct, other[facet].direct)


def test_features_that_are_missing_are_left_out_of_means_and_do_not_matter():
    features, grades = relation(300, seed=1)
    known = np.mean(features[100:, 1])
    features[:100, 1] = np.nan
    head = fit_heads(features, grades, Recipe(epochs=20, batch=64), seed=0)[METHOD]
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


def part(*lengths: int, first: float) -> GradedFeatures:
    count = sum(lengths)
    numbers = np.arange(count) + first
    starts = np.cumsum([0, *lengths[:-1]])
    return GradedFeatures(np.stack([numbers, -numbers], axis=1), np.stack([numbers] * 3, axis=1), starts)


def test_lists_stay_apart_when_they_are_joined():
    whole = joined([part(2, 1, first=0), part(3, first=10), part(1, 1, first=20)])
    assert whole.starts.tolist() == [0, 2, 3, 6, 7]
    numbers = [each.features[:, 0].tolist() for each in whole.lists()]
    assert numbers == [[0, 1], [2], [10, 11, 12], [20], [21]]
    for each in whole.lists():
        assert each.grades[:, 2].tolist() == each.features[:, 0].tolist()
        assert each.starts.tolist() == [0]
    assert joined(whole.lists()).starts.tolist() == whole.starts.tolist()


def test_pairs_are_measured_over_the_index(reader, by_vectors, pairs, tmp_path):
    lists = read_graded_pairs(pairs / "train.tsv")
    found = measured(reader, by_vectors, lists, tmp_path / "kept.npz")
    assert found.starts.tolist() == [0, 3, 6]
    for query, each in zip(lists, found.lists(), strict=True):
        paper = reader.paper(query)
        vectors = reader.stored_vectors(paper)
        rows = np.array(sorted(reader.papers.row(pair.paper_id) for pair in lists[query]))
        facets = {facet: EncodedAspect.of(Aspect(paper, facet), vectors) for facet in Facet}
        features = by_vectors.by_vectors(GradeRequest(facets, rows))
        for place, name in enumerate(NAMES[VECTORS]):
            np.testing.assert_array_equal(each.features[:, place], features[name])
        assert np.isnan(each.features[:, len(NAMES[VECTORS]) :]).all()  # without a reranker
        by_id = {pair.paper_id: pair.grades for pair in lists[query]}
        assert each.grades.tolist() == [[*by_id[reader.papers.ids[row]]] for row in rows.tolist()]


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
    found = measured(reader, by_vectors, lists, tmp_path / "kept.npz")
    assert found.grades.tolist() == [[1, 0, 0]]
    assert found.starts.tolist() == [0]
    with pytest.raises(CorpusError) as raised:
        measured(reader, by_vectors, {"absent": lists["absent"]}, tmp_path / "none.npz")
    assert str(raised.value) == (
        "none: expected graded pairs of papers of the index, found none; build it from their papers"
    )
    assert not (tmp_path / "none.npz").exists()


def test_what_was_measured_is_kept(reader, by_vectors, pairs, tmp_path, monkeypatch):
    lists = read_graded_pairs(pairs / "train.tsv")
    first = measured(reader, by_vectors, lists, tmp_path / "kept.npz")
    assert [path.name for path in tmp_path.iterdir()] == ["kept.npz"]
    monkeypatch.setattr(by_vectors, "batch", None)
    again = measured(reader, by_vectors, lists, tmp_path / "kept.npz")
    monkeypatch.undo()
    monkeypatch.setattr(data, "BLOCK", 1)
    by_one = measured(reader, by_vectors, lists, tmp_path / "other.npz")
    for other in (again, by_one):
        for left, right in zip(first, other, strict=True):
            np.testing.assert_array_equal(left, right)


# Figures


def test_figures_by_hand():
    """The first list has gains of 2 and 1 by background less method, and is ranked 0, 1, 2 by background
    alone; at 0.75 and more the second paper comes last. The second list has none.
    """
    predicted = np.array([[3.0, 0.0, 0.0], [2.0, 2.0, 0.0], [1.0, 0.0, 0.0]])
    grades = np.array([[3.0, 1.0, 0.0], [1.0, 2.0, 0.0], [1.0, 0.0, 0.0]])
    figures = grade_figures([(predicted, grades), (np.zeros((1, 3)), np.array([[1.0, 1.0, 0.0]]))])
    assert figures.errors == pytest.approx(
        {"background": np.sqrt((1 + 1) / 4), "method": np.sqrt((1 + 1) / 4), "result": 0.0}
    )
    ideal = 2 + 1 / np.log2(3)
    by_weight = figures.ndcg["background-not-method"]
    assert list(by_weight) == list(UNLIKE_WEIGHTS)
    assert by_weight[0.0] == by_weight[0.25] == pytest.approx((2 + 1 / np.log2(4)) / ideal)
    assert by_weight[0.75] == by_weight[1.25] == pytest.approx(1.0)
    assert figures.ndcg.keys() == {
        *("background-not-method", "method-not-background", "background-not-result", "method-not-result"),
    }


# The whole


def sources(index: Path, pairs: Path) -> Sources:
    return Sources(index, (pairs / "train.tsv",), (pairs / "dev.tsv",), pairs / "evaluated.jsonl")


def kept_name(pairs: Path, split: str) -> str:
    """The file of what was measured of a split's pairs."""
    return f"{split}-{split}-{sha256(pairs / f'{split}.tsv')[:12]}.npz"


@pytest.fixture(scope="module")
def trained(tmp_path_factory, graded_index, pairs):
    """A tiny training by two seeds: its folders and figures."""
    folders = Folders(*(tmp_path_factory.mktemp("trained") / name for name in ("output", "work")))
    run = RunOptions(seeds=(0, 1))
    return folders, train_grades(sources(graded_index, pairs), folders, run, recipe=RECIPE)


def test_a_model_is_published(trained, graded_index, pairs):
    folders, figures = trained
    name = f"{pairs.name}/dev.tsv"
    assert list(figures) == [name]
    assert list(figures[name].errors) == ["background", "method", "result"]
    model = read_model(folders.output)
    assert model.heads.keys() == set(NAMES)
    for known, heads in model.heads.items():
        for head in heads.values():
            assert head.hidden.shape == (len(NAMES[known]), 2 * (RECIPE.hidden + 1))  # of both seeds
    assert model.reranker == describe_reranker()
    assert (model.training["seeds"], model.training["pairs"]) == ([0, 1], 8)
    assert model.training["recipe"]["hidden"] == 2
    assert model.training["data"] == {
        f"{pairs.name}/{file}": sha256(pairs / file) for file in ("train.tsv", "dev.tsv", "evaluated.jsonl")
    }
    with Index(graded_index) as index:
        assert model.training["index"] == index.manifest.digest
        assert model.encoder == index.manifest.dense["encoder"]
    kept = [kept_name(pairs, split) for split in ("dev", "train")]
    assert {path.name for path in folders.work.iterdir()} == {"made-from.json", *kept}
    assert sorted(path.name for path in folders.output.iterdir()) == ["README.md", CARD, WEIGHTS]


def test_the_mean_of_the_seeds_heads_is_published(trained, pairs):
    folders, _ = trained
    with np.load(folders.work / kept_name(pairs, "train")) as kept:
        features, grades = kept["features"], kept["grades"]
    assert len(grades) == 8
    reranked = features[:, [NAMES[RERANKED].index(of_reranker(facet)) for facet in Facet]]
    assert np.isfinite(reranked).all()
    model = read_model(folders.output)
    for known, names in NAMES.items():
        heads = [fit_heads(features[:, : len(names)], grades, RECIPE, seed) for seed in (0, 1)]
        for facet in Facet:
            expected = mean_head([each[facet] for each in heads])
            for actual, array in zip(model.heads[known][facet], expected, strict=True):
                np.testing.assert_array_equal(actual, array.astype(np.float32))


def test_the_card_tells_of_figures_and_data(trained, pairs):
    folders, figures = trained
    text = (folders.output / "README.md").read_text()
    assert text.startswith("# grades\n")
    for each in figures.values():
        assert " | ".join(f"{error:.2f}" for error in each.errors.values()) in text
        for scope, by_weight in each.ndcg.items():
            assert scope in text
            assert " | ".join(f"{value:.3f}" for value in by_weight.values()) in text
    assert f"{pairs.name}/train.tsv" in text


def test_an_interrupted_training_goes_on(trained, graded_index, pairs, tmp_path, monkeypatch):
    """Nothing is measured again; what is published is the same to the byte, in place of what was there."""
    folders, figures = trained
    shutil.copytree(folders.output, tmp_path / "output")
    (tmp_path / "output" / WEIGHTS).write_bytes(b"old")
    monkeypatch.setattr(GradeFeatures, "batch", None)
    again = Folders(tmp_path / "output", folders.work)
    run = RunOptions(seeds=(0, 1))
    assert train_grades(sources(graded_index, pairs), again, run, recipe=RECIPE) == figures
    for name in (CARD, WEIGHTS, "README.md"):
        assert (again.output / name).read_bytes() == (folders.output / name).read_bytes()


def test_parts_of_another_recipe_are_not_taken(trained, graded_index, pairs, tmp_path):
    folders, _ = trained
    with pytest.raises(ModelError, match="expected parts of the same recipe and data, found those of others"):
        train_grades(
            sources(graded_index, pairs),
            Folders(tmp_path / "output", folders.work),
            RunOptions(seeds=(0, 1)),
            recipe=replace(RECIPE, sampled=2),
        )
    assert not (tmp_path / "output").exists()


def test_a_file_to_measure_on_and_to_train_on_is_kept_twice(graded_index, pairs, reader, tmp_path):
    """Of pairs to train on those of evaluated papers are left out, and a sample is used."""
    evaluated = {"paper_id": "e", "title": reader.paper("s036").title, "abstract": ["Other words."]}
    (tmp_path / "evaluated.jsonl").write_text(json.dumps(evaluated) + "\n")
    file, work = pairs / "train.tsv", tmp_path / "work"
    both = Sources(graded_index, (file,), (file,), tmp_path / "evaluated.jsonl")
    train_grades(both, Folders(tmp_path / "output", work), RunOptions(seeds=(0,)), recipe=RECIPE)
    counts = {}
    for part in ("dev", "train"):
        with np.load(work / f"{part}-train-{sha256(file)[:12]}.npz") as kept:
            counts[part] = len(kept["grades"])
    assert counts == {"dev": 8, "train": 5}  # not those of s036
    assert read_model(tmp_path / "output").training["pairs"] == 5


def test_files_of_one_folder_and_name_are_refused(graded_index, pairs, tmp_path):
    """Their digests in the note would have the same name."""
    other = tmp_path / pairs.name
    shutil.copytree(pairs, other)
    (other / "train.tsv").write_text((pairs / "dev.tsv").read_text())
    two = replace(sources(graded_index, pairs), train=(pairs / "train.tsv", other / "train.tsv"))
    with pytest.raises(
        UsageError, match=f"different folder and name, found {pairs.name}/train.tsv twice; re"
    ):
        train_grades(two, Folders(tmp_path / "output", tmp_path / "work"), RunOptions(seeds=(0,)))
    assert not (tmp_path / "work").exists()


def test_damaged_features_are_noticed(trained, graded_index, pairs, tmp_path):
    folders, _ = trained
    shutil.copytree(folders.work, tmp_path / "work")
    kept = tmp_path / "work" / kept_name(pairs, "train")
    kept.write_bytes(kept.read_bytes()[:-100])
    again = Folders(tmp_path / "output", tmp_path / "work")
    message = rf"{kept.name}: expected the features of graded pairs of this training, found: .+; delete it"
    with pytest.raises(ModelError, match=message):
        train_grades(sources(graded_index, pairs), again, RunOptions(seeds=(0, 1)), recipe=RECIPE)


def test_what_is_not_a_model_is_not_replaced(trained, graded_index, pairs, tmp_path):
    folders, _ = trained
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(OutputError, match=r"a model to replace, found notes\.txt in it"):
        train_grades(
            sources(graded_index, pairs),
            Folders(tmp_path, folders.work),
            RunOptions(seeds=(0, 1)),
            recipe=RECIPE,
        )


def test_an_index_without_vectors_is_refused(sample, pairs, tmp_path):
    build(tmp_path / "index", [str(sample / "corpus.jsonl")], BuildSettings(dense=False))
    with pytest.raises(IndexFormatError, match="expected an index with vectors, found one built without"):
        train_grades(
            sources(tmp_path / "index", pairs),
            Folders(tmp_path / "output", tmp_path / "work"),
            RunOptions(seeds=(0,)),
        )


def test_the_command_trains(graded_index, pairs, tmp_path, capsys):
    output = tmp_path / "model"
    arguments = ["grades", "--index", graded_index, "--pairs", pairs, "--dev", pairs / "dev.tsv"]
    arguments += [
        "--leave-out",
        pairs / "evaluated.jsonl",
        "--sampled",
        "2",
        "--output",
        output,
        "--work",
        tmp_path / "work",
        "--seeds",
        "0",
    ]
    main([*map(str, arguments), "--threads", "1"])
    model = read_model(output)
    assert model.training["recipe"]["sampled"] == 2
    assert model.training["pairs"] in (5, 6)
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{output}: {pairs.name}/dev.tsv: errors ")
    assert line.endswith(" grades (background / method / result)")
    note = json.loads((tmp_path / "work" / "made-from.json").read_text())
    assert note.pop("reranker") == describe_reranker()
    assert {key: model.training[key] for key in note} == note

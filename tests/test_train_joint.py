"""Training of joint grades: its loss by hand, which pairs it draws, and what is exported of it."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from support.tiny_reranker import write_bert
from support.trainings import new_folders

from qbe import SHAPES, Facet
from qbe.models.cards import JOINT_MODEL, TOKENIZER
from qbe.models.encoding import PaperTokenizer
from qbe.runs import GradedPair, read_graded_pairs
from qbe.search.rerankers import JointGrader
from qbe.train import joint
from qbe.train.fit import Schedule, fit
from qbe.train.joint import FitRecipe, JointNetwork, Texts, graded, grades_of, joint_task, scored
from qbe.train.work import RunOptions
from qbe.util.files import sha256

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

TRAINED = "joint_grades"
PAIRS = [("s036", "s051"), ("s036", "s002"), ("s003", "s036"), ("s004", "s005")]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base") / "bert"
    write_bert(folder, positions=512)
    return folder


@pytest.fixture(scope="module")
def texts(base, papers) -> Texts:
    return Texts({paper.paper_id: paper for paper in papers}, PaperTokenizer(base / TOKENIZER))


def test_pairs_are_scored_in_chunks_as_alone(base, texts, monkeypatch):
    network = JointNetwork(base, torch.float32)
    alone = torch.cat([scored(network, texts, [pair]) for pair in PAIRS])
    for tokens in (300, 10**6):
        monkeypatch.setattr(joint, "TOKENS", tokens)
        torch.testing.assert_close(scored(network, texts, PAIRS), alone, atol=1e-5, rtol=0)
    found = graded(network, texts, {"s036": ["s051", "s002"]})
    np.testing.assert_allclose(found["s036"], grades_of(alone[:2]).detach(), atol=1e-5)


def test_the_loss_by_hand(base, texts):
    """The head gives 0 everywhere: grades of 1.5, and no order. One list of two has one, by background."""
    network = JointNetwork(base, torch.float32)
    torch.nn.init.zeros_(network.out_weight), torch.nn.init.zeros_(network.out_bias)
    recipe = FitRecipe(steps=1, learning_rate=0.0, warm_up=0.5, queries=2)
    lists = {
        "s036": [GradedPair("s051", (3.0, 1.0, 1.0)), GradedPair("s002", (1.0, 1.0, 1.0))],
        "s118": [GradedPair("s001", (1.5, 1.5, 1.5)), GradedPair("s003", (1.5, 1.5, 1.5))],
    }
    (loss,) = joint_task(network, texts, recipe, [lists]).losses(lists)
    assert loss.item() == pytest.approx((1.5**2 + 5 * 0.5**2) / 12 + math.log(2) / 3, abs=1e-6)


def test_steps_take_turns_and_the_pairs_are_learned(base, texts, tmp_path):
    sets = [
        {"s036": [GradedPair("s051", (3.0, 0.0, 3.0)), GradedPair("s002", (0.0, 3.0, 1.0))]},
        {"s118": [GradedPair("s001", (0.0, 3.0, 1.0)), GradedPair("s003", (3.0, 0.0, 2.0))]},
    ]
    network = JointNetwork(base, torch.float32)
    recipe = FitRecipe(steps=60, learning_rate=3e-3, warm_up=0.1, queries=1)
    task = joint_task(network, texts, recipe, sets)
    batches = task.batches(0)
    assert [list(next(batches)) for _ in range(4)] == [["s036"], ["s118"], ["s036"], ["s118"]]
    fit(task, Schedule(1, recipe.clip, warm_up=recipe.warm_up), 0, tmp_path / "fit.pt")
    for lists in sets:
        for query, pairs in lists.items():
            found = graded(network, texts, {query: [pair.paper_id for pair in pairs]})[query]
            truth = np.array([pair.grades for pair in pairs])
            assert np.abs(found - truth).mean() < 0.6
            assert (np.sign(found[0] - found[1]) == np.sign(truth[0] - truth[1])).all()


def test_pairs_are_drawn_of_other_papers(trained, graded_index):
    drawn = json.loads((trained.work / "drawn.json").read_text())
    known = {
        query for file in (*trained.sources.train, *trained.sources.dev) for query in read_graded_pairs(file)
    }
    recipe = trained.training.recipe
    assert recipe.found < len(drawn) <= recipe.found + recipe.graded
    assert not known & {*drawn, *(name for names in drawn.values() for name in names)}
    most = {
        len(Facet) * sum(count for _, count in recipe.found_picks),
        (len(Facet) + len(SHAPES)) * sum(count for _, count in recipe.graded_picks),
    }
    assert all(2 <= len(set(names)) == len(names) <= max(most) for names in drawn.values())
    assert np.load(trained.work / "teacher-grades.npz")["grades"].shape == (sum(map(len, drawn.values())), 3)


def test_what_is_published_grades_as_the_trained_network(trained, papers):
    _, base = trained.training.options["bases"]
    network = JointNetwork(base, torch.float32)
    seeds = [torch.load(trained.work / "student" / f"seed-{seed}.pt")["best"] for seed in (0, 1)]
    network.load_state_dict({name: (seeds[0][name] + seeds[1][name]) / 2 for name in seeds[0]}, strict=False)
    by_id = {paper.paper_id: paper for paper in papers}
    texts = Texts(by_id, PaperTokenizer(base / TOKENIZER))
    expected = graded(network, texts, {"s036": ["s051", "s002"]})["s036"]
    grader = JointGrader(trained.output)
    found = grader.grade(by_id["s036"], [by_id["s051"], by_id["s002"]])
    np.testing.assert_allclose(found, expected, atol=0.25)
    assert grader.card.training["calibrated"].endswith("/dev.tsv")
    assert set(trained.result) == {
        f"{grader.card.training['calibrated']} | {by}" for by in ("grades", "joint-grades", "their mean")
    }


def test_joint_grades_learn_on_from_what_was_published(trained, papers, tmp_path):
    """At a rate of zero they stay as they were, but for the rounding of weights."""
    still = FitRecipe(steps=1, learning_rate=0.0, head_rate=0.0, warm_up=0.5, queries=1)
    options = {**trained.training.options, "start": str(trained.output)}
    replace(trained.training, options=options).train(new_folders(tmp_path), RunOptions((0,)), again=still)
    by_id = {paper.paper_id: paper for paper in papers}
    candidates = [by_id["s051"], by_id["s002"]]
    before, after = (JointGrader(folder) for folder in (trained.output, new_folders(tmp_path).output))
    found, expected = (each.grade(by_id["s036"], candidates) for each in (after, before))
    np.testing.assert_allclose(found, expected, atol=0.1)
    assert after.card.training["start"] == sha256(trained.output / JOINT_MODEL)

"""What every training promises: it resumes to the same model, and notices what does not fit."""

import hashlib
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.tiny_reranker import write_lists
from support.trainings import TRAININGS, Folders, Trained, Training, new_folders

from qbe.errors import CorpusError, ModelError, OutputError
from qbe.models.folders import make_weights, read_weights
from qbe.runs import GradedPair
from qbe.search.projections import read_model
from qbe.train import encoder, work
from qbe.train.work import GRADES_LIMITS, Card

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]


@pytest.fixture(scope="module", params=TRAININGS)
def trained(request, one_thread, trained_once) -> Trained:
    return trained_once(request.param)


@pytest.fixture
def training(trained) -> Training:
    return trained.training


def published(training: Training, folders: Folders | Trained) -> dict[str, bytes]:
    return {name: (folders.output / name).read_bytes() for name in training.weights}


def copied(trained: Trained, folder: Path) -> Folders:
    shutil.copytree(trained.work, folder / "work")
    return new_folders(folder)


def test_an_interrupted_training_ends_in_the_same_model(training, trained, tmp_path, monkeypatch):
    """It is interrupted at the second file that it would keep, and then goes on."""
    folders, calls, replacing = new_folders(tmp_path), iter(range(2)), work.atomic_file

    def interrupted(path: Path):
        if next(calls) == 1:
            raise KeyboardInterrupt
        return replacing(path)

    monkeypatch.setattr(work, "atomic_file", interrupted)
    with pytest.raises(KeyboardInterrupt):
        training.train(folders)
    assert not folders.output.exists()
    monkeypatch.undo()
    training.train(folders)
    assert published(training, folders) == published(training, trained)


def test_a_finished_training_is_not_done_again(training, trained, tmp_path, monkeypatch):
    def refuse(*_):
        raise AssertionError("trained again")

    monkeypatch.setattr(torch.optim.AdamW, "step", refuse)
    folders = copied(trained, tmp_path)
    training.train(folders)
    assert published(training, folders) == published(training, trained)


def test_damaged_parts_are_noticed(training, trained, tmp_path):
    for number, part in enumerate(training.parts):
        folders = copied(trained, tmp_path / str(number))
        path = folders.work / part
        path.write_bytes(path.read_bytes()[:-100])
        with pytest.raises(ModelError) as raised:
            training.train(folders)
        assert re.match(rf"{re.escape(str(path))}: expected .+, found: .+; delete it", str(raised.value))
        assert "\n" not in str(raised.value)
        assert not folders.output.exists()


def test_what_a_training_would_replace_is_its_own(trained_once, tmp_path):
    """A work folder serves one recipe, and a folder that is no model stays."""
    trained = trained_once("grades")
    training = trained.training
    with pytest.raises(ModelError, match="expected parts of the same recipe and data, found those of others"):
        training.train(Folders(tmp_path / "model", trained.work), hidden=3)
    assert not (tmp_path / "model").exists()
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(OutputError, match=r"a model to replace, found notes\.txt in it"):
        training.train(Folders(tmp_path, trained.work))
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_the_card_follows_the_template_and_says_what_the_model_was_made_from(training, trained):
    text = (trained.output / "README.md").read_text()
    headings = re.findall(r"^#+ .*|^- [^:]+:", text, re.MULTILINE)
    assert headings[1:] == [
        *("- Input:", "- Size:", "- Command:", "- Data (SHA-256):", "- Limits:", "- Licence:"),
        "## Figures",
    ]
    note = json.loads((trained.work / "made-from.json").read_text())
    assert note["data"] == training.sources.digests()
    for name, digest in note["data"].items():
        assert f"{name} ({digest[:12]})" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 110
    for name in training.weights:
        record = json.loads((trained.output / name).read_text()) if name.endswith(".json") else {}
        if "training" in record:
            made = record["training"]
            assert {key: made[key] for key in made.keys() & note.keys()}.items() <= note.items()
            assert made["data"] == note["data"]


@pytest.mark.parametrize("name", ["projections", "large_encoder"])
def test_grades_of_dev_that_are_all_equal_are_refused(trained_once, tmp_path, name):
    """No correlation could choose an epoch, nor measure what is published: nothing is learned."""
    lists = {"s036": [GradedPair("s051", (0.0, 1.0, 3.0)), GradedPair("s059", (0.0, 2.0, 3.0))]}
    training, dev = trained_once(name).training, write_lists(tmp_path / "dev.tsv", lists)
    folders = new_folders(tmp_path)
    with pytest.raises(CorpusError, match=rf"{dev}: expected a query .*, found none for background, result"):
        training.train(folders, sources=replace(training.sources, dev=(dev,)))
    assert not folders.output.exists()


def test_training_without_torch_names_the_packages():
    program = "import sys; sys.modules['torch'] = None; from qbe.cli import common; "
    program += "from qbe.cli.train import main; common.run('qbe train', main)"
    line = [sys.executable, "-c", program, "tagger", "--output", "out", "--work", "work"]
    line += ["--csabstruct", "x", "--unlabelled", "y", "--leave-out", "z"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    told = "qbe train tagger: expected the package torch, found none; run: pip install 'qbe[train]'\n"
    assert done.stderr == told


@pytest.mark.parametrize(("data", "is_own"), [("graded-pairs/train.tsv", True), ("mine/train.tsv", False)])
def test_a_card_says_who_graded_the_pairs_of_the_repository(tmp_path, data, is_own):
    card = Card(name="x", purpose="", input="", caption="", figures={}, limits=GRADES_LIMITS)
    card.write(tmp_path, {data: "0", "arxiv-cs/a.jsonl": "1"})
    text = " ".join((tmp_path / "README.md").read_text().split())
    assert ("those of large language models" in text) is is_own


def test_what_is_published_and_its_base_make_the_weights_of_the_cards(trained_once, tmp_path):
    trained = trained_once("large_encoder")
    output = trained.output
    with trained.training.around():
        base = encoder.find_start("all-mpnet-base-v2")[1]
    make_weights(base, output / "difference.safetensors", tmp_path / "made")
    digest = hashlib.sha256((tmp_path / "made" / "model.safetensors").read_bytes()).hexdigest()
    assert f"that come out are {digest[:12]}" in " ".join((output / "README.md").read_text().split())
    assert read_model(output / "projections").encoder["weights_sha256"] == digest
    before = read_weights(base / "model.safetensors")
    after = read_weights(tmp_path / "made" / "model.safetensors")
    changed = {name for name, part in after.items() if (part != before[name]).any()}
    assert {name.split(".")[2] for name in changed} == {"0", "1"}  # of all layers

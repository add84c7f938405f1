"""The command: what each training is called with, its defaults, and what it prints."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from pkgutil import resolve_name

import pytest
from support.messages import messages_of
from support.parsers import parsers

from qbe.cli import train as command
from qbe.cli.parser import parse
from qbe.errors import UsageError
from qbe.models import formats
from qbe.models.folders import BASE_ENCODER
from qbe.train.cocitations import CocitationRecipe
from qbe.train.cross_encoder import CrossEncoderRecipe
from qbe.train.losses import OBJECTIVES
from qbe.train.pairs import DATA, data_file
from qbe.train.work import RunOptions, Sources, run_training

KEPT = "--work work --threads 2"
EVERY = f"--output out {KEPT}"
GIVEN = "--pairs p.tsv --leave-out e.jsonl --index i --dev d.tsv"


@pytest.fixture
def calls(monkeypatch, tmp_path):
    recorded = []

    def run_training(own, sources, output, work, run):
        recorded.append((sources, (output, work), run, own))
        output.mkdir(exist_ok=True)
        (output / "encoder.json").touch()
        (output / "README.md").write_text("# Name\n\n## Figures\n\nThey are 0.5.\n")

    def options_of(name):
        return type("Options", (dict,), {"recipe": getattr(resolve_name(name), "recipe", None)})

    monkeypatch.setattr(command, "resolve_name", options_of)
    monkeypatch.setattr("qbe.train.work.run_training", run_training)
    monkeypatch.setenv("QBE_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    return recorded


def test_sources_are_by_default_below_a_folder(calls, tmp_path, capsys):
    data = tmp_path / "data"
    papers, left_out = data / "arxiv-cs/arxiv-cs.jsonl.xz", data / "csfcube/abstracts-csfcube-preds.jsonl"
    judged, dev = DATA / "facet-judgments/train.tsv", (DATA / "facet-judgments/dev.tsv",)
    names = ("train", *(f"train-{number}" for number in range(2, 8)))
    every = tuple(DATA / "graded-pairs" / f"{name}.tsv" for name in names)
    wild = tuple(DATA / "graded-pairs" / f"wild-train{number}.tsv" for number in ("", "-2", "-3"))
    common = {"dev": dev, "leave_out": left_out}
    index = {**common, "index": Path("i")}
    for name, more, expected in (
        ("tagger", "", Sources(train=(data / "csabstruct",), corpus=papers, leave_out=left_out)),
        ("large-encoder", "", Sources(train=(judged, *every), corpus=papers, **common)),
        ("encoder", "--cocitations a b", Sources(train=(Path("a"), Path("b")), leave_out=left_out)),
        ("grades", "--index i", Sources(train=(judged, *every, *wild), **index)),
        ("facet-projections", "--index i", Sources(train=(judged, *every), **index)),
    ):
        command.main([name, *EVERY.split(), *more.split()])
        sources, folders, run, _ = calls.pop()
        assert sources == expected, name
        assert folders == (Path("out"), Path("work"))
        assert run == RunOptions((0,) if name == "encoder" else (0, 1, 2), 2)
        assert capsys.readouterr().out == "out: They are 0.5.\n"


def test_sources_that_are_given(calls, tmp_path):
    copy = tmp_path / "pairs"
    copy.mkdir()
    for name in ("train-2.tsv", "train.tsv", "dev-2.tsv"):
        (copy / name).touch()
    line = f"{EVERY} --pairs a.tsv {copy} --dev c.tsv --corpus d --leave-out e --seeds 4,1,4 --device cuda"
    command.main(given := ["large-encoder", *line.split(), "--encoder", "f"])
    assert calls[0][2].given == " ".join(given)
    pairs = (Path("a.tsv"), copy / "train.tsv", copy / "train-2.tsv")
    sources = Sources(train=pairs, dev=(Path("c.tsv"),), corpus=Path("d"), leave_out=Path("e"))
    folders = Path("out"), Path("work")
    assert calls.pop() == (sources, folders, RunOptions((4, 1), 2, "cuda"), {"encoder": "f"})
    command.main(["citation", *EVERY.split(), "--collection", "c", "--index", "i"])
    citations = {split: (Path("c", f"{split}.qrels"),) for split in ("train", "dev")}
    assert calls.pop() == (Sources(index=Path("i"), **citations), folders, RunOptions((0, 1, 2), 2), {})
    line = "--start t --headings h i --csabstruct c --unlabelled d"
    command.main(["tagger", *EVERY.split(), *line.split()])
    sources, *_, own = calls.pop()
    assert (sources.train, own) == ((Path("c"), Path("h"), Path("i")), {"start": "t"})
    line = "--collection c --index i --encoder mine --query-tokens 384 --candidate-tokens 128 --epochs 0.5"
    line += " --classes balanced --candidates 20 --learning-rate 3e-5"
    command.main(["citation-pairs", *EVERY.split(), *line.split()])
    recipe = {"query_tokens": 384, "candidate_tokens": 128, "classes": "balanced", "candidates": 20}
    own = {"encoder": "mine", "recipe": CrossEncoderRecipe(**recipe, epochs=0.5, learning_rate=3e-5)}
    assert calls.pop() == (Sources(index=Path("i"), **citations), folders, RunOptions((0,), 2), own)


def test_what_single_trainings_take(calls):
    given = f"{EVERY} --cocitations a --leave-out e --dev d --epochs 3 --learning-rate 0.5 --encoder m"
    given += " --aligner n --margin 2 --temperature 0.3 --regularization 9 --batch 4 --warm-up 2000 --steps 7"
    command.main(["encoder", *given.split(), "--objective", "ts", "--similarity", "cosine"])
    named = {"warm_up": 2000, "margin": 2, "temperature": 0.3, "regularization": 9, "steps": 7}
    recipe = CocitationRecipe("ts", "cosine", 3, 0.5, 4, **named)
    assert calls.pop()[3] == {"encoder": "m", "aligner": "n", "recipe": recipe}


def test_a_cross_encoder_learns_from_grades_or_from_citations(calls):
    options = "--facet method --loss margin --texts whole --margin 0.4 --triplets 5 --batch 8 --warm-up 100"
    line = f"--index i --encoder m --epochs 10 --steps 9 --learning-rate 2e-5 --evaluations 10 {options}"
    command.main(["cross-encoder", *EVERY.split(), *line.split(), *GIVEN.split()[:4]])
    recipe = {"facet": "method", "loss": "margin", "texts": "whole", "margin": 0.4, "triplets": 5, "batch": 8}
    recipe |= {"warm_up": 100.0, "epochs": 10.0, "steps": 9, "learning_rate": 2e-5, "evaluations": 10}
    sources, _, run, own = calls.pop()
    assert own == {"encoder": "m", "recipe": CrossEncoderRecipe(**recipe)}
    assert run == RunOptions((0,), 2)
    dev = (DATA / "facet-judgments/dev.tsv",)
    assert sources == Sources(train=(Path("p.tsv"),), dev=dev, leave_out=Path("e.jsonl"), index=Path("i"))
    command.main(["cross-encoder", *EVERY.split(), "--collection", "c", "--index", "i"])
    citations = {split: (Path("c", f"{split}.qrels"),) for split in ("train", "dev")}
    assert calls.pop()[0] == Sources(index=Path("i"), **citations)


WRONG = {
    "tagger": [
        *("--seeds one", "--seeds=-1", "--threads 0", "", "--csabstruct x --unlabelled y"),
        "--start facet-tagger",
    ],
    "large-encoder": ["--corpus y", f"{GIVEN.replace('--index i', '')} --corpus y --pairs ."],
    "encoder": [f"--cocitations x --leave-out y --{wrong}" for wrong in ("epochs 0", "learning-rate 0")],
}


def test_usage_errors(calls, monkeypatch, told, tmp_path):
    def called(name: str, line: str) -> Callable[[], None]:
        return lambda: command.main([name, "--output", "out", "--work", "work", *line.split()])

    monkeypatch.delenv("QBE_DATA")
    wrong = [called(name, line) for name, lines in WRONG.items() for line in lines]
    messages = messages_of(wrong, UsageError)
    monkeypatch.setenv("QBE_DATA", "data")
    monkeypatch.setattr("qbe.train.pairs.DATA", tmp_path / "none")  # an installation has no graded pairs
    monkeypatch.setattr("qbe.train.work.run_training", run_training)
    line = "citation --collection c --index i --output out --work"
    wrong = [partial(command.main, [*line.split(), work]) for work in ("./out", "out/work")]
    messages += messages_of(wrong, UsageError)
    wrong = [called("large-encoder", line) for line in ("", "--pairs x")]
    messages += messages_of(wrong, UsageError, tmp_path)
    told("train", messages)
    dev = Path("data", "facet-judgments", "dev.tsv")
    dev.parent.mkdir(parents=True)
    dev.touch()
    assert data_file("dev", "facet-judgments/dev.tsv") == dev
    assert not calls


def test_choices_and_defaults_are_those_of_the_modules():
    """They are written out in the options, which may not load the modules for the help."""
    line = ["encoder", "--cocitations", "a", "--output", "c", "--work", "d"]
    assert parse("train", line).encoder == BASE_ENCODER
    choices = {action.dest: action.choices for action in parsers()["qbe train encoder"]._actions}
    assert choices["objective"] == tuple(OBJECTIVES)
    assert choices["similarity"] == formats.SIMILARITIES

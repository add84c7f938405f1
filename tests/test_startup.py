"""What is not loaded: help, usage errors and importing are light, searching needs no PyTorch."""

import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from support.parsers import parsers

from qbe.__main__ import COMMANDS
from qbe.cli.parser import parser_of

pytestmark = pytest.mark.slow

HEAVY = {"numpy", "torch", "onnxruntime", "faiss", "transformers", "tokenizers", "jnius", "pyserini"}
HEAVY |= {"datasets", "ir_measures", "scipy", "pandas", "pyarrow", "huggingface_hub", "tqdm", "sklearn"}
ROOT = Path(__file__).parent.parent
BASELINE = """\
import re, sys  # as the script does that installers write for a command
import argparse
formatter = lambda prog: argparse.HelpFormatter(prog, width=80)
parser = argparse.ArgumentParser(description="a", formatter_class=formatter)
parser.add_subparsers().add_parser("b", formatter_class=formatter)
parser.parse_args(["--help"])
"""
"""What help costs without qbe: argparse alone, at a fixed width."""


def imports(*arguments: object) -> tuple[int, set[str]]:
    """The exit code of a Python command, and what it imported."""
    command = [sys.executable, "-X", "importtime", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    return done.returncode, set(re.findall(r"^import time: .*\| +([\w.]+)$", done.stderr, re.MULTILINE))


def loaded(*arguments: object) -> tuple[int, set[str]]:
    code, modules = imports(*arguments)
    return code, {module.partition(".")[0] for module in modules}


def test_importing_the_package_loads_nothing_heavy():
    code, modules = loaded("-c", "import qbe; qbe.Facet, qbe.Query, qbe.Run")
    assert code == 0
    assert "qbe" in modules
    assert not modules & HEAVY


def test_the_public_names_are_all_there():
    import qbe

    assert qbe.__version__ == version("qbe")
    for name in set(qbe.__all__) - {"__version__", "SHAPES", "open_index"}:
        assert getattr(qbe, name).__name__ == name
    assert all(name in qbe.SHAPES for name in ("same-problem-other-method", "competitors"))
    with pytest.raises(AttributeError, match="no attribute 'Colbert'"):
        qbe.Colbert  # noqa: B018


@pytest.fixture(scope="module")
def argparse_alone() -> set[str]:
    code, modules = imports("-S", "-c", BASELINE)
    assert code == 0
    return modules


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_imports_what_argparse_does_and_one_command(command, argparse_alone):
    """No dataclasses, typing, logging, contextlib, pathlib or anything heavier, and no other command."""
    arguments = [*command.split(), "--help"]
    program = f"import re, sys; sys.path.insert(0, {str(ROOT)!r}); sys.argv = ['qbe', *{arguments}]; "
    program += "from qbe.__main__ import main; main()"
    code, modules = imports("-S", "-c", program)  # without site: it imports what installed packages want
    assert code == 0
    ours = {module for module in modules if module.split(".")[0] == "qbe"}
    assert sorted(modules - ours - argparse_alone - {"__future__", "gc"}) == []
    assert {".".join(module.split(".")[:2]) for module in ours} <= {
        "qbe",
        "qbe.__main__",
        "qbe.cli",
        *({"qbe.datasets"} if command == "datasets" else ()),
    }


USAGE_ERRORS = {
    "index stored twice": ["--corpus", "x", "--output", "y", "--store", "float16", "int8"],
    "index appended to and deleted from": ["--append", "--delete", "1", "--corpus=x", "--output=y"],
    "search gone on with nowhere": ["--index", "x", "--topics", "y", "--resume"],
    "search of no lists": ["--index", "x", "--paper", "1", "--first-stage", "dense:nprobe=0"],
    "search transported without lambda": ["--index=x", "--text=y", "--rerank=matching:regularization=0"],
    "evaluate": ["--qrels", "x", "--run", "y", "--protocol", "none"],
    "datasets": ["nosuch", "--output", "x"],
    "export read in passes too short": ["encoder", "--model=x", "--output=y", "--max-tokens=9"],
    "tag": ["--input", "x", "--output", "-", "--resume"],
    "train": ["tagger", "--output", "x", "--work", "y", "--seeds", "one"],
}


@pytest.mark.parametrize("case", USAGE_ERRORS)
def test_usage_errors_are_light(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, modules = loaded("-m", "qbe", case.partition(" ")[0], *USAGE_ERRORS[case])
    assert code == 2
    assert not modules & HEAVY
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "absent"),
    [
        (["--paper=s001", "--facet=method", "--rerank=none", "--format=table", "--explain"], {"onnxruntime"}),
        (["--paper=s001", "--first-stage=dense", "--rerank=matching"], {"jnius", "pyserini", "onnxruntime"}),
        (["--text=A sentence. Another.", "--facet=method", "--rerank=none"], set()),
        (["--paper=s001", "--facet=method", "--rerank={tiny_cross_encoder}"], set()),
    ],
)
def test_searching_needs_no_pytorch(graded_index, tiny_cross_encoder, options, absent):
    options = [option.format(tiny_cross_encoder=tiny_cross_encoder) for option in options]
    code, modules = loaded("-m", "qbe.search", "--index", graded_index, *options)
    assert code == 0
    assert {"numpy", "faiss"} <= modules
    assert ("onnxruntime" in modules, "tokenizers" in modules) == (not absent, not absent)
    assert not modules & ({"torch", "transformers", "datasets", "openai", "scipy", "onnx"} | absent)


def choices(command: str) -> dict[str, tuple]:
    """The choices of arguments, which help may not load modules for."""
    actions = parsers()[f"qbe {command}"]._actions
    return {action.dest: tuple(action.choices) for action in actions if action.choices}


def test_choices_are_those_of_the_modules():
    """Those of stages are derived from their dataclasses (`--rerank help`)."""
    from qbe.evaluate.measures import DEFAULT_MEASURES
    from qbe.evaluate.protocols import SPLITS
    from qbe.evaluate.report import PROTOCOLS
    from qbe.index.store import AUTO_SENTENCES, EXACT, STORED
    from qbe.models.formats import LAYOUTS, POOLINGS, SIMILARITIES
    from qbe.models.session import AUTO, DEVICES
    from qbe.models.tagger import LABEL_SOURCES as OF_TAGGING
    from qbe.query import FACET_NAMES
    from qbe.search import stages
    from qbe.search.matching import PART_TEMPERATURE, REGULARIZATION, WHOLE_TEMPERATURE
    from qbe.search.request import LABEL_SOURCES
    from qbe.search.stages import MATCHINGS

    assert choices("search")["facet"] == FACET_NAMES
    assert LABEL_SOURCES == OF_TAGGING
    assert all(choices(name)["facets"] == LABEL_SOURCES for name in ("search", "index", "tag"))
    assert MATCHINGS == stages.MATCHINGS
    helps = stages.describe_stages(stages.RERANKERS)
    assert f"transport: {PART_TEMPERATURE:g}, {WHOLE_TEMPERATURE:g} for abstracts;" in helps
    assert f"({REGULARIZATION:g})" in helps
    of_index = {action.dest: action.help for action in parser_of("index")._actions}
    assert EXACT in of_index["faiss"]
    assert choices("index")["store"] == ("positions", "docvectors", *STORED)
    assert all(f"{AUTO_SENTENCES:,} sentences" in of_index[name] for name in ("faiss", "store"))
    assert choices("index")["device"] == (*choices("train encoder")["device"], AUTO) == DEVICES
    of_evaluate = choices("evaluate")
    assert (of_evaluate["protocol"], of_evaluate["split"]) == (tuple(PROTOCOLS), tuple(SPLITS))
    (measures,) = (each.help for each in parser_of("evaluate")._actions if each.dest == "measures")
    assert measures.endswith(f"(default: those of the protocol, or {' '.join(DEFAULT_MEASURES)})")
    offered = choices("export encoder")
    assert (offered["layout"], offered["pooling"], offered["similarity"]) == (LAYOUTS, POOLINGS, SIMILARITIES)

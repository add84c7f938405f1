"""The command ``qbe``: its parsers, its commands, its errors, and completion in a shell."""

import argparse
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from support.builds import interrupt
from support.parsers import parsers

from qbe import __version__
from qbe.__main__ import COMMANDS
from qbe.cli import common
from qbe.cli.parser import Parser, parser_of
from qbe.errors import MissingDependencyError, ModelError, check_package, did_you_mean
from qbe.models.cards import CROSS_ENCODER, ENCODER, TAGGER
from qbe.models.folders import find, resolve_encoder

OPTIONS = """
--text TEXT  text
--paper ID  paper
--corpus FILE...  corpus
--all  all
? --facet background|method  facet
? --rate RATE  rate
[NAME]  a name
# details
--depth N (100)  depth
--both A A  two
"""


@pytest.fixture
def parser() -> Parser:
    return Parser("qbe demo", "Show options.", OPTIONS)


def error_of(parser: argparse.ArgumentParser, capsys, *arguments: str) -> str:
    """The only line printed before the process ends with 2, without the pointer to help."""
    with pytest.raises(SystemExit) as caught:
        parser.parse_args(arguments)
    assert caught.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(" --help lists the options)")
    return line.rpartition(" (")[0]


PARSERS = parsers()
DEFAULTS = {"text": None, "paper": None, "corpus": None, "all": False, "depth": 100, "both": None}
DEFAULTS |= {"facet": None, "rate": None, "name": None}


@pytest.mark.parametrize(
    ("line", "given"),
    [
        ("", {}),
        ("--corpus a b --all --corpus c --depth 5", {"corpus": ["a", "b", "c"], "all": True, "depth": 5}),
        ("--all --paper b --both 1 2 --all", {"all": True, "paper": "b", "both": ["1", "2"]}),
        ("--rate 0.5 x", {"rate": 0.5, "name": "x"}),
        ("--facet=method -- --papr", {"facet": "method", "name": "--papr"}),
    ],
)
def test_options_are_declared_as_help_shows_them(parser, line, given):
    for _ in range(2):  # a parser may be used again
        assert vars(parser.parse_args(line.split())) == DEFAULTS | given
    assert "depth (default: 100)" in parser.format_help()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--papr a", "unrecognized argument: --papr; did you mean --paper?"),
        ("-paper a", "unrecognized argument: -paper; did you mean --paper?"),
        ("--paper a --xyzzy", "unrecognized argument: --xyzzy"),
        (
            "--facet methods",
            "argument --facet: expected one of background, method, found 'methods'; did you mean method?",
        ),
        ("--facet method --rate 1", "argument --rate: not allowed with argument --facet"),
        ("--depth x", "argument --depth: invalid int value: 'x'"),
    ],
)
def test_wrong_options_are_one_line(parser, capsys, line, message):
    assert error_of(parser, capsys, *line.split()) == f"qbe demo: error: {message}"


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


def started(*command: str | Path, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


@pytest.fixture
def in_process(capsys, monkeypatch):
    """What the command printed when it was run in this process, and ended with a code."""

    def run(*arguments: str, code: int = 0):
        monkeypatch.setattr(sys, "argv", ["qbe", *arguments])
        with pytest.raises(SystemExit) as ended:
            runpy.run_module("qbe", run_name="__main__")
        assert (ended.value.code or 0) == code
        return capsys.readouterr()

    return run


def test_help_shows_every_command_in_one_line_and_the_version(in_process):
    lines = in_process("--help").out.splitlines()
    assert max(map(len, lines)) <= 80
    for name, line in COMMANDS.items():
        assert f"    {name:<12} {line}" in lines
    for option in ("-V", "--version"):
        assert in_process(option).out == f"qbe {__version__}\n"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("serach", "expected one of qbe's commands, found 'serach'; did you mean search?"),
        ("datatsets csfcube", "expected one of qbe's commands, found 'datatsets'; did you mean datasets?"),
        ("xyz", "expected one of qbe's commands, found 'xyz'; qbe --help lists them"),
        ("", "expected a command, found none; qbe --help lists them"),
        ("--threads 2", "expected a command, found --threads; qbe --help lists them"),
    ],
)
def test_no_such_command(in_process, line, message):
    printed = in_process(*line.split(), code=2)
    assert (printed.out, printed.err) == ("", f"qbe: {message}\n")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_its_help(name, in_process):
    parser = parser_of(name)
    assert parser.prog == f"qbe {name}"
    printed = in_process(name, "--help").out
    assert printed.startswith(f"usage: qbe {name} ")
    assert printed == parser.format_help()


def test_a_usage_error_is_one_line():
    line = "-m qbe search --index x --paper 1 --first-stage fused:depth=0"
    told = "qbe search: expected depth as a whole number of at least 1, found 0; check --first-stage\n"
    assert started(sys.executable, *line.split()).stderr == told


def test_an_interrupted_build_of_which_nothing_is_kept_promises_nothing(tmp_path, capsys, monkeypatch):
    from qbe.cli.index import main as index

    monkeypatch.setattr("qbe.index.build.build", interrupt)
    options = ["--corpus", "papers.jsonl", "--output", str(tmp_path / "index")]
    with pytest.raises(KeyboardInterrupt):
        index(options)
    assert capsys.readouterr().err == ""
    (tmp_path / ".index.building").mkdir()
    (tmp_path / ".index.building" / "build.json").write_text("{}")
    with pytest.raises(KeyboardInterrupt):
        index(options)
    assert "--resume goes on" in capsys.readouterr().err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    ("arguments", "unbuffered"),
    [(["completion", "bash"], "1"), (["--version"], ""), (["--help"], "1"), (["list", "--help"], "")],
)
def test_a_full_standard_output_is_one_line(arguments, unbuffered):
    line = f"'{sys.executable}' -m qbe {' '.join(arguments)} > /dev/full"
    done = started("bash", "-c", line, env=os.environ | {"PYTHONUNBUFFERED": unbuffered})
    told = "cannot write standard output: No space left on device; free some space or choose another disk"
    assert (done.returncode, done.stderr) == (1, f"{' '.join(['qbe', *arguments[:-1]])}: {told}\n")


@pytest.mark.parametrize("closed", [">&-", "2>&-", "| true"])
def test_a_closed_output_is_no_error(closed):
    done = started("bash", "-c", f"'{sys.executable}' -m qbe completion bash {closed}")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture(scope="module")
def scripts(tmp_path_factory) -> dict[str, Path]:
    """The completion script of each shell."""
    folder = tmp_path_factory.mktemp("completion")
    scripts = {}
    for shell in ("bash", "zsh", "fish"):
        done = started(sys.executable, "-m", "qbe", "completion", shell)
        assert done.returncode == 0, done.stderr
        scripts[shell] = folder / f"qbe.{shell}"
        scripts[shell].write_text(done.stdout)
    return scripts


@pytest.mark.parametrize(
    ("line", "completions"),
    [
        ("qbe t", ["tag", "train"]),
        ("qbe datasets cs", ["csfcube"]),
        ("qbe search --top", ["--topics"]),
        ("qbe search --facet ", ["problem", "method", "findings", "background", "result"]),
        ("qbe index --corpus topics.", ["topics.tsv"]),
        ("qbe train encoder --objective b", ["bi-encoder"]),
        ("qbe search --index in", ["indexes"]),
    ],
)
def test_bash_completes(scripts, tmp_path, line, completions):
    (tmp_path / "topics.tsv").touch()
    (tmp_path / "indexes").mkdir()
    program = """\
        source "$1"; shift
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
        read -r _ _ _ _ function _ <<< "$(complete -p qbe)"  # complete -o bashdefault -F FUNCTION qbe
        "$function" qbe "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    done = started("bash", "-c", program, "bash", scripts["bash"], *line.split(" "), cwd=tmp_path)
    assert (done.returncode, done.stdout.split()) == (0, completions), done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_know_every_option(scripts, shell):
    text = scripts[shell].read_text()
    assert all(name in text for name in COMMANDS)
    for action in (action for parser in PARSERS.values() for action in parser._actions):
        for option in action.option_strings:
            assert (option if shell != "fish" else option.lstrip("-")) in text, option


WITHOUT = """
import runpy, sys
for name in sys.argv.pop(1).split(","):
    sys.modules[name] = None  # importing it fails as if it were not installed
runpy.run_module("qbe", run_name="__main__")
"""


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
    tiny_index, tiny_encoder, sample, cache, with_jar, tmp_path, monkeypatch, package, pip, command, options
):
    """The base of the large encoder is not downloaded before that."""
    with_jar(cache)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    (tmp_path / "empty").mkdir()
    (tmp_path / "run.trec").write_text("s024_method Q0 s001 1 2.5 tag\n")
    if command == "search":
        options = f"--index {tiny_index} --paper s001 --output run.trec {options}"
    arguments = options.format(sample=sample, folder=tmp_path, encoder=tiny_encoder).split()
    done = started(sys.executable, "-c", WITHOUT, package, command, *arguments, cwd=tmp_path / "empty")
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert not any((tmp_path / "empty").iterdir())
    found = r"expected the package \w+, found none; run: pip install"
    assert re.fullmatch(rf"qbe {command}: {found} {re.escape(pip)}\n", done.stderr)


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
        common.run("qbe demo", main, arguments=[])


def test_a_package_that_does_not_load_says_why(tmp_path, monkeypatch):
    (tmp_path / "damaged_package.py").write_text("raise ImportError('libgomp.so.1: cannot open it')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingDependencyError, match=r"damaged_package does not load: libgomp\.so\.1"):
        check_package("damaged_package")


def test_what_no_folder_can_be_and_too_many_threads(tmp_path, told):
    corpus = tmp_path / "a.jsonl"
    corpus.write_text('{"paper_id": "a", "title": "On fish", "abstract": "We count fish."}\n')
    begin = [sys.executable, "-m", "qbe", "index", "--only", "bm25", "--corpus", corpus]
    gone = tmp_path / "gone"
    gone.mkdir()
    script = f"import os, runpy, sys; os.chdir({str(gone)!r}); os.rmdir({str(gone)!r}); "
    script += "sys.argv = ['qbe', 'doctor']; runpy.run_module('qbe', run_name='__main__')"
    commands = [
        [*begin, "--output", "/"],
        [*begin, "--output", os.fsencode(tmp_path) + b"/bad\xff"],
        [*begin, "--output", tmp_path / "out", "--threads", "100000"],
        [sys.executable, "-c", script],
    ]
    messages = []
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.stderr.count("\n") == 1, done.stderr
        messages.append(f"{done.returncode} {done.stderr.strip()}".replace(str(tmp_path), ""))
    told("folders and threads that cannot be", messages)

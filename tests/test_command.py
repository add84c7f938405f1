"""The command ``qbe``: its commands, its errors, and completion in a shell."""

import os
import runpy
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from qbe import __version__
from qbe.__main__ import COMMANDS
from qbe.cli.common import HIDDEN
from qbe.cli.completion import command_parser

ROOT = Path(__file__).parent.parent


def qbe(*arguments: str) -> subprocess.CompletedProcess[str]:
    """What ``python -m qbe ARGUMENTS`` did."""
    command = [sys.executable, "-m", "qbe", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def in_process(capsys, monkeypatch):
    """What the command printed when it was run in this process, and ended with a code."""

    def run(*arguments: str, code: int = 0, module: str = "qbe"):
        monkeypatch.setattr(sys, "argv", ["qbe", *arguments])
        with pytest.raises(SystemExit) as ended:
            runpy.run_module(module, run_name="__main__")
        assert (ended.value.code or 0) == code
        return capsys.readouterr()

    return run


def options_of(parser) -> set[str]:
    """The option names that a parser and the parsers of its subcommands show."""
    names: set[str] = set()
    for action in parser._actions:
        names.update(action.option_strings if action.help != HIDDEN else ())
        if hasattr(action.choices, "values"):
            names.update(*(options_of(nested) for nested in action.choices.values()))
    return names


def test_help_shows_every_command_in_one_line_and_the_version(in_process):
    printed = in_process("--help")
    lines = printed.out.splitlines()
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
def test_every_command_has_the_names_that_are_dispatched_to_and_the_same_help(name, in_process):
    module = import_module(f"qbe.cli.{name}")
    assert f"qbe {name}" == module.PROGRAM
    assert callable(module.main)
    parser = command_parser(name)
    assert parser.prog == module.PROGRAM
    positional = {action.metavar for action in parser._actions if not action.option_strings}
    assert set(module.OPTIONS.values()) <= options_of(parser) | positional
    printed = in_process(name, "--help").out
    assert printed.startswith(f"usage: qbe {name} ")
    assert printed == parser.format_help() == in_process("--help", module=f"qbe.cli.{name}").out


def test_a_usage_error_is_one_line():
    done = qbe("search", "--index", "x", "--paper", "1", "--first-stage", "fused:depth=0")
    assert done.stderr == "qbe search: expected depth of at least 1, found 0; check --first-stage\n"


def test_an_interrupted_build_of_which_nothing_is_kept_promises_nothing(tmp_path, capsys, monkeypatch):
    from qbe.cli.index import main as index

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("qbe.cli.index._build", interrupt)
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
    command = [sys.executable, "-m", "qbe", *arguments]
    with Path("/dev/full").open("w") as full:
        environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=environment
        )
    name = " ".join(["qbe", *arguments[:-1]])
    assert (done.returncode, done.stderr) == (
        1,
        f"{name}: cannot write standard output: No space left on device; free some space or choose another "
        "disk\n",
    )


@pytest.mark.parametrize("closed", [">&-", "2>&-", "| true"])
def test_a_closed_output_is_no_error(closed):
    line = f"'{sys.executable}' -m qbe completion bash {closed}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_examples_stand_where_they_are_run():
    """pytest collects no example of a file ``__main__.py``."""
    assert not [file for file in ROOT.glob("qbe/**/__main__.py") if ">>> " in file.read_text()]


@pytest.fixture(scope="module")
def scripts(tmp_path_factory) -> dict[str, Path]:
    """The completion script of each shell."""
    folder = tmp_path_factory.mktemp("completion")
    scripts = {}
    for shell in ("bash", "zsh", "fish"):
        done = qbe("completion", shell)
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
        ("qbe search --facet ", ["background", "method", "result"]),
        ("qbe index --corpus papers.jsonl --onl", ["--only"]),
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
    command = ["bash", "-c", program, "bash", str(scripts["bash"]), *line.split(" ")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == completions, done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_know_every_option(scripts, shell):
    text = scripts[shell].read_text()
    for name in COMMANDS:
        assert name in text
        for option in options_of(command_parser(name)):
            assert (option if shell != "fish" else option.lstrip("-")) in text, option

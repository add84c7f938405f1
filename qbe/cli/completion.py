"""``qbe completion``: print a script that completes commands, options and choices in a shell."""

from __future__ import annotations

from qbe.cli import common as _cli

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

PROGRAM = "qbe completion"
OPTIONS: dict[str, str] = {}

SHELLS = ("bash", "zsh", "fish")

EPILOG = """\
bash, in ~/.bashrc:                   eval "$(qbe completion bash)"
zsh, in ~/.zshrc, after compinit:     eval "$(qbe completion zsh)"
fish, in ~/.config/fish/config.fish:  qbe completion fish | source
"""

BASH_FUNCTIONS = """\
_qbe_options_or_files() {
  [[ $completing_word == -* ]] && compgen -W "${current_option_strings[*]}" -- "$completing_word" ||
    compgen -f -- "$1"
}
_qbe_options_or_dirs() {
  [[ $completing_word == -* ]] && compgen -W "${current_option_strings[*]}" -- "$completing_word" ||
    compgen -d -- "$1"
}
"""
"""In bash shtab completes no option behind one that takes any number of files; these functions do.

The variables are those of the function of shtab that calls them.
"""


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    parser = _cli.parser(PROGRAM, "Print a script that completes qbe's commands, options and choices.")
    parser.epilog = EPILOG
    parser.add_argument("shell", choices=SHELLS, help="the shell that is to read the script")
    return parser


def main(arguments: list[str]) -> None:
    shell = parser().parse_args(arguments).shell

    import shtab

    from qbe.__main__ import parser as whole

    functions = BASH_FUNCTIONS if shell == "bash" else ""
    print(shtab.complete(whole(command_parser), shell, preamble=functions))


def command_parser(command: str) -> argparse.ArgumentParser:
    """The parser of a command, with a mark on each argument that is a file or a folder."""
    from importlib import import_module

    module = import_module(f"qbe.cli.{command}")
    parser: argparse.ArgumentParser = module.parser()
    _complete_files(parser)
    return parser


def _complete_files(parser: argparse.ArgumentParser) -> None:
    """Have the shell complete names of files or folders for an argument whose metavar says so."""
    import argparse

    import shtab

    places = {"FILE": shtab.FILE, "SOURCE": shtab.FILE, "DIR": shtab.DIRECTORY}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for nested in action.choices.values():
                _complete_files(nested)
        elif isinstance(action.metavar, str) and action.metavar in places:
            complete = places[action.metavar]
            if action.nargs in ("+", "*"):
                kind = "dirs" if complete == shtab.DIRECTORY else "files"
                complete = {**complete, "bash": f"_qbe_options_or_{kind}"}
            action.complete = complete  # type: ignore[attr-defined]


if __name__ == "__main__":
    _cli.run(PROGRAM, main, OPTIONS)

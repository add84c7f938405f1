"""``qbe completion``: print a script that completes commands, options and choices in a shell."""

from __future__ import annotations

from qbe.cli.common import Parser

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

PROGRAM = "qbe completion"
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


def parser() -> Parser:
    """The command's options."""
    about = "Print a script that completes qbe's commands, options and choices."
    parser = Parser(PROGRAM, about, EPILOG)
    shells = ("bash", "zsh", "fish")
    parser.add_argument("shell", choices=shells, help="the shell that is to read the script")
    return parser


def main(arguments: list[str]) -> None:
    """Parse the options, and print the script."""
    shell = parser().parse_args(arguments).shell

    import shtab

    from qbe.cli import parser as whole

    functions = BASH_FUNCTIONS if shell == "bash" else ""
    print(shtab.complete(whole(_with_files), shell, preamble=functions))


def _with_files(command: str) -> argparse.ArgumentParser:
    from qbe.cli import command_parser

    parser = command_parser(command)
    _complete_files(parser)
    return parser


def _complete_files(parser: argparse.ArgumentParser) -> None:
    """Have the shell complete names of files or folders for an argument whose metavar says so."""
    import argparse

    import shtab

    places = {"FILE": shtab.FILE, "SOURCE": shtab.FILE, "DIR": shtab.DIRECTORY, "INDEX": shtab.DIRECTORY}
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

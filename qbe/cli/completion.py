"""``qbe completion``: print a script that completes commands, options and choices in a shell."""

import argparse

from qbe.cli import ABOUT, COMMANDS
from qbe.cli.parser import Parser, parse, parser_of


def main(arguments: list[str]) -> None:
    shell = parse("completion", arguments).shell

    import shtab

    places = {"FILE": shtab.FILE, "SOURCE": shtab.FILE, "DIR": shtab.DIRECTORY, "INDEX": shtab.DIRECTORY}

    def complete_files(parser: argparse.ArgumentParser) -> None:
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for nested in action.choices.values():
                    complete_files(nested)
            elif isinstance(action.metavar, str) and action.metavar in places:
                action.complete = places[action.metavar]  # type: ignore[attr-defined]

    whole = Parser("qbe", ABOUT)
    whole.add_argument("-V", "--version", action="store_true", help="print the version and exit")
    commands = whole.add_subparsers(dest="command", metavar="COMMAND")
    for name, line in COMMANDS.items():
        commands.add_parser(name, help=line)
        commands.choices[name] = parser_of(name)
    complete_files(whole)
    print(shtab.complete(whole, shell))

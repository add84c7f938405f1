"""The parsers of all commands, and of their subcommands."""

import argparse
from functools import cache

from qbe.__main__ import COMMANDS
from qbe.cli.parser import parser_of


@cache
def parsers() -> dict[str, argparse.ArgumentParser]:
    """By ``qbe NAME [SUBCOMMAND]``."""
    found: dict[str, argparse.ArgumentParser] = {}
    for command in COMMANDS:
        parser = parser_of(command)
        found[parser.prog] = parser
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                found |= {nested.prog: nested for nested in action.choices.values()}
    return found

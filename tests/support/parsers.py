"""The parsers of all commands and of their subcommands, by ``qbe NAME [SUBCOMMAND]``."""

from argparse import ArgumentParser

from qbe.__main__ import COMMANDS, command_parser


def every_parser() -> dict[str, ArgumentParser]:
    found = {}
    for name in COMMANDS:
        found[f"qbe {name}"] = parser = command_parser(name)
        for action in parser._actions:
            if hasattr(action.choices, "items"):
                found |= {f"qbe {name} {nested}": child for nested, child in action.choices.items()}
    return found


PARSERS = every_parser()

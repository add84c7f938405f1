"""The command ``qbe``: see `qbe.cli`."""

from qbe.cli import COMMANDS, command_parser, main

__all__ = ["COMMANDS", "command_parser", "main"]

if __name__ == "__main__":
    main()

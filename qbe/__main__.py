"""The command ``qbe``: see `qbe.cli`."""

from qbe.cli import COMMANDS, main

__all__ = ["COMMANDS", "main"]

if __name__ == "__main__":
    main()

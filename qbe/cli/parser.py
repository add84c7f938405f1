"""Parsers of the command line, out of options that are declared as help shows them.

`qbe.cli.options` has them in sections. One begins with ``== COMMAND``, or ``== COMMAND SUBCOMMAND: LINE``; it
has a paragraph on what the command does (default: its line), one of options, and what stands below them. In a
line, ``@NAME`` stands for the options of the section ``@NAME``, or of a command. Help imports nothing heavy.
"""

from __future__ import annotations

import argparse
import os
import re
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, ClassVar, NoReturn

    Default = Callable[["Parser", list[str]], list[str]]

_TYPES = {**dict.fromkeys(("N", "YEAR"), int), **dict.fromkeys(("SECONDS", "GRADE", "RATE", "X"), float)}
"""Types of values by their name in help; all others are texts."""


class _HelpFormatter(argparse.HelpFormatter):
    """Help as wide as the terminal, whose width argparse learns by importing compression libraries."""

    def __init__(self, prog: str) -> None:
        try:
            columns = int(os.environ.get("COLUMNS") or os.get_terminal_size().columns)
        except (OSError, ValueError):
            columns = 80
        super().__init__(prog, width=min(columns, 100))

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if "\n" in text else super()._fill_text(text, width, indent)


class Parser(argparse.ArgumentParser):
    """A parser of declared options; none can be abbreviated."""

    program: ClassVar[str] = "qbe"
    known: ClassVar[set[str]] = set()
    """The command that was parsed last, and its options, for messages."""

    def __init__(
        self, prog: str, description: str | None = None, options: str = "", epilog: str | None = None
    ) -> None:
        super().__init__(prog, None, description, epilog, formatter_class=_HelpFormatter, allow_abbrev=False)
        self.declare(options)

    def declare(self, options: str) -> None:
        """Add options: each on a line with its help behind two spaces, which indented lines continue.

        ``--all`` is a flag, ``--name VALUE`` takes a value, ``VALUE...`` several, ``a|b`` one of these; a
        default stands in parentheses. ``VALUE`` alone is an argument (``VALUE=a|b``: one of these),
        ``[VALUE]`` one that may be absent. One that ends with ``!`` is required. Of those that begin with
        ``? `` at most one may be given. ``# TITLE`` begins a group.
        """
        group: Any = self
        one_of: Any = None
        for entry in re.split(r"\n(?! )", options.strip()) if options else ():
            text, _, line = entry.partition("  ")
            if text[0] == "#":
                group, one_of = self.add_argument_group(text[2:]), None
                continue
            required = text[-1] == "!"
            if text[0] != "?":
                one_of = None
            elif one_of is None:
                one_of = group.add_mutually_exclusive_group(required=required)
            name, settings = _settings(text.removeprefix("? ").removesuffix("!"), " ".join(line.split()))
            if required and one_of is None:
                settings["required"] = True
            (one_of or group).add_argument(name, **settings)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Report an option that is misspelt before those that are required, unlike argparse."""
        words, known = sys.argv[1:] if args is None else list(args), self._option_string_actions
        Parser.program = self.prog
        Parser.known.update(known, (action.dest.upper() for action in self._actions))
        for word in words:
            name = word.partition("=")[0]
            if word == "--" or (self._subparsers is not None and word[:1] != "-"):
                break
            is_option = word[:2] == "--" or (word[:1] == "-" and f"-{name}" in known)
            if is_option and name not in known and " " not in word:
                from qbe.errors import did_you_mean

                hint = did_you_mean(name, known)
                self.error(f"unrecognized argument: {name}{hint and f'; {hint}'}")
        return super().parse_known_args(words, namespace)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            from qbe.errors import did_you_mean

            listed = ", ".join(action.choices)
            hint = did_you_mean(value, action.choices, "choose one of these")
            raise argparse.ArgumentError(action, f"expected one of {listed}, found {value!r}; {hint}")

    def error(self, message: str) -> NoReturn:
        """End the process with 2 and one line; the usage of commands with many options would hide it."""
        from qbe.util.text import one_line

        if "are required: --index" in message:
            message += "; qbe index builds one, qbe demo one of 3,000 papers"
        self.exit(2, f"{self.prog}: error: {one_line(message)} ({self.prog} --help lists the options)\n")

    def _print_message(self, message: str, file: Any = None) -> None:
        (file or sys.stderr).write(message)  # argparse drops errors of a full disk


def _settings(text: str, line: str) -> tuple[str, dict[str, Any]]:
    text, _, default = text.removesuffix(")").partition(" (")
    name, _, value = text.partition(" ") if text[0] == "-" else (text.strip("[].").lower(), "", text)
    if "=" in name and name[0] != "-":
        name, _, value = name.partition("=")
    settings: dict[str, Any] = {"help": line}
    if default:
        settings["default"] = default
        if "default" not in line:
            settings["help"] += f" (default: {default.replace('%', '%%')})"
    if not value:
        return name, {**settings, "action": "store_true"}
    if value[0] == "[":
        value = value[1:-1]
        settings["nargs"] = "*" if value.endswith("...") else "?"
    elif value.endswith("..."):
        settings |= {"nargs": "+"} | ({"action": "extend"} if name[0] == "-" else {})
    elif " " in value:
        settings["nargs"] = len(value.split())
        value = value.split()[0]
    value = value.removesuffix("...")
    if "|" in value and not re.search("[A-Z][A-Z]", value):
        return name, {**settings, "choices": tuple(value.split("|"))}
    return name, {**settings, "metavar": value, "type": _TYPES.get(value)}


def _sections(command: str) -> dict[str, tuple[str, str, str, str]]:
    """By the name of a section: its line, what the command does, its options, and what stands below them."""
    from qbe.cli.options import TEXT

    text = TEXT
    if command == "train":
        from qbe.cli import trainings

        text += trainings.TEXT
    sections = {}
    for section in text.split("\n== ")[1:]:
        head, _, body = section.partition("\n")
        name, _, line = head.partition(": ")
        parts = body.strip().split("\n\n", 2)
        if re.match(r"[-?#@\[]|\S+  ", parts[0]):
            parts.insert(0, f"{line[:1].upper()}{line[1:]}.")
        about, options, epilog = (*parts, "", "")[:3]
        sections[name] = line, " ".join(about.split()), options, epilog
    return sections


def parser_of(command: str) -> Parser:
    sections = _sections(command)

    def whole(options: str) -> str:
        def named(match: re.Match[str]) -> str:
            names = match[0].replace("@", "").split()
            return "\n".join(whole((sections.get(f"@{name}") or sections[name])[2]) for name in names)

        return re.sub(r"^@.*(?:\n .*)*", named, options, flags=re.MULTILINE)

    program, (_, about, options, epilog) = f"qbe {command}", sections[command]
    nested = {name.split()[1]: each for name, each in sections.items() if name.startswith(f"{command} ")}
    if command == "datasets":
        from qbe.datasets import NAMES, TAKEN_BY

        for name, line in NAMES.items():
            taken = [each for each, takers in TAKEN_BY.items() if name in takers and each != "corpus"]
            taken += [f"corpus-of-{name}"] * (name in TAKEN_BY["corpus"])
            nested[name] = line, f"Write {line}.", " ".join(f"@{each}" for each in (*taken, "dataset")), ""
    if not nested:
        return Parser(program, about, whole(options), f"{epilog}\n" if epilog else None)
    epilog = f"{epilog}\n" if epilog else f"{program} COMMAND --help shows the options of a command."
    parser = Parser(program, about, epilog=epilog)
    added = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND", required=True)
    for name, (line, about, options, _) in nested.items():
        added.add_parser(name, help=line, description=about).declare(whole(options))
    return parser


def parse(command: str, arguments: list[str], default: Default | None = None) -> argparse.Namespace:
    """The options of a command, with the arguments that ``default`` adds, and a number of threads."""
    parser = parser_of(command)
    Parser.program = parser.prog
    added = default(parser, arguments) if default else []
    Parser.known.clear()
    options: argparse.Namespace = parser.parse_args([*arguments, *added])
    if "threads" in options and command != "serve":  # which divides them among its workers
        from qbe.util.work import thread_count

        options.threads = thread_count(options.threads)
    return options

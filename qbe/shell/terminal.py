"""Commands on a terminal or in a stream: read, completed, kept in a history; errors in one line."""

from __future__ import annotations

import cmd
import contextlib
import shutil
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import TextIO, get_args

from pydantic import ValidationError

from qbe.errors import QbeError, UsageError, did_you_mean
from qbe.files import cache_folder
from qbe.plain import one_line
from qbe.service.requests import FacetName, Format, problem_in_words
from qbe.service.service import SearchService
from qbe.shapes import SHAPES

try:
    import readline as _readline
except ImportError:  # a Python built without it
    readline: ModuleType | None = None
else:
    readline = _readline

LONGEST = 1000
"""Lines that are kept."""

DELIMITERS = " \t\n,"
"""What words are separated by that are completed; ids may have anything else in them."""

PROMPT, PASTE_PROMPT = "qbe> ", "... "
WIDTH, WIDEST = 100, 120
HISTORY = "shell-history"
MOST_IDS = 200
"""Ids that are offered to complete one."""

ALL, SEEDS = "all", "seeds"
"""What stands for no condition, and for the papers that are searched with."""

_END = "EOF"
"""The line that `cmd.Cmd` gives at the end of the input."""

FACETS, FORMATS = get_args(FacetName), get_args(Format)
_WORDS: dict[str, tuple[str, ...]] = {
    "facet": (*FACETS, ALL),
    "like": (*FACETS, "unlike"),
    "explore": tuple(SHAPES),
    "export": (*FORMATS, SEEDS),
    "rerank": ("on", "off"),
    "year": (ALL,),
    "category": (ALL,),
}
"""Words that complete the arguments of commands."""


class Terminal(cmd.Cmd):
    """Reads commands from a stream, and writes to another; an error is one line on a third.

    A command is a method ``do_NAME``, whose docstring is its help: its arguments, a colon, what it does. On a
    terminal there are a prompt, a history and completion; Ctrl-C cancels a line, or the search in progress.
    """

    def __init__(self, service: SearchService, stdin: TextIO, stdout: TextIO, stderr: TextIO) -> None:
        super().__init__(stdin=stdin, stdout=stdout)
        self._errors = stderr
        self._is_terminal = stdin is sys.stdin and stdin.isatty()
        self.use_rawinput = self._is_terminal
        self.prompt = PROMPT if self._is_terminal else ""
        self.service = service
        self._keep: Callable[[str], object] = len
        self.commands = [name.removeprefix("do_") for name in vars(type(self)) if name.startswith("do_")]

    def run(self) -> None:
        """Read commands until they end."""
        if not self._is_terminal:
            self.cmdloop()
            return
        self.write(f"{len(self.service.index):,} papers; help lists the commands")
        with history(cache_folder() / HISTORY) as self._keep:
            while True:
                try:
                    self.cmdloop()
                    return
                except KeyboardInterrupt:
                    self.cmdqueue.clear()
                    self.write("")

    # What `cmd.Cmd` calls.

    def precmd(self, line: str) -> str:
        """Keep the line, if it is a command; of lines that were pasted together only the first comes now."""
        first, *others = line.splitlines() or [""]
        self.cmdqueue[:0] = others
        if first.strip().partition(" ")[0] in self.commands:
            self._keep(first)
        return first

    def onecmd(self, line: str) -> bool:
        """Do what a line says; returns whether it is the last."""
        if line == _END:
            if self._is_terminal:
                self.write("")
            return True
        name, _, argument = line.strip().partition(" ")
        try:
            return bool(name) and self.handler(name)(argument.strip()) is True
        except ValidationError as error:
            self.error(problem_in_words(error.errors()))
        except QbeError as error:
            self.error(str(error))
        return False

    def completenames(self, text: str, *_: object) -> list[str]:
        """Commands that begin so, each with a space."""
        return [f"{name} " for name in self.commands if name.startswith(text)]

    def completedefault(self, text: str, line: str, *_: object) -> list[str]:
        """What the last word of an argument, of which ``text`` is there, may be: a word, or an id."""
        name = line.split(None, 1)[0]
        if name in ("paper", "show"):
            with self.service.index.reading() as reader:
                begun = (each for each in reader.papers.ids if each.startswith(text) and each in reader)
                return sorted(islice(begun, MOST_IDS))
        words = self.commands if name == "help" else _WORDS.get(name, ())
        return [word for word in words if word.startswith(text)]

    def complete_help(self, text: str, line: str, *_: object) -> list[str]:
        """As of other commands; `cmd.Cmd` has a help of its own."""
        return self.completedefault(text, line)

    def handler(self, name: str) -> Callable[[str], object]:
        """The method of a command; raises UsageError for an unknown one."""
        if name not in self.commands:
            hint = did_you_mean(name, self.commands, "help lists them")
            raise UsageError(f"expected a command, found {name!r:.60}; {hint}")
        handler: Callable[[str], object] = getattr(self, f"do_{name}")
        return handler

    @property
    def width(self) -> int:
        """Characters in a line."""
        return min(shutil.get_terminal_size((WIDTH, 24)).columns, WIDEST)

    def line(self) -> str | None:
        """The next line of a text, None at the end."""
        if self.cmdqueue:
            return str(self.cmdqueue.pop(0))
        if not self._is_terminal:
            line = self.stdin.readline()
            return line.rstrip("\r\n") if line else None
        try:
            return input(PASTE_PROMPT)
        except EOFError:
            self.write("")
            return None

    def write(self, text: str) -> None:
        """Write lines."""
        self.stdout.write(f"{text}\n")
        self.stdout.flush()

    def hint(self, text: str) -> None:
        """Write a line for a person at a terminal."""
        if self._is_terminal:
            self.write(text)

    def error(self, message: str) -> None:
        """Write an error in one line; options of the command line are commands here."""
        line = one_line(message.replace("--", "").replace("`", ""))
        self._errors.write(f"error: {line}\n")
        self._errors.flush()


@contextlib.contextmanager
def history(path: Path) -> Iterator[Callable[[str], object]]:
    """Lines of a terminal: read from a file at the beginning, written there at the end. Gives a function that
    keeps a line; others, such as pasted text, are not kept.

    Where there is no readline, or the file cannot be read or written, there is no history, and nothing else
    is different.
    """
    if readline is None:
        yield len
        return
    readline.set_auto_history(False)
    readline.set_completer_delims(DELIMITERS)
    readline.set_history_length(LONGEST)
    readline.clear_history()
    with contextlib.suppress(OSError, UnicodeError):
        readline.read_history_file(path)
    try:
        yield readline.add_history
    finally:
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)
            readline.write_history_file(path)

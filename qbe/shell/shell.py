"""A service on a terminal, command by command."""

from __future__ import annotations

import cmd
import shutil
import sys
from collections.abc import Iterable
from typing import TextIO

from pydantic import ValidationError

from qbe.errors import QbeError
from qbe.files import cache_folder
from qbe.plain import one_line
from qbe.service.requests import problem_in_words
from qbe.service.service import Limits, SearchService
from qbe.shell.commands import COMMANDS
from qbe.shell.completing import Completion
from qbe.shell.history import History
from qbe.shell.session import Session

PATIENT = Limits(first_stage=60.0, reranked=600.0, search=600.0)
"""Nobody else waits for a shell's searches."""

PROMPT, PASTE_PROMPT = "qbe> ", "... "
WIDTH, WIDEST = 100, 120
HISTORY = "shell-history"
_END = "EOF"
"""The line that `cmd.Cmd` gives at the end of the input."""


class Shell(cmd.Cmd):
    """Reads commands from a stream, and writes tables to another; what is wrong is one line on a third.

    On a terminal there are a prompt, a history and completion; Ctrl-C cancels a line, or what is under way.
    """

    def __init__(self, service: SearchService, stdin: TextIO, stdout: TextIO, stderr: TextIO) -> None:
        super().__init__(stdin=stdin, stdout=stdout)
        self._errors = stderr
        self._is_terminal = stdin is sys.stdin and stdin.isatty()
        self.use_rawinput = self._is_terminal
        self.prompt = PROMPT if self._is_terminal else ""
        self._history: History | None = None
        self._service, self._session = service, Session(service, self)
        self._completion = Completion(service)

    def run(self) -> None:
        """Read commands until they end."""
        if not self._is_terminal:
            self.cmdloop()
            return
        self.write(f"{len(self._service.index):,} papers; help lists the commands")
        with History(cache_folder() / HISTORY) as self._history:
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
        if self._history is not None and first.strip().partition(" ")[0] in COMMANDS:
            self._history.add(first)
        return first

    def onecmd(self, line: str) -> bool:
        """Do what a line says; returns whether it is the last."""
        if line == _END:
            if self._is_terminal:
                self.write("")
            return True
        name, _, argument = line.strip().partition(" ")
        if not name:
            return False
        try:
            return self._session.handler(name)(argument.strip()) is True
        except ValidationError as error:
            self.error(problem_in_words(error.errors()))
        except QbeError as error:
            self.error(str(error))
        return False

    def completenames(self, text: str, *_: object) -> list[str]:
        """Commands that begin so, each with the space behind it."""
        return [f"{name} " for name in COMMANDS if name.startswith(text)]

    def completedefault(self, text: str, line: str, *_: object) -> list[str]:
        """What an argument may go on as."""
        name, argument = [*line.split(None, 1), ""][:2]
        return self._completion.words(name, argument, text)

    def complete_help(self, text: str, line: str, *_: object) -> list[str]:
        """As of other commands; `cmd.Cmd` has a help of its own."""
        return self.completedefault(text, line)

    # What commands call.

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

    def blocks(self, blocks: Iterable[list[str]]) -> None:
        """Write blocks of lines, an empty line between them."""
        self.write("\n\n".join("\n".join(block) for block in blocks))

    def write(self, text: str) -> None:
        """Write lines."""
        self.stdout.write(f"{text}\n")
        self.stdout.flush()

    def hint(self, text: str) -> None:
        """Write a line for who sits at a terminal."""
        if self._is_terminal:
            self.write(text)

    def error(self, message: str) -> None:
        """Say in a line what is wrong; options of the command line are commands here."""
        line = one_line(message.replace("--", "").replace("`", ""))
        self._errors.write(f"error: {line}\n")
        self._errors.flush()

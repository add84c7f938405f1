"""The lines that were typed, kept from one shell to the next."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import ModuleType

from qbe.closing import Closing

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


class History(Closing):
    """Lines of a terminal: read from a file at the beginning, written there at the end.

    A line is only kept where `add` is called: what somebody pastes is not. Where there is no readline, or the
    file cannot be read or written, there is no history, and nothing else is different.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._added = path, 0
        if readline is None:
            return
        readline.set_auto_history(False)
        readline.set_completer_delims(DELIMITERS)
        readline.set_history_length(LONGEST)
        readline.clear_history()
        with contextlib.suppress(OSError, UnicodeError):
            readline.read_history_file(path)

    def add(self, line: str) -> None:
        """Keep a line, unless it is that before."""
        if readline is None:
            return
        last = readline.get_current_history_length()
        if line.strip() and (not last or readline.get_history_item(last) != line):
            readline.add_history(line)
            self._added += 1

    def close(self) -> None:
        """Write what was added behind what other shells have written meanwhile."""
        if readline is None or not self._added:
            return
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.touch(mode=0o600)
            if hasattr(readline, "append_history_file"):
                readline.append_history_file(self._added, self._path)
            else:
                readline.write_history_file(self._path)

"""Unfinished work that can be resumed: its inputs are kept in a state file beside what is finished.

An unfinished piece of work is a hidden folder with a state file, JSON, written once something in the folder
is worth keeping. It may be resumed by a call with the same inputs only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbe.errors import QbeError


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A folder that may hold unfinished work, with what its error messages need.

    ``state_file`` is the name of its state file, ``name`` what the work is called ("build"), ``inputs`` what
    its inputs are called ("the corpus and settings"), ``error`` the class of what is raised.

    >>> work = Unfinished(Path("unfinished"), "state.json", "build", "the corpus and settings", QbeError)
    >>> work.read_state() is None
    True
    >>> work.check_inputs({"corpus": "a.jsonl"}, {"corpus": "b.jsonl"})
    Traceback (most recent call last):
        ...
    qbe.errors.QbeError: expected the corpus and settings of the unfinished build in unfinished, found ...
    """

    folder: Path
    state_file: str
    name: str
    inputs: str
    error: type[QbeError]

    def read_state(self) -> dict[str, Any] | None:
        """The state, or None where the work was interrupted before there was one."""
        try:
            state: dict[str, Any] = json.loads((self.folder / self.state_file).read_text())
        except (OSError, ValueError):
            return None
        return state

    def check_inputs(self, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
        """Raise the error unless the inputs of the unfinished work are those of now; it names the keys that
        differ.
        """
        if before != now:
            changed = ", ".join(key for key in now if before.get(key) != now[key])
            raise self.error(
                f"expected {self.inputs} of the unfinished {self.name} in {self.folder}, found other "
                f"{changed}; repeat the command as it was, or discard that {self.name} with `overwrite` alone"
            )

    def in_the_way(self) -> QbeError:
        """The error for work that would have to be resumed or discarded first."""
        return self.error(
            f"{self.folder} holds an unfinished {self.name}; continue it with `resume`, or discard it with "
            "`overwrite`"
        )

    def remove_partial_files(self) -> None:
        """Remove files that were being written when the work was interrupted."""
        for path in self.folder.glob(".*.partial"):
            path.unlink()

"""What is said of wrong inputs, for the tables of tests/data/errors.txt."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest

from qbe.errors import QbeError


def messages_of(
    actions: Iterable[Callable[[], object]],
    kind: type[Exception] | tuple[type[Exception], ...] = QbeError,
    folder: Path | None = None,
) -> list[str]:
    """The message of each action's error, with the class of the error; names are relative to ``folder``."""
    messages = []
    for action in actions:
        with pytest.raises(kind) as raised:
            action()
        text = str(raised.value) if folder is None else str(raised.value).replace(f"{folder}/", "")
        messages.append(f"{type(raised.value).__name__}: {text}")
    return messages


def refusals(command: Callable[..., object], lines: Iterable[str | Sequence[object]]) -> list[str]:
    """The message of each wrong command line, of words or in one, with the error's exit code and class."""
    messages = []
    for line in lines:
        words = line.split() if isinstance(line, str) else line
        with pytest.raises(QbeError) as raised:
            command(*words)
        messages.append(f"{raised.value.exit_code} {type(raised.value).__name__}: {raised.value}")
    return messages

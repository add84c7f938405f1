"""All checks, as lines for people and as JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from qbe.doctor.check import Check, State
from qbe.doctor.folders import cache_check, data_check
from qbe.doctor.installation import installation_check, shadow_check
from qbe.doctor.java import java_check
from qbe.doctor.packages import package_checks
from qbe.doctor.processors import processor_checks
from qbe.doctor.space import disk_check, memory_check
from qbe.files import cache_folder

_WORDS = {State.OK: "OK", State.ADVICE: "advice", State.MISSING: "MISSING", State.DAMAGED: "DAMAGED"}


def all_checks() -> list[Check]:
    """Look at everything; nothing is imported, started or written.

    >>> [check.name for check in all_checks()][:3]
    ['qbe', 'Java', 'numpy']
    """
    return [
        installation_check(),
        java_check(),
        *package_checks(),
        *processor_checks(),
        memory_check(),
        disk_check("cache disk", cache_folder()),
        disk_check("this disk", Path()),
        cache_check(),
        data_check(),
        shadow_check(Path()),
    ]


def to_text(checks: Sequence[Check]) -> str:
    """One line a check.

    >>> print(to_text([Check("numpy", State.OK, "2.4.6"), Check("torch", State.ADVICE, "absent", "get it")]))
    numpy  OK       2.4.6
    torch  advice   absent; get it
    """
    width = max(len(check.name) for check in checks)
    return "\n".join(
        f"{check.name:<{width}}  {_WORDS[check.state]:<7}  {check.found}"
        + (f"; {check.advice}" if check.advice else "")
        for check in checks
    )


def to_record(checks: Sequence[Check]) -> dict[str, Any]:
    """The same as JSON values.

    >>> to_record([Check("numpy", State.OK, "2.4.6", values={"version": "2.4.6"})])["checks"]["numpy"]
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

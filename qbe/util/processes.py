"""Child processes: the one place that starts them, so that none runs code of the working directory.

Of a Python process that is started with ``-m`` or ``-c``, the working directory comes first among the places
that modules are imported from: a ``qbe.py`` or ``numpy.py`` that lies next to a corpus would be run.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence


def run(command: Sequence[object], seconds: float | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command without input until it ends; keep its output and errors as text.

    No Python process below it imports modules of the working directory. Raises OSError where there is no such
    command, `subprocess.TimeoutExpired` after ``seconds``.
    """
    return subprocess.run(  # noqa: S603  (no shell; commands are lists that qbe makes)
        [str(part) for part in command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=seconds,
        check=False,
        env={**os.environ, "PYTHONSAFEPATH": "1"},
    )


Process = subprocess.Popen[bytes]


def start(command: Sequence[object]) -> Process:
    """Start a command with pipes for input and output; drop its errors. It ends when its input does."""
    return subprocess.Popen(  # noqa: S603
        [str(part) for part in command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONSAFEPATH": "1"},
    )


def import_nothing_from_working_directory() -> None:
    """Keep Python processes that libraries start from importing modules of the working directory."""
    os.environ["PYTHONSAFEPATH"] = "1"

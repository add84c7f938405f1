"""Child processes: the one place that starts them, so that none runs code of the working directory.

Of a Python process that is started with ``-m`` or ``-c``, the working directory comes first among the places
that modules are imported from: a ``qbe.py`` or ``numpy.py`` that lies next to a corpus would be run.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence


def run(command: Sequence[object], seconds: float | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command without input until it ends; its output and errors are kept as text.

    No Python process below it imports modules of the working directory. Raises OSError where there is no such
    command, `subprocess.TimeoutExpired` after so many ``seconds``.

    >>> import sys
    >>> from pathlib import Path
    >>> _ = Path("colorsys.py").write_text("print('code of the working directory')")
    >>> run([sys.executable, "-c", "import colorsys"]).stdout
    ''
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
    """Start a command that is spoken with through its standard input and output; what it says on standard
    error is dropped. It ends when its input does, at the latest with this process.

    >>> with start(["cat"]) as process:
    ...     process.communicate(b"fish")[0]
    b'fish'
    """
    return subprocess.Popen(  # noqa: S603
        [str(part) for part in command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONSAFEPATH": "1"},
    )


def import_nothing_from_working_directory() -> None:
    """Have Python processes that a library starts from now on import no module of the working directory."""
    os.environ["PYTHONSAFEPATH"] = "1"

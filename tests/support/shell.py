"""Scripts of a shell whose commands ``qbe`` are carried out in this process, which has imported it all."""

import contextlib
import io
import json
import logging
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from qbe import __main__ as qbe

CLIENT = """\
#!{python} -SIXutf8
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as asking:
    asking.connect({address!r})
    asking.sendall(json.dumps([sys.argv[1:], os.getcwd(), sys.stdin.read()]).encode())
    asking.shutdown(socket.SHUT_WR)
    code, out, err = json.load(asking.makefile(encoding="utf-8"))
sys.stdout.write(out)
sys.stderr.write(err)
sys.exit(code)
"""
"""What stands on the path as ``qbe``: it has its arguments carried out, and ends as they did."""


def carry_out(arguments: Sequence[str], folder: str, given: str) -> tuple[object, str, str]:
    """The exit code of a command, and what it printed; ``given`` is its standard input."""
    out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
    source = io.TextIOWrapper(io.BufferedReader(io.BytesIO(given.encode())))
    streams = {"stdin": source, "stdout": out, "stderr": err}
    logger = logging.getLogger("qbe")
    before = logger.handlers, logger.level
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, value in {"argv": ["qbe", *arguments], **streams}.items():
            patch.setattr(sys, name, value)
        with pytest.raises(SystemExit) as ended:
            qbe.main()
    logger.handlers, level = before
    logger.setLevel(level)
    return ended.value.code, out.buffer.getvalue().decode(), err.getvalue()


@contextlib.contextmanager
def command(folder: Path) -> Iterator[None]:
    """Makes the command ``qbe`` in a folder."""
    address = str(folder / "socket")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        threading.Thread(target=_answer_all, args=(listening,), daemon=True).start()
        (folder / "qbe").write_text(CLIENT.format(python=sys.executable, address=address))
        (folder / "qbe").chmod(0o755)
        yield
        with contextlib.suppress(OSError):  # where the thread ended
            listening.shutdown(socket.SHUT_RDWR)


def _answer_all(listening: socket.socket) -> None:
    with listening, contextlib.suppress(OSError):  # until it is shut down
        while True:
            connection, _ = listening.accept()
            with connection, connection.makefile("rw", encoding="utf-8") as stream:
                json.dump(carry_out(*json.loads(stream.read())), stream)


def run(script: str, folder: Path) -> str:
    """The standard output of a script, which must succeed."""
    command = ["bash", "-c", f"set -euo pipefail\n{script}"]
    done = subprocess.run(
        command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{script}\n{done.stderr}"
    return done.stdout

"""The shell on a terminal: prompt, completion, history, and keys that cancel and quit."""

import os
import pty
import re
import select
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
TAB, UP, CTRL_C, CTRL_D, CTRL_U = "\t", "\x1b[A", "\x03", "\x04", "\x15"
PROMPT, PASTE_PROMPT = r"qbe> ", r"\.\.\. "
SECONDS = 60

readline = pytest.importorskip("readline")
if "libedit" in (readline.__doc__ or ""):
    pytest.skip("keys and files of libedit are others", allow_module_level=True)


class Terminal:
    """A process on a terminal of its own: what is typed, and what it writes."""

    def __init__(self, arguments: list[str], environment: dict[str, str]) -> None:
        self.pid, self._end = pty.fork()
        if not self.pid:
            try:
                signal.signal(signal.SIGINT, signal.SIG_DFL)  # which a process in the background ignores
                os.execve(sys.executable, [sys.executable, *arguments], environment)
            finally:
                os._exit(127)
        self._text = ""
        self._code: int | None = None

    def type(self, text: str) -> None:
        os.write(self._end, text.encode())

    def interrupt(self) -> None:
        """Press Ctrl-C, once Python waits for keys: one that comes just before is seen at the next key."""
        time.sleep(0.3)
        self.type(CTRL_C)

    def until(self, pattern: str) -> str:
        """What is written until a pattern matches, which is what comes after this."""
        deadline = time.monotonic() + SECONDS
        while not (match := re.search(pattern, self._text)):
            assert time.monotonic() < deadline, f"expected {pattern!r}, found {self._text!r}"
            assert self._read(), f"expected {pattern!r}, found the end of {self._text!r}"
        before, self._text = self._text[: match.end()], self._text[match.end() :]
        return before

    def command(self, text: str) -> str:
        """What a command writes until the next prompt."""
        self.type(f"{text}\r")
        return self.until(PROMPT)

    def end(self) -> int:
        """The exit code, once the process has ended."""
        while self._read():
            pass
        return self.wait()

    def wait(self) -> int:
        if self._code is None:
            self._code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            os.close(self._end)
        return self._code

    def _read(self) -> bool:
        ready, _, _ = select.select([self._end], [], [], 1)
        if not ready:
            return True
        try:
            found = os.read(self._end, 65_536)
        except OSError:  # how Linux says that the other side is closed
            return False
        # Readline writes these around what it marks: they are of no interest here.
        self._text += re.sub(r"\x1b\[\??[\d;]*[a-zA-Z]|\x07|\r", "", found.decode(errors="replace"))
        return bool(found)


@pytest.fixture
def start(graded_index, tmp_path) -> Iterator[Callable[..., Terminal]]:
    """Starts a shell whose history is in a folder of its own; ``begin`` is what Python does first."""
    terminals = []

    def start(begin: str = "", options: str = "") -> Terminal:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "INPUTRC": "/dev/null"}
        environment["QBE_CACHE"] = str(tmp_path / "cache")
        program = (
            f"{begin}\nfrom qbe.shell.__main__ import main\nmain(['--index', {str(graded_index)!r}{options}])"
        )
        terminal = Terminal(["-c", program], environment)
        terminals.append(terminal)
        terminal.until(r"128 papers; help lists the commands\n")
        terminal.until(PROMPT)
        return terminal

    yield start
    for terminal in terminals:
        if terminal._code is None:
            os.kill(terminal.pid, signal.SIGKILL)
            terminal.wait()


def history(tmp_path: Path) -> list[str]:
    return (tmp_path / "cache" / "shell-history").read_text().splitlines()


def test_commands_facets_and_ids_are_completed(start):
    terminal = start()
    terminal.type("pap" + TAB)
    terminal.until("paper ")
    terminal.type("s03" + TAB + TAB)
    listed = terminal.until(r"s039 *\n")
    assert re.findall(r"s03\d", listed) == [f"s03{digit}" for digit in range(10)]
    terminal.until(r"qbe> paper s03")
    terminal.type("6\r")
    assert "Two Crops of a Paragraph" in terminal.until(PROMPT)
    terminal.type("facet me" + TAB + "\r")
    assert "for its method:" in " ".join(terminal.until(PROMPT).split())
    terminal.type("explore same-p" + TAB)
    terminal.until("explore same-problem-other-method")
    terminal.type(CTRL_U + "xyz" + TAB + TAB + CTRL_U + "quit\r")
    assert terminal.end() == 0


def test_lines_are_kept_for_the_next_shell_and_pasted_text_is_not(start, tmp_path):
    terminal = start()
    terminal.command("facet method")
    terminal.type("text On fish\r")
    terminal.until(PASTE_PROMPT)
    for line in ("Fish swim in rivers.", "more We watch them.", ""):
        terminal.type(f"{line}\r")
    assert "Papers like “On fish”" in terminal.until(PROMPT)
    terminal.command("We pasted this in the wrong place.")
    terminal.command("facet method")
    terminal.type("quit\r")
    assert terminal.end() == 0
    first = ["facet method", "text On fish", "facet method", "quit"]
    assert history(tmp_path) == first
    assert stat.S_IMODE((tmp_path / "cache" / "shell-history").stat().st_mode) == 0o600
    second = start()
    second.type(UP + UP)
    second.until("facet method")
    second.type("\r")
    assert "Begin with paper ID or text." in second.until(PROMPT)
    second.type("quit\r")
    assert second.end() == 0
    assert history(tmp_path) == [
        "facet method",
        "text On fish",
        "facet method",
        "quit",
        "facet method",
        "quit",
    ]


def test_lines_that_are_pasted_together_are_read_one_by_one(start):
    terminal = start()
    terminal.type("\x1b[200~text On fish\nFish swim in rivers.\nWe watch them.\n\nk 2\x1b[201~\r")
    assert "Papers like “On fish”" in terminal.until(PROMPT)
    terminal.type("\x1b[200~seeds\x1b[201~\r")
    assert re.search(r"k +2\n", terminal.until(r"rerank +on\n"))


def test_ctrl_c_cancels_a_line_and_a_text(start):
    terminal = start()
    terminal.type("paper nosu")
    terminal.until("paper nosu")
    terminal.interrupt()
    terminal.until(PROMPT)
    terminal.type("text\r")
    terminal.until(PASTE_PROMPT)
    terminal.type("Fish swim in rivers.\r")
    terminal.until(PASTE_PROMPT)
    terminal.interrupt()
    terminal.until(PROMPT)
    assert "expected something to show" in terminal.command("show")
    terminal.type("quit\r")
    assert terminal.end() == 0


def test_ctrl_c_cancels_what_is_under_way(start):
    terminal = start(options=", '--rerank', 'cross-encoder'")
    terminal.command("paper s036")
    terminal.command("facet method")
    terminal.type("rerank on\r")
    terminal.until(r"reranking \.\.\.\n")
    terminal.interrupt()
    terminal.until(PROMPT)
    assert "background: " in terminal.command("show 1")
    terminal.type("quit\r")
    assert terminal.end() == 0


def test_ctrl_d_quits_and_ends_a_text(start):
    terminal = start()
    terminal.type("text On fish\r")
    terminal.until(PASTE_PROMPT)
    terminal.type("Fish swim in rivers.\r")
    terminal.until(PASTE_PROMPT)
    terminal.type(CTRL_D)
    assert "Papers like “On fish”" in terminal.until(PROMPT)
    terminal.type(CTRL_D)
    assert terminal.end() == 0


def test_it_works_without_readline(start, tmp_path):
    terminal = start("import sys; sys.modules['readline'] = None")
    assert "Two Crops" in terminal.command("paper s036")
    terminal.type(CTRL_D)
    assert terminal.end() == 0
    assert not (tmp_path / "cache" / "shell-history").exists()


def test_a_history_that_cannot_be_kept_is_no_error(start, tmp_path):
    (tmp_path / "cache").write_text("a file where a folder should be")
    terminal = start()
    assert "  more  the next hits" in terminal.command("help more")
    terminal.type("quit\r")
    assert terminal.end() == 0

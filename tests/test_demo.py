"""``qbe demo``: the sample is indexed once, searched by two facets, and explained."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.processors import INT8_IS_EXACT

from qbe.demo.__main__ import main
from qbe.demo.sample import open_sample_index, sample_papers
from qbe.errors import OutputError
from qbe.index.building.changes import delete_papers
from qbe.search.__main__ import main as search

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
SECONDS = 120.0


def run_demo(cache: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"QBE_CACHE": str(cache), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "qbe.demo"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def kept(tmp_path_factory) -> Path:
    """A cache for all tests of this module."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def first(kept) -> subprocess.CompletedProcess[str]:
    """The first demonstration ever, which builds the index."""
    return run_demo(kept)


@pytest.fixture
def folder(first, kept) -> Path:
    """The index that the first demonstration has left."""
    return kept / "demo" / "sample"


@pytest.fixture
def copied(folder, tmp_path, monkeypatch) -> Path:
    """A cache of its own with a copy of the index, to be damaged; gives the index."""
    monkeypatch.setenv("QBE_CACHE", str(tmp_path))
    return Path(shutil.copytree(folder, tmp_path / "demo" / "sample"))


def content(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of change of all files below a folder."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


def test_it_builds_an_index_and_searches_by_two_facets(first, folder):
    assert first.returncode == 0
    assert first.stderr == f"indexing the sample in {folder} ...\n"
    lines = first.stdout.splitlines()
    assert lines[0] == f"The sample, 128 papers, is indexed in {folder}"
    found = re.findall(r"^ +(\d) .*?\[(s\d+)\]$", first.stdout, re.MULTILINE | re.DOTALL)
    by_method = [("1", "s051"), ("2", "s124"), ("3", "s007")]
    by_background = [("1", "s059"), ("2", "s031"), ("3", "s099")]
    if INT8_IS_EXACT:
        assert found == by_method + by_background
    assert [found[0], *found[3:]] == [by_method[0], *by_background]  # the other two are nearly level
    shared = r"3 papers (\d) share the query's kind of method \(\S+\), (\d) its kind of problem"
    assert re.findall(shared, " ".join(first.stdout.split())) == [("3", "0"), ("0", "3")]


def test_the_commands_shown_print_the_tables_shown(first, capsys):
    parts = re.findall(r"^\$ qbe search (.*)\n((?:.*\n)*?)\nOf these", first.stdout, re.MULTILINE)
    assert len(parts) == 2
    for arguments, table in parts:
        search(arguments.split())
        assert capsys.readouterr().out == table


def test_the_index_is_used_again(first, folder, kept, monkeypatch, capsys):
    before = content(folder)
    monkeypatch.setenv("QBE_CACHE", str(kept))
    main([])
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == (first.stdout, "")
    assert content(folder) == before


def test_a_damaged_index_in_the_cache_is_replaced(copied, monkeypatch):
    whole = (copied / "vectors.npy").read_bytes()
    (copied / "vectors.npy").write_bytes(whole[:-1])
    reported: list[str] = []
    with open_sample_index(reported.append) as index:
        assert len(index) == 128
    assert reported == [f"indexing the sample in {copied} ..."]
    assert (copied / "vectors.npy").read_bytes() == whole
    delete_papers(copied, ["s128"])
    with open_sample_index(lambda _: None) as index:  # nor is one of other papers used
        assert [paper.paper_id for paper in index] == [paper.paper_id for paper in sample_papers()]
    monkeypatch.setenv("QBE_CACHE", str(copied / "vectors.npy"))
    with pytest.raises(OutputError, match=r"^cannot write .*/demo/sample: "):
        open_sample_index(lambda _: None)


def test_without_lucene_and_a_network_it_searches_by_vectors(tmp_path, monkeypatch, capsys):
    for name, value in {"QBE_CACHE": tmp_path, "PIP_NO_INDEX": 1, "PIP_FIND_LINKS": tmp_path}.items():
        monkeypatch.setenv(name, str(value))
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "pyserini", None)
        main([])
        printed = capsys.readouterr()
        lines = printed.err.splitlines()
        assert lines[-1].startswith("the searches below use vectors alone: expected Anserini's jar")
        assert "[s051]" in printed.out
        main([])
        assert capsys.readouterr() == (printed.out, "")
    reported: list[str] = []
    with open_sample_index(reported.append) as index:
        assert index.manifest.lucene is not None
    assert reported == [f"indexing the sample in {index.folder} ..."]


def test_an_interrupt_leaves_nothing(tmp_path):
    environment = os.environ | {"QBE_CACHE": str(tmp_path)}
    command = [sys.executable, "-m", "qbe.demo"]
    process = subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Where the tests run in a shell's background, the signal is ignored, and that is inherited.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + SECONDS
    while not any(tmp_path.glob("demo/.sample.*/.index.building/papers.jsonl")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, out) == (130, "")
    assert err == f"indexing the sample in {tmp_path / 'demo' / 'sample'} ...\nqbe demo: interrupted\n"
    assert list((tmp_path / "demo").iterdir()) == []


def test_the_first_commands_of_the_readme_are_those_that_run_here():
    """The other one runs in ``test_doctor.py``."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text[text.index("## First five minutes") : text.index("## Three commands")]
    assert re.findall(r"^\$ (.*)$", section, re.MULTILINE) == ["qbe doctor", "qbe demo"]

"""``qbe demo``: the sample is indexed once, searched by two facets, and explained."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.processors import INT8_IS_EXACT
from support.serving import wait_until

from qbe.cli.demo import main, open_sample_index, sample_papers
from qbe.cli.search import main as search
from qbe.errors import OutputError
from qbe.types import Paper

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
SECONDS = 120.0


@pytest.fixture
def folder(graded_index, cache) -> Path:
    """An index of the sample in an empty cache, as a demonstration leaves it."""
    return Path(shutil.copytree(graded_index, cache / "demo" / "sample"))


@pytest.fixture
def demo(capsys):
    """Run the command in this process; gives what it printed."""

    def run() -> tuple[str, str]:
        main([])
        return capsys.readouterr()

    return run


@pytest.fixture
def few(monkeypatch) -> list[Paper]:
    """Papers in the place of the sample; those that the demonstration searches for are among them."""
    few = sample_papers()[30:60]
    monkeypatch.setattr("qbe.cli.demo.sample_papers", lambda: few)
    return few


def content(folder: Path) -> dict[Path, int]:
    """When all files below a folder were changed."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_two_facets_are_searched_by_in_an_index_that_is_there(demo, folder):
    before = content(folder)
    printed, told = demo()
    assert (told, content(folder)) == ("", before)
    assert printed.splitlines()[0] == f"The sample, 128 papers, is indexed in {folder}"
    found = re.findall(r"^ +(\d) .*?\[(s\d+)\]$", printed, re.MULTILINE | re.DOTALL)
    by_method = [("1", "s051"), ("2", "s124"), ("3", "s007")]
    by_background = [("1", "s059"), ("2", "s031"), ("3", "s099")]
    if INT8_IS_EXACT:
        assert found == by_method + by_background
    assert [found[0], *found[3:]] == [by_method[0], *by_background]  # the other two are nearly level
    shared = r"3 papers (\d) share the query's kind of method \(\S+\), (\d) its kind of problem"
    assert re.findall(shared, " ".join(printed.split())) == [("3", "0"), ("0", "3")]


def test_the_commands_shown_print_the_tables_shown(demo, folder, capsys):
    parts = re.findall(r"^\$ qbe search (.*)\n((?:.*\n)*?)\nOf these", demo()[0], re.MULTILINE)
    assert len(parts) == 2
    for arguments, table in parts:
        search(arguments.split())
        assert capsys.readouterr().out == table


def test_a_damaged_index_in_the_cache_and_one_of_other_papers_are_replaced(folder, few, monkeypatch):
    reported: list[str] = []

    def replaced() -> bool:
        del reported[:]
        with open_sample_index(reported.append) as index:
            assert [paper.paper_id for paper in index] == [paper.paper_id for paper in few]
        return reported == [f"indexing the sample in {folder} ..."]

    assert replaced()  # that of the whole sample
    (vectors,) = folder.glob("0*/vectors.npy")
    whole = vectors.read_bytes()
    vectors.write_bytes(whole[:-1])
    assert replaced()
    (vectors,) = folder.glob("0*/vectors.npy")
    assert vectors.read_bytes() == whole
    assert not replaced()
    monkeypatch.setenv("QBE_CACHE", str(vectors))
    with pytest.raises(OutputError, match=r"^cannot write .*/demo/sample: "):
        open_sample_index(lambda _: None)


def test_without_lucene_and_a_network_it_searches_by_vectors(demo, few, cache, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(cache))
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "pyserini", None)
        printed, told = demo()
        lines = told.splitlines()
        assert lines[0] == f"indexing the sample in {cache / 'demo' / 'sample'} ..."
        assert lines[-1].startswith("the searches below use vectors alone: expected Anserini's jar")
        assert "[s051]" in printed
        assert demo() == (printed, "")
    reported: list[str] = []
    with open_sample_index(reported.append) as index:
        assert index.manifest.lucene is not None
    assert reported == [f"indexing the sample in {index.folder} ..."]


def test_an_interrupt_leaves_no_index(tmp_path):
    options: Any = {"text": True, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    options |= {"env": os.environ | {"QBE_CACHE": str(tmp_path)}}
    # Where the tests run in a shell's background, the signal is ignored, and that is inherited.
    options |= {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
    process = subprocess.Popen([sys.executable, "-m", "qbe", "demo"], **options)
    wait_until((tmp_path / "demo/.sample.building/papers.jsonl").exists)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, out) == (130, "")
    assert err == f"indexing the sample in {tmp_path / 'demo' / 'sample'} ...\nqbe demo: interrupted\n"
    assert not (tmp_path / "demo" / "sample").exists()


def test_the_first_commands_of_the_readme_are_those_that_run_here():
    """The other one runs in ``test_doctor.py``."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text[text.index("## Install") : text.index("## Three commands")]
    assert re.findall(r"^\$ (qbe .*)$", section, re.MULTILINE) == ["qbe doctor", "qbe demo"]

"""``qbe demo``: papers of the package are indexed once, searched by two facets, and explained."""

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.serving import wait_until

from qbe.cli.demo import PAPER, main, open_demo_index
from qbe.cli.search import main as search
from qbe.cli.serve import main as serve
from qbe.datasets import arxiv
from qbe.errors import OutputError

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def few(monkeypatch) -> list[str]:
    """The candidates of the demonstration's query in the place of the collection; their ids."""
    ids = {PAPER, *arxiv.grades(PAPER)}
    lines = [line for line in arxiv.corpus().splitlines(keepends=True) if json.loads(line)["paper_id"] in ids]
    monkeypatch.setattr(arxiv, "corpus", lambda: b"".join(lines))
    return [json.loads(line)["paper_id"] for line in lines]


@pytest.fixture(scope="module")
def indexed(tmp_path_factory, with_jar) -> Path:
    """A cache with the index that a demonstration leaves."""
    return with_jar(tmp_path_factory.mktemp("indexed"))


@pytest.fixture
def folder(indexed, few, cache, with_jar, monkeypatch) -> Path:
    with monkeypatch.context() as patch:
        patch.setenv("QBE_CACHE", str(indexed))
        open_demo_index(lambda _: None).close()
    return Path(shutil.copytree(indexed / "demo" / "mini", with_jar(cache) / "demo" / "mini"))


@pytest.fixture
def demo(capsys):
    """Run the command in this process; gives what it printed."""

    def run() -> tuple[str, str]:
        main([])
        return capsys.readouterr()

    return run


def content(folder: Path) -> dict[Path, int]:
    """When all files below a folder were changed."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_two_facets_are_searched_by_in_an_index_that_is_there(demo, folder):
    before = content(folder)
    printed, told = demo()
    assert (told, content(folder)) == ("", before)
    assert printed.splitlines()[0] == f"30 arXiv papers are indexed in {folder}"
    found = re.findall(r"^ +\d .*?\[(\d{4}\.\d{5})\]$", printed, re.MULTILINE | re.DOTALL)
    assert (len(found), found[0]) == (6, "2604.06387")  # evidential deep learning
    judged = re.findall(r"read 3 of these 3 papers: (\d) similar in method, (\d) in problem", printed)
    assert [tuple(map(int, each)) for each in judged] == [(3, 2), (2, 3)]


def test_serve_alone_serves_the_same_and_opens_the_page(folder, tmp_path, monkeypatch, capsys):
    opened: list[str] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("QBE_INDEX", raising=False)
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setattr("qbe.serve.app.server_of", lambda _: SimpleNamespace(run=lambda sockets: None))
    serve(["--port", "0", "--root-path", "/qbe", "--open"])
    (port,) = re.findall(
        rf"^serving {re.escape(str(folder))} \(30 papers\) at .*:(\d+)/$", capsys.readouterr().out
    )
    wait_until(lambda: opened == [f"http://127.0.0.1:{port}/qbe/"])


def test_the_commands_shown_print_the_tables_shown(demo, folder, capsys):
    parts = re.findall(r"^\$ qbe search (.*)\n((?:.*\n)*?)\nAssessors", demo()[0], re.MULTILINE)
    assert len(parts) == 2
    for arguments, table in parts:
        search(arguments.split())
        assert capsys.readouterr().out == table


def test_a_damaged_index_in_the_cache_and_one_of_other_papers_are_replaced(folder, few, monkeypatch):
    reported: list[str] = []

    def replaced() -> bool:
        del reported[:]
        with open_demo_index(reported.append) as index:
            assert [paper.paper_id for paper in index] == few
        return reported == [f"indexing {len(few)} papers in {folder}, once ..."]

    assert not replaced()
    del few[5:]
    lines = arxiv.corpus().splitlines(keepends=True)[:5]
    monkeypatch.setattr(arxiv, "corpus", lambda: b"".join(lines))
    assert replaced()
    vectors = folder / (folder / "CURRENT").read_text().strip() / "vectors.npy"
    whole = vectors.read_bytes()
    vectors.write_bytes(whole[:-1])
    assert replaced()
    vectors = folder / (folder / "CURRENT").read_text().strip() / "vectors.npy"
    assert vectors.read_bytes() == whole
    monkeypatch.setenv("QBE_CACHE", str(vectors))
    with pytest.raises(OutputError, match=r"^cannot write .*/demo/mini: "):
        open_demo_index(lambda _: None)


def test_without_lucene_and_a_network_it_searches_by_vectors(demo, cache, with_jar, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(cache))
    printed, told = demo()
    lines = told.splitlines()
    assert lines[0] == f"indexing 30 papers in {cache / 'demo' / 'mini'}, once ..."
    assert lines[-1].startswith("the searches below use vectors alone: expected Anserini's jar")
    assert "[2604.06387]" in printed
    assert demo() == (printed, "")
    with_jar(cache)
    reported: list[str] = []
    with open_demo_index(reported.append) as index:
        assert index.manifest.lucene is not None
    assert reported == [f"indexing 30 papers in {index.folder}, once ..."]


def test_the_first_commands_of_the_readme_are_those_that_run_here():
    """The other one runs in ``test_doctor.py``."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text[text.index("## Install") : text.index("## Three commands")]
    assert re.findall(r"^\$ (qbe .*)$", section, re.MULTILINE) == ["qbe doctor", "qbe demo"]

"""All tables in one command: what it runs, and that it goes on where it ended."""

import importlib.util
from importlib.metadata import version

import pytest

from benchmarks import run
from qbe.errors import OutputError, UsageError


def test_each_table_of_the_document_has_a_command_that_exists():
    tables = run.documented(run.DOCUMENT.read_text())
    assert {"bm25", "multivector", "cluster-killed"} <= set(tables)
    for *preparations, command in tables.values():
        assert all(map(run.product, preparations))
        assert command.startswith("make ") or importlib.util.find_spec(command.split()[2])
    shown = {command for commands in tables.values() for command in commands}
    assert all(any(command.startswith(begin) for command in shown) for begin in run.PRODUCTS)


@pytest.fixture
def small(tmp_path, monkeypatch):
    """Two tables, of which the first needs a file."""
    monkeypatch.chdir(tmp_path)
    few = ["echo made >> made", "cat made; echo few >> ran"]
    monkeypatch.setattr(run, "PRODUCTS", {few[0]: "made"})
    monkeypatch.setattr(run, "documented", lambda _: {"few": few, "more": ["test -e later"]})
    return tmp_path


def test_a_second_call_goes_on_with_what_is_missing(small, capsys):
    with pytest.raises(OutputError, match="these failed: more"):
        run.main([])
    assert capsys.readouterr().out.startswith(
        "echo made >> made\ncat made; echo few >> ran\ntest -e later\n$ "
    )
    results = small / "runs" / "benchmarks"
    assert (results / "few.txt").read_text() == "$ cat made; echo few >> ran\n\nmade\n"
    assert not (results / "more.txt").exists()
    (small / "later").touch()
    run.main([])
    assert (results / "more.txt").read_text() == "$ test -e later\n\n"
    assert ((small / "ran").read_text(), (small / "made").read_text()) == ("few\n", "made\n")
    capsys.readouterr()
    run.main(["--list"])
    assert capsys.readouterr().out == ""


def test_results_of_another_version_are_left_alone(small):
    run.main(["few"])
    file = small / "runs" / "benchmarks" / run.MADE_BY
    file.write_text(file.read_text().replace(version("qbe"), "0.1"))
    with pytest.raises(OutputError, match=r"found those of qbe 0\.1 with Python"):
        run.main(["few"])


def test_a_name_that_no_table_has_is_refused():
    with pytest.raises(UsageError, match="expected tables of few, more, found bm26"):
        run.chosen({"few": [], "more": []}, ["few", "bm26"])

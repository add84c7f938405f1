"""All tables of the benchmarks in one command: what it runs, and that it continues."""

import importlib.util

import pytest

from benchmarks import run
from qbe.errors import OutputError, UsageError


def test_each_table_of_the_document_has_a_command_that_exists():
    tables = run.documented(run.DOCUMENT.read_text())
    assert {"bm25", "multivector", "cluster"} <= set(tables)
    for *_, command in tables.values():
        assert command.startswith("make ") or importlib.util.find_spec(command.split()[2])
    shown = {command for commands in tables.values() for command in commands}
    assert shown >= run.PRODUCTS.keys()


def test_a_second_call_makes_what_is_missing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    few = ["echo made >> made", "cat made; echo few >> ran"]
    monkeypatch.setattr(run, "PRODUCTS", {few[0]: "made"})
    monkeypatch.setattr(run, "documented", lambda _: {"few": few, "more": ["test -e later"]})
    with pytest.raises(OutputError, match="these failed: more"):
        run.main([])
    output = capsys.readouterr().out
    assert output.startswith("echo made >> made\ncat made; echo few >> ran\ntest -e later\n$ ")
    results = tmp_path / "runs" / "benchmarks"
    assert (results / "few.txt").read_text().splitlines()[::3] == ["$ cat made; echo few >> ran", "made"]
    assert not (results / "more.txt").exists()
    (tmp_path / "later").touch()
    run.main([])
    assert (results / "more.txt").exists()
    assert ((tmp_path / "ran").read_text(), (tmp_path / "made").read_text()) == ("few\n", "made\n")
    capsys.readouterr()
    run.main(["--list"])
    assert capsys.readouterr().out == ""
    with pytest.raises(UsageError, match="expected tables of few, more, found bm26"):
        run.main(["few", "bm26"])

"""docs/papers.md: each row of its tables has a command that qbe takes, or says why there is none."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from qbe import UsageError, open_index
from qbe.__main__ import COMMANDS
from qbe.cli.index import main as build
from qbe.cli.parser import parser_of
from qbe.cli.search import main as search
from qbe.search.stages import parse_first_stage, parse_reranker

TEXT = (Path(__file__).parent.parent / "docs" / "papers.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line[1:-1].split(" | ")]
    for line in TEXT.splitlines()
    if line.startswith("| ") and not line.startswith("| what |")
]
COMMAND_LINES = sorted({text for row in ROWS for text in re.findall(r"`(qbe [^`]+)`", row[2])})


def test_every_row_has_a_command_or_says_why_there_is_none():
    for row in ROWS:
        assert len(row) == 4, row
        what, _, command, standing = row
        assert what, row
        assert standing, row
        assert command.startswith("`") or standing.startswith("not run: "), row


@pytest.mark.parametrize("line", COMMAND_LINES)
def test_each_command_is_taken(line):
    for part in line.replace("\\|", "|").split(" && "):
        _, command, *arguments = shlex.split(part)
        assert command in COMMANDS
        if len(arguments) < 3:  # the card's, which take what they find: tested below
            continue
        options = parser_of(command).parse_args(arguments)
        if command == "search":
            parse_first_stage(options.first_stage or "fused")
            parse_reranker(options.rerank or "none")


# The commands of the design, as written, in a folder with the layout that `make reproduce` leaves


@pytest.fixture
def layout(tmp_path, monkeypatch, sample, tiny_index):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("QBE_INDEX", raising=False)
    for folder in ("indexes", "qrels"):
        Path(folder).mkdir()
    shutil.copy(sample / "topics.tsv", "qrels/topics.tsv")
    Path("indexes/README.md").touch()
    Path("indexes/sample").symlink_to(tiny_index, target_is_directory=True)


def test_a_search_takes_the_one_index_and_the_topics(layout, tiny_index, monkeypatch, capsys):
    search(["--facet", "background", "--rerank", "none", "--output", "short.trec"])
    told = capsys.readouterr().err.splitlines()[0]
    assert told == "qbe search: taken, since none is given: --index indexes/sample --topics qrels/topics.tsv"
    whole = ["--index", str(tiny_index), "--topics", "qrels/topics.tsv", "--rerank", "none"]
    search([*whole, "--facet", "background", "--output", "whole.trec"])
    assert Path("short.trec").read_bytes() == Path("whole.trec").read_bytes()
    assert "taken" not in capsys.readouterr().err
    search(["--paper", "s036", "--hits", "1", "--rerank", "none", "--format", "trec"])
    assert capsys.readouterr().err.startswith(
        "qbe search: taken, since none is given: --index indexes/sample\n"
    )
    Path("indexes/other").symlink_to(tiny_index, target_is_directory=True)
    with pytest.raises(UsageError, match="several under indexes: indexes/other, indexes/sample; give one"):
        search(["--facet", "background"])
    monkeypatch.setenv("QBE_INDEX", "indexes/other")
    search(["--paper", "s036", "--hits", "1", "--rerank", "none", "--format", "trec"])
    assert "--index indexes/other" in capsys.readouterr().err


def test_a_search_that_finds_nothing_to_take_says_what_is_required(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("QBE_INDEX", raising=False)
    with pytest.raises(SystemExit) as ended:
        search(["--facet", "background"])
    assert (ended.value.code, "required: --index" in capsys.readouterr().err) == (2, True)


def test_an_index_is_built_of_the_corpus_in_qrels_or_of_the_package(layout, capsys):
    Path("qrels/corpus.jsonl").write_text('{"paper_id": "a", "title": "Ice", "abstract": "Ice is cold."}\n')
    build(["--only", "bm25"])
    told = capsys.readouterr().err.splitlines()[0]
    assert told == (
        "qbe index: taken, since none is given: --corpus qrels/corpus.jsonl --output indexes/corpus"
    )
    with open_index("indexes/corpus") as index:
        assert [paper.title for paper in index] == ["Ice"]
    Path("qrels/corpus.jsonl").unlink()
    build(["--only", "bm25", "--limit", "3"])
    assert capsys.readouterr().err.splitlines()[0].endswith("papers.jsonl.xz --output indexes/mini")
    with open_index("indexes/mini") as index:
        assert len(index) == 3

"""A file that exists is replaced only where that was asked for."""

import json
import os
import re
from pathlib import Path

import pytest

from qbe import UsageError, models
from qbe.cli.tag import main as tag_main
from qbe.errors import OutputError
from qbe.models.cards import check_model_folder
from qbe.search.writers import export_parts
from qbe.types import Paper, Sentence
from qbe.util.files import check_output

PAPER = '{"paper_id": "p7", "title": "On fish", "abstract": "Fish swim."}\n'
LABELLED = '{"paper_id": "p7", "title": "T", "abstract": ["Fish swim."], "pred_labels": ["method_label"]}\n'


def test_a_file_is_replaced_where_that_was_asked_for_alone(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").touch()
    for path in (tmp_path / "absent", tmp_path / "empty", tmp_path / "pipe", "/dev/null"):
        check_output(path, overwrite=False)
    (tmp_path / "papers.jsonl").write_text(PAPER)
    (tmp_path / "link").symlink_to("papers.jsonl")
    for name in ("papers.jsonl", "link"):
        with pytest.raises(OutputError, match="no such file, found one; choose another `save`, or give"):
            check_output(tmp_path / name, False, "save")
        check_output(tmp_path / name, overwrite=True)
    for overwrite in (False, True):
        with pytest.raises(OutputError, match="expected a file to write, found a folder"):
            check_output(tmp_path, overwrite)


@pytest.mark.parametrize("source", [["--paper", "s001"], ["--topics", "topics.tsv"]])
def test_a_search_keeps_a_file_unless_it_may_overwrite_it(search, sample, tmp_path, monkeypatch, source):
    monkeypatch.chdir(tmp_path)
    Path("topics.tsv").write_bytes((sample / "topics.tsv").read_bytes())
    Path("papers.jsonl").write_text(PAPER)
    line = [*source, "--first-stage", "dense", "--rerank", "none", "--format", "trec", "--output"]
    for name in ("papers.jsonl", "topics.tsv"):
        before = Path(name).read_bytes()
        with pytest.raises(OutputError, match="expected no such file, found one; choose another"):
            search(*line, name)
        assert Path(name).read_bytes() == before
    search(*line, "new")
    search(*line, "papers.jsonl", "--overwrite")
    assert Path("papers.jsonl").read_bytes() == Path("new").read_bytes()


def test_tagging_keeps_a_corpus_with_and_without_labels(tmp_path, tiny_tagger):
    papers, other = tmp_path / "papers.jsonl", tmp_path / "other.jsonl"
    papers.write_text(PAPER)
    options = ["--input", str(papers), "--tagger", str(tiny_tagger), "--output"]
    for text in (PAPER, LABELLED):
        other.write_text(text)
        with pytest.raises(OutputError, match="expected no such file, found one"):
            tag_main([*options, str(other)])
        assert other.read_text() == text
    tag_main([*options, str(other), "--overwrite"])
    tag_main([*options, str(tmp_path / "tagged.jsonl")])
    assert json.loads((tmp_path / "tagged.jsonl").read_text())["abstract"] == ["Fish swim."]


def test_tagging_does_not_write_into_its_input(tmp_path, tiny_tagger):
    papers = tmp_path / "papers.jsonl"
    papers.write_text(LABELLED)
    (tmp_path / "same.jsonl").symlink_to("papers.jsonl")
    for output in (papers, tmp_path / "same.jsonl"):
        with pytest.raises(UsageError, match=r"`output` other than the `input`, found .* as both"):
            tag_main(["--input", str(papers), "--output", str(output), "--tagger", str(tiny_tagger)])
    assert papers.read_text() == LABELLED


def test_an_evaluation_keeps_a_run(tmp_path, monkeypatch):
    from qbe.cli.evaluate import main

    monkeypatch.chdir(tmp_path)
    Path("a.qrels").write_text("1 0 a 1\n")
    Path("a.trec").write_text("1 Q0 a 1 1 a\n")
    line = ["--qrels", "a.qrels", "--run", "a.trec", "--output"]
    with pytest.raises(OutputError, match="expected no such file, found one"):
        main([*line, "a.trec"])
    for more in ([], ["--overwrite"]):
        main([*line, "report.json", *more])
    assert json.loads(Path("report.json").read_text())["rows"][0]["run"] == "a"


def test_a_model_replaces_a_model_and_no_other_folder(tmp_path, tiny_encoder):
    folder = tmp_path / "model"
    check_model_folder(folder)
    (folder / "fp32").mkdir(parents=True)
    check_model_folder(folder)
    for file in tiny_encoder.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    (folder / "README.md").write_text("its card")
    check_model_folder(folder)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").touch()
    with pytest.raises(OutputError, match=r"a model to replace, found notes\.txt in it; choose another"):
        check_model_folder(tmp_path / "mine")


def test_every_model_that_ships_may_be_replaced():
    folders = [path for path in Path(models.__path__[0]).iterdir() if (path / "README.md").exists()]
    assert len(folders) > 10
    for folder in folders:
        check_model_folder(folder)


def test_what_strangers_write_is_escaped_in_markdown():
    about = {
        "authors": ["<img src=x onerror=alert(1)>", "![x](http://127.0.0.1/seen.png)", "[Ann](http://evil)"],
        "venue": "<script>alert(2)</script>",
        "year": "2020",
    }
    title = "On $<img src=x>$ and $![x](http://evil)$ and $a<b$"
    (text,) = export_parts([Paper("a<b>c", title, (Sentence("We count."),), metadata=about)], "markdown")
    assert not re.search(r"(?<!\\)<(?=[a-z/])(?!b\$)|(?<!\\)\]\(", text), text
    assert "< img src=x>" in text and "a<b" in text.replace("< b", "<b")

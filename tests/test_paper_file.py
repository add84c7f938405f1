"""The paper of a file given as a query: JSON, an entry of a bibliography, text; other kinds are named."""

import io
import json
import sys

import pytest

from qbe.cli.search import main
from qbe.corpus.sentences import title_and_abstract
from qbe.errors import CorpusError, QbeError, UsageError
from qbe.search.paper_file import paper_from_bytes, paper_from_file, pasted_paper

TITLE, ABSTRACT = "On stone", "Stone is hard. We cut it."
RECORD = {"title": TITLE, "abstract": ABSTRACT}

BIB = "@article{Lee2019, title = {On stone}, abstract = {Stone is hard. We cut it.}}\n"
RIS = "TY  - JOUR\nTI  - On stone\nAB  - Stone is hard. We cut it.\nER  - \n"
TEXT = "On stone\n\nStone is hard.\nWe cut it.\n"

FILES = {
    "a.json": json.dumps(RECORD, indent=1),
    "a.jsonl": json.dumps({"paper_id": "7", **RECORD}),
    "csl.json": json.dumps([{"id": "7", "type": "article-journal", **RECORD}]),
    "a.bib": BIB,
    "a.ris": RIS,
    "endnote.txt": RIS,
    "a.csv": "Title,Abstract\nOn stone,Stone is hard. We cut it.\n",
    "a.txt": TEXT,
    "a.md": f"# {TEXT}",
    "labelled.txt": "Title: On stone\nAuthors: Ann Lee\nAbstract: Stone is hard. We cut it.\n",
    "heading.txt": "On stone\nAnn Lee\n\nABSTRACT\n\nStone is hard. We cut it.\n",
    "windows.txt": "On stone\r\n\r\nAnn Lee\r\n\r\nAbstract\r\n\r\nStone is hard. We cut it.\r\n",
}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("name", FILES)
def test_a_paper_of_any_kind(tmp_path, monkeypatch, name, encoding):
    data = FILES[name].encode(encoding)
    (tmp_path / name).write_bytes(data)
    papers = [paper_from_file(str(tmp_path / name))]
    if name != "a.csv":  # which is told by its name
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(data))))
        papers.append(paper_from_file("-"))
    for paper in papers:
        assert (paper.title, [each.text for each in paper.sentences]) == (
            TITLE,
            ["Stone is hard.", "We cut it."],
        )


OTHERS = [
    ("a", b"%PDF-1.7"),
    ("a.docx", b"PK\3\4"),
    ("a.txt", b"{\\rtf1"),
    ("a.tex", b"We cut stone."),
    ("a.txt", b"% draft\n\\documentclass{article}"),
    ("a", b"<!DOCTYPE html><title>A</title>"),
    ("a.bib", BIB.encode() * 2),
    ("a.ris", RIS.encode() * 3),
    ("a.jsonl", f"{FILES['a.jsonl']}\n".encode() * 2),
    ("a.bib", b"% none"),
    ("a.json", b'{"title": "On stone"}'),
    ("a.json", b'{"title": "On stone", "abstract": "A.",}'),
    ("a.bib", b"@article{x, title = {On stone}}"),
    ("a.txt", b" \n"),
    ("a.txt", b"\xac\xed\0\5\1"),
    ("a.txt", b"Stone is hard to cut with a knife of\nMilan and of other towns of the north\nof Italy."),
]


def test_other_files_are_refused_with_what_to_do(tmp_path, told):
    messages = []
    for name, data in OTHERS:
        (tmp_path / name).write_bytes(data)
        with pytest.raises((UsageError, CorpusError)) as raised:
            paper_from_file(str(tmp_path / name))
        messages.append(f"{raised.type.__name__}: {raised.value}".replace(f"{tmp_path}/", ""))
    told("files of a paper", messages)
    with pytest.raises(UsageError, match="found a Word document"):
        paper_from_bytes(b"PK\3\4\0\0", "a.docx")


UNTITLED = [
    "Stone is hard. We cut it.",
    "Stone is hard to cut, and\nwe cut it.",
    "Stone is hard. We cut\nStone.",
    "Stone is hard.\n\nWe cut it.",
    "Stone is hard, and we know it from its\nabstract. We cut it at an\nabstract-level.",
]
TITLED = {
    "Is stone hard?\nStone is hard. We cut it with a knife.": "Is stone hard?",
    "Abstract: Stone is hard.": "",
    "title: On stone\nStone is hard.": "On stone",
    "Title:\nOn stone\n\nStone is hard.": "On stone",
    "On stone\nAnn Lee\n\nAbstract\u2014Stone is hard.": "On stone",
    "Abstract painting of the north\n\nStone is hard.": "Abstract painting of the north",
}


def test_titles_of_texts():
    assert [title_and_abstract(text, "a.txt") for text in UNTITLED] == [("", text) for text in UNTITLED]
    for text, title in TITLED.items():
        abstract = "Stone is hard. We cut it with a knife." if "knife" in text else "Stone is hard."
        assert title_and_abstract(text, "a.txt") == (title, abstract)


def test_a_pasted_text_may_begin_with_its_title_but_one_that_is_given_counts():
    for text in (TEXT, FILES["labelled.txt"], FILES["windows.txt"], f"Title: {TITLE}\n{ABSTRACT}"):
        assert (pasted_paper(text, "").title, pasted_paper(text, "").abstract) == (TITLE, ABSTRACT)
    for text, abstract in ((FILES["labelled.txt"], ABSTRACT), (f"Abstract: {ABSTRACT}", ABSTRACT)):
        assert (pasted_paper(text, "Mine").title, pasted_paper(text, "Mine").abstract) == ("Mine", abstract)
    assert pasted_paper(TEXT, "Mine").abstract.startswith(TITLE)  # nothing is dropped
    wrapped = OTHERS[-1][1].decode()
    for text in (wrapped, f"Title: {TITLE}"):
        assert (pasted_paper(text, "").title, pasted_paper(text, "").abstract) == ("", " ".join(text.split()))


def test_the_name_of_a_file_is_no_abstract_and_other_texts_are(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes").touch()
    with pytest.raises(UsageError, match=r"found the name of a file, notes; give --paper-file notes$"):
        main(["--index", "nosuch", "--text", "notes"])
    for other in ("notes on stone.txt", "BERT", "We use Node.js and libpng.txt files."):
        with pytest.raises(QbeError, match="nosuch"):
            main(["--index", "nosuch", "--text", other])


def test_a_text_that_is_far_too_long_is_told(tiny_index, capsys):
    for words, told in ((1_000, ""), (3_000, "the query has 23,999 characters, all of which are read: ")):
        main(["--index", str(tiny_index), "--text", "A fish. " * words, "--first-stage=bm25", "--hits=1"])
        said = capsys.readouterr().err
        assert told in said
        assert ("characters" in said) == bool(told)

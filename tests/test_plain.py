"""What people see of papers and names of files does nothing to where it is shown."""

import csv
import io
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from qbe import Hit, Paper, QbeError, Query, Sentence, UsageError
from qbe.cli import common as _cli
from qbe.cli.index import main
from qbe.cli.parser import Parser
from qbe.search.writers import Result, export_parts, open_writer, to_csv
from qbe.util.text import one_line, plain

HARMFUL = "\x1b]0;PWN\x07\x1b[2J\x9b31m\x08\r\n\t\x85\u2028\u2029\u202e\u2066\u200f\x00"
SIGNS = set(HARMFUL) - {"\n", *"]0;PWN[2J31m"}
FORMULA = "=HYPERLINK(A1)"
METADATA = {"authors": [f"Ann {HARMFUL} Lee", "Bo Ek"], "venue": f"Fish {HARMFUL} Letters"}
METADATA |= {"year": f"20{HARMFUL}19", "doi": f"10.1234/{HARMFUL}", "url": f"https://example.org/{HARMFUL}"}
SENTENCES = (Sentence(f"Fish {HARMFUL} swim."), Sentence("We count them."))
PAPER = Paper("p1", f"On fish {HARMFUL} and stone", SENTENCES, metadata=METADATA)


@pytest.mark.parametrize("sign", sorted({*map(chr, (*range(32), *range(127, 160))), *SIGNS}))
def test_no_such_sign_is_left(sign):
    assert plain(f"a{sign}b") in ("a b", "ab")
    assert one_line(f"a {sign} b") == "a b"


@pytest.mark.parametrize(
    "text", ["Übermäßig", "鱼 在 游泳", "مرحبا", "a\u200db 👩\u200d🔬", "naïve  double", "x\u00a0y"]
)
def test_other_texts_stay(text):
    assert plain(text) == text


@pytest.mark.parametrize("form", ["table", "csv", "markdown", "bibtex", "ris"])
def test_results_are_harmless(form):
    result = Result("q", Query(PAPER), [Hit("p1", 1.5)])
    text = open_writer(form, "tag", lambda _: PAPER, 80, explain=False)(result, True)
    assert not SIGNS & set(text)


def test_records_for_shell_and_page_are_harmless_and_json():
    record = json.loads("".join(export_parts([PAPER], "json")))
    texts = [record["year"], record["venue"], *record["authors"], *record["links"].values()]
    assert not SIGNS & set("".join(texts))
    from qbe.search.writers import as_json

    for value in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="JSON"):
            as_json({"score": value})


QUOTED = ("=1+1", "+1", "-0.35", "@SUM(A1)", "\u00a0=1", "\uff1d1")
CELLS = [(cell, f"'{cell}") for cell in QUOTED] + [(cell, "' =1") for cell in ("\t=1", "\r=1", " =1")]
CELLS += [("On = fish", "On = fish"), ("", ""), (-0.35, "-0.35"), (7, "7"), (None, "")]


@pytest.mark.parametrize(("cell", "written"), CELLS)
def test_a_text_is_no_formula_and_a_number_stays_one(cell, written):
    ((read, after),) = csv.reader(io.StringIO(to_csv([[cell, "x"]]), newline=""))
    assert (read, after) == (written, "x")


def test_files_of_csv_have_no_formulas():
    paper = Paper("=id", FORMULA, (Sentence("@SUM(A1) swims."),), metadata={"authors": ["+1"], "venue": "-1"})
    result = Result("=q", Query(paper), [Hit("=id", -0.5)])
    text = open_writer("csv", "tag", lambda _: paper, 80, explain=False)(result, True)
    for row in (
        *csv.reader(io.StringIO(text)),
        *csv.reader(io.StringIO("".join(export_parts([paper], "csv")))),
    ):
        assert not [cell for cell in row if cell[:1] in "=+-@" and cell and cell != "-0.5"]


SCRIPTS = ("javascript:alert(1)", "JaVaScRiPt:alert(1)", " javascript:alert(1)", "java\tscript:alert(1)")
ADDRESSES: tuple[Any, ...] = (
    *SCRIPTS,
    "//evil.example/x",
    "data:text/html,<script>alert(1)</script>",
    "=1+1",
    "x",
    7,
)
ADDRESSES += ('https://x/" onclick="alert(1)', "file:///etc/passwd", "http://a b", "http://a\u202eb")


@pytest.mark.parametrize("address", ADDRESSES)
def test_only_addresses_of_the_web_become_links(address):
    metadata = {"url": address, "doi": '10.1234/5" onclick="alert(1)', "ids": {"arxiv": address}}
    paper = Paper("p1", "On fish", (Sentence("Fish swim."),), metadata=metadata)
    record = json.loads("".join(export_parts([paper], "json")))
    assert all(
        link.startswith(("https://doi.org/", "https://arxiv.org/")) for link in record["links"].values()
    )
    assert not any(sign in link for link in record["links"].values() for sign in '"<> \t')
    result = Result("q", Query(paper), [Hit("p1", 1.0)])
    text = open_writer("markdown", "tag", lambda _: paper, 80, explain=False)(result, True)
    assert "](http" not in text.replace("](https://doi.org/", "").replace("](https://arxiv.org/", "")
    assert "script:" not in text.lower()


def test_errors_and_logs_are_harmless(capsys, monkeypatch):
    def fails(_: list[str]) -> None:
        logging.getLogger("qbe.anything").warning("%s: left out", f"a{HARMFUL}.bib")
        raise QbeError(f"{HARMFUL}.jsonl, line 1: expected JSON")

    monkeypatch.setattr(logging.getLogger("qbe"), "handlers", [])
    with pytest.raises(SystemExit):
        _cli.run("qbe test", fails, arguments=[])
    said = capsys.readouterr().err
    assert not SIGNS & set(said)
    assert said.count("\n") == 2
    with pytest.raises(SystemExit):
        Parser("qbe test", "Test.").parse_args([f"--{HARMFUL}"])
    assert not SIGNS & set(capsys.readouterr().err)
    assert one_line(UsageError("expected\n `k`")) == "expected `k`"


def test_names_of_files_of_a_folder_are_harmless(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("n").mkdir()
    Path("n", "a\x1b]0;PWN\x07\x1b[2J\u202e.jsonl").write_text("not json\n")
    with pytest.raises(SystemExit) as end:
        _cli.run("qbe index", main, ["--corpus", "n", "--format", "jsonl", "--output", "i"])
    assert end.value.code == 1
    said = capsys.readouterr()
    assert "PWN" in said.err
    assert not SIGNS & set(said.err + said.out)

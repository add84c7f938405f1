"""Works of Crossref."""

import json
import time
from typing import Any

import pytest
from support.formats import FORMATS, buffered

from qbe.corpus import crossref
from qbe.corpus.head import HEAD_BYTES, Head
from qbe.corpus.reading import Entry, Reading

WORK = {"DOI": "10.5555/7", "title": ["On fish"]}
ODD_DOI = "10.5555/(sici)1097-0258(2021)40:1<16::aid-net9>3.0.co;2-2"


def read(data: bytes, reading: Reading | None = None) -> list[Entry]:
    return list(crossref.read(buffered(data), "garbage", reading or Reading()))


def only(work: dict[str, Any]) -> Any:
    [entry] = read(json.dumps(work).encode())
    return entry.record


@pytest.mark.parametrize("indent", [None, 2])
def test_an_answer_with_one_work(indent: int | None) -> None:
    lines = (FORMATS / "crossref.jsonl").read_bytes().splitlines()
    answer = {"status": "ok", "message-type": "work", "message": json.loads(lines[0])}
    data = json.dumps(answer, indent=indent).encode()
    assert crossref.recognizes(Head("answer.json", data))
    assert [entry.record for entry in read(data)] == [read(lines[0])[0].record]


def test_answers_behind_each_other() -> None:
    data = (FORMATS / "crossref-answer.json").read_bytes() * 2
    assert [entry.where for entry in read(data)] == [f"garbage, item {n}" for n in (1, 2, 3, 4)]


def test_works_of_other_subjects_are_left_out() -> None:
    entries = read((FORMATS / "crossref.jsonl").read_bytes(), Reading(categories=("Aquatic*",)))
    assert [entry.record["paper_id"] for entry in entries[:-1]] == [ODD_DOI]


def test_a_list_that_is_cut_is_recognized() -> None:
    data = json.dumps({"items": [WORK] * 5000}).encode()
    assert crossref.recognizes(Head("0.json.gz", data[:HEAD_BYTES]))
    assert len(read(data)) == 5000


@pytest.mark.parametrize(
    ("jats", "text"),
    [
        ("<jats:title>Abstract</jats:title><jats:p>Fish swim.</jats:p>", "Fish swim."),
        ("<jats:p>Fish swim.</jats:p>", "Fish swim."),
        ("Abstract Background: fish swim.", "Background: fish swim."),
        ("<jats:title>Methods:</jats:title> <jats:p>We count.</jats:p>", "Methods: We count."),
        ("<jats:title> </jats:title><jats:p>We count.</jats:p>", "We count."),
        (
            "Of <jats:tex-math>$n$</jats:tex-math> <mml:math><mml:mi>n</mml:mi></mml:math> fish",
            "Of $n$ fish",
        ),
        ("<jats:p>Of <mml:math><mml:mi>n</mml:mi></mml:math> fish</jats:p>", "Of n fish"),
        ("<jats:title>Abstract</jats:title>", None),
    ],
)
def test_abstracts_are_texts(jats: str, text: str | None) -> None:
    assert only(WORK | {"abstract": jats})["abstract"] == text


@pytest.mark.parametrize(
    ("change", "field", "value"),
    [
        ({"title": ["<scp>DNA</scp> of fish"]}, "title", "DNA of fish"),
        ({"title": ["Fish"], "subtitle": ["A study"]}, "title", "Fish: A study"),
        ({"title": ["Fish:"], "subtitle": [": A study"]}, "title", "Fish: A study"),
        ({"title": ["Fish: a study"], "subtitle": ["A Study"]}, "title", "Fish: a study"),
        ({"title": ["", "Fish"]}, "title", "Fish"),
        ({"title": [], "subtitle": ["A study"]}, "title", "A study"),
        ({"title": ["Fish\n                    <i>sp.</i>\n  swim"]}, "title", "Fish sp. swim"),
        ({"title": ["&lt;i&gt;Fish&lt;/i&gt; &amp;amp; chips"]}, "title", "Fish & chips"),
        ({"DOI": None}, "paper_id", None),
        ({"abstract": "<jats:p>&lt;p&gt;Fish swim.&lt;/p&gt;</jats:p>"}, "abstract", "Fish swim."),
    ],
)
def test_works_as_publishers_deposit_them(change: dict[str, Any], field: str, value: str | None) -> None:
    assert only(WORK | change)[field] == value


@pytest.mark.parametrize("part", ["<jats:title>", "</tex-math><mml:math", "<jats:title> ", "</mml:math>"])
def test_long_abstracts_without_sense_take_little_time(part: str) -> None:
    begin = time.process_time()
    only(WORK | {"abstract": part * 100_000})
    assert time.process_time() - begin < 5

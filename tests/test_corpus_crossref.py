"""Works of Crossref."""

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from support.formats import FORMATS, buffered, check_reading, damaged, mistyped, random_bytes

from qbe.corpus import crossref
from qbe.corpus.head import HEAD_BYTES, Head
from qbe.corpus.reading import Entry, Reading
from qbe.corpus.record import parse_paper
from qbe.errors import RecordError
from qbe.text.split import split_sentences
from qbe.types import Paper, Sentence

SAMPLES = ["crossref.jsonl", "crossref-items.json", "crossref-answer.json"]
CONTENTS = [(FORMATS / name).read_bytes() for name in SAMPLES]
WORK = {"DOI": "10.5555/7", "title": ["On fish"]}
ODD_DOI = "10.5555/(sici)1097-0258(2021)40:1<16::aid-net9>3.0.co;2-2"


def read(data: bytes, reading: Reading | None = None) -> list[Entry]:
    return list(crossref.read(buffered(data), "garbage", reading or Reading()))


def only(work: dict[str, Any]) -> Any:
    [entry] = read(json.dumps(work).encode())
    return entry.record


def test_a_work_of_json_lines() -> None:
    with (FORMATS / "crossref.jsonl").open("rb") as stream:
        where, record = next(crossref.read(stream, "crossref.jsonl", Reading()))
    assert where == "crossref.jsonl, line 1"
    assert parse_paper(record, where, split_sentences) == Paper(
        paper_id=ODD_DOI,
        title="Counting cod in the Øresund & beyond",
        sentences=(
            Sentence("Background: Counting cod is slow & costly."),
            Sentence("Methods: We take $n^{2}$ nets, p < 0.05."),
        ),
        labelled=False,
        metadata={
            "authors": ["Åsa Sjöström Jr.", "José Núñez", "The Cod Group", "Müller"],
            "year": 2021,
            "date": "2021-04",
            "venue": "Journal of Nets & Lines",
            "categories": ["Aquatic Science", "Statistics and Probability"],
            "doi": ODD_DOI,
            "url": "http://dx.doi.org/10.5555/(sici)1097-0258(2021)40:1%3C16::aid-net9%3E3.0.co;2-2",
            "cites": ["10.5555/herring.1987", "10.5555/eels"],
        },
        offsets=((0, 42), (43, 83)),
    )


def test_a_work_without_an_abstract() -> None:
    assert read((FORMATS / "crossref.jsonl").read_bytes())[1].record == {
        "paper_id": "10.5555/herring.1987",
        "title": "Herring",
        "abstract": None,
        "metadata": {
            "year": 1987,
            "doi": "10.5555/herring.1987",
            "url": "http://dx.doi.org/10.5555/herring.1987",
        },
    }


def test_a_work_without_title_is_no_fault() -> None:
    error = read((FORMATS / "crossref.jsonl").read_bytes())[2].record
    assert isinstance(error, RecordError) and (error.reason, error.is_fault) == ("no title", False)


@pytest.mark.parametrize(
    ("sample", "rows"), [("crossref-items.json", (0, 1)), ("crossref-answer.json", (1, 2))]
)
def test_lists_have_the_same_works(sample: str, rows: tuple[int, int]) -> None:
    lines = read((FORMATS / "crossref.jsonl").read_bytes())
    entries = read((FORMATS / sample).read_bytes())
    for entry, row in zip(entries, rows, strict=True):
        expected = lines[row].record
        same = isinstance(entry.record, RecordError) and isinstance(expected, RecordError)
        assert same or entry.record == expected
    assert [entry.where for entry in entries] == ["garbage, item 1", "garbage, item 2"]


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


def test_an_array_of_works() -> None:
    data = json.dumps([WORK, WORK | {"DOI": "10.5555/8"}]).encode()
    assert crossref.recognizes(Head("works.json", data))
    assert [entry.record["paper_id"] for entry in read(data)] == ["10.5555/7", "10.5555/8"]


def test_works_of_other_subjects_are_left_out() -> None:
    entries = read((FORMATS / "crossref.jsonl").read_bytes(), Reading(categories=("Aquatic*",)))
    assert [entry.record["paper_id"] for entry in entries[:-1]] == [ODD_DOI]


@pytest.mark.parametrize("sample", SAMPLES)
def test_samples_are_recognized(sample: str) -> None:
    assert crossref.recognizes(Head(sample, (FORMATS / sample).read_bytes()))


def test_a_list_that_is_cut_is_recognized() -> None:
    data = json.dumps({"items": [WORK] * 5000}).encode()
    assert crossref.recognizes(Head("0.json.gz", data[:HEAD_BYTES]))
    assert len(read(data)) == 5000


@pytest.mark.parametrize(
    "data",
    [
        b'{"paper_id": "1", "title": "A", "abstract": "B."}',
        b'{"paper_id": "1", "title": "A", "abstract": "B.", "metadata": {"DOI": "10.1/2", "title": ["A"]}}',
        b'[{"id": "a", "DOI": "10.5555/7", "title": "On fish", "container-title": "Nets"}]',
        b'{"id": "https://openalex.org/W7", "doi": "https://doi.org/10.5555/7", "title": "On fish"}',
        b"@article{a, title={On fish}, DOI={10.5555/7}}",
        b"",
    ],
)
def test_other_files_are_not_recognized(data: bytes) -> None:
    assert not crossref.recognizes(Head("papers.json", data))


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
    ("issued", "metadata"),
    [
        ([[2019]], {"year": 2019}),
        ([[2019, 5]], {"year": 2019, "date": "2019-05"}),
        ([[2019, 5, 1], [2020]], {"year": 2019, "date": "2019-05-01"}),
        ([[2019, 13, 1]], {"year": 2019}),
        ([["2019"]], {"year": 2019}),
        ([[None]], {}),
        ([], {}),
        (["x"], {}),
    ],
)
def test_dates_say_what_is_known(issued: list[Any], metadata: dict[str, Any]) -> None:
    assert only(WORK | {"issued": {"date-parts": issued}})["metadata"] == {"doi": "10.5555/7"} | metadata


@pytest.mark.parametrize(
    ("change", "found", "reason"),
    [
        ({"DOI": 7}, "a string as DOI, found int", "not a record of this format"),
        ({"title": "On fish"}, "a list as title, found str", "not a record of this format"),
        ({"author": ["A"]}, "objects as author, found str", "not a record of this format"),
        ({"abstract": ["A"]}, "a string as abstract, found list", "not a record of this format"),
    ],
)
def test_defects_have_errors_that_say_them(change: dict[str, Any], found: str, reason: str) -> None:
    error = only(WORK | change)
    assert str(error) == f"garbage, line 1: expected {found}; mend or remove the record"
    assert error.reason == reason


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


def test_names_keep_family_names_of_several_words() -> None:
    author = [{"given": "José", "family": "Hernández Núñez"}, {"name": "Fish Group"}, {"family": "Plato"}]
    names = ["Hernández Núñez, José", "Fish Group", "Plato"]
    assert only(WORK | {"author": author})["metadata"]["authors"] == names


def test_a_defect_does_not_end_the_reading() -> None:
    first, second = read(json.dumps({"items": [{"DOI": 7}, WORK]}).encode())
    assert isinstance(first.record, RecordError)
    assert (second.where, second.record["paper_id"]) == ("garbage, item 2", "10.5555/7")


@pytest.mark.parametrize("part", ["<jats:title>", "</tex-math><mml:math", "<jats:title> ", "</mml:math>"])
def test_long_abstracts_without_sense_take_little_time(part: str) -> None:
    begin = time.process_time()
    only(WORK | {"abstract": part * 100_000})
    assert time.process_time() - begin < 5


@settings(max_examples=1000, deadline=None)
@given(random_bytes() | damaged(*CONTENTS) | mistyped(*CONTENTS))
def test_garbage_gives_records_or_errors_of_one_line(data: bytes) -> None:
    check_reading(crossref.read, data, "garbage, ")

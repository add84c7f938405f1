"""Works of OpenAlex."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from support.formats import FORMATS, buffered, check_reading, damaged, mistyped, random_bytes

from qbe.corpus import openalex
from qbe.corpus.head import HEAD_BYTES, Head
from qbe.corpus.reading import Entry, Reading
from qbe.corpus.record import parse_paper
from qbe.errors import RecordError
from qbe.text.split import split_sentences
from qbe.types import Paper, Sentence

SAMPLES = ["openalex.jsonl", "openalex-answer.json"]
CONTENTS = [(FORMATS / name).read_bytes() for name in SAMPLES]
WORK = {"id": "https://openalex.org/W7", "title": "On fish"}


def read(data: bytes, reading: Reading | None = None) -> list[Entry]:
    return list(openalex.read(buffered(data), "garbage", reading or Reading()))


def error_of(work: dict[str, Any]) -> RecordError:
    [entry] = read(json.dumps(work).encode())
    assert isinstance(entry.record, RecordError)
    return entry.record


def test_a_work_of_the_snapshot() -> None:
    with (FORMATS / "openalex.jsonl").open("rb") as stream:
        where, record = next(openalex.read(stream, "openalex.jsonl", Reading()))
    assert where == "openalex.jsonl, line 1"
    assert parse_paper(record, where, split_sentences) == Paper(
        paper_id="W4100000001",
        title="Counting Gadus morhua with Müller\u2019s nets & drones",
        sentences=(
            Sentence("Counting fish is slow."),
            Sentence("We count cod with drones, and the drones count 5% more cod than nets do."),
        ),
        labelled=False,
        metadata={
            "authors": ["Åsa Sjöström", "José Núñez"],
            "year": 2021,
            "date": "2021-03-14",
            "venue": "Journal of Nets & Lines",
            "categories": ["Agricultural and Biological Sciences", "Computer Science"],
            "doi": "10.5555/fish.2021.001",
            "url": "https://doi.org/10.5555/fish.2021.001",
            "cites": ["W2100000002", "W2100000003"],
            "ids": {"pmid": "33000001", "pmc": "PMC8000001", "mag": "3100000001"},
        },
        offsets=((0, 22), (23, 95)),
    )


def test_a_work_before_there_were_topics_has_concepts_of_the_highest_level() -> None:
    record = read((FORMATS / "openalex.jsonl").read_bytes())[1].record
    assert record == {
        "paper_id": "W2100000002",
        "title": "An older work on herring",
        "abstract": None,
        "metadata": {
            "year": 1987,
            "date": "1987-01-01",
            "categories": ["Biology"],
            "url": "https://openalex.org/W2100000002",
            "ids": {"mag": "2100000002"},
        },
    }


def test_a_work_without_a_title_is_no_fault() -> None:
    error = read((FORMATS / "openalex.jsonl").read_bytes())[2].record
    assert isinstance(error, RecordError) and (error.reason, error.is_fault) == ("no title", False)


@pytest.mark.parametrize(
    ("change", "metadata"),
    [
        ({"ids": {"doi": "https://doi.org/10.5555/A"}}, {"doi": "10.5555/a"}),
        ({"doi": None, "ids": None}, {}),
        ({"keywords": [{"id": "x", "display_name": "Nets"}, {"display_name": "Nets"}]}, {"tags": ["Nets"]}),
        ({"publication_year": "2019"}, {"year": 2019}),
        ({"publication_year": 2019.0}, {"year": 2019}),
        ({"primary_location": {"source": None}}, {}),
        ({"authorships": [{"author": {"display_name": None}}]}, {}),
        ({"topics": None, "concepts": [{"level": 0, "display_name": "Fish"}]}, {"categories": ["Fish"]}),
    ],
)
def test_works_as_the_api_gives_them(change: dict[str, Any], metadata: dict[str, Any]) -> None:
    [entry] = read(json.dumps(WORK | change).encode())
    assert entry.record["metadata"] == metadata | {"url": "https://openalex.org/W7"}


@pytest.mark.parametrize(
    ("change", "field", "value"),
    [
        ({"title": None, "display_name": "On <i>fish</i>"}, "title", "On fish"),
        ({"abstract": "Fish swim."}, "abstract", "Fish swim."),
        ({"abstract_inverted_index": {}}, "abstract", None),
        ({"abstract_inverted_index": {"swim.": [1], "Fish": [0]}}, "abstract", "Fish swim."),
    ],
)
def test_titles_and_abstracts(change: dict[str, Any], field: str, value: str | None) -> None:
    [entry] = read(json.dumps(WORK | change).encode())
    assert entry.record[field] == value


def test_an_answer_has_the_works_of_its_results() -> None:
    lines = read((FORMATS / "openalex.jsonl").read_bytes())
    answer = read((FORMATS / "openalex-answer.json").read_bytes())
    assert answer[0].record == lines[1].record
    assert isinstance(answer[1].record, RecordError)
    assert [entry.where for entry in answer] == ["garbage, item 1", "garbage, item 2"]


def test_works_of_other_fields_are_left_out() -> None:
    data = (FORMATS / "openalex.jsonl").read_bytes()
    entries = read(data, Reading(categories=("Computer *",)))
    assert entries[0].record["paper_id"] == "W4100000001"
    assert all(isinstance(entry.record, RecordError) for entry in entries[1:])


@pytest.mark.parametrize("sample", SAMPLES)
def test_samples_are_recognized(sample: str) -> None:
    assert openalex.recognizes(Head(sample, (FORMATS / sample).read_bytes()))


def test_a_work_that_is_cut_is_recognized() -> None:
    work = WORK | {"publication_year": 2019, "referenced_works": ["https://openalex.org/W1"] * 5000}
    assert openalex.recognizes(Head("part_000.gz", json.dumps(work).encode()[:HEAD_BYTES]))


@pytest.mark.parametrize(
    "data",
    [
        b'{"paper_id": "1", "title": "A", "abstract": "B."}',
        b'{"id": "https://openalex.org/A7", "display_name": "Authors", "publication_year": 1}',
        b'{"id": "0704.1", "title": "A", "abstract": "B", "categories": "q-bio", "versions": []}',
        b"",
    ],
)
def test_other_files_are_not_recognized(data: bytes) -> None:
    assert not openalex.recognizes(Head("papers.jsonl", data))


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (
            {"id": None},
            "a work's id such as https://openalex.org/W2741809807, found none; give files of works only",
        ),
        (
            {"id": "https://openalex.org/A5"},
            "a work's id such as https://openalex.org/W2741809807, found 'https://openalex.org/A5'; "
            "give files of works only",
        ),
        ({"title": ["On"]}, "a string as title, found list; mend or remove the record"),
        ({"authorships": [7]}, "objects as authorships, found int; mend or remove the record"),
        (
            {"abstract_inverted_index": {"On": [0, -1]}},
            "positions from 0 to 100,000 in abstract_inverted_index, found -1; mend or remove the record",
        ),
        (
            {"abstract_inverted_index": {"On": [100_001]}},
            "positions from 0 to 100,000 in abstract_inverted_index, found 100001; mend or remove the record",
        ),
        (
            {"abstract_inverted_index": {"On": [True, "x"]}},
            "positions from 0 to 100,000 in abstract_inverted_index, found True; mend or remove the record",
        ),
        (
            {"abstract_inverted_index": {"On": [1.5]}},
            "positions from 0 to 100,000 in abstract_inverted_index, found float; mend or remove the record",
        ),
        (
            {"abstract_inverted_index": {"On": 7}},
            "lists of positions as abstract_inverted_index, found int; mend or remove the record",
        ),
        (
            {"abstract_inverted_index": {"x" * 10_000: list(range(100))}},
            "abstract of at most 1,000,000 characters, found more; shorten it or drop the paper",
        ),
    ],
)
def test_defects_have_errors_that_say_them(change: dict[str, Any], found: str) -> None:
    assert str(error_of(WORK | change)) == f"garbage, line 1: expected {found}"


def test_reasons_are_the_same_for_the_same_defect() -> None:
    assert error_of(WORK | {"id": ""}).reason == "no paper_id"
    assert (
        error_of(WORK | {"id": "A7"}).reason == error_of(WORK | {"doi": 7}).reason == openalex.NOT_THIS_FORMAT
    )


def test_a_long_abstract_is_refused_before_it_is_put_together() -> None:
    positions = [7] * 1_000_000
    error = error_of(WORK | {"abstract_inverted_index": {"x" * 1_000_000: positions}})
    assert error.reason == "abstract that is too long"


def test_a_defect_does_not_end_the_reading() -> None:
    first, second = read(b'{"id": 7}\n' + json.dumps(WORK).encode())
    assert isinstance(first.record, RecordError)
    assert second.record["paper_id"] == "W7"


@settings(max_examples=1000, deadline=None)
@given(random_bytes() | damaged(*CONTENTS) | mistyped(*CONTENTS))
def test_garbage_gives_records_or_errors_of_one_line(data: bytes) -> None:
    check_reading(openalex.read, data, "garbage, ")

"""Works of OpenAlex."""

import json
from typing import Any

import pytest
from support.formats import FORMATS, buffered

from qbe.corpus import openalex
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


def test_works_of_other_fields_are_left_out() -> None:
    data = (FORMATS / "openalex.jsonl").read_bytes()
    entries = read(data, Reading(categories=("Computer *",)))
    assert entries[0].record["paper_id"] == "W4100000001"
    assert all(isinstance(entry.record, RecordError) for entry in entries[1:])


@pytest.mark.parametrize(
    ("change", "found", "reason"),
    [
        ({"id": None}, "a work's id such as https://openalex.org/W2741809807, found none", "no paper_id"),
        ({"id": "https://openalex.org/A5"}, "a work's id such as", openalex.NOT_THIS_FORMAT),
        (
            {"abstract_inverted_index": {"On": [0, -1]}},
            "positions from 0 to 100,000",
            openalex.NOT_THIS_FORMAT,
        ),
        ({"abstract_inverted_index": {"On": [100_001]}}, "positions", openalex.NOT_THIS_FORMAT),
        ({"abstract_inverted_index": {"On": [True, "x"]}}, "positions", openalex.NOT_THIS_FORMAT),
        ({"abstract_inverted_index": {"On": 7}}, "lists of positions", openalex.NOT_THIS_FORMAT),
        (
            {
                "abstract_inverted_index": {"x" * 1_000_000: [7] * 1_000_000}
            },  # refused before it is put together
            "abstract of at most 1,000,000 characters",
            "abstract that is too long",
        ),
    ],
)
def test_defects_have_errors_that_say_them(change: dict[str, Any], found: str, reason: str) -> None:
    error = error_of(WORK | change)
    assert str(error).startswith(f"garbage, line 1: expected {found}")
    assert error.reason == reason

"""Works of OpenAlex."""

import json
from typing import Any

import pytest
from support.formats import FORMATS, buffered

from qbe.corpus import openalex
from qbe.corpus.reading import Entry, Reading
from qbe.errors import RecordError

WORK = {"id": "https://openalex.org/W7", "title": "On fish"}


def read(data: bytes, reading: Reading | None = None) -> list[Entry]:
    return list(openalex.read(buffered(data), "garbage", reading or Reading()))


def error_of(work: dict[str, Any]) -> RecordError:
    [entry] = read(json.dumps(work).encode())
    assert isinstance(entry.record, RecordError)
    return entry.record


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

"""arXiv's metadata snapshot: records as papers, filtered before they are parsed, garbage refused."""

import json

import pytest
from hypothesis import given, settings
from support.formats import FORMATS, buffered, check_reading, damaged, mistyped, random_bytes

from qbe.corpus import arxiv, parse_paper
from qbe.corpus.head import Head
from qbe.corpus.reading import Reading
from qbe.errors import RecordError
from qbe.types import Paper, Sentence

SAMPLE = FORMATS / "arxiv.json"
LINES = SAMPLE.read_bytes().splitlines(keepends=True)


def read(data: bytes, reading: Reading | None = None) -> list:
    return list(arxiv.read(buffered(data), "snapshot.json", reading or Reading()))


def test_a_record_as_a_paper():
    where, record = read(SAMPLE.read_bytes())[0]
    assert parse_paper(record, where, lambda text: [text]) == Paper(
        "0704.0001",
        "Counting salmon in $O(n)$ time",
        (Sentence("We count salmon with Erd\u0151s' method. It costs 5% of $\\alpha$."),),
        metadata={
            "authors": ["Ann Gray", "Kurt G\u00f6del", "Li Wei"],
            "categories": ["cs.DS", "math.CO"],
            "date": "2007-04-02",
            "venue": "J. Fish 7 (2008) 1-12",
            "doi": "10.1000/fish.7",
            "url": "https://arxiv.org/abs/0704.0001",
        },
        offsets=((0, 60),),
    )


def test_without_versions_the_date_is_that_of_the_last_change():
    _, record = read(LINES[2])[0]
    assert record["metadata"]["date"] == "2007-05-23"
    assert record["metadata"]["authors"] == ["C. Tree"]


@pytest.mark.parametrize(
    ("patterns", "kept"),
    [
        (("cs.*",), ["0704.0001", "0704.0003"]),
        (("stat.ML",), ["0704.0003"]),
        (("hep-*", "math.CO"), ["0704.0001", "hep-th/9901001"]),
    ],
)
def test_a_category_of_any_place_counts(patterns, kept):
    records = [record for _, record in read(SAMPLE.read_bytes(), Reading(categories=patterns))]
    assert [record["paper_id"] for record in records] == kept


def test_records_of_other_categories_are_not_even_parsed():
    assert read(b'{"categories": "hep-th", "title": broken\n', Reading(categories=("cs.*",))) == []


def test_recognition():
    assert arxiv.recognizes(Head("snapshot.json", SAMPLE.read_bytes()))
    assert not arxiv.recognizes(Head("a.jsonl", b'{"paper_id": "1", "title": "A", "abstract": "B."}'))


def test_a_record_without_a_title():
    record = json.loads(LINES[0])
    del record["title"]
    [(where, error)] = read(json.dumps(record).encode())
    assert where == "snapshot.json, line 1"
    assert isinstance(error, RecordError)
    assert str(error) == (
        "snapshot.json, line 1: expected a record of arXiv's snapshot with id, title and abstract, found "
        "KeyError 'title'; mend or remove it"
    )


@settings(max_examples=1000, deadline=None)
@given(random_bytes())
def test_garbage(data):
    check_reading(arxiv.read, data, "snapshot.json, line ")


@settings(max_examples=1000, deadline=None)
@given(mistyped(*LINES))
def test_values_of_other_types(data):
    check_reading(arxiv.read, data, "snapshot.json, line ")


@settings(max_examples=1000, deadline=None)
@given(damaged(*LINES))
def test_damaged_bytes(data):
    check_reading(arxiv.read, data, "snapshot.json, line ")

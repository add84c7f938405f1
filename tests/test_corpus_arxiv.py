"""arXiv's metadata snapshot: records as papers, filtered before they are parsed, garbage refused."""

import pytest
from support.formats import FORMATS, buffered

from qbe.corpus import arxiv, parse_paper
from qbe.corpus.reading import Reading
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

"""arXiv's metadata snapshot: records as papers, filtered before they are parsed, garbage refused."""

import pytest
from support.formats import FORMATS, buffered

from qbe.corpus import arxiv
from qbe.corpus.reading import Reading

SAMPLE = FORMATS / "arxiv.json"


def read(data: bytes, reading: Reading | None = None) -> list:
    return list(arxiv.read(buffered(data), "snapshot.json", reading or Reading()))


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

"""The ACL Anthology's XML to papers."""

import pytest
from support.formats import FORMATS, buffered

from qbe.corpus import acl_anthology
from qbe.corpus.acl_anthology import anthology_id
from qbe.corpus.reading import Entry, Reading
from qbe.corpus.record import parse_paper
from qbe.errors import RecordError
from qbe.types import Paper, Sentence

SAMPLE = (FORMATS / "acl_anthology.xml").read_bytes()
OLD_SAMPLE = (FORMATS / "acl_anthology_2018.xml").read_bytes()


def read(data: bytes) -> list[Entry]:
    return list(acl_anthology.read(buffered(data), "acl.xml", Reading()))


def by_period(text: str) -> list[str]:
    return [part.strip() + "." for part in text.split(".") if part]


def test_a_paper_with_everything() -> None:
    entry = read(SAMPLE)[0]
    assert entry.where == "acl.xml, record 1"
    assert parse_paper(entry.record, entry.where, by_period) == Paper(
        paper_id="2020.fish-main.1",
        title="Learning to Parse Trout in $O(n^{2})$ Time",
        sentences=(
            Sentence("Trout speak slowly."),
            Sentence("We parse with $\\alpha < 1$ & gain 5%."),
        ),
        labelled=False,
        metadata={
            "authors": ["Zoë Müller", "Plato"],
            "year": 2020,
            "date": "2020-07",
            "venue": "Proceedings of the 3rd Workshop on Fish Language",
            "doi": "10.18653/v1/2020.fish-main.1",
            "url": "https://aclanthology.org/2020.fish-main.1/",
        },
        offsets=((0, 19), (20, 57)),
    )


def test_papers_of_a_collection_before_2020() -> None:
    assert [entry.record for entry in read(OLD_SAMPLE)[:2]] == [
        {
            "paper_id": "W18-0312",
            "title": "Nets of Nets",
            "abstract": "We knot nets.",
            "metadata": {
                "year": 2018,
                "venue": "Workshop on Nets",
                "url": "https://aclanthology.org/W18-0312/",
            },
        },
        {
            "paper_id": "W18-1401",
            "title": "A Paper of a Volume without Meta",
            "abstract": "It has no year.",
            "metadata": {"url": "https://aclanthology.org/W18-1401/"},
        },
    ]


@pytest.mark.parametrize(
    ("ids", "paper_id"),
    [
        (("2020.acl", "main", "1"), "2020.acl-main.1"),
        (("2021.findings", "acl", "23"), "2021.findings-acl.23"),
        (("P18", "1", "1"), "P18-1001"),
        (("J93", "2", "3"), "J93-2003"),
        (("W02", "1", "18"), "W02-0118"),
        (("W19", "62", "7"), "W19-6207"),
        (("C69", "1", "1"), "C69-0101"),
        (("C00", "1", "1"), "C00-1001"),
        (("D19", "1", "407"), "D19-1407"),
        (("D19", "4", "1"), "D19-4001"),
        (("D19", "5", "1"), "D19-0501"),
        (("D19", "50", "12"), "D19-5012"),
        (("D18", "5", "1"), "D18-5001"),
    ],
)
def test_ids(ids: tuple[str, str, str], paper_id: str) -> None:
    assert anthology_id(*ids, "here") == paper_id


@pytest.mark.parametrize(
    ("ids", "found"),
    [
        (("", "1", "1"), "'', '1', '1'"),
        (("P18", "main", "1"), "'P18', 'main', '1'"),
        (("P18", "1", "²"), "'P18', '1', '\\xb2'"),
        (("2020.acl", "main", " "), "'2020.acl', 'main', ''"),
        (("P18", "1", "12345"), "'P18', '1', '12345'"),
    ],
)
def test_ids_that_are_none(ids: tuple[str, str, str], found: str) -> None:
    with pytest.raises(RecordError) as caught:
        anthology_id(*ids, "here")
    assert str(caught.value) == (
        f"here: expected ids of collection, volume and paper such as P18, 1 and 1, found {found}; "
        "mend or remove the record"
    )
    assert caught.value.reason == "not a record of this format"

"""Records of RIS."""

import time
from typing import Any

import pytest
from hypothesis import given, settings
from support.formats import FORMATS, buffered, check_entries, damaged, random_bytes

from qbe.corpus.dialects import RIS as ris
from qbe.corpus.entry import Entry
from qbe.corpus.head import Head
from qbe.corpus.reading import Reading
from qbe.corpus.record import parse_paper
from qbe.errors import RecordError
from qbe.text.split import split_sentences
from qbe.types import Paper, Sentence

DATA = (FORMATS / "references.ris").read_bytes()
PIECES = [
    b"TY  - ",
    b"ER  - ",
    b"\nTY  -\n",
    b"\nER  -\n",
    b"\n",
    b"  - ",
    b"\0",
    b"\xff",
    b"\nPY  - 0000/99/99",
]


def read(data: bytes | str) -> list[Entry]:
    return list(ris.read(buffered(data), "refs.ris", Reading()))


def only(lines: str) -> Any:
    [entry] = read(f"TY  - JOUR\nTI  - On fish\n{lines}\nER  - \n")
    return entry.record


def test_a_record_becomes_a_paper() -> None:
    where, record = read(DATA)[0]
    assert where == "refs.ris, line 1"
    assert isinstance(record, dict)
    assert record["paper_id"] is None
    assert parse_paper(record, where, split_sentences, default_id="") == Paper(
        paper_id="",
        title="Counting Salmon in Gödel Ladders",
        sentences=(
            Sentence("Ladders help salmon, or so we thought."),
            Sentence("We count 5 % more of them with nets & cameras."),
            Sentence("Nobody had counted before."),
        ),
        labelled=False,
        metadata={
            "authors": ["Siobhán O'Neill", "Jan van der Berg Jr.", "Institute for Rivers"],
            "year": 2019,
            "date": "2019-05-07",
            "venue": "Fish Letters",
            "doi": "10.1234/fish.2019_07",
            "url": "https://example.org/fish?a=1;b=2",
        },
        offsets=((0, 38), (39, 85), (86, 112)),
    )


def test_a_chapter_with_the_tags_of_the_first_specification() -> None:
    assert read(DATA)[1] == Entry(
        "refs.ris, line 22",
        {
            "paper_id": "lee2020",
            "title": "Fins and Tails",
            "abstract": "Fins differ.",
            "metadata": {
                "authors": ["Min Lee"],
                "year": 2020,
                "date": "2020-07",
                "venue": "Handbook of Fins",
            },
        },
    )


def test_a_book_without_an_abstract() -> None:
    assert read(DATA)[2:] == [
        Entry(
            "refs.ris, line 31",
            {"paper_id": "two words", "title": "A Book of Rivers", "abstract": None, "metadata": {}},
        )
    ]


def test_the_sample_is_recognized() -> None:
    assert ris.recognizes(Head("-", DATA))
    assert ris.recognizes(Head("-", b"\xef\xbb\xbfProvider: a publisher\r\n\r\nTY  - JOUR"))


@pytest.mark.parametrize(
    "data",
    [
        b'{"paper_id": "1", "title": "A", "abstract": "B."}',
        b'{"title": "A\nTY  - JOUR"}',
        b"@article{a, title={A}}",
        b"PMID- 7\nTI  - On fish",
        b"",
    ],
)
def test_other_files_are_not_recognized(data: bytes) -> None:
    assert not ris.recognizes(Head("refs.ris", data))


@pytest.mark.parametrize(
    ("lines", "metadata"),
    [
        ("PY  - 2019", {"year": 2019}),
        ("Y1  - 2019/5/1/", {"year": 2019, "date": "2019-05-01"}),
        ("DA  - 2019-05-01", {"year": 2019, "date": "2019-05-01"}),
        ("PY  - 2019\nDA  - 2020/05/01", {"year": 2019}),
        ("PY  - 2019///Spring", {"year": 2019}),
        ("PY  - 2019/13/01", {"year": 2019}),
        ("PY  - 20190501", {}),
        ("DA  - May 7", {}),
    ],
)
def test_dates_say_what_is_known(lines: str, metadata: dict[str, Any]) -> None:
    assert only(lines)["metadata"] == metadata


@pytest.mark.parametrize(
    ("lines", "venue"),
    [
        ("T2  - Fish Letters", "Fish Letters"),
        ("JO  - Fish Lett.\nJF  - Fish Letters", "Fish Letters"),
        ("T2  - Fish Series\nJO  - Fish &amp; Chips", "Fish & Chips"),
        ("BT  - Fish Book", "Fish Book"),
    ],
)
def test_the_venue_is_a_journal_or_a_book(lines: str, venue: str) -> None:
    assert only(lines)["metadata"] == {"venue": venue}


def test_lines_without_a_tag_continue_the_value_before() -> None:
    record = only(
        "AU  - Lee,\n  Ann\nAB  - Fish\n\n XX - swim\nfar.\nZZ  - ignored\nas this\nAB  - And well."
    )
    assert record["abstract"] == "Fish XX - swim far. And well."
    assert record["metadata"] == {"authors": ["Ann Lee"]}


def test_the_byte_order_mark_is_left_out() -> None:
    assert [where for where, _ in read("\ufeffTY  - JOUR\nTI  - A\nER  -")] == ["refs.ris, line 1"]


@pytest.mark.parametrize(
    ("record", "found", "reason"),
    [
        ("TY  - JOUR\nER  - ", "a title (TI), found none; add it or remove the record", "no title"),
        (
            "TY  - JOUR\nTI  - A",
            "'ER  -' at the end of the record, found the next record before it; mend or remove the record",
            "a broken entry",
        ),
        (
            f"TY  - JOUR\nTI  - A\n{'AB  - ' + 'x' * 1000}{'x' * 5_000_000}\nER  -",
            "'ER  -' at the end of the record, found more than 4 MiB before it; mend or remove the record",
            "a broken entry",
        ),
    ],
)
def test_a_defect_concerns_one_record(record: str, found: str, reason: str) -> None:
    first, second = read(f"{record}\nTY  - JOUR\nTI  - B\nER  - \n")
    assert isinstance(first.record, RecordError)
    assert str(first.record) == f"refs.ris, line 1: expected {found}"
    assert first.record.reason == reason
    assert second.record["title"] == "B"


def test_the_last_record_must_have_an_end() -> None:
    _, last = read("TY  - JOUR\nTI  - A\nER  - \nTY  - JOUR\nTI  - B\n")
    assert str(last.record) == (
        "refs.ris, line 4: expected 'ER  -' at the end of the record, found the end of the file before it; "
        "mend or remove the record"
    )


def test_another_encoding_concerns_its_record() -> None:
    first, second = read("TY  - JOUR\nTI  - Ü\nER  - \n".encode("latin-1") + b"TY  - JOUR\nTI  - B\nER  - \n")
    assert str(first.record) == (
        "refs.ris, line 1: expected UTF-8 text, found byte 0xdc at position 18; convert the file to UTF-8"
    )
    assert second.record["title"] == "B"


def test_hostile_records_take_a_moment() -> None:
    start = time.process_time()
    read("TY  - JOUR\nAB  - a\n" + "a\n" * 1_000_000 + "ER  - ")
    read("TY  - JOUR\n" + "AB  - a\n" * 500_000 + "ER  - ")
    assert time.process_time() - start < 20


@settings(max_examples=1000, deadline=None)
@given(random_bytes(b"TY  - A\nTI  - ", b"\nER  -"))
def test_random_bytes_are_records_or_errors(data: bytes) -> None:
    check(data)


@settings(max_examples=1000, deadline=None)
@given(damaged(DATA, pieces=PIECES))
def test_a_damaged_file_is_records_and_errors(data: bytes) -> None:
    check(data)


def check(data: bytes) -> None:
    check_entries(read(data), "refs.ris, line ")

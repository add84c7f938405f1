"""Records of RIS, and of the formats of tagged lines of PubMed, the Web of Science and EndNote."""

import time
from typing import Any

import pytest
from support.formats import buffered

from qbe.corpus.formats import FORMATS as READERS
from qbe.corpus.reading import Entry, Reading
from qbe.errors import RecordError


def read(data: bytes | str, name: str = "ris") -> list[Entry]:
    return list(READERS[name].read(buffered(data), "refs.ris", Reading()))


def only(lines: str) -> Any:
    [entry] = read(f"TY  - JOUR\nTI  - On fish\n{lines}\nER  - \n")
    return entry.record


@pytest.mark.parametrize(
    ("lines", "metadata"),
    [
        ("PY  - 2019", {"year": 2019}),
        ("Y1  - 2019/5/1/", {"year": 2019, "date": "2019-05-01"}),
        ("DA  - 2019-05-01", {"year": 2019, "date": "2019-05-01"}),
        ("PY  - 2019\nDA  - 2020/05/01", {"year": 2019}),
        ("PY  - 2019///Spring", {"year": 2019}),
        ("PY  - 2019/13/01", {"year": 2019}),
        ("PY  - 20190501", {"year": 2019, "date": "2019-05-01"}),
        ("PY  - 0000", {}),
        ("PY  - 0000\nDA  - c2017", {"year": 2017}),
        ("PY  - (2015)", {"year": 2015}),
        ("PY  - [2016?]", {"year": 2016}),
        ("Y1  - 2014//", {"year": 2014}),
        ("PY  - 2015 Mar-Apr", {"year": 2015, "date": "2015-03"}),
        ("DA  - 7 May 2019", {"year": 2019, "date": "2019-05-07"}),
        ("PY  - 2019\nDA  - May", {"year": 2019}),
        ("PY  - 2014-2015", {"year": 2014}),
        ("DA  - May 7", {}),
    ],
)
def test_dates_say_what_is_known(lines: str, metadata: dict[str, Any]) -> None:
    assert only(lines)["metadata"] == metadata


def test_lines_without_a_tag_continue_the_value_before() -> None:
    record = only(
        "AU  - Lee,\n  Ann\nAB  - Fish\n\n XX - swim\nfar.\nZZ  - ignored\nas this\nAB  - And well."
    )
    assert record["abstract"] == "Fish XX - swim far. And well."
    assert record["metadata"] == {"authors": ["Ann Lee"]}


ONE = {"title": "On fish", "abstract": "Fish swim.", "metadata": {"authors": ["Ann Lee"], "year": 2019}}
LINES = ("TY  - JOUR", "TI  - On fish", "AU  - Lee, Ann", "PY  - 2019", "AB  - Fish swim.", "ER  - ")
FISH = "\n".join(LINES) + "\n"
NEXT = "TY  - JOUR\nTI  - On stone\nER  - \n"


@pytest.mark.parametrize(
    "text",
    [
        FISH + "\n\r" + NEXT,  # of IEEE Xplore
        FISH + "\f" + NEXT,
        FISH + "\ufeff" + NEXT,  # of files that were concatenated
        FISH.replace("\n", "\r\n") + NEXT,
        (FISH + NEXT).replace("\n", "\r"),
        FISH.replace("  - ", " - ") + NEXT,
        FISH.replace("  - ", "\t-\t") + NEXT,
        "".join(f"  {line}\n" for line in LINES) + NEXT,
        FISH.replace("TY", "ty").replace("TI", "ti").replace("AB", "ab").replace("ER", "er") + NEXT,
        FISH.replace("ER  - \n", "\n") + NEXT,
        FISH + NEXT.replace("ER  - \n", ""),
        FISH + NEXT.replace("TY  - JOUR\n", ""),
        "\n".join((*LINES[1:3], LINES[0], *LINES[3:])) + "\n" + NEXT,
        FISH.replace("TY", "XX").replace("ER  - \n", "") + NEXT,
        f"1. \n{FISH}\nC1  - Database: Fish\nSearch Strategy:\n---\n2. \n{NEXT}",  # of Ovid
        FISH.replace("ER  - ", "ER  - 1") + NEXT,
        FISH.replace("On fish", "On\n fish").replace("Fish swim.", "Fish\n\nswim.") + NEXT,
    ],
)
def test_records_of_ris_as_programs_write_them(text: str) -> None:
    fish, stone = (entry.record for entry in read(text))
    assert fish == {"paper_id": None, **ONE}
    assert stone == {"paper_id": None, "title": "On stone", "abstract": None, "metadata": {}}


def test_a_line_with_the_words_of_the_end_is_of_the_abstract() -> None:
    assert only("AB  - Cells are\nER - positive.")["abstract"] == "Cells are ER - positive."


@pytest.mark.parametrize(
    ("lines", "metadata"),
    [
        ("A1  - Main, A.\nAU  - Other, B.", {"authors": ["A. Main", "B. Other"]}),
        ("AU  - Main, A.\nA1  - Main, A.", {"authors": ["A. Main"]}),
        ("A1  - Liu R.\nA1  - van der Steen J.A.", {"authors": ["R. Liu", "J.A. van der Steen"]}),
        ("AU  - Lee, Ann; Ray, B.\nA2  - Editor, C.", {"authors": ["Ann Lee", "B. Ray"]}),
        ("AU  - Hernández Núñez, José Luis", {"authors": ["Hernández Núñez, José Luis"]}),
        ("AU  - Lee, Ann\nAU  - et al.", {"authors": ["Ann Lee"], "et_al": True}),
        ("UR  - https://a.org/1\nhttps://a.org/2", {"url": "https://a.org/1"}),
        ("UR  - https://a.org/1 https://a.org/2\nUR  - x", {"url": "https://a.org/1"}),
        ("UR  - <Go to ISI>://WOS:1", {}),
        ("UR  - https://doi.org/10.1000/A", {"url": "https://doi.org/10.1000/A", "doi": "10.1000/a"}),
        ("M3  - doi: 10.1000/a", {"doi": "10.1000/a"}),
        ("M3  - Article\nAN  - 10.1000/a", {"doi": "10.1000/a"}),
        ("L3  - http://dx.doi.org/10.1000/a", {"doi": "10.1000/a"}),
        ("KW  - fish; *nets\nlakes\nKW  - fish", {"tags": ["fish", "nets", "lakes"]}),
    ],
)
def test_metadata_of_ris(lines: str, metadata: dict[str, Any]) -> None:
    assert only(lines)["metadata"] == metadata


@pytest.mark.parametrize(
    ("name", "text", "titles"),
    [
        ("nbib", "\ufeff  PMID- 7\nTI  - A\n\n\n\nPMID-8\nTI- B\n", ["A", "B"]),
        ("nbib", "PMID- 7\r\nTI  - A\r\nPMID- 8\r\nTI  - B\r\n", ["A", "B"]),
        ("nbib", "PMID- 7\nTI  - A\n\nTI  - B\nAB  - C\n", ["A", "B"]),
        ("nbib", "PMID- 7\nBTI - A\nPMID- 8\nTT  - B\n", ["A", "B"]),
        ("nbib", "PMID- 7\nTI  - TNF - alpha\n      AB  - no tag\n", ["TNF - alpha AB - no tag"]),
        ("nbib", "PMID- 7\nAB  - A\n\nPMID- 8\nTI  - B\n", [None, "B"]),
        ("wos", "PT J\nTI A\nPT J\nTI B\nER\nEF", ["A", "B"]),
        ("wos", "PT J\nTI A\nER\n\nAU Lee, A\nTI B\nER\n", ["A", "B"]),
        ("wos", "PT J\r\nTI A\r\n   (II)\r\nER\r\n", ["A (II)"]),
        ("wos", "AU Lee, A\nPT J\nTI A\nER\n", ["A"]),
        ("wos", "PT J\nAU Lee, A\nER\nPT J\nTI B\nER\n", [None, "B"]),
        ("endnote", "%0 Book\n%T A\n%0 Book\n%T B", ["A", "B"]),
        ("endnote", "\ufeff\n%0 Book\n%T A\n100% true\n", ["A 100% true"]),
        ("nbib", "1. PMID- 7\nTI  - A\n", ["A"]),
        ("nbib", "PMID- 7\nTI  - [Of fish].\nFAU - Lee, Ann\nDP  - 2019 Spring\n", ["Of fish"]),
        ("nbib", "PMID- 7\nSTAT- MEDLINE\nTI  - A\nCN  - Fish Group\nLID - S0001 [pii]\n", ["A"]),
        ("nbib", "PMID- 7\nTI  - A\nPMID- 8\nSTAT- In-Process\nTI  - B\nSO  - x", ["A", "B"]),
        ("wos", "FN X\nVR 1.0\nPT J\nTI A\nAB B.\nC1 [Lee, A] Univ\nEF", ["A"]),
        ("wos", "PT J\nTI A\nER\n\nEF\nFN X\nVR 1.0\nPT J\nTI B\nER\n", ["A", "B"]),
        ("wos", "PT S\nTI A\nSE Lecture Notes\nPD MAR\nPY 2019\nER\n", ["A"]),
        ("wos", "PT J\nTI A\nAB\nER\n", ["A"]),
        ("wos", "  PT J\n  TI A\n  ER\n", [None]),
        ("endnote", "%0 Book\n%A Lee\n\n%0 Book\n%T B", [None, "B"]),
        ("endnote", "%T A\n%0 Book\n", ["A"]),
        ("endnote", "%0 Book\r%T A\r%0 Book\r%T B\r", ["A", "B"]),
        ("endnote", "%0 Book\n%T A\n%D n.d.\n%K fish\nlake\n", ["A"]),
        ("endnote", "%0 Book\n%T A\n%X\n%0 Book\n%T\n", ["A", None]),
        ("endnote", "%0 Thesis\n%t A\n", [None]),
        ("endnote", " %0 Book\n %T A\n", [None]),
        ("endnote", "%0 Book\n%T A\n%M 7\n%D 2019/05/07\n%~ EBSCO\n", ["A"]),
    ],
)
def test_flaws_of_databases(name: str, text: str, titles: list[str | None]) -> None:
    """None stands for a record that is left out."""
    records = [entry.record for entry in read(text, name)]
    assert [None if isinstance(each, RecordError) else each["title"] for each in records] == titles


@pytest.mark.parametrize(
    ("record", "found", "reason"),
    [
        ("TY  - JOUR\nER  - ", "a title, found none; add it or remove the record", "no title"),
        (
            f"TY  - JOUR\nTI  - A\n{'AB  - ' + 'x' * 1000}{'x' * 5_000_000}\nER  -",
            "a record of at most 4 MiB, found a longer one; mend or remove it",
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


@pytest.mark.slow
def test_hostile_records_take_a_moment() -> None:
    start = time.process_time()
    read("TY  - JOUR\nAB  - a\n" + "a\n" * 1_000_000 + "ER  - ")
    read("TY  - JOUR\n" + "AB  - a\n" * 500_000 + "ER  - ")
    assert time.process_time() - start < 20

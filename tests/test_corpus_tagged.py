"""Records of RIS, and of the formats of tagged lines of PubMed, the Web of Science and EndNote."""

from typing import Any

import pytest
from support.formats import buffered

from qbe.corpus.reading import FORMATS as READERS
from qbe.corpus.records import Entry, Reading
from qbe.errors import RecordError


def read(data: bytes | str, name: str = "ris") -> list[Entry]:
    return list(READERS[name].read(buffered(data), "refs.ris", Reading()))


def only(lines: str) -> Any:
    [entry] = read(f"TY  - JOUR\nTI  - On fish\n{lines}\nER  - \n")
    return entry.record


def test_dates_of_ris() -> None:
    """A date of access (Y2) counts where PY is a month, a deprecated one (Y1) where there is no other."""
    dates = {"PY  - May\nY2  - 2014/05/03": "2014-05-03", "PY  - 2014\nY2  - 2015": None, "Y2  - 2014": None}
    dates |= {"Y1  - 1900/01/01\nDA  - 1950/01/02": "1950-01-02", "Y1  - 2014/07/01\nPY  - 2015": None}
    assert {lines: only(lines)["metadata"].get("date") for lines in dates} == dates


def test_lines_without_a_tag_continue_the_value_before() -> None:
    lines = "AU  - Lee,\n  Ann\nAB  - Fish\n\n XX - swim\nfar.\nZZ  - ignored\nas this\nAB  - And well."
    record = only(lines)
    assert record["abstract"] == "Fish XX - swim far. And well."
    assert record["metadata"] == {"authors": ["Ann Lee"]}
    assert only("AB  - Cells are\nER - positive.")["abstract"] == "Cells are ER - positive."


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
        *(FISH.replace("  - ", " - ") + NEXT, FISH.replace("  - ", "\t-\t") + NEXT),
        "".join(f"  {line}\n" for line in LINES) + NEXT,
        FISH.replace("TY", "ty").replace("TI", "ti").replace("AB", "ab").replace("ER", "er") + NEXT,
        *(FISH.replace("ER  - \n", "\n") + NEXT, FISH + NEXT.replace("ER  - \n", "")),
        FISH + NEXT.replace("TY  - JOUR\n", ""),
        "\n".join((*LINES[1:3], LINES[0], *LINES[3:])) + "\n" + NEXT,
        FISH.replace("PY  -", "TY  - JOUR\nPY  -") + NEXT,  # of Scopus
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


def test_flaws_of_endnote() -> None:
    for text in ("\ufeff\n%0 Book\n%T A\n100% true\n", "%T A 100% true\n%0 Book\n"):
        [entry] = read(text, "endnote")
        assert entry.record["title"] == "A 100% true"


def test_a_defect_concerns_one_record() -> None:
    long, lacks = f"TY  - JOUR\nTI  - A\nAB  - {'x' * 5_000_000}\nER  -", "no title"
    for record, reason in (("TY  - JOUR\nER  -", lacks), ("ID  - a\nER  -", lacks), (long, "a broken entry")):
        first, second = read(f"{record}\nTY  - JOUR\nTI  - B\nER  - \n")
        assert (first.where, first.record.reason) == ("refs.ris, line 1", reason)
        assert second.record["title"] == "B"


JOINED = {"ris": "TY  - |TI  - |ID  - |PY  - ", "wos": "PT J|TI |UT |PY ", "refworks": "RT |T1 |ID |YR "}
JOINED |= {"endnote": "%0 |%T |%F |%D ", "nbib": "OWN - ERIC|TI  - |OID - |DP  - "}


@pytest.mark.parametrize("form", JOINED)
@pytest.mark.parametrize("damage", [lambda line: "", lambda line: "\x7f" + line[1:]])
@pytest.mark.parametrize("ends", ["\n", "\r"])
def test_a_record_without_its_first_line_is_no_part_of_the_one_before(form, damage, ends) -> None:
    """Whatever of title, id and year it has; in years alone only a blank line tells records apart."""
    first, title, key, year = JOINED[form].split("|")
    one = f"{first}\n{title}On fish\n{key}a\n{year}2001\n"
    others = {f"{title}On nets\n{key}b\n": ("b", "On nets"), f"{title}On nets\n": (None, "On nets")}
    if form != "nbib":  # where nothing is a record that has no title, abstract or author
        others |= {f"{key}b\n": "b", f"\n{year}2002\n": None}
    for lines, expected in others.items():
        text = one + damage(first) + "\n" + lines
        told = [
            next(iter(each.names), None)
            if isinstance(each, RecordError)
            else (each["paper_id"], each["title"])
            for each in (entry.record for entry in read(text.replace("\n", ends), form))
        ]
        assert told == [("a", "On fish"), expected], text
    for lines in (f"{title}On fish\n{key}a\n", f"{year}2001/01\n"):
        [entry] = read(one + lines, form)
        assert entry.record["title"] == "On fish"
    [entry] = read(f"{first}\n{title}On fish\n{title}Sobre peces\n{key}a\n", form)  # languages, side by side
    [other] = read(f"{one}{year}2002\n", form)  # the rest of a record
    told = [(f"{tag.strip('% -')!r} (the first counts)",) for tag in (title, year)]
    assert (entry.record["title"], [entry.record["twice"], other.record["twice"]]) == ("On fish", told)

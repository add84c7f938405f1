"""Files whose text is not in UTF-8."""

import io

import pytest

from qbe.corpus.reading import read_corpus
from qbe.corpus.records import RECODED, RejectedRecords
from qbe.corpus.streams import from_western
from qbe.errors import CorpusError

RIS = (
    "TY  - JOUR\nTI  - Étude des poissons à l\u2019été\nAU  - Müller, José\n"
    "AB  - Où est-il ? « Là » \u2013 voilà.\nER  - \n"
)


def title(path, data: bytes) -> tuple[str, dict[str, int]]:
    path.write_bytes(data)
    left_out = RejectedRecords()
    [paper] = read_corpus([str(path)], str.splitlines, rejected=left_out)
    return f"{paper.title}, {paper.metadata['authors'][0]}", left_out.counts()


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32", "cp1252"])
def test_encodings_are_told_by_a_mark_and_what_is_not_utf8_is_western_and_noted(tmp_path, encoding):
    expected = "Étude des poissons à l\u2019été, José Müller", {RECODED: 1} if encoding == "cp1252" else {}
    assert title(tmp_path / "a.ris", RIS.encode(encoding)) == expected


def test_lines_in_utf8_stay_so_beside_others_and_unknown_bytes_are_replaced():
    data = "Gödel\n".encode() + "Müller\n".encode("cp1252") + b"\x81\n"
    stream, is_western = from_western(io.BufferedReader(io.BytesIO(data)), "a")
    assert (stream.read().decode(), is_western) == ("Gödel\nMüller\n\ufffd\n", True)


OTHERS = {"koi8-r": "щука плыла", "cp1253": "ψάρια", "gbk": "基于图的", "sjis": "山田の魚"}


@pytest.mark.parametrize("encoding", OTHERS)
def test_encodings_of_other_letters_are_refused_with_the_line(tmp_path, encoding):
    data = f"TY  - JOUR\nTI  - On fish\nAU  - {OTHERS[encoding]}\nER  - \n".encode(encoding)
    with pytest.raises(CorpusError, match=r"a.ris, line 3: expected UTF-8 text, found an encoding"):
        title(tmp_path / "a.ris", data)


def test_a_character_that_the_end_of_the_sample_cuts_is_no_other_encoding():
    data = b"x" * ((1 << 20) - 1) + "ö".encode()
    stream, is_western = from_western(io.BufferedReader(io.BytesIO(data), 1 << 20), "a")
    assert (stream.read() == data, is_western) == (True, False)


def test_damaged_utf16_is_named(tmp_path):
    with pytest.raises(CorpusError, match=r"a.ris: expected UTF-16 text, found other bytes"):
        title(tmp_path / "a.ris", RIS.encode("utf-16") + b"\x00\xd8\x00")

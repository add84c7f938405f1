"""Files whose text is not in UTF-8."""

import io

import pytest

from qbe.corpus import read_corpus
from qbe.corpus.rejected import RECODED, RejectedRecords
from qbe.corpus.streams import from_western
from qbe.errors import CorpusError, RecordError

RIS = (
    "TY  - JOUR\nTI  - Étude des poissons à l\u2019été\nAU  - Müller, José\n"
    "AB  - Où est-il ? « Là » \u2013 voilà.\nER  - \n"
)


def title(path, data: bytes) -> tuple[str, dict[str, int]]:
    path.write_bytes(data)
    left_out = RejectedRecords()
    [paper] = read_corpus([str(path)], str.splitlines, rejected=left_out)
    return f"{paper.title}, {paper.metadata['authors'][0]}", left_out.counts()


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp1252"])
def test_encodings_are_told_with_and_without_a_mark_and_the_western_one_is_noted(tmp_path, encoding):
    noted = {RECODED: 1} if encoding == "cp1252" else {}
    expected = "Étude des poissons à l\u2019été, José Müller", noted
    assert title(tmp_path / "a.ris", RIS.encode(encoding)) == expected


WESTERN = [
    "Müller, Jürgen: Über die Größe der Fische",
    "José García Núñez, aquí ¿qué? año",
    "São João, avaliação não única",
    "Åse Ångström Öberg är på Malmö",
    "Søren Ærø, Århus, bæver",
    "it\u2019s the lakes\u2019 \u201cfish\u201d \u2013 a study",
    "37 °C ± 2 µm, Jääskeläinen",
]
OTHERS = {
    "cp1250": ["Wałęsa Łukasz śródlądowych", "Dvořák hledání místo"],
    "cp1251": ["Мы считаем рыб"],
    "koi8-r": ["Мы считаем рыб"],
    "gb18030": ["我们统计湖中的鱼"],
    "cp932": ["湖の魚の数を数えます"],
    "mac_roman": ["Müller", "García", "Étude des poissons à l\u2019été"],
    "iso8859-9": ["I\u015f\u0131k değişim"],
}


def recoded(data: bytes) -> tuple[bytes, bool]:
    stream, is_western = from_western(io.BufferedReader(io.BytesIO(data)))
    return stream.read(), is_western


@pytest.mark.parametrize("text", WESTERN)
def test_western_texts_are_read(text):
    assert recoded(f"{text}\n".encode("cp1252")) == (f"{text}\n".encode(), True)


@pytest.mark.parametrize(
    ("encoding", "text"), [(name, text) for name, texts in OTHERS.items() for text in texts]
)
def test_what_cannot_be_told_stays_as_it_is(encoding, text):
    data = f"{text}\n".encode(encoding)
    assert recoded(data) == (data, False)


def test_lines_in_utf8_stay_so_beside_others():
    assert recoded("Gödel\n".encode() + "Müller\n".encode("cp1252")) == ("Gödel\nMüller\n".encode(), True)


def test_an_encoding_that_is_not_told_and_damaged_utf16_are_named(tmp_path):
    with pytest.raises(RecordError, match=r"a.ris, line 1: expected UTF-8 text, found byte 0xcc"):
        title(tmp_path / "a.ris", "TY  - JOUR\nTI  - Мы считаем\nAB  - A.\nER  - \n".encode("cp1251"))
    with pytest.raises(CorpusError, match=r"a.ris: expected UTF-16 text, found other bytes"):
        title(tmp_path / "a.ris", RIS.encode("utf-16") + b"\x00\xd8\x00")

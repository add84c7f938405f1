"""XML read one record at a time."""

import io
import resource

import pytest
from support.formats import Endless, buffered

from qbe.corpus.streams import Head
from qbe.corpus.xml_formats import MAX_RECORD_BYTES, elements, root_tag, text_of
from qbe.errors import CorpusError

RECORD = ("a",)


def read(data: bytes) -> list[str]:
    """The texts of the elements `a` of the document x.xml."""
    return [element.text or "" for _, element in elements(buffered(data), "x.xml", RECORD)]


def problem(data: bytes) -> str:
    with pytest.raises(CorpusError) as caught:
        read(data)
    return str(caught.value)


def test_elements_have_their_places_and_what_is_around_them_is_skipped() -> None:
    data = b"<s>x<a>1</a>y<b><a>2<a>3</a></a></b><c>4</c></s>"
    found = [(where, "".join(each.itertext())) for where, each in elements(buffered(data), "x.xml", RECORD)]
    assert found == [("x.xml, record 1", "1"), ("x.xml, record 2", "3"), ("x.xml, record 3", "23")]


def test_the_elements_around_a_record_come_with_it() -> None:
    data = b'<s id="1"><b id="2"><a/></b><b id="3"><c/><a/></b></s>'
    found = elements(buffered(data), "x.xml", RECORD)
    around = [[each.get("id") for each in element.iterancestors()] for _, element in found]
    assert around == [["2", "1"], ["3", "1"]]


def test_records_across_the_ends_of_chunks_are_whole() -> None:
    texts = [str(number) * 50_000 for number in range(40)]
    assert read(b"<s>" + b"".join(f"<a>{text}</a>\n".encode() for text in texts) + b"</s>") == texts


@pytest.mark.slow
def test_a_long_document_is_read_in_bounded_memory() -> None:
    stream = io.BufferedReader(Endless(b"<s>", b"<b><c>x</c></b> <a>y</a> text " * 200, 1500))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CorpusError, match="expected whole and well-formed XML"):
        sum(1 for _ in elements(stream, "x.xml", RECORD))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 32 << 10  # in KiB; the whole tree would have 120 MiB


@pytest.mark.parametrize("begin", [b"<s>", b"<s><a>", b"<s><!--", b"<s x='", b"<!--"])
def test_what_does_not_end_is_no_record(begin: bytes) -> None:
    stream = io.BufferedReader(Endless(begin, b" " * 8192, 2 * MAX_RECORD_BYTES // 8192))
    with pytest.raises(CorpusError, match="xml: expected at most 8,388,608 bytes an item, found more"):
        list(elements(stream, "x.xml", RECORD))


def test_xml_that_cannot_be_read_is_an_error_with_its_line(told) -> None:
    """Entities may not make much of little, and elements not be nested endlessly."""
    cases = [b"", b"<s>\n<a>1", b"<s>\n<a", b"<s>\n </t>", b"<s>\0</s>", b"<s>&uuml;</s>", b"<s/>\n<s/>"]
    cases += [b"<?xml version='1.0' encoding='fish'?><s/>"]
    cases += [begin + b"<s>" * 256 for begin in (b"<s>", b"<s><a>")]
    bomb = b"<!DOCTYPE s [<!ENTITY b '%b'><!ENTITY c '%b'>]><s><a%b</a></s>"
    cases.append(bomb % (b"x" * 1000, b"&b;" * 1000, b">&c;"))
    cases.append(bomb % (b"x" * 10**5, b"", b" x='%b'>" % (b"&b;" * 999)))
    told("XML", list(map(problem, cases)))


@pytest.mark.parametrize(
    "declared", ["c 'x'", "c SYSTEM 'file:///etc/hostname'", "% d SYSTEM 'file:///x'> %d;<!ENTITY c 'x'"]
)
def test_entities_stay_as_they_are_written(declared):
    found = elements(buffered(f"<!DOCTYPE s [<!ENTITY {declared}>]><s><a>&c;</a></s>"), "x", RECORD)
    assert [text_of(each) for _, each in found] == ["&c;"]


@pytest.mark.parametrize("end", [b"</s>", b"<a>\xfc</a></s>"])
def test_records_before_a_malformed_place_are_read(end: bytes) -> None:
    found = elements(buffered(b"<s><a>1</a><a>2" + end), "x.xml", RECORD)
    assert next(found)[1].text == "1"
    with pytest.raises(CorpusError, match=r"x.xml, line 1: "):
        next(found)


def test_default_values_of_attributes_are_not_used() -> None:
    data = b"<!DOCTYPE s [<!ATTLIST a x CDATA 'x'>]><s><a/></s>"
    assert [dict(each.attrib) for _, each in elements(buffered(data), "x.xml", RECORD)] == [{}]


def test_a_dtd_that_is_named_is_not_read_and_its_entities_stay() -> None:
    for name in ('SYSTEM "a.dtd"', 'PUBLIC "-//NLM//DTD PubMedArticle//EN" "https://dtd.nlm.nih.gov/a.dtd"'):
        text = f"<!DOCTYPE a {name}>\n<a>M&uuml;ll<b>er</b></a>"
        [(_, element)] = elements(buffered(text.encode()), "x.xml", RECORD)
        assert text_of(element) == "M&uuml;ller"


def test_encodings_are_told_by_the_bytes_or_declared() -> None:
    assert read("<s><a>ü</a></s>".encode("utf-16")) == ["ü"]
    assert read("<?xml version='1.0' encoding='ISO-8859-1'?><a>ü</a>".encode("latin-1")) == ["ü"]


@pytest.mark.parametrize(
    ("data", "tag"),
    [
        (b'<?xml version="1.0"?>\n<!-- <b> -->\n<!DOCTYPE a SYSTEM "a.dtd">\n<a id="1"/>', "a"),
        *((b"<!DOCTYPE a [<!ENTITY x '>'>]><a>", "a"), (b"<m:a xmlns:m='x'>", "m:a")),
        *((b"<!-- a comment that does not end <a>", ""), (b'{"a": "<a>"}', ""), (b"", "")),
    ],
)
def test_the_outermost_element_is_found_behind_the_prolog(data: bytes, tag: str) -> None:
    assert root_tag(Head("x.xml", data)) == tag

"""XML read one record at a time; DBLP's, which is refused."""

import io
import resource

import pytest
from support.formats import Endless, buffered

from qbe.corpus.formats import recognized
from qbe.corpus.head import Head
from qbe.corpus.xmlstream import MAX_DEPTH, MAX_RECORD_BYTES, elements, root_tag, text_of
from qbe.errors import CorpusError

RECORD = frozenset({"a"})


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
    around = [
        [each.get("id") for each in element.iterancestors()]
        for _, element in elements(buffered(data), "x.xml", RECORD)
    ]
    assert around == [["2", "1"], ["3", "1"]]


def test_the_outermost_element_can_be_the_record() -> None:
    assert read(b"<a>1</a>") == ["1"]


def test_records_across_the_ends_of_chunks_are_whole() -> None:
    texts = [str(number) * 50_000 for number in range(40)]
    assert read(b"<s>" + b"".join(f"<a>{text}</a>\n".encode() for text in texts) + b"</s>") == texts


@pytest.mark.slow
def test_a_long_document_is_read_in_bounded_memory() -> None:
    stream = io.BufferedReader(Endless(b"<s>", b"<b><c>x</c></b> <a>y</a> text " * 200, 10_000))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CorpusError, match="found its end"):
        for _ in elements(stream, "x.xml", RECORD):
            pass
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 32 << 10  # in KiB; the whole tree would have 800 MiB


@pytest.mark.parametrize("begin", [b"<s>", b"<s><a>", b"<s><!--", b"<s x='", b"<!--"])
def test_what_does_not_end_is_no_record(begin: bytes) -> None:
    stream = io.BufferedReader(Endless(begin, b" " * 8192, 2 * MAX_RECORD_BYTES // 8192))
    with pytest.raises(CorpusError) as caught:
        list(elements(stream, "x.xml", RECORD))
    expected = "x.xml, line 1: expected at most 8 MiB a record, found more; mend or remove it"
    assert str(caught.value) == expected


@pytest.mark.parametrize("begin", [b"<s>", b"<s><a>"])
def test_elements_may_not_be_nested_endlessly(begin: bytes) -> None:
    assert problem(begin + b"<s>" * MAX_DEPTH) == (
        "x.xml, line 1: expected elements nested at most 256 deep, found more; mend or remove them"
    )


@pytest.mark.parametrize(
    ("data", "line", "expected"),
    [
        (b"", 1, "the rest of the XML, found its end"),
        (b"<s>\n<a>1", 2, "the rest of the XML, found its end"),
        (b"<s>\n<a", 2, "the rest of the XML, found its end"),
        (
            b"<s>\n </t>",
            2,
            "well-formed XML, found an error (Opening and ending tag mismatch: s line 1 and t)",
        ),
        (
            b"<s>\0</s>",
            1,
            "well-formed XML, found an error (Invalid character: Char 0x0 out of allowed range)",
        ),
        (b"<s>&uuml;</s>", 1, "well-formed XML, found an error (Entity 'uuml' not defined)"),
        (b"<s/>\n<s/>", 2, "one XML document, found more after its end"),
        (b"<?xml version='1.0' encoding='fish'?><s/>", 1, "well-formed XML, found an error (Unsupported enc"),
    ],
)
def test_xml_that_cannot_be_read_is_an_error_with_its_line(data: bytes, line: int, expected: str) -> None:
    assert problem(data).startswith(f"x.xml, line {line}: expected {expected}")


def test_records_before_a_malformed_place_are_read() -> None:
    found = elements(buffered(b"<s><a>1</a><a>2</s>"), "x.xml", RECORD)
    assert next(found)[1].text == "1"
    with pytest.raises(CorpusError, match="Opening and ending tag mismatch"):
        next(found)


REFUSED = (
    "x.xml: expected a DOCTYPE without declarations, found some in brackets; remove them with the brackets"
)


@pytest.mark.parametrize(
    "declarations",
    [
        '<!ENTITY b "' + "x" * 1000 + '"><!ENTITY c "' + "&b;" * 1000 + '">',
        '<!ENTITY c SYSTEM "file:///etc/hostname">',
        '<!ENTITY % c SYSTEM "file:///etc/hostname"> %c;',
    ],
)
def test_declarations_are_refused_before_they_are_used(declarations: str) -> None:
    assert problem(f"<!DOCTYPE s [{declarations}]><s><a>&c;</a></s>".encode()) == REFUSED


def test_default_values_of_attributes_are_not_used() -> None:
    data = b"<!DOCTYPE s [<!ATTLIST a x CDATA 'x'>]><s><a/></s>"
    assert [dict(each.attrib) for _, each in elements(buffered(data), "x.xml", RECORD)] == [{}]


def test_declarations_behind_a_long_comment_are_refused() -> None:
    data = b"<!--" + b"x" * (1 << 19) + b"--><!DOCTYPE s [<!ENTITY c 'x'>]><s><a>&c;</a></s>"
    assert problem(data) == REFUSED


@pytest.mark.parametrize(
    "doctype",
    [
        '<!DOCTYPE dblp SYSTEM "dblp.dtd">',
        '<!DOCTYPE PubmedArticleSet PUBLIC "-//NLM//DTD PubMedArticle, 1st January 2025//EN" '
        '"https://dtd.nlm.nih.gov/ncbi/pubmed/out/pubmed_250101.dtd">',
    ],
)
def test_a_dtd_that_is_named_is_not_read(doctype: str) -> None:
    assert read(f"<?xml version='1.0'?>\n{doctype}\n<s><a>1</a></s>".encode()) == ["1"]


def test_an_entity_that_the_dtd_may_define_stays() -> None:
    [(_, element)] = elements(
        buffered(b'<!DOCTYPE a SYSTEM "a.dtd"><a>M&uuml;ll<b>er</b></a>'), "x.xml", RECORD
    )
    assert text_of(element) == "M&uuml;ller"


def test_bytes_that_are_not_of_the_encoding() -> None:
    found = elements(buffered(b"<s><a>1</a><a>\xfc</a></s>"), "x.xml", RECORD)
    assert next(found)[1].text == "1"
    with pytest.raises(CorpusError, match=r"x.xml, line 1: .*Invalid bytes in character encoding"):
        next(found)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_encodings_that_the_bytes_tell(encoding: str) -> None:
    assert read("<s><a>ü</a></s>".encode(encoding)) == ["ü"]


def test_an_encoding_that_is_declared() -> None:
    assert read("<?xml version='1.0' encoding='ISO-8859-1'?><s><a>ü</a></s>".encode("latin-1")) == ["ü"]


@pytest.mark.parametrize(
    ("data", "tag"),
    [
        (b'<?xml version="1.0"?>\n<!-- <b> -->\n<!DOCTYPE a SYSTEM "a.dtd">\n<a id="1"/>', "a"),
        (b"<!DOCTYPE a [<!ENTITY x '>'>]><a>", "a"),
        (b"<m:a xmlns:m='x'>", "m:a"),
        (b"<!-- a comment that does not end <a>", ""),
        (b'{"a": "<a>"}', ""),
        (b"", ""),
    ],
)
def test_the_outermost_element_is_found_behind_the_prolog(data: bytes, tag: str) -> None:
    assert root_tag(Head("x.xml", data)) == tag


def test_dblp_is_refused_at_once() -> None:
    with pytest.raises(CorpusError, match="found DBLP's XML, which has no abstracts; export"):
        recognized(buffered(b'<?xml version="1.0"?><!DOCTYPE dblp SYSTEM "dblp.dtd"><dblp/>'), "dblp.xml")

"""Entries of BibTeX and BibLaTeX."""

import logging
import time
from typing import Any

import pytest
from hypothesis import given, settings
from support.formats import FORMATS, buffered, check_reading, damaged, random_bytes

from qbe.corpus import bibtex
from qbe.corpus.entry import Entry
from qbe.corpus.head import Head
from qbe.corpus.markup import without_latex
from qbe.corpus.reading import Reading
from qbe.corpus.record import parse_paper
from qbe.errors import CorpusError, RecordError
from qbe.text.split import split_sentences
from qbe.types import Paper, Sentence

SAMPLE = FORMATS / "references.bib"
DATA = SAMPLE.read_bytes()
NONE = "an entry with fields in balanced braces or quotation marks, found none"
PIECES = [b"{", b"}", b'"', b"\\", b"#", b"@", b"\n@a{", b",", b"=", b"$", b"~", b"\0", b" and ", b"(", b")"]


def read(data: bytes | str) -> list[Entry]:
    return list(bibtex.read(buffered(data), "refs.bib", Reading()))


def only(fields: str) -> Any:
    [entry] = read(f"@article{{key, title = {{On fish}}, {fields}}}")
    return entry.record


def sample(key: str) -> Any:
    return next(record for _, record in read(DATA) if record["paper_id"] == key)


def test_an_entry_becomes_a_paper() -> None:
    where, record = read(DATA)[0]
    assert where == "refs.bib, line 7"
    assert isinstance(record, dict)
    first = "Ladders help salmon — or so we thought."
    second = "We count 5% more of them with nets, $n_{i} < 7$, and a camera."
    assert parse_paper(record, where, split_sentences) == Paper(
        paper_id="oneill_counting_2019",
        title="Counting Salmon in Gödel Ladders: A $x_{i}$ Story",
        sentences=(Sentence(first), Sentence(second)),
        labelled=False,
        metadata={
            "authors": [
                "Siobhán O'Neill",
                "Jan van der Berg Jr.",
                "Eví Łukáš",
                "Institute for Rivers and Lakes",
            ],
            "year": 2019,
            "date": "2019-05-07",
            "venue": "Fish Letters B",
            "doi": "10.1234/fish.2019_07",
            "url": "https://doi.org/10.1234/FISH.2019_07",
        },
        offsets=((0, 39), (40, 102)),
    )


def test_an_entry_of_mendeley() -> None:
    assert sample("Hoek2018") == {
        "paper_id": "Hoek2018",
        "title": "SWIM: Learning to Swim",
        "abstract": "We cut $\u03b1$ by ~5% & more. The SWIM tool is at http://example.org/~swim.",
        "metadata": {
            "authors": ["Ann Hoek", "Luis Ramírez"],
            "year": 2018,
            "date": "2018-01",
            "categories": ["cs.LG"],
            "url": "http://arxiv.org/abs/1801.01234",
            "ids": {"arxiv": "1801.01234"},
        },
    }


def test_an_entry_of_the_acl_anthology() -> None:
    assert sample("lee-ito-2020-fins") == {
        "paper_id": "lee-ito-2020-fins",
        "title": "Fins & Tails: A “Deep” Look",
        "abstract": "Fins differ. Mail us @ FINS, or see “Tails”.",
        "metadata": {
            "authors": ["Min Lee", "Ken Ito"],
            "year": 2020,
            "date": "2020-07-09",
            "venue": "Proceedings of the 3rd Workshop on Fins",
            "doi": "10.18653/v1/2020.fins-1.7",
            "url": "https://aclanthology.org/2020.fins-1.7/",
            "ids": {"acl": "2020.fins-1.7"},
        },
    }


def test_proceedings_have_no_abstract() -> None:
    assert sample("fins-2020")["abstract"] is None
    assert sample("fins-2020")["metadata"]["ids"] == {"acl": "2020.fins-1.0"}


def test_an_entry_of_biblatex() -> None:
    assert sample("ray2021") == {
        "paper_id": "ray2021",
        "title": "Rivers: A Survey",
        "abstract": "Rivers flow.",
        "metadata": {
            "authors": ["Sam Ray", "Ludwig van Beethoven"],
            "year": 2021,
            "date": "2021-03",
            "categories": ["q-bio.PE"],
            "ids": {"arxiv": "2103.01234"},
        },
    }


def test_every_entry_is_read_and_nothing_else() -> None:
    assert [(where.rpartition(" ")[2], record["paper_id"]) for where, record in read(DATA)] == [
        ("7", "oneill_counting_2019"),
        ("26", "Hoek2018"),
        ("40", "lee-ito-2020-fins"),
        ("56", "fins-2020"),
        ("62", "ray2021"),
    ]


def test_the_sample_is_recognized() -> None:
    assert bibtex.recognizes(Head("references.bib.gz", DATA))
    assert bibtex.recognizes(Head("-", DATA))


def test_an_unknown_type_of_entry_is_recognized_by_the_suffix() -> None:
    assert bibtex.recognizes(Head("a.bib", b"@fish{a, title={A}}"))


@pytest.mark.parametrize(
    "data",
    [
        b'{"paper_id": "1", "title": "A", "abstract": "B."}',
        b'[{"title": "@article{a, title={A}}"}]',
        b"<dblp>\n@article{a}</dblp>",
        b"TY  - JOUR\nTI  - A\nER  -\n",
        b"title,abstract\nA,B",
        b"",
    ],
)
def test_other_files_are_not_recognized(data: bytes) -> None:
    assert not bibtex.recognizes(Head("papers", data))


@pytest.mark.parametrize(
    ("author", "names"),
    [
        ("Knuth, Donald E.", ["Donald E. Knuth"]),
        ("Donald E. Knuth", ["Donald E. Knuth"]),
        ("King, Jr., Martin Luther", ["Martin Luther King Jr."]),
        ("{Barnes and Noble, Inc.}", ["Barnes and Noble, Inc."]),
        ("A. One AND B. Two and others", ["A. One", "B. Two"]),
        (r"Erd{\H o}s, P{\'a}l and {\L}ukasiewicz, Jan", ["Pál Erdős", "Jan Łukasiewicz"]),
        (r"Garc{\'\i}a~M{\'a}rquez, Gabriel", ["Gabriel García Márquez"]),
        ("A, B, C, D", ["A, B, C, D"]),
        ("and", ["and"]),
    ],
)
def test_authors_are_given_name_first(author: str, names: list[str]) -> None:
    assert only(f"author = {{{author}}}")["metadata"]["authors"] == names


@pytest.mark.parametrize(
    ("fields", "metadata"),
    [
        ("year = 2019", {"year": 2019}),
        ("year = {2019}, month = dec", {"year": 2019, "date": "2019-12"}),
        ('year = "2019", month = "10~" # jan', {"year": 2019, "date": "2019-01-10"}),
        ("year = 2019, month = {September}, day = {31}", {"year": 2019, "date": "2019-09-31"}),
        ("year = 2019, month = 5, day = 0", {"year": 2019, "date": "2019-05"}),
        ("year = 2019, month = {Spring}", {"year": 2019}),
        ("year = {in press}", {}),
        ("date = {2019-05-07/2019-05-09}", {"year": 2019, "date": "2019-05-07"}),
        ("date = {2019}", {"year": 2019}),
        ("month = may", {}),
    ],
)
def test_dates_say_what_is_known(fields: str, metadata: dict[str, Any]) -> None:
    assert only(fields)["metadata"] == metadata


@pytest.mark.parametrize(
    ("fields", "metadata"),
    [
        ("doi = {https://doi.org/10.1234/A\\_b}", {"doi": "10.1234/a_b"}),
        (
            "url = {\\url{https://doi.org/10.1234/A}}",
            {"doi": "10.1234/a", "url": "https://doi.org/10.1234/A"},
        ),
        ("eprint = {hep-th/9901001v2}, archiveprefix = {arXiv}", {"ids": {"arxiv": "hep-th/9901001"}}),
        ("eprint = {arXiv:1801.01234}, eprinttype = arxiv", {"ids": {"arxiv": "1801.01234"}}),
        ("eprint = {123}, eprinttype = {jstor}", {}),
        ("pmid = {777}", {"ids": {"pmid": "777"}}),
        (
            "url = {https://www.aclweb.org/anthology/N19-1423.pdf}",
            {"url": "https://www.aclweb.org/anthology/N19-1423.pdf", "ids": {"acl": "N19-1423"}},
        ),
        ("booktitle = {Proc. of {FISH}}", {"venue": "Proc. of FISH"}),
        ("journaltitle = {Fish {\\&} Chips}", {"venue": "Fish & Chips"}),
    ],
)
def test_ids_and_places_are_plain(fields: str, metadata: dict[str, Any]) -> None:
    assert only(fields)["metadata"] == metadata


@pytest.mark.parametrize(
    ("value", "title"),
    [
        ('"A" # { B} # " C"', "A B C"),
        ('"{"}A{"} " # s', '"A" String'),
        ("S", "String"),
        ("unknown", "unknown"),
        ("{A # B}", "A # B"),
        ('"A # B"', "A # B"),
        ("2019 # { A}", "2019 A"),
    ],
)
def test_values_are_joined_and_strings_replaced(value: str, title: str) -> None:
    assert read(f"@string(s = {{String}})\n@book{{a, title = {value}}}")[0].record["title"] == title


@pytest.mark.parametrize(
    ("latex", "text"),
    [
        (r"{caf\'e} is, \' e", "{café} is, é"),
        (r"\v{s}\v s \c{c} \'{\i}\.I {\aa}\o{} \ss en", "šš ç íİ åø ßen"),
        (r"\'x \d x \'{} \~{}", r"\'x \d x ' ~"),
        (r"he said \"hello\"", r"he said \"hello\""),
        (r"\alpha-helix \textless{} \frac{a}{b} \item \LaTeX", r"\u03b1-helix < \frac{a}{b} \item LaTeX"),
        (r"\textbf{a \textit{b} {\em c}} \href{http://a.b}{d}", "a b c d"),
        (r"{\it In $\emph{x}$ vivo} $$\%\'e$$ \$5", r"In $\emph{x}$ vivo $$\%\'e$$ $5"),
        (r"10\,km of anti\-body et al.\ {\%}", "10 km of antibody et al. %"),
        ("$\0$ \\%", "$\0$ \\%"),
    ],
)
def test_latex_becomes_characters_outside_formulas(latex: str, text: str) -> None:
    assert without_latex(latex) == text.replace(r"\u03b1", "\u03b1")


def test_a_string_of_strings_does_not_grow_without_end() -> None:
    strings = "@string{a = {fish}}\n" + "@string{a = a # a # a}\n" * 60
    title = read(f"{strings}@book{{a, title = a}}")[0].record["title"]
    assert len(title) == 1_000_001


def test_an_entry_in_parentheses_and_several_in_a_line() -> None:
    entries = read("\ufeff@book(a, title={A})  @book{b,title={B},}\n\n @Book{b,TITLE={C (c)}}")
    assert [(where, record["title"]) for where, record in entries] == [
        ("refs.bib, line 1", "A"),
        ("refs.bib, line 1", "B"),
        ("refs.bib, line 3", "C (c)"),
    ]


def test_an_entry_within_a_comment_is_read_as_bibtex_does() -> None:
    assert [record["paper_id"] for _, record in read("@comment{\n@book{a, title={A}}\n}\n")] == ["a"]


@pytest.mark.parametrize(
    ("broken", "found", "reason"),
    [
        (
            "@book{a, title = {A}",
            f"{NONE} (Unexpectedly reached end of file.); mend or remove it",
            "a broken entry",
        ),
        (
            "@book{a, title}",
            f"{NONE} (Expected a '=' after entry key 'title', but found the end of the entry ('}}').); "
            "mend or remove it",
            "a broken entry",
        ),
        (
            "@book{title = {A}}",
            f"{NONE} (Expected comma after entry key, but found =); mend or remove it",
            "a broken entry",
        ),
        (
            "@book{, title = {A}}",
            "a key at the beginning of the entry, found none; add one",
            "no paper_id",
        ),
        ("@book{a, year = 1}", "a title, found none; add it or remove the entry", "no title"),
        (
            "@book{a, title = {A}, title = {B}}",
            "each field once, found 'title' again; remove all but one",
            "a field that occurs twice",
        ),
        (
            "@book{a, title = {A}, Title = {B}}",
            "each field once, found 'Title' again; remove all but one",
            "a field that occurs twice",
        ),
    ],
)
def test_a_defect_concerns_one_entry(broken: str, found: str, reason: str) -> None:
    before, entry, after = read(f"@book{{b, title={{B}}}}\n{broken}\n@book{{c, title={{C}}}}\n")
    assert (before.record["paper_id"], after.record["paper_id"]) == ("b", "c")
    assert isinstance(entry.record, RecordError)
    assert str(entry.record) == f"refs.bib, line 2: expected {found}"
    assert entry.record.reason == reason


def test_an_entry_that_is_too_long_is_one_error() -> None:
    text = "x" * 1000 + "\n"
    data = f"@book{{a, title={{A}}, abstract={{{text * 5000}}}}}\n@book{{b, title={{B}}}}\n"
    long, other = read(data)
    assert str(long.record) == (
        "refs.bib, line 1: expected an entry with fields in balanced braces or quotation marks, found more "
        "than 4 MiB of text; mend or remove it"
    )
    assert other.record["paper_id"] == "b"


def test_a_key_with_white_space_is_refused_when_the_paper_is_made() -> None:
    [entry] = read("@book{a b, title={A}, abstract={B.}}")
    assert isinstance(entry.record, dict)
    with pytest.raises(RecordError, match="expected a paper_id without white space"):
        parse_paper(entry.record, entry.where, split_sentences)


def test_another_encoding_ends_the_reading_with_one_line() -> None:
    data = "@book{a, title={A}}\n@book{b,\ntitle={Müller}}".encode("latin-1")
    entries = bibtex.read(buffered(data), "refs.bib", Reading())
    assert next(entries).record["paper_id"] == "a"
    with pytest.raises(CorpusError) as caught:
        next(entries)
    assert type(caught.value) is CorpusError
    assert str(caught.value) == (
        "refs.bib, line 2: expected UTF-8 text, found byte 0xfc at position 18; convert the file to UTF-8"
    )


def test_what_is_wrong_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    read("@book{a, title}")
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize(
    "value",
    [
        "{" * 200_000 + "}" * 200_000,
        "\\{" * 200_000,
        "{\\'" * 200_000 + "}" * 200_000,
        "\\emph{" * 100_000 + "}" * 100_000,
        "$" * 400_000,
        "a-" * 200_000,
        "a and " * 100_000,
        "a," * 200_000,
        "@ " * 200_000,
    ],
)
def test_hostile_values_take_a_moment(value: str) -> None:
    fields = ("title", "author", "abstract", "eprint", "url", "month")
    start = time.process_time()
    read(
        "@book{a, archiveprefix={arxiv}, year=1, " + "".join(f"{name}={{{value}}}, " for name in fields) + "}"
    )
    assert time.process_time() - start < 20


@settings(max_examples=1000, deadline=None)
@given(random_bytes(b"@article{a, title={A}, "))
def test_random_bytes_are_entries_or_errors(data: bytes) -> None:
    check(data)


@settings(max_examples=1000, deadline=None)
@given(damaged(DATA, pieces=PIECES))
def test_a_damaged_file_is_entries_and_errors(data: bytes) -> None:
    check(data)


def check(data: bytes) -> None:
    for record in check_reading(bibtex.read, data, "refs.bib, line "):
        assert isinstance(record["paper_id"], str)

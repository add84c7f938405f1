"""Entries of BibTeX and BibLaTeX."""

import time
from pathlib import Path

import pytest
from support.formats import buffered

from qbe.corpus import bibtex
from qbe.corpus.markup import clean_bibtex
from qbe.corpus.reading import FORMATS, read_corpus
from qbe.corpus.records import Entry, Reading
from qbe.corpus.sentences import split_sentences
from qbe.corpus.streams import Head
from qbe.errors import RecordError


def read(data: bytes | str) -> list[Entry]:
    return list(bibtex.read(buffered(data), "refs.bib", Reading()))


def test_an_unknown_type_of_entry_is_recognized_by_the_suffix() -> None:
    assert FORMATS["bibtex"].recognizes(Head("a.bib", b"@fish{a, title={A}}"))


def test_latex_with_braces_that_are_not_balanced_becomes_text() -> None:
    latex = r"he said \"hello\" don\'t {\textbackslash}alpha a} b"
    assert clean_bibtex(latex) == 'he said "hello" don\'t \\alpha a b'
    assert clean_bibtex("a\1b\\\\c") == "a b c"
    assert clean_bibtex(r"{\pounds}5, \euro{} 5{\ddag}") == "\xa35, € 5‡"


def test_a_string_of_strings_does_not_grow_without_end() -> None:
    strings = "@string{a = {fish}}\n" + "@string{a = a # a # a}\n" * 60
    assert len(read(f"{strings}@book{{a, title = a}}")[0].record["title"]) == 1_000_001


def test_an_entry_in_parentheses_and_several_in_a_line() -> None:
    entries = read("\ufeff@book(a, title={A})  @book{b,title={B},}\n@comment{\n@Book{b,TITLE={C (c)}}\n}\n")
    assert [(where, record["title"]) for where, record in entries] == [
        ("refs.bib, line 1", "A"),
        ("refs.bib, line 1", "B"),
        ("refs.bib, line 3", "C (c)"),
    ]


def test_a_defect_concerns_one_entry(told) -> None:
    reasons, messages = [], []
    for broken in (
        *("@book{a, title = {A}", "@book{a, title = {A\n", '@book{a, title = "A,\n}', "@book{a, title}"),
        *("@book{a title = {A}}", "@book{a,\n title={A} year={1}}", "@book{a,\n title={A}},\n year={1}}"),
        *("@book{a, title = {A} {B}}", "@book{a, title = in press}", "@bo%ok{}", "@book{a, year = 1}"),
        *("@book{a, title = {\xfc}}", "@xdata{a, title = {A}}"),
        f"@book{{a, title={{A}}, abstract={{{'xxxxxxxxx ' * 500_000}}}}}",
    ):
        text = f"@book{{b, title={{B}}}}\n{broken}\n@book{{c, title={{C}}}}\n"
        before, entry, after = read(text.encode("latin-1"))
        assert (before.record["paper_id"], after.record["paper_id"]) == ("b", "c")
        messages.append(str(entry.record))
        reasons.append(entry.record.reason)
    assert reasons[10:13] == ["no title", "text that is not UTF-8", "not a paper"]
    assert {*reasons[:10], reasons[-1]} == {"a broken entry"}
    told("entries of BibTeX", messages)


def test_escaped_braces_count_for_bibtex_and_where_others_do_not_balance_do_not() -> None:
    text = "@book{a, title = {An open \\{ brace}}\n@book{b, title = {A {\\} B}, year = 2001}\n"
    titles = [entry.record["title"] for entry in read(text + "@book{c, title = {\\{C\\}}}\n")]
    assert titles == ["An open { brace", "A } B", "{C}"]


def test_a_long_entry_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bibtex, "MAX_ENTRY_BYTES", 1000)
    long, after = read("\n@book{a, title={A}, abstract={" + "x\n" * 2500 + "}}\n@book{c, title={C}}\n")
    assert isinstance(long.record, RecordError) and long.record.reason == "a broken entry"
    assert "line 2:" in str(long.record) and "line 2503" in after.where
    assert after.record["title"] == "C"


def test_what_is_left_of_a_damaged_string_and_of_an_entry_without_a_beginning() -> None:
    damaged = "@artic1, title={A}}\n@string{s = {x}, y\n"
    first, entry, left = read(damaged + "@book{b, title={B}}\nof another\n year={1},\n}\n")
    assert (first.where, entry.record["title"]) == ("refs.bib, line 1", "B")
    assert "line 5: expected the beginning of an entry, found a field without one" in str(left.record)


def test_an_entry_has_the_venue_and_the_year_of_its_parents() -> None:
    none, *others = read(
        "@xdata{pub, publisher = {P}, keywords = {fish, nets}}\n"
        "@inproceedings{a, title = {A}, crossref = {C19}, xdata = {pub}}\n"
        "@inproceedings{b, title = {B}, crossref = {c19}, year = {2020}, booktitle = {Own}}\n"
        "@inproceedings{d, title = {D}, crossref = {none}}\n"
        "@proceedings{c19, title = {Proc. of Fish}, year = {2019}, month = jul, crossref = {c19}}\n"
    )
    assert isinstance(none.record, RecordError)
    records = {entry.record["paper_id"]: entry.record["metadata"] for entry in others}
    assert list(records) == ["c19", "a", "b", "d"]
    inherited = {"year": 2019, "date": "2019-07", "venue": "Proc. of Fish", "tags": ["fish", "nets"]}
    assert records["a"] == {"key": "a", **inherited}
    assert records["b"] == {"key": "b", "year": 2020, "venue": "Own"}
    assert records["d"] == {"key": "d"}


def test_many_parents_take_a_moment() -> None:
    keys = [f"k{number}" for number in range(1000)]
    start = time.process_time()
    read("".join(f"@xdata{{{key}, xdata = {{{','.join(keys)}}}}}\n" for key in keys))
    assert time.process_time() - start < 20


def test_what_is_no_paper_stops_no_reading(tmp_path: Path) -> None:
    file = tmp_path / "refs.bib"
    file.write_text("@control{x, a={b}}\n@misc{a b, title={A}, abstract={We fish.}}\n")
    (paper,) = read_corpus([str(file)], split_sentences)
    assert (paper.paper_id, paper.metadata) == ("a_b", {"key": "a b"})


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_ends_of_lines(end: str) -> None:
    text = "\n% x\n@book{a,\n title={A\n b}}\n \ufeff@book{b\n,title={B}}\n\x0b@book\n{c, title={C}}\n"
    assert [(where, record["title"]) for where, record in read(text.replace("\n", end))] == [
        ("refs.bib, line 3", "A b"),
        ("refs.bib, line 6", "B"),
        ("refs.bib, line 8", "C"),
    ]

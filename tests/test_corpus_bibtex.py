"""Entries of BibTeX and BibLaTeX."""

import time
from pathlib import Path
from typing import Any

import pytest
from support.formats import FORMATS, buffered

from qbe.corpus import bibtex, bibtex_syntax
from qbe.corpus.head import Head
from qbe.corpus.markup import clean_bibtex, without_latex
from qbe.corpus.read import read_corpus
from qbe.corpus.reading import Entry, Reading
from qbe.errors import RecordError
from qbe.text.split import split_sentences

BROKEN = "a broken entry"


def read(data: bytes | str) -> list[Entry]:
    return list(bibtex.read(buffered(data), "refs.bib", Reading()))


def only(fields: str) -> Any:
    [entry] = read(f"@article{{, title = {{On fish}}, {fields}}}")
    return entry.record


def test_an_unknown_type_of_entry_is_recognized_by_the_suffix() -> None:
    assert bibtex.recognizes(Head("a.bib", b"@fish{a, title={A}}"))


@pytest.mark.parametrize(
    ("author", "names"),
    [
        ("Knuth, Donald E.", ["Donald E. Knuth"]),
        ("Donald E. Knuth", ["Donald E. Knuth"]),
        ("King, Jr., Martin Luther", ["Martin Luther King Jr."]),
        ("{Barnes and Noble, Inc.}", ["Barnes and Noble, Inc."]),
        ("A. One AND B. Two", ["A. One", "B. Two"]),
        (r"Erd{\H o}s, P{\'a}l and {\L}ukasiewicz, Jan", ["Pál Erdős", "Jan Łukasiewicz"]),
        (r"Garc{\'\i}a~M{\'a}rquez, Gabriel", ["García Márquez, Gabriel"]),
        ("A, B, C, D", ["B A", "D C"]),
        ("and", ["and"]),
        (r"Nguy{\~{\^e}}n, V{\u{a}}n and {\relax Ch}. Lee and Doe,", ["Văn Nguyễn", "Ch. Lee", "Doe"]),
        ("family=Lee, given=Ann and prefix=van, family={Berg}, given={J.}", ["Ann Lee", "J. van Berg"]),
        (r"Jos\'e {Hern{\'a}ndez N{\'u}{\~n}ez} and {Lee}, A.", ["Hernández Núñez, José", "A. Lee"]),
        ("{{Fish and Sons}} and Ann Lee", ["Fish and Sons", "Ann Lee"]),
        ("Liu R. and Ann B. and Bo Ray 0001", ["R. Liu", "B. Ann", "Bo Ray"]),
        ("Lee, Ann; Ray, Bo and Doe, C.", ["Ann Lee", "Bo Ray", "C. Doe"]),
        ("Lee, Ann, Jr. and and de la Cruz, Ana", ["Ann Lee Jr.", "Ana de la Cruz"]),
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
        ("year = {{2013}}, month = {{SEP-OCT}}", {"year": 2013, "date": "2013-09"}),
        ("year = 2013, month = {{OCT 12}}", {"year": 2013, "date": "2013-10-12"}),
        ("year = 2013, month = {01}", {"year": 2013, "date": "2013-01"}),
        ("year = 2013, month = {1st Quarter}", {"year": 2013}),
        ("date = {2004-22}", {"year": 2004}),
        ("date = {2013-10/2013-12}", {"year": 2013, "date": "2013-10"}),
        ("date = {5 Oct 2013}", {"year": 2013, "date": "2013-10-05"}),
        ("date = {10/05/2013}", {"year": 2013}),
        ("year = {circa 2010}", {"year": 2010}),
        ("year = {[c2010]}", {"year": 2010}),
        ("year = {2013-10-05}", {"year": 2013, "date": "2013-10-05"}),
        ("year = {0000}", {}),
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
        ("journal = {\\aap}", {"venue": "Astronomy and Astrophysics"}),
        ("journal = {{\\MNRAS}}", {"venue": "Monthly Notices of the Royal Astronomical Society"}),
        ("adsurl = {http://x.org/2019A\\&A...1L}", {"url": "http://x.org/2019A&A...1L"}),
        ("url = {http://x.org/\\~{}lee/{\\textasciitilde}b$\\sim$c}", {"url": "http://x.org/~lee/~b~c"}),
        (
            "journal = {arXiv preprint arXiv:1801.01234v2}",
            {"venue": "arXiv preprint arXiv:1801.01234v2", "ids": {"arxiv": "1801.01234"}},
        ),
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
    ],
)
def test_latex_becomes_characters_outside_formulas(latex: str, text: str) -> None:
    assert without_latex(latex) == text.replace(r"\u03b1", "\u03b1")


@pytest.mark.parametrize(
    ("latex", "text"),
    [
        (
            r"The \enquote{best {\em of}} {III}\textendash{V} \mkbibemph{Law}",
            "The \u201cbest of\u201d III\u2013V Law",
        ),
        (r"A {\ensuremath{\gamma}}-ray, \ensuremath{x_{i}^2}", "A \u03b3-ray, $x_{i}^2$"),
        (r"Don\textquoteright t \foo{bar {\baz x}} \ours", "Don\u2019t bar baz x ours"),
        (r"{\noopsort{a}}1973 \textcolor{red}{z} CO\textsubscript{2}", "1973 z CO2"),
        (r"\{0,1\} {\{}SWIM{\}} $<$5 $\sim$7 \'{\i}{\o}re", "{0,1} SWIM <5 ~7 íøre"),
        (r"he said \"hello\" don\'t {\textbackslash}alpha a} b", 'he said "hello" don\'t \\alpha a b'),
        (r"\emph{The {BERT} {\o}re} $O(n^{2})$ et~al.---x", "The BERT øre $O(n^{2})$ et al.—x"),
    ],
)
def test_latex_of_bibtex_becomes_text(latex: str, text: str) -> None:
    assert clean_bibtex(latex) == text


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
    ("broken", "problem", "reason"),
    [
        ("@book{a, title = {A}", "a comma after 'title', found the end of the entry (line 2)", BROKEN),
        ("@book{a, title = {A\n", "a closing brace, found none (line 2)", BROKEN),
        ('@book{a, title = "A,\n}', "a closing quotation mark, found none (line 2)", BROKEN),
        ("@book{a, title}", "a field or a closing brace, found 'title}' (line 2)", BROKEN),
        ("@book{a title = {A}}", "a comma after the key, found '= {A}}' (line 2)", BROKEN),
        ("@book{a,\n title={A}\n year={1}}", "a comma after 'title', found 'year={1}}' (line 4)", BROKEN),
        (
            "@book{a,\n title={A}},\n year={1}}",
            "as many closing braces as opening ones, found one more (line 3)",
            BROKEN,
        ),
        ("@book{a, title = {A} {B}}", "a comma after 'title', found '{B}}' (line 2)", BROKEN),
        ("@book{a, title = in press}", "a comma after 'title', found 'press}' (line 2)", BROKEN),
        ("@book{a, year = 1}", "a title, found none", "no title"),
        ("@book{a, title = {\xfc}}", "UTF-8 text, found byte 0xfc at position 19", "text that is not UTF-8"),
        ("@xdata{a, title = {A}}", "a paper, found @xdata", "not a paper"),
    ],
)
def test_a_defect_concerns_one_entry(broken: str, problem: str, reason: str) -> None:
    text = f"@book{{b, title={{B}}}}\n{broken}\n@book{{c, title={{C}}}}\n"
    before, entry, after = read(text.encode("latin-1"))
    assert (before.record["paper_id"], after.record["paper_id"]) == ("b", "c")
    assert isinstance(entry.record, RecordError)
    assert str(entry.record).startswith(f"refs.bib, line 2: expected {problem}; ")
    assert entry.record.reason == reason


FLAWED: dict[str, tuple[str, tuple[str, list[str], int | None, str | None] | None]] = {
    "JabRef 9668, a path that ends with a backslash": (
        "@InProceedings{Wen2013,\n library = {Tagungen\\2013\\},\n title = {Steam}\n}",
        ("Steam", [], None, "Wen2013"),
    ),
    "JabRef 2561, a backslash before a brace": (
        "@Article{r6,\n author = {Mooers, A.},\n title = {{Trees of {\\{O}}}}\n}",
        ("Trees of {O", ["A. Mooers"], None, "r6"),
    ),
    "JabRef 9833, a brace before a number is not closed": ("@misc{a,\n title={Up to 15{\\%}\n}", None),
    "JabRef 8011, no comma before the last field": (
        "@misc{a,\n title={A},\n year={2013}\n url={http://x.org}\n}",
        None,
    ),
    "bibtexparser 124, a line of a title begins with @": (
        "@article{ art,\nTitle = {{Blah blah\n   @blah blah}},\n}",
        ("Blah blah @blah blah", [], None, "art"),
    ),
    "bibtexparser 172, the last field ends the entry": (
        "@book{R:intro,\n title = {{R}},\n year = {2016},\n url = {\\url{http://x.org/a_b.pdf}}}",
        ("R", [], 2016, "R:intro"),
    ),
    "bibtexparser 211, no fields": ("@misc{I am not correct{{}", None),
    "bibtexparser 390, no key": ("@misc{title = {Notes}, year = 2001}", ("Notes", [], 2001, None)),
    "autocomplete-bibtex 120, a month without braces at the end": (
        "@misc{u1,\n title = {Pact: {{V}}},\n author = {{UNFCCC}},\n year = {2021},\n month = nov\n}",
        ("Pact: V", ["UNFCCC"], 2021, "u1"),
    ),
    "Better BibTeX 99, an equals sign in the key": (
        "@book{editor=Claudius,\n title = {Systems}, date = {2014},\n note = {Ptolemaeus{]}}\n}",
        ("Systems", [], 2014, None),
    ),
    "Better BibTeX 2504, blanks between arguments": (
        "@misc{ GAP4,\n title = {{GAP} {\\textendash} \\href {https://x.org} {\\texttt{{G}roups}}}}",
        ("GAP \u2013 Groups", [], None, "GAP4"),
    ),
    "Scopus, a blank in the name of a field": (
        "Scopus\nEXPORT DATE: 1 May\n@ARTICLE{Lee20191,\nauthor={Lee, A. and Ray, B.},\ntitle={Fish},\n"
        "year={2019},\nfunding_text 1={EU},\nsource={Scopus},\n}",
        ("Fish", ["A. Lee", "B. Ray"], 2019, "Lee20191"),
    ),
    "IEEE, no line end between entries": (
        "@ARTICLE{1, title={Fish}, year={2019}}@INPROCEEDINGS{2, title={Birds}}",
        ("Fish", [], 2019, "1"),
    ),
    "comments between fields": (
        "% Encoding: UTF-8\n\n@Article{a,\n title = {Fish}, % checked\n % year = {2001},\n year = {2002},\n}",
        ("Fish", [], 2002, "a"),
    ),
    "empty and repeated fields, and one without a value": (
        "@article{s1,\n title={},\n title={Fish},\n Title={Birds},\n volume = ,\n year={2019},,\n}",
        ("Fish", [], 2019, "s1"),
    ),
    "quotation marks after backslashes": (
        '@article{g1, title = "G\\"odel\'s \\"proof\\"", year = "1931"}',
        ('G\xf6del\'s "proof"', [], 1931, "g1"),
    ),
    "braces after backslashes that open nothing": (
        "@article{i1, title = {Sets}, abstract = {Of [0, 1\\} and \\}.}}",
        ("Sets", [], None, "i1"),
    ),
}
"""Kinds of flaws, some with the program and the number of a report; title, authors, year and key of the first
entry, or None where it is reported."""


@pytest.mark.parametrize("kind", FLAWED)
def test_flawed_entries_are_right_or_reported(kind: str) -> None:
    text, expected = FLAWED[kind]
    first = read(f"{text}\n")[0].record
    if expected is None:
        assert isinstance(first, RecordError)
        return
    assert isinstance(first, dict)
    metadata = first["metadata"]
    assert (first["title"], metadata.get("authors", []), metadata.get("year"), first["paper_id"]) == expected
    assert metadata.get("key") == expected[-1]


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


@pytest.mark.parametrize(
    ("fields", "tags", "collections"),
    [
        ("keywords = {nlp, {Deep} nets,nlp, }, mendeley-tags = {read,nlp}", ["nlp", "Deep nets", "read"], []),
        ("keywords={{A, b; C}}, author_keywords={D\n E; C}", ["A, b", "C", "D E"], []),
        ("groups = {Own, To read}, mendeley-groups = {Fish/Nets}", [], ["Own", "To read", "Fish/Nets"]),
    ],
)
def test_tags_and_collections(fields: str, tags: list[str], collections: list[str]) -> None:
    metadata = only(fields)["metadata"]
    assert (metadata.get("tags", []), metadata.get("collections", [])) == (tags, collections)


def test_what_is_no_paper_stops_no_reading(tmp_path: Path) -> None:
    file = tmp_path / "refs.bib"
    file.write_text("@control{x, a={b}}\n@misc{a b, title={A}, abstract={We fish.}}\n")
    assert [(paper.paper_id, paper.metadata) for paper in read_corpus([str(file)], split_sentences)] == [
        ("a_b", {"key": "a b"})
    ]


def test_an_entry_that_is_too_long_is_one_error() -> None:
    text = "x" * 1000 + "\n"
    data = f"\n@book{{a, title={{A}}, abstract={{{text * 5000}}}}}\n@book{{b, title={{B}}}}\n"
    long, other = read(data)
    assert str(long.record) == (
        "refs.bib, line 2: expected at most 4 MiB of text, found more; mend or remove the entry"
    )
    assert (other.where, other.record["paper_id"]) == ("refs.bib, line 5003", "b")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_ends_of_lines(end: str) -> None:
    text = "\n% x\n@book{a,\n title={A\n b}}\n \ufeff@book{b\n,title={B}}\n\x0b@book\n{c, title={C}}\n"
    assert [(where, record["title"]) for where, record in read(text.replace("\n", end))] == [
        ("refs.bib, line 3", "A b"),
        ("refs.bib, line 6", "B"),
        ("refs.bib, line 8", "C"),
    ]


@pytest.mark.parametrize("size", [1, 7, 64])
def test_entries_do_not_depend_on_how_much_is_read_at_a_time(size, monkeypatch):
    data = (FORMATS / "references.bib").read_bytes()
    whole = read(data)
    monkeypatch.setattr(bibtex_syntax, "_CHUNK_BYTES", size)
    assert read(data) == whole


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

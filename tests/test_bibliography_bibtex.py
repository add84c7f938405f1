"""BibTeX: what bibtexparser and pylatexenc read back is what was written."""

import re
from pathlib import Path

import pytest
from bibtexparser import parse_string
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.bibliographies import CHIPS, NAMES, TEXTS, paper_of, read_bibtex
from support.formats import buffered

from qbe.bibliography.latex import to_latex, with_formulas
from qbe.bibliography.reference import reference_of
from qbe.bibliography.writing import comment, entries, to_bibtex
from qbe.corpus import read_jsonl
from qbe.corpus.bibtex import read
from qbe.corpus.reading import Reading
from qbe.errors import UsageError

DATA = Path(__file__).parent / "data"


def test_an_entry_in_full():
    assert to_bibtex(reference_of(CHIPS), "key") == (
        "@article{key,\n"
        "  title = {Fish \\& {Chips}: a \\textbraceleft{}{BERT} for {$O(n^2)$} menus},\n"
        "  author = {van der Müller, Zoë and Ångström, Jr., Íñigo and {ATLAS Collaboration} and {Plato}},\n"
        "  journal = {Journal of Chips \\& Dips},\n"
        "  year = {2019},\n"
        "  doi = {10.1145/7_9},\n"
        "  url = {https://arxiv.org/abs/1905.01234},\n"
        "  eprint = {1905.01234},\n"
        "  archiveprefix = {arXiv},\n"
        "  primaryclass = {cs.CL},\n"
        "  abstract = {Fish\\_1 costs 5\\% more. We \\textbackslash{}save\\textasciitilde{}it.},\n"
        "}\n"
    )


@settings(max_examples=30)
@given(title=TEXTS, abstract=TEXTS, venue=TEXTS, authors=st.lists(NAMES, max_size=4))
@example(title=r"A $\^$ and $\hat x$", abstract=r"$\^$\ ", venue=r"$x\frac{a}$ and $\hat$", authors=[])
def test_any_text_is_read_back(title, abstract, venue, authors):
    paper = paper_of(title, abstract, authors=authors, venue=venue)
    reference = reference_of(paper)
    (fields,) = read_bibtex(to_bibtex(reference, "key"))
    assert fields.get("title", "") == reference.title
    assert fields.get("abstract", "") == reference.abstract
    assert fields.get("journal", fields.get("booktitle", "")) == reference.venue
    assert fields.get("author", []) == list(reference.authors)


@settings(max_examples=40)
@given(st.text(st.characters(exclude_categories=["Cc", "Cs", "Z"]), min_size=1))
def test_any_doi_is_read_back_but_for_braces_and_backslashes(text):
    (fields,) = read_bibtex(to_bibtex(reference_of(paper_of("On fish", doi=f"10.1145/{text}")), "key"))
    expected = f"10.1145/{text}".lower()
    for character, code in (("\\", "%5C"), ("{", "%7B"), ("}", "%7D"), ("^^", "%5E%5E")):
        expected = expected.replace(character, code)
    assert fields["doi"] == expected


def test_the_entries_of_papers():
    """Formulas, capitals, venues that make the type, ids of arXiv and keys: a paper a line, an entry each."""
    papers = list(read_jsonl(DATA / "bibliography.jsonl"))
    assert "\n".join(entries(papers)) == (DATA / "bibliography.bib").read_text()
    texts = [text for paper in papers for text in (paper.title, paper.abstract)]
    assert ["".join(part for part, _ in with_formulas(text)) for text in texts] == texts


def test_a_field_has_one_line():
    (entry,) = entries([paper_of("On\nfish,\r\n @article{x,\tand\u2028chips\x0b\x00", "A\x85b.")])
    assert entry.splitlines()[1:3] == [
        "  title = {On fish, @article\\textbraceleft{}x, and chips},",
        "  abstract = {A b.},",
    ]


def test_the_reader_of_a_corpus_reads_it_back():
    text = "%% a query\n" + "".join(entries([CHIPS]))
    (entry,) = read(buffered(text), "refs.bib", Reading())
    key, address = "Muller2019fish", "https://arxiv.org/abs/1905.01234"
    metadata = {"key": key, **CHIPS.metadata, "url": address, "ids": {"arxiv": "1905.01234"}}
    texts = {"paper_id": key, "title": CHIPS.title, "abstract": CHIPS.abstract}
    assert entry.record == texts | {"metadata": metadata}


FORMULAS = [
    *(r"\input{/etc/passwd}", r"\immediate\write18{id}", r"\catcode`\%=12", r"\def\x{y}", "^^5cinput{a}"),
    *(r"\csname input\endcsname{a}", r"\openout1=a", r"\begin{filecontents}{a}", r"\text{\include{a}}"),
    *(r"\loop\iftrue\repeat", r"\href{a}{b}", r"\directlua{x}", r"\unknown x"),
]


@pytest.mark.parametrize("formula", FORMULAS)
def test_a_formula_has_no_commands_but_those_of_mathematics(formula):
    latex = to_latex(f"a ${formula}$ b")
    characters = {"backslash", "braceleft", "braceright", "asciicircum"}
    assert set(re.findall(r"\\(\w+)", latex)) <= {f"text{name}" for name in characters}
    assert latex.startswith(r"a \$")


def test_a_comment_begins_no_entry():
    text = comment("a@article{x,\nb") + "".join(entries([paper_of("On fish")]))
    assert text.startswith("%% a(at)article{x, b\n@misc{")
    library = parse_string(text)
    assert [entry.key for entry in library.entries] == ["Anonymousfish"]
    assert not library.failed_blocks
    with pytest.raises(UsageError, match="`form` bibtex or ris, found 'bib'"):
        entries([], "bib")

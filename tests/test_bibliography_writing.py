"""Bibliographies: what bibtexparser and pylatexenc, and rispy, read back is what was written."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import rispy
from bibtexparser import parse_string
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.bibliographies import CHIPS, NAMES, TEXTS, paper_of, read_bibtex
from support.formats import buffered

from qbe import Reading, UsageError
from qbe.corpus.bibliography import comment, entries, reference_of, to_bibtex, to_latex, to_ris, with_formulas
from qbe.corpus.json_formats import read_jsonl
from qbe.corpus.reading import FORMATS

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
def test_any_text_of_bibtex_is_read_back(title, abstract, venue, authors):
    reference = reference_of(paper_of(title, abstract, authors=authors, venue=venue))
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
    assert text.startswith("% a(at)article{x, b\n@misc{")
    library = parse_string(text)
    assert [entry.key for entry in library.entries] == ["Anonymousfish"]
    assert not library.failed_blocks
    with pytest.raises(UsageError, match="`form` bibtex or ris, found 'bib'"):
        entries([], "bib")


def test_a_record_of_ris_in_full():
    assert to_ris(reference_of(CHIPS)) == (
        "TY  - JOUR\n"
        "DP  - qbe\n"
        "ID  - 1905.01234\n"
        "TI  - Fish & Chips: a {BERT for $O(n^2)$ menus\n"
        "AU  - van der Müller, Zoë\n"
        "AU  - Ångström, Íñigo, Jr.\n"
        "AU  - ATLAS Collaboration\n"
        "AU  - Plato\n"
        "PY  - 2019\n"
        "JO  - Journal of Chips & Dips\n"
        "DO  - 10.1145/7_9\n"
        "UR  - https://arxiv.org/abs/1905.01234\n"
        "AB  - Fish_1 costs 5% more. We \\save~it.\n"
        "ER  - \n"
    )


@settings(max_examples=30)
@given(title=TEXTS, abstract=TEXTS, venue=TEXTS, authors=st.lists(NAMES, max_size=4))
def test_any_text_of_ris_is_read_back(title, abstract, venue, authors):
    reference = reference_of(paper_of(title, abstract, authors=authors, venue=venue))
    (fields,) = rispy.loads(to_ris(reference))
    assert fields.get("title", "") == reference.title
    assert fields.get("abstract", "") == reference.abstract
    assert fields.get("journal_name", fields.get("secondary_title", "")) == reference.venue
    found = fields.get("authors", [])
    assert len(found) == len(reference.authors)
    for name, expected in zip(found, reference.authors, strict=True):
        family, *rest = name.split(", ")
        given, suffix = [*rest, "", ""][:2]
        assert expected in (name, " ".join(filter(None, (given, family, suffix))))


def test_a_value_has_one_line():
    paper = paper_of("On\nfish\r\nER  - \x0bTY  - JOUR @article{x,\x00", "A\u2028b\x85c.")
    (record,) = entries([paper], "ris")
    assert record.splitlines()[3:5] == ["TI  - On fish ER - TY - JOUR @article{x,", "AB  - A b c."]
    (entry,) = entries([paper])
    assert entry.splitlines()[1:3] == [
        "  title = {On fish {ER} - {TY} - {JOUR} @article\\textbraceleft{}x,},",
        "  abstract = {A b c.},",
    ]


@pytest.mark.parametrize(
    ("venue", "kind"),
    [("Fish Letters", "JOUR"), ("Workshop on Fish", "CONF"), ("arXiv", "UNPB"), (None, "GEN")],
)
def test_types_of_ris(venue, kind):
    ids = {"arxiv": "1905.01234"} if venue == "arXiv" else None
    (fields,) = rispy.loads("".join(entries([paper_of("On fish", venue=venue, ids=ids)], "ris")))
    assert fields["type_of_reference"] == kind


def test_tags_are_kept():
    paper = paper_of("On fish", tags=["fish, fresh", 7, "nets"])
    assert "KW  - fish, fresh\nKW  - nets\n" in to_ris(reference_of(paper))
    assert "  keywords = {fish, fresh; nets},\n" in "".join(entries([paper]))


def test_an_address_with_a_semicolon_stays_one():
    (fields,) = rispy.loads("".join(entries([paper_of("On fish", url="http://x.org/a;b")], "ris")))
    assert fields["urls"] == ["http://x.org/a%3Bb"]


@pytest.mark.parametrize(("form", "key"), [("bibtex", "Muller2019fish"), ("ris", "1905.01234")])
def test_the_reader_of_a_corpus_reads_it_back(form, key):
    """All but the categories in RIS, and in BibTeX with a key and the id of arXiv."""
    paper = replace(CHIPS, metadata={**CHIPS.metadata, "et_al": True})
    text = "% a query\n" * (form == "bibtex") + "\n".join(entries([paper], form))
    assert "AU  - et al." not in text  # which reference managers take for a person
    (entry,) = FORMATS[form].read(buffered(text), "refs", Reading())
    metadata = {**paper.metadata, "url": "https://arxiv.org/abs/1905.01234"}
    if form == "bibtex":
        metadata |= {"key": key, "ids": {"arxiv": "1905.01234"}}
    else:
        del metadata["categories"]
    texts = {"paper_id": key, "title": CHIPS.title, "abstract": CHIPS.abstract}
    assert entry.record == texts | {"metadata": metadata}


def test_the_id_is_the_library_s_own_key():
    paper = paper_of("On fish", key="Lee2019")
    papers = [replace(paper, paper_id=paper_id) for paper_id in ("7", "8\nTY  - JOUR")]
    ids = [record.split("\n")[2] for record in entries(papers, "ris")]
    assert ids == ["ID  - Lee2019", "ID  - Lee2019-a"]
    assert "\nID  - 8 TY - JOUR\n" in to_ris(reference_of(papers[1]))

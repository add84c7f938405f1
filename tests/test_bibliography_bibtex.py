"""BibTeX: what bibtexparser and pylatexenc read back is what was written."""

import re
from dataclasses import replace

import pytest
from bibtexparser import parse_string
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.bibliographies import CHIPS, NAMES, TEXTS, paper_of, read_bibtex
from support.formats import buffered

from qbe.bibliography.latex import to_latex, to_latex_title, with_formulas
from qbe.bibliography.reference import reference_of
from qbe.bibliography.writing import Bibliography, comment, entries, to_bibtex
from qbe.corpus.bibtex import read
from qbe.corpus.reading import Reading
from qbe.errors import UsageError


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


@settings(max_examples=1000, deadline=None)
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


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(TEXTS, NAMES, st.integers(2001, 2003)), max_size=8))
def test_any_papers_are_an_entry_each_with_a_key_of_its_own(found):
    papers = [
        replace(paper_of(title, authors=[name], year=year), paper_id=f"p{number}")
        for number, (title, name, year) in enumerate(found)
    ]
    keys = [fields["key"] for fields in read_bibtex("\n".join(entries(papers)))]
    assert len({key.lower() for key in keys}) == len(papers)  # type: ignore[attr-defined]
    assert all(key.isascii() and key.isalnum() for key in keys)  # type: ignore[attr-defined]


@given(st.text(st.characters(exclude_categories=["Cc", "Cs", "Z"]), min_size=1))
def test_any_doi_is_read_back_but_for_braces_and_backslashes(text):
    (fields,) = read_bibtex(to_bibtex(reference_of(paper_of("On fish", doi=f"10.1145/{text}")), "key"))
    expected = f"10.1145/{text}".lower()
    for character, code in (("\\", "%5C"), ("{", "%7B"), ("}", "%7D"), ("^^", "%5E%5E")):
        expected = expected.replace(character, code)
    assert fields["doi"] == expected


def test_a_field_has_one_line():
    (entry,) = entries([paper_of("On\nfish,\r\n @article{x,\tand\u2028chips\x0b\x00", "A\x85b.")])
    assert entry.splitlines()[1:3] == [
        "  title = {On fish, @article\\textbraceleft{}x, and chips},",
        "  abstract = {A b.},",
    ]


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("$x_1$ and x_1", r"$x_1$ and x\_1"),
        ("a$k$-b $\\{p\\}$", r"a$k$-b $\{p\}$"),
        ("$$a = b$$", "$$a = b$$"),
        ("from $5 to $10", r"from \$5 to \$10"),
        ("US$5, A$6", r"US\$5, A\$6"),
        ("$5% of a$", r"\$5\% of a\$"),
        ("$\\{a}$", r"\$\textbackslash{}\textbraceleft{}a\textbraceright{}\$"),
        ("$}{$", r"\$\textbraceright{}\textbraceleft{}\$"),
        ("$\\{$", r"\$\textbackslash{}\textbraceleft{}\$"),
        ("a $ b", r"a \$ b"),
        ("a -- ``b''", "a -- ``b''"),
    ],
)
def test_formulas_stay_where_they_are_whole(text, latex):
    assert to_latex(text) == latex
    assert "".join(part for part, _ in with_formulas(text)) == text


@pytest.mark.parametrize(
    ("title", "latex"),
    [
        ("Deep Learning for arXiv with GPT-3", "Deep Learning for {arXiv} with {GPT}-3"),
        ("A survey of Bayesian and Markov models", "A survey of {Bayesian} and {Markov} models"),
        ("Fish: A survey of the Baltic sea", "Fish: A survey of the {Baltic} sea"),
        ("Graphs. Then we carry him to Rome", "Graphs. Then we carry him to {Rome}"),
        ("X-Rays in C++ and H2O", "{X}-Rays in {C}++ and {H2O}"),
        ("ON FISH AND CHIPS", "ON FISH AND CHIPS"),
        ("$K$-means is hard", "{$K$}-means is hard"),
        ("A new $N$-body problem in R. Indeed", "A new {$N$}-body problem in {R}. Indeed"),
        ("", ""),
    ],
)
def test_capitals_that_matter_are_in_braces(title, latex):
    assert to_latex_title(title) == latex


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"venue": "Fish Letters"}, ("article", "journal")),
        ({"venue": "Transactions of the Symposium on Fish"}, ("article", "journal")),
        ({"venue": "Proceedings of the National Academy of Sciences"}, ("article", "journal")),
        ({"venue": "Proceedings of the ACM on Fish"}, ("article", "journal")),
        ({"venue": "PLOS ONE"}, ("article", "journal")),
        ({"venue": "Proceedings of the IEEE"}, ("article", "journal")),
        ({"venue": "Proceedings of the IEEE Conference on Fish"}, ("inproceedings", "booktitle")),
        ({"venue": "Workshop on Fish"}, ("inproceedings", "booktitle")),
        ({"venue": "ACL 2020"}, ("inproceedings", "booktitle")),
        ({"venue": "EMNLP-IJCNLP 2019"}, ("inproceedings", "booktitle")),
        ({"venue": "CVPR '19"}, ("inproceedings", "booktitle")),
        ({"venue": "Findings of the Association for Fish: ACL 2020"}, ("inproceedings", "booktitle")),
    ],
)
def test_the_venue_makes_the_type(metadata, expected):
    (fields,) = read_bibtex("".join(entries([paper_of("On fish", **metadata)])))
    kind, name = expected
    assert (fields["type"], fields[name]) == (kind, metadata["venue"])


@pytest.mark.parametrize(
    "venue", ["arXiv", "ArXiv preprint", "CoRR", "arXiv.org", "CoRR abs/1905.01234", None]
)
def test_a_preprint_has_no_venue(venue):
    (fields,) = read_bibtex("".join(entries([paper_of("On fish", venue=venue, ids={"arxiv": "1905.01234"})])))
    assert fields["type"] == "misc"
    assert "journal" not in fields
    assert (fields["eprint"], fields["archiveprefix"]) == ("1905.01234", "arXiv")


def test_the_reader_of_a_corpus_reads_it_back():
    text = "%% a query\n" + "".join(entries([CHIPS]))
    (entry,) = read(buffered(text), "refs.bib", Reading())
    assert entry.record == {
        "paper_id": "Muller2019fish",
        "title": CHIPS.title,
        "abstract": CHIPS.abstract,
        "metadata": {
            "key": "Muller2019fish",
            **CHIPS.metadata,
            "url": "https://arxiv.org/abs/1905.01234",
            "ids": {"arxiv": "1905.01234"},
        },
    }


PARTS = st.lists(
    st.sampled_from(
        ["Ann", "B.", "M\u00fcller", "O'Brien", "van", "de la", "Jr.", "Team", "and", "others", "\u738b"]
    ),
    min_size=1,
    max_size=5,
)
WORDS = st.lists(
    st.sampled_from(
        [
            *("On", "fish", "BERT", "G\u00f6del", "50%", "AT&T", "x_1", "C#", "a~b", "{x}", "}", "\\save"),
            *("^2", "$5", "(b)", "$x_{1}$", "$\\frac{a}{b}$", "$\\input{a}$", "$^^5cinput$", "\u9c7c"),
            *("\u2013", "@book{a,", "%% b", '"c"'),
        ]
    ),
    min_size=1,
    max_size=12,
).map(" ".join)


@settings(max_examples=1000, deadline=None)
@given(
    title=WORDS,
    abstract=WORDS,
    venue=WORDS,
    authors=st.lists(PARTS.map(" ".join), max_size=4),
    key=st.sampled_from(["", "Lee:19"]),
)
def test_the_reader_of_a_corpus_reads_any_paper_back(title, abstract, venue, authors, key):
    paper = paper_of(title, abstract, authors=authors, venue=venue, key=key, year=2019)
    reference = reference_of(paper)
    (entry,) = read(buffered("".join(entries([paper]))), "refs.bib", Reading())
    metadata = entry.record["metadata"]
    assert (entry.record["title"], metadata["venue"]) == (reference.title, reference.venue)
    assert (entry.record["abstract"] or "") == reference.abstract
    assert metadata.get("authors", []) == list(reference.names)
    assert metadata["key"] == key or not key


@pytest.mark.parametrize(
    "formula",
    [
        *(
            r"$\input{/etc/passwd}$",
            r"$\immediate\write18{id}$",
            r"$\catcode`\%=12$",
            r"$\def\x{y}$",
            r"$^^5cinput{a}$",
        ),
        *(
            r"$\csname input\endcsname{a}$",
            r"$\openout1=a$",
            r"$\begin{filecontents}{a}$",
            r"$\text{\include{a}}$",
        ),
        *(r"$\loop\iftrue\repeat$", r"$\href{a}{b}$", r"$\directlua{x}$", r"$\unknown x$"),
    ],
)
def test_a_formula_has_no_commands_but_those_of_mathematics(formula):
    latex = to_latex(f"a {formula} b")
    assert set(re.findall(r"\\(\w+)", latex)) <= {
        "textbackslash",
        "textbraceleft",
        "textbraceright",
        "textasciicircum",
    }
    assert latex.startswith(r"a \$")


def test_a_comment_begins_no_entry():
    text = comment("a@article{x,\nb") + "".join(entries([paper_of("On fish")]))
    assert text.startswith("%% a(at)article{x, b\n@misc{")
    library = parse_string(text)
    assert [entry.key for entry in library.entries] == ["Anonymousfish"]
    assert not library.failed_blocks


@pytest.mark.parametrize("form", ["bibtex", "ris"])
def test_a_paper_has_one_entry(form):
    bibliography = Bibliography(form)
    assert [bibliography.add(CHIPS) is None for _ in range(2)] == [False, True]
    assert bibliography.key("1905.01234") == "Muller2019fish"
    assert len(list(entries([CHIPS, CHIPS], form))) == 1


def test_an_unknown_format_is_refused():
    with pytest.raises(UsageError, match=r"^expected `form` bibtex or ris, found 'bib'$"):
        entries([], "bib")

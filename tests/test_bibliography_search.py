"""Results of a search as tables, JSON, CSV, Markdown, BibTeX and RIS: what they say of papers and matches."""

import csv
import io
from dataclasses import replace

import pytest
import rispy
from support.bibliographies import CHIPS, read_bibtex
from support.papers import Papers

from qbe.cli.parser import parse
from qbe.cli.search import checked_form
from qbe.cli.search import main as search_main
from qbe.errors import UsageError
from qbe.query import COMPETITORS, SAME_PROBLEM_OTHER_METHOD, Aspect, Query
from qbe.search.present import escaped, heading, label_of, shown, to_table
from qbe.search.writers import COLUMNS, Result, open_writer, to_record
from qbe.types import Facet, FacetProbabilities, Hit, Match, Paper, Sentence

SENTENCES = Sentence("Fish swim.", Facet.BACKGROUND), Sentence("We count the tails of fishes.", Facet.METHOD)
ASKED = Paper("asked", "A question", SENTENCES, labelled=True)
SENTENCES = (
    Sentence("Fish cost 5% more.", Facet.BACKGROUND),
    Sentence("Tails are what we count.", Facet.METHOD),
)
FOUND = replace(CHIPS, sentences=(*SENTENCES, Sentence("It is so.")), labelled=True)
PLAIN = Paper("plain", "On stone", (Sentence("Stone is hard."),))
GUESS = FacetProbabilities(background=0.6, objective=0.0, method=0.3, result=0.1, other=0.0)
GUESSED = Paper("p", "", (Sentence("We.", Facet.BACKGROUND, GUESS), Sentence("It.")), labelled=True)
LOOKUP = Papers(FOUND, PLAIN).paper
BY_METHOD = Query(ASKED, Facet.METHOD)


def found(*positions: int, driven_by: int | None = None) -> Hit:
    matches = tuple(Match(1, position, 0.5) for position in positions)
    return Hit("1905.01234", 1.5, matches, driven_by=None if driven_by is None else Match(1, driven_by, 0.9))


@pytest.mark.parametrize(
    ("hit", "position", "label"),
    [
        *((found(1, 0), 1, "method"), (found(1, driven_by=0), 1, "method")),
        *((found(0, 2), 0, "(labelled background)"), (found(2), 2, "(labelled other)")),
    ],
)
def test_the_sentence_shown_carries_the_facet_if_any_does(hit, position, label):
    best = shown(BY_METHOD, FOUND, hit)
    text = FOUND.sentences[position].text
    assert (best[0].position, best[1]) == (position, f"{label}{'' if '(' in label else ':'} {text}")


@pytest.mark.parametrize(
    ("paper", "position", "facet", "label"),
    [
        *((GUESSED, 0, Facet.METHOD, "method?"), (GUESSED, 1, Facet.METHOD, "(labelled other)")),
        *((GUESSED, 0, Facet.BACKGROUND, "background"), (GUESSED, 0, None, "background")),
        *((GUESSED, 1, None, ""), (PLAIN, 0, Facet.METHOD, "(not labelled)"), (PLAIN, 0, None, "")),
    ],
)
def test_labels(paper, position, facet, label):
    assert label_of(paper, position, facet) == label


def test_an_aspect_that_is_not_wanted_is_not_shown_if_there_are_others():
    query = Query.of(Aspect(ASKED, Facet.METHOD, weight=-1), Aspect(ASKED, Facet.BACKGROUND))
    pairs = Match(1, 1, 0.9, 0), Match(0, 2, 0.5, 1)
    texts = [sentence.text for sentence in FOUND.sentences]
    assert shown(query, FOUND, Hit("x", 1.0, pairs)) == (pairs[1], f"(labelled other) {texts[2]}")
    assert shown(query, FOUND, Hit("x", 1.0, pairs[:1])) == (pairs[0], f"method: {texts[1]}")
    assert shown(BY_METHOD, FOUND, Hit("1905.01234", 1.5)) is None


def test_a_table_tells_of_authors_venue_and_link():
    assert to_table(LOOKUP, BY_METHOD, [found(1), Hit("plain", 1.0)], 90).splitlines()[2:] == [
        "   1   1.5000 Fish & Chips: a {BERT for $O(n^2)$ menus (2019)  [1905.01234]",
        "              Zoë van der Müller, Íñigo Ångström Jr., ATLAS Collaboration et al.; Journal",
        "              of Chips & Dips; https://arxiv.org/abs/1905.01234",
        "              method: Tails are what we count.",
        "",
        "   2   1.0000 On stone  [plain]",
    ]


def test_a_heading_names_shapes_and_the_first_of_many_papers():
    papers = [replace(ASKED, paper_id=f"p{number}", title=f"On {number}") for number in range(6)]
    aspects = [Aspect(paper, facet) for paper in papers[:5] for facet in (Facet.BACKGROUND, Facet.METHOD)]
    query = Query.of(*aspects, Aspect(papers[5], Facet.METHOD, weight=-2))
    assert heading(Query.of(Aspect(papers[0]), Aspect(papers[5], weight=-1))) == (
        "Papers like “On 0”, by its abstract; not like “On 5”, by its abstract"
    )
    both = [f"like “On {n}”, for its {facet}" for n in range(3) for facet in ("background", "method")]
    told = f"Papers {'; '.join(both)}; and 2 more; not like “On 5”, for its method (weight 2)"
    assert heading(query) == told
    many = [Aspect(each, weight=1 if number < 5 else -1) for number, each in enumerate(papers)]
    unlike = [Aspect(replace(ASKED, paper_id=f"n{n}", title="Editorial"), weight=-1) for n in range(5)]
    said = heading(Query.of(*many, *unlike))
    assert said.count("; and 2 more; ") == 1 and said.endswith("; and not like 3 more")
    assert said.count("not like “Editorial”") == 2  # of one title, and two papers
    corners = [COMPETITORS, SAME_PROBLEM_OTHER_METHOD, COMPETITORS]
    hits = [Hit(f"p{number}", 1.0, corner=corner) for number, corner in enumerate(corners)]
    assert heading(query, hits) == (
        "Papers like “On 0”; like “On 1”; like “On 2”; and 2 more; not like “On 5”: 2 competitors, "
        "1 same-problem-other-method"
    )


def test_json_tells_of_authors_venue_links_and_abstract():
    first, second = to_record(LOOKUP, Result("q", BY_METHOD, [found(1), Hit("plain", 1.0)]))["hits"]
    assert first["authors"] == CHIPS.metadata["authors"]
    assert (first["year"], first["venue"]) == ("2019", "Journal of Chips & Dips")
    links = {"arxiv": "https://arxiv.org/abs/1905.01234", "doi": "https://doi.org/10.1145/7_9"}
    assert first["links"] == links
    assert first["abstract"] == "Fish cost 5% more. Tails are what we count. It is so."
    assert (second["authors"], second["venue"], second["links"]) == ([], "", {})


def written(form: str, *results: Result, papers: Papers | None = None) -> str:
    writer = open_writer(form, "tag", (papers or Papers(FOUND, PLAIN)).paper, 100, explain=False)
    return "".join([writer(result, number == 0) for number, result in enumerate(results)])


def test_csv():
    hits = [found(0, 1), Hit("plain", -0.5, grades={"background": 2.5, "method": 0.25})]  # no result
    text = written("csv", Result("q1", BY_METHOD, hits), Result("q2", BY_METHOD, []))
    header, first, second = csv.reader(io.StringIO(text))
    assert header == list(COLUMNS)
    assert dict(zip(header, first, strict=True)) == {
        "query_id": "q1",
        "rank": "1",
        "paper_id": "1905.01234",
        "score": "1.5",
        "title": "Fish & Chips: a {BERT for $O(n^2)$ menus",
        "authors": "Zoë van der Müller; Íñigo Ångström Jr.; ATLAS Collaboration; Plato",
        "year": "2019",
        "venue": "Journal of Chips & Dips",
        "doi": "10.1145/7_9",
        "url": "https://arxiv.org/abs/1905.01234",
        "facet": "method",
        "sentence": "Tails are what we count.",
        **dict.fromkeys(("background", "method", "result"), ""),
    }
    assert second == ["q1", "2", "plain", "On stone", *[""] * 5, "-0.5", "", "", "2.5", "0.25", ""]


def test_markdown():
    assert written(
        "markdown", Result("q1", BY_METHOD, [found(1), Hit("plain", 1.0)]), Result("q2", BY_METHOD, [])
    ).splitlines() == [
        "## Papers like “A question”, for its method",
        "",
        "1. [**Fish \\& Chips: a {BERT for $O(n^2)$ menus**](https://arxiv.org/abs/1905.01234) (2019). "
        "Zoë van der Müller, Íñigo Ångström Jr., ATLAS Collaboration et al.; Journal of Chips \\& Dips; "
        "1905.01234; score 1.5000",
        "   > method: Tails are what we count.",
        "2. **On stone**. plain; score 1.0000",
        "",
        "## Papers like “A question”, for its method",
        "",
        "No paper was found.",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a*b_c`d[e]<f>|g&h~i#j$k\\l", "a\\*b\\_c\\`d\\[e\\]\\<f\\>\\|g\\&h\\~i\\#j\\$k\\\\l"),
        *(("$a_1*b$ * c", "$a_1*b$ \\* c"), ("1. First", "1\\. First"), ("= first", "\\= first")),
        ("First - 1. 2", "First - 1. 2"),
    ],
)
def test_characters_with_a_meaning_in_markdown_are_escaped(text, expected):
    assert escaped(text) == expected


RESULTS = (Result("q1", BY_METHOD, [found(1)]), Result("q@2", BY_METHOD, [Hit("plain", 2.0), found(1)]))


def test_a_bibliography_has_a_paper_once_and_bibtex_names_its_key_again():
    text = written("bibtex", *RESULTS)
    assert text.startswith("% qbe search: q1\n\n@article{Muller2019fish,\n")
    assert "}\n\n% qbe search: q(at)2\n% above: Muller2019fish\n\n@misc{Anonymousstone,\n" in text
    assert [entry["key"] for entry in read_bibtex(text)] == ["Muller2019fish", "Anonymousstone"]
    text = written("ris", *RESULTS)
    assert [record["id"] for record in rispy.loads(text)] == ["1905.01234", "plain"]
    assert text.count("\nER  - \n\n") == 2


def test_the_name_of_the_output_says_the_format():
    forms = {"bib": "bibtex", "ris": "ris", "CSV": "csv", "md": "markdown", "jsonl": "json", "txt": "trec"}
    for suffix, form in forms.items():
        line = ["--index", "i", "--paper", "p", "--output", f"absent/a.{suffix}"]
        assert checked_form(parse("search", line))[0] == form


@pytest.mark.parametrize("form", ["csv", "markdown", "bibtex", "ris"])
def test_only_tables_and_json_explain_and_a_bibliography_is_not_resumed(form):
    with pytest.raises(UsageError, match=f"^--explain goes with --format table or json, found {form}$"):
        search_main(["--index", "i", "--paper", "p", "--explain", "--format", form])
    options = parse("search", ["--index", "i", "--topics", "t", "--output", "o", "--resume"])
    options.format = form
    if form in ("csv", "markdown"):
        assert checked_form(options)[0] == form
        return
    with pytest.raises(UsageError, match=f"^expected --resume with another --format, found {form}"):
        checked_form(options)


def test_people_get_ten_hits_and_programs_all(search):
    for form, count, mark in (("csv", 10, "\ns024,"), ("bibtex", 10, "\n@"), ("json", 127, '"rank"')):
        text = search("--paper", "s024", "--first-stage", "dense", "--rerank", "none", "--format", form)
        assert text.count(mark) == count

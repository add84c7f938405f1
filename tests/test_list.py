"""Papers of an index as a list and as a whole: by id, by words, by conditions, cleaned for a terminal."""

import json

import pytest

from qbe import BuildSettings, Facet, Paper, PaperNotFoundError, Sentence, UsageError
from qbe.cli.papers import list_main as list_papers
from qbe.cli.papers import show_main as show_papers
from qbe.index.build import build
from qbe.index.update import delete_papers


def paper(paper_id: str, title: str, *labels: Facet | None, **metadata: object) -> Paper:
    sentences = tuple(
        Sentence(f"Sentence {number}.", facet) for number, facet in enumerate(labels or (None,))
    )
    return Paper(paper_id, title, sentences, bool(labels), metadata)


KEPT = {"doi": "10.1000/ab", "file": "ladders.pdf", "tags": ["NLP", "rivers"], "collections": ["Thesis"]}
LEE = {"authors": ["Ann Lee", "Bo Ek"], "year": 2019, "venue": "Fish Letters", **KEPT}
PAPERS = [
    paper("lee2019", "On fish ladders", Facet.METHOD, None, **LEE),
    paper("doe2020", "On fish", authors=["José Doe"], year=2020, tags=["nlp"]),
    paper("x3", "Stone\x1b[2J and \x9b31m fish 基于图的论文", authors=["Di\x1b[31m Fu"], year="20\x1b[2J21"),
    paper("stock", "On stock", file="stock.pdf"),
    paper("gone", "Deleted", keys=["old"]),
]


@pytest.fixture(scope="module")
def index(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("list") / "index"
    build(folder, PAPERS, BuildSettings(dense=False))
    delete_papers(folder, ["gone"])
    return str(folder)


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        *(([], ["lee2019", "doe2020", "x3", "stock"]), (["jose"], ["doe2020"]), (["论文"], ["x3"])),
        *((["fish", "lad"], ["lee2019"]), (["ek", "lee"], ["lee2019"]), (["10.1000/AB"], ["lee2019"])),
        (["--where", "tags=nlp"], ["lee2019", "doe2020"]),
        (["--where", "tags=Nlp", "collections=thesis"], ["lee2019"]),
        *((["fish", "--year", "2020-"], ["doe2020"]), (["--author", "doe"], ["doe2020"])),
    ],
)
def test_papers_are_listed_by_words_and_conditions(index, capsys, options, ids):
    list_papers([*options, "--index", index])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ids
    assert all(line.isprintable() for line in lines)
    list_papers([*options, "--index", index, "--format", "json"])
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [record["paper_id"] for record in records] == ids


def test_a_line_has_id_year_author_and_title(index, capsys):
    list_papers(["--index", index, "fish"])
    first, second, third = capsys.readouterr().out.splitlines()
    assert first == "lee2019  2019  Lee et al.            On fish ladders"
    assert second == "doe2020  2020  Doe                   On fish"
    assert third.split()[:3] == ["x3", "Di", "[31m"]
    list_papers(["--index", index, "stock"])
    assert capsys.readouterr().out == "stock          stock.pdf             On stock\n"
    list_papers(["--index", index, "ladders", "--format", "bibtex"])
    assert "title = {On fish ladders}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        *((word, PaperNotFoundError, r"found none of its 4; give fewer") for word in (["whales"], ["?!"])),
        (["--where", "tagz=nlp"], UsageError, r"no paper of the index has 'tagz'.*did you mean tags\?"),
        (["--where", "tags=other"], PaperNotFoundError, "found none"),
    ],
)
def test_nothing_to_list_is_an_error(index, options, error, message):
    with pytest.raises(error, match=message):
        list_papers([*options, "--index", index])


def test_a_paper_is_shown_whole(index, capsys):
    show_papers(["lee2019", "--index", index])
    assert capsys.readouterr().out.splitlines() == [
        "  title        On fish ladders",
        "  authors      Ann Lee, Bo Ek",
        "  year         2019",
        "  venue        Fish Letters",
        "  tags         NLP, rivers",
        "  collections  Thesis",
        "  id           lee2019",
        "  file         ladders.pdf",
        "  doi          https://doi.org/10.1000/ab",
        "",
        "  method  Sentence 0.",
        "  other   Sentence 1.",
        "",
    ]
    show_papers(["x3", "doe2020", "x3", "--index", index])
    text = capsys.readouterr().out
    assert text.replace("\n", "").isprintable()
    assert text.count("  title  ") == 2
    show_papers(["lee2019", "--index", index, "--format", "json"])
    record = json.loads(capsys.readouterr().out)
    assert [record[name] for name in ("paper_id", "tags", "collections")] == [
        "lee2019",
        *[*KEPT.values()][2:],
    ]
    assert [sentence["facet"] for sentence in record["sentences"]] == ["method", None]


@pytest.mark.parametrize(
    ("words", "shown"), [(["ladders"], "lee2019"), (["on", "FISH"], "doe2020"), (["stone"], "x3")]
)
def test_words_of_one_title_show_it(index, capsys, words, shown):
    show_papers([*words, "--index", index])
    assert f"  id       {shown}" in capsys.readouterr().out.replace("id           ", "id       ")


@pytest.mark.parametrize(
    ("words", "listed", "message"),
    [
        (["fish"], ["lee2019", "doe2020", "x3"], "found 3 papers with them; give an id"),
        (["whales"], [], "of one of the 4 papers of the index, found 'whales'"),
        (["lee2019", "whales"], [], "title of one of the 4 papers of the index, found 'whales'"),
        (["gone"], [], "of the index, found 'gone'"),
    ],
)
def test_what_is_not_one_paper_is_not_shown(index, capsys, words, listed, message):
    with pytest.raises(PaperNotFoundError, match=message):
        show_papers([*words, "--index", index])
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == listed

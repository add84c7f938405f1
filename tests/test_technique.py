"""Papers that name a technique: in the title, or where they say how."""

import pytest

from qbe.cli.papers import list_main as main
from qbe.errors import UsageError
from qbe.index.build import build
from qbe.index.index import Index
from qbe.index.source import BuildSettings
from qbe.index.update import append_papers, delete_papers
from qbe.search.filters import FilterCache, PaperFilter, Technique
from qbe.types import Facet, FacetProbabilities, Paper, Sentence

HOW = Sentence("We label with linear-chain conditional random\nfields.", Facet.METHOD)
KEYWORDS = {"technique": ["CRF", "Conditional random fields"]}
PAPERS = [
    Paper("title", "Conditional Random Fields for naming", (Sentence("Names matter."),)),
    Paper("method", "On names", (Sentence("Names matter.", Facet.BACKGROUND), HOW), labelled=True),
    Paper("before", "On names", (Sentence(HOW.text, Facet.BACKGROUND),), labelled=True),
    Paper("unlabelled", "On names", (Sentence(HOW.text),)),
    Paper("apart", "Random fields, conditional on names", (Sentence("Fields are random."),)),
    Paper("metadata", "On names", (Sentence("Names matter."),), metadata=KEYWORDS),
    Paper("accents", "Cônditional Random Fïeld", (Sentence("Names matter."),)),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("technique")
    build(place / "index", PAPERS[:3], BuildSettings(dense=False))
    append_papers(place / "index", PAPERS[3:])
    delete_papers(place / "index", ["unlabelled"])
    return place / "index"


@pytest.mark.parametrize(
    "name", ["conditional random field", "Conditional Random-Fields", "CONDITIONAL random field!"]
)
def test_it_is_named_in_the_title_or_where_a_paper_says_how(name):
    technique = Technique(name)
    named = [paper.paper_id for paper in PAPERS if technique.is_named_by(paper)]
    assert named == ["title", "method", "unlabelled", "metadata", "accents"]


@pytest.mark.parametrize(
    ("shares", "named"),
    [((0.5, 0.3, 0.0, 0.2, 0.0), True), ((0.9, 0.1, 0.1, 0, 0), False), ((0, 0, 0.9, 0, 0.1), True)],
)
def test_a_predicted_sentence_says_how_by_its_probabilities(shares, named):
    sentence = Sentence(HOW.text, Facet.BACKGROUND, FacetProbabilities(*shares))
    assert Technique("random field").is_named_by(Paper("1", "", (sentence,), labelled=True)) is named


@pytest.mark.parametrize("name", ["studies", "study"])
def test_what_is_looked_for_first_stands_in_every_form(name):
    assert all(part in text for part in Technique(name).parts for text in ([b"case studies", b"a study"]))


def test_a_filter_keeps_what_names_it(folder):
    with Index(folder) as index:
        reader = index.reader
        filters = FilterCache(reader)
        result = filters.of(PaperFilter(where={"technique": "conditional random fields"}))
        assert result.selection is not None
        rows = result.selection.rows.tolist()
        assert [reader.papers[row].paper_id for row in rows] == ["title", "method", "metadata", "accents"]
        assert filters.of(PaperFilter(where={"technique": "no such thing"})).papers == 0
        with pytest.raises(UsageError):
            filters.of(PaperFilter(where={"technique": "..."}))


def test_the_command_line_takes_it(folder, capsys):
    main(["--index", str(folder), "--where", "technique=conditional random field", "--format", "json"])
    listed = [line.split('"')[3] for line in capsys.readouterr().out.splitlines()]
    assert listed == ["title", "method", "metadata", "accents"]

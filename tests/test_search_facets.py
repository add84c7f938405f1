"""Queries whose facets are predicted, best guesses, and what --explain tells of them."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.papers import Papers
from support.searching import first_stage

from qbe import Aspect, BuildSettings, Index, ModelError, Query, build_index
from qbe.datasets.releases import raw_record
from qbe.models.encoder import Encoder
from qbe.models.tagger import Tagger, TaggingEncoder
from qbe.search.present import to_table
from qbe.types import Facet, FacetProbabilities, Hit, Match, Paper, Sentence


def sentence(text: str, *probabilities: float) -> Sentence:
    found = FacetProbabilities(*probabilities)
    return Sentence(text, found.facet, found)


SENTENCES = (  # without method or result; method is likeliest in sentence 1, and so is result
    sentence("Nobody finds code.", 0.75, 0.125, 0.125, 0.0, 0.0),
    sentence("We aim to find it.", 0.125, 0.375, 0.3125, 0.125, 0.0625),
    sentence("Thanks to all.", 0.0, 0.0, 0.25, 0.0, 0.75),
)
PREDICTED = Paper("new", "A new paper", SENTENCES, labelled=True)


@pytest.fixture(scope="module")
def raw(tmp_path_factory, sample) -> Path:
    """A folder with the sample's papers as they come from elsewhere: abstracts of one string, no labels."""
    folder = tmp_path_factory.mktemp("raw")
    records = map(json.loads, (sample / "corpus.jsonl").read_text().splitlines())
    lines = (json.dumps(raw_record(record)) + "\n" for record in records)
    (folder / "corpus.jsonl").write_text("".join(lines))
    return folder


@pytest.fixture(scope="module")
def built(raw, tiny_encoder, tiny_tagger):
    """Index the sample without its labels, tagged by the tiny tagger."""

    def build(name: str, **options: object) -> Path:
        settings = BuildSettings(encoder=str(tiny_encoder), tagger=str(tiny_tagger), **options)
        build_index(raw / name, str(raw / "corpus.jsonl"), settings).close()
        return raw / name

    return build


@pytest.fixture(scope="module")
def raw_index(built) -> Path:
    return built("dense")


@pytest.fixture(scope="module")
def unlabelled_index(built) -> Path:
    """Without labels or vectors."""
    return built("bm25", dense=False)


@pytest.fixture(scope="module")
def index(raw_index) -> Iterator[Index]:
    with Index(raw_index) as index:
        yield index


@pytest.fixture(scope="module")
def tag(tiny_encoder, tiny_tagger):
    tagging = TaggingEncoder(Encoder.open(str(tiny_encoder)), Tagger.open(str(tiny_tagger)), "predicted")
    return lambda paper: tagging.encode_paper(paper)[0]


@pytest.fixture
def search(search):
    return lambda index, *arguments: search("--rerank", "none", *arguments, folder=index)


@pytest.fixture
def untagged(tmp_path, bare) -> Path:
    path = tmp_path / "paper.json"
    path.write_text(json.dumps({"title": bare.title, "abstract": [s.text for s in bare.sentences]}))
    return path


def test_the_likeliest_sentence_stands_in_unless_labels_were_given():
    for facet, positions, guess in (
        *((Facet.BACKGROUND, (0, 1), False), (Facet.METHOD, (1,), True), (Facet.RESULT, (1,), True)),
        (None, (0, 1, 2), False),
    ):
        aspect = Aspect(PREDICTED, facet)
        assert (aspect.selected_positions(), aspect.is_guess) == (positions, guess)
    assert not Aspect(PREDICTED, positions=(1,)).is_guess
    given = Paper("x", "T", (Sentence("A.", Facet.METHOD), Sentence("B.")), labelled=True)
    assert not Aspect(given, Facet.RESULT).is_guess


def test_a_best_guess_is_searched_as_if_it_were_picked(index):
    for stage in ("bm25", "dense"):
        searcher = first_stage(index, stage)
        found = searcher.search(Query(PREDICTED, Facet.METHOD), 20)
        assert found == searcher.search(Query(PREDICTED, positions=(1,)), 20)
        assert {match.query_position for hit in found for match in hit.matches} == {1}


def test_candidates_without_the_facet_count_by_their_best_guess(index):
    pool = ["s001", "s002", "s003", "s004", "s005", "s006", "s007", "s008"]
    query = Query(index.paper("s024"), Facet.RESULT)
    found = first_stage(index, weights={"facet": 1.0}, background_penalty=0).search(query, 10, pool)
    (position,), guess = query.aspects[0].paper.facet_positions(Facet.RESULT)
    vectors = index.sentence_vectors[index.layout.starts[index.papers.row("s024")] + position]

    def score(paper_id: str) -> float:
        positions, _ = index.paper(paper_id).facet_positions(Facet.RESULT)
        start = index.layout.starts[index.papers.row(paper_id)]
        return max(float(vectors.astype(float) @ index.sentence_vectors[start + p]) for p in positions)

    assert guess
    assert [hit.paper_id for hit in found] == sorted(pool, key=lambda paper_id: -score(paper_id))


def test_papers_without_labels_are_tagged_and_labels_are_kept(index, papers, bare, tag):
    given = papers[23]
    assert index.label_facets(bare) == tag(bare)
    assert index.label_facets(given) is given
    assert index.label_facets(given, "predicted") == tag(given)
    stored = index.paper("s024")
    assert stored.predicted
    assert index.label_facets(stored, "given") is index.label_facets(stored, "predicted") is stored
    assert [s.facet for s in stored.sentences] == [s.facet for s in tag(given).sentences]


def test_another_tagger_and_none(raw_index, tiny_encoder, tmp_path, papers):
    from support.tiny_tagger import write_tagger

    write_tagger(tmp_path / "other", tiny_encoder, seed=1)
    with Index(raw_index) as one, Index(raw_index, tagger=str(tmp_path / "other")) as two:
        assert one.label_facets(papers[23], "predicted") != two.label_facets(papers[23], "predicted")
        assert one.paper("s024") == two.paper("s024")
    with pytest.raises(ModelError, match=r"expected a tagger known by name .* found 'nosuch'"):
        Index(raw_index, tagger="nosuch")


@pytest.fixture
def bare(papers) -> Paper:
    """The paper s024 as one from outside, without labels."""
    return Paper("query", papers[23].title, tuple(Sentence(s.text) for s in papers[23].sentences))


def facets(output: str) -> list[str | None]:
    return [sentence["facet"] for sentence in json.loads(output.splitlines()[0])["sentences"]]


@pytest.fixture
def expected(papers, tag) -> list[str | None]:
    return [str(s.facet) if s.facet else None for s in tag(papers[23]).sentences]


def test_every_source_is_tagged_alike(search, raw_index, unlabelled_index, untagged, papers, expected):
    topics = untagged.with_name("topics.tsv")
    topics.write_text("query_id\tpaper_id\tfacet\ns024_method\ts024\tmethod\n")
    options = ("--facet", "method", "--explain", "--format", "json", "--hits", 4)
    for index, stage in ((raw_index, "dense"), (unlabelled_index, "bm25")):
        text = ("--text", papers[23].abstract, "--title", papers[23].title)
        sources = (("--paper", "s024"), ("--topics", topics), ("--paper-file", untagged), text)
        found = [search(index, *source, *options, "--first-stage", stage) for source in sources]
        assert [facets(output) for output in found] == [expected] * 4
        hits = [[hit["paper_id"] for hit in json.loads(output)["hits"]] for output in found]
        assert hits[0] == hits[1]
        assert hits[2] == hits[3] == ["s024", *hits[0]][:4]


def test_facets_given_and_predicted(search, tiny_index, tiny_tagger, papers, expected, monkeypatch):
    tagged = lambda folder, **named: Index(folder, **named | {"tagger": str(tiny_tagger)})  # noqa: E731
    monkeypatch.setattr("qbe.search.pipeline.open_index", tagged)
    options = ("--facet", "method", "--explain", "--format", "json", "--hits", 2)
    given = search(tiny_index, "--paper", "s024", *options)
    assert facets(given) == [str(s.facet) for s in papers[23].sentences]
    record, selected = json.loads(given), papers[23].positions(Facet.METHOD)
    for position, sentence in enumerate(record["sentences"]):
        assert (sentence["label"], sentence["probability"], sentence["guess"]) == (None, None, False)
        assert sentence["selected"] is (position in selected)
    assert {match["probability"] for hit in record["hits"] for match in hit["matches"]} == {None}
    assert facets(search(tiny_index, "--paper", "s024", "--facets", "predicted", *options)) == expected


def likelihood(sentence: Sentence) -> float:
    found = sentence.probabilities
    return round(found.of(sentence.facet) if sentence.facet else found.other, 4)


def test_json_explains(search, raw_index, index):
    options = ("--paper", "s024", "--facet", "result", "--format", "json", "--hits", 3)
    record, paper = json.loads(search(raw_index, *options, "--explain")), index.paper("s024")
    (guess,), _ = paper.facet_positions(Facet.RESULT)
    for position, (shown, sentence) in enumerate(zip(record["sentences"], paper.sentences, strict=True)):
        assert shown == {
            "position": position,
            "text": sentence.text,
            "facet": str(sentence.facet) if sentence.facet else None,
            "label": sentence.probabilities.label,
            "probability": likelihood(sentence),
            "selected": position == guess,
            "guess": position == guess,
        }
    for hit in record["hits"]:
        for match in hit["matches"]:
            sentence = index.paper(hit["paper_id"]).sentences[match["position"]]
            assert match["probability"] == likelihood(sentence)
    plain = json.loads(search(raw_index, *options))
    assert "sentences" not in plain
    assert all("probability" not in match for hit in plain["hits"] for match in hit["matches"])


def test_explaining_without_a_facet_tags_too(search, unlabelled_index, expected):
    for aspect in ((), ("--sentences", "1")):
        options = ("--paper", "s024", *aspect, "--first-stage", "bm25", "--explain", "--format", "json")
        output = search(unlabelled_index, *options)
        assert facets(output) == expected
        selected = [sentence["selected"] for sentence in json.loads(output)["sentences"]]
        assert selected == ([False, True, False, False] if aspect else [True] * 4)


GIVEN = Paper("old", "An old one", (Sentence("B.", Facet.BACKGROUND), Sentence("O.")), True, {"year": "1999"})
HITS = [Hit("new", 1.5, (Match(1, 1, 0.5), Match(0, 0, 0.25))), Hit("old", 1.0, (Match(1, 1, 0.125),))]


def test_the_table_explained_and_plain_marks_best_guesses():
    table = to_table(Papers(PREDICTED, GIVEN).paper, Query(PREDICTED, Facet.METHOD), HITS, 100, explain=True)
    assert table.splitlines() == [
        "Papers like “A new paper”, for its method (no method sentence recognized; using “We aim to find",
        "it.”; choose others with --sentences):",
        "",
        "   0          background 0.88: Nobody finds code.",
        "  *1          aim 0.50, best guess for method 0.31: We aim to find it.",
        "   2          other 0.75: Thanks to all.",
        "Searched with the sentences marked *; ~3 below is the match of sentence 3, with its similarity.",
        "",
        "   1   1.5000 A new paper  [new]",
        "  ~1   0.5000 aim 0.50, best guess for method 0.31: We aim to find it.",
        "  ~0   0.2500 background 0.88: Nobody finds code.",
        "",
        "   2   1.0000 An old one (1999)  [old]",
        "  ~1   0.1250 other given: O.",
    ]
    table = to_table(Papers(PREDICTED, GIVEN).paper, Query(PREDICTED, Facet.METHOD), HITS, 90)
    assert table.splitlines() == [
        "Papers like “A new paper”, for its method (no method sentence recognized; using “We aim to",
        "find it.”; choose others with --sentences):",
        "",
        "   1   1.5000 A new paper  [new]",
        "              method?: We aim to find it.",
        "",
        "   2   1.0000 An old one (1999)  [old]",
        "              (labelled other) O.",
    ]
    plain = to_table(Papers(PREDICTED).paper, Query(PREDICTED, Facet.BACKGROUND), HITS[:1], 120)
    assert plain.splitlines()[0] == "Papers like “A new paper”, for its background:"
    assert plain.splitlines()[3] == "              aim: We aim to find it."

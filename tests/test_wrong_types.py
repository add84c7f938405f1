"""Values of a wrong type given to Python's interface: a TypeError that names the right one."""

import shutil
from pathlib import Path

import pytest

import qbe
from qbe import (
    BuildSettings,
    Dense,
    Facet,
    Hit,
    Index,
    Paper,
    Pipeline,
    Query,
    Run,
    Sentence,
    build_index,
    open_index,
)

SENTENCES = (Sentence("We route.", Facet.METHOD),)
PAPER = Paper("p1", "On routes", SENTENCES)


@pytest.fixture(scope="module")
def index(tiny_index):
    with open_index(tiny_index, threads=1) as opened:
        yield opened


@pytest.fixture(scope="module")
def pipeline(index):
    with Pipeline(index, Dense()) as opened:
        yield opened


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Query(PAPER, "method"),
            r"expected a qbe\.Facet such as Facet\.METHOD, found 'method' \(str\)",
        ),
        (
            lambda: Query("p1"),
            r"expected a qbe\.Paper, found 'p1' \(str\); look one up with index\.paper\(id\)",
        ),
        (lambda: Query(PAPER, positions=3), r"expected sentence positions such as \(0, 3\), found 3 \(int\)"),
        (lambda: Query(PAPER, positions="0,3"), r"positions such as \(0, 3\), found '0,3' \(str\)"),
        (lambda: Paper("x", "t", "text"), r"tuple of qbe\.Sentence, found str; make .* qbe\.paper_from_text"),
        (lambda: Paper("x", "t", ["text"]), r"tuple of qbe\.Sentence, found list; make"),
        (lambda: Paper("x", "t", ("text",)), r"tuple of qbe\.Sentence, found str; make"),
        (lambda: Paper(1, "t", SENTENCES), "expected the paper_id of a paper to be a str, found int"),
        (lambda: Paper("x", None, SENTENCES), "expected the title of a paper to be a str, found NoneType"),
        (lambda: Paper("x", "t", (Sentence(3),)), "expected the text of a sentence to be a str, found int"),
        (
            lambda: Paper("x", "t", (Sentence("a", "method"),)),
            r"expected the facet of a sentence to be a qbe\.Facet or None, found 'method'",
        ),
        (
            lambda: Paper("x", "t", SENTENCES, metadata=None),
            r"expected the metadata of a paper to be a mapping such as \{'year': 2020\}, found NoneType",
        ),
        (lambda: PAPER.positions("method"), r"expected a qbe\.Facet such as Facet\.METHOD, or None, found "),
        (lambda: PAPER.facet_positions("method"), r"expected a qbe\.Facet such as Facet\.METHOD"),
        (lambda: Run({}, "tag"), "expected the tag of a run to be a str, found dict"),
        (
            lambda: Run("tag", [Hit("a", 1.0)]),
            "rankings of a run to be a mapping of query ids to hits, found list",
        ),
    ],
)
def test_values(make, message):
    with pytest.raises(TypeError, match=message):
        make()


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (Run("tag", {"q": [("p", 1.0)]}), r"expected qbe\.Hit objects for q, found tuple"),
        (Run("tag", {"q": ["p"]}), r"expected qbe\.Hit objects for q, found str"),
        (Run("tag", {"q": Hit("p", 1.0)}), r"expected qbe\.Hit objects for q, found str"),
    ],
)
def test_what_is_no_run_is_not_written(tmp_path, run, message):
    with pytest.raises(TypeError, match=message):
        run.write(tmp_path / "x.trec")
    assert not any(tmp_path.iterdir())


def test_a_run_is_written_and_read_by_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Run("tag", {"q": (Hit("p", 1.0),)}).write("x.trec")
    assert Run.from_trec("x.trec").rankings == {"q": (Hit("p", 1.0),)}


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda index: index.paper(7), r"expected the id of a paper as a str, found 7 \(int\)"),
        (
            lambda index: index.paper(["s001"]),
            r"expected the id of a paper as a str, found \['s001'\] \(list\)",
        ),
        (lambda index: index.vectors("s001"), r"expected a qbe\.Paper, found 's001'; look one up with"),
        (lambda index: index.label_facets("s001"), r"expected a qbe\.Paper, found 's001'; look one up with"),
        (
            lambda index: Pipeline(str(index.folder)),
            r"expected a qbe\.Index, found str; open one with qbe\.open_",
        ),
        (
            lambda index: Pipeline(index, "bm25"),
            r"expected a first stage such as qbe\.Fused\(\), found 'bm25'",
        ),
        (
            lambda index: open_index(index.folder, threads="2"),
            r"expected an int as `threads`, found '2' \(str\)",
        ),
        (
            lambda index: Index(index.folder, threads=True),
            r"expected an int as `threads`, found True \(bool\)",
        ),
        (lambda index: index.delete("s001"), "expected `paper_ids` as an iterable of str, found one str"),
        (lambda index: index.append([{"paper_id": "1"}]), r"expected `corpus` as a path .* found dict"),
    ],
)
def test_an_index_asked_wrongly(index, ask, message):
    with pytest.raises(TypeError, match=message):
        ask(index)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda pipeline, query: pipeline.search("s001"), r"expected a qbe\.Query, found str; make one with"),
        (lambda pipeline, query: pipeline.search([query]), r"expected a qbe\.Query, found list"),
        (lambda pipeline, query: pipeline.search(query, "3"), r"expected an int as `k`, found '3' \(str\)"),
        (
            lambda pipeline, query: pipeline.search(query, 3, "s001"),
            "expected a pool as a list of paper ids, found the str 's001'",
        ),
        (
            lambda pipeline, query: pipeline.search(query, 3, ["s002", 7]),
            r"expected a pool of paper ids \(str\), found 7 \(int\)",
        ),
        (
            lambda pipeline, query: pipeline.batch_search(query),
            r"expected a sequence of qbe\.Query, found one; call search, or put it into a list",
        ),
        (
            lambda pipeline, query: pipeline.batch_search([query], 3, ["s001"]),
            "expected a pool as a list of paper ids, found the str 's001'",
        ),
    ],
)
def test_a_pipeline_asked_wrongly(index, pipeline, ask, message):
    with pytest.raises(TypeError, match=message):
        ask(pipeline, Query(index.paper("s001")))


def test_settings_of_a_build_are_settings(tmp_path):
    for wrong, kind in (("bm25", "str"), ({"dense": False}, "dict"), (Dense(), "Dense")):
        message = (
            rf"expected qbe\.BuildSettings as `settings`, found {kind}; make them as in qbe\.BuildSettings\("
        )
        with pytest.raises(TypeError, match=message):
            build_index(tmp_path / "index", [PAPER], wrong)
    assert not any(tmp_path.iterdir())


def test_a_corpus_is_appended_by_its_name(tiny_index, sample, tmp_path):
    """A str is a path, not an iterable of papers; so in ``append_papers`` as in ``Index.append``."""
    folder = Path(shutil.copytree(tiny_index, tmp_path / "index"))
    new = tmp_path / "two.jsonl"
    new.write_text(
        '{"paper_id": "me1", "title": "T", "abstract": ["One."], "pred_labels": ["method_label"]}\n'
    )
    with open_index(folder, threads=1) as opened:
        assert opened.append(str(new)).added == 1
        assert "me1" in opened
        assert [paper.paper_id for paper in opened][-1] == "me1"
        assert opened.delete(["me1"]).deleted == 1


def test_the_public_names_of_what_the_newcomer_missed():
    assert qbe.__version__.count(".") >= 1
    assert {"BuildSettings", "build_index", "open_index", "paper_from_text"} <= set(qbe.__all__)
    assert BuildSettings(dense=False).bm25

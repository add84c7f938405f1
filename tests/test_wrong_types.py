"""Values of a wrong type given to Python's interface: a TypeError that names the right one."""

from functools import partial

import pytest
from support.messages import messages_of

from qbe import (
    Dense,
    Facet,
    Hit,
    Index,
    Paper,
    Pipeline,
    Query,
    Run,
    Sentence,
    Topic,
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


VALUES = [
    lambda: Query(PAPER, 1),
    lambda: Query("p1"),
    lambda: Query(PAPER, positions=3),
    lambda: Query(PAPER, positions="0,3"),
    lambda: Paper("x", "t", "text"),
    lambda: Paper("x", "t", ["text"]),
    lambda: Paper("x", "t", ("text",)),
    lambda: Paper(1, "t", SENTENCES),
    lambda: Paper("x", None, SENTENCES),
    lambda: Paper("x", "t", (Sentence(3),)),
    lambda: Paper("x", "t", (Sentence("a", "method"),)),
    lambda: Paper("x", "t", SENTENCES, metadata=None),
    lambda: PAPER.positions("method"),
    lambda: PAPER.facet_positions("method"),
    lambda: Run({}, "tag"),
    lambda: Run("tag", [Hit("a", 1.0)]),
    lambda: Run.from_dataframe([1]),
    lambda: Run("tag", {}).compare("x", {}),
    lambda: Run("tag", {"q": ["p"]}).evaluate({"q": {"p": 1}}),
    lambda: Run("tag", {"q": ["p"]}).to_dataframe(),
    lambda: Run("tag", {"q": ["p"]}).fuse(),
    lambda: Run("tag", {}).fuse("x"),
    *(
        partial(Run("tag", {}).evaluate, qrels)
        for qrels in ("x", ["q"], {1: {"p": 1}}, {"q": ["p"]}, {"q": {2: 1}}, {"q": {"p": 1.0}})
    ),
]
RUNS = [{"q": [("p", 1.0)]}, {"q": ["p"]}, {"q": Hit("p", 1.0)}]
SETTINGS = ["bm25", {"dense": False}, Dense()]
INDEX = [
    lambda index: index.paper(7),
    lambda index: index.paper(["s001"]),
    lambda index: index.vectors("s001"),
    lambda index: index.label_facets("s001"),
    lambda index: Pipeline(str(index.folder)),
    lambda index: Pipeline(index, "bm25"),
    lambda index: open_index(index.folder, threads="2"),
    lambda index: Index(index.folder, threads=True),
    lambda index: index.delete("s001"),
    lambda index: index.append(3),
    lambda index: index.append(["a.jsonl", 3]),
    lambda index: index.append(PAPER),
    lambda index: index.append([PAPER, {"paper_id": "1"}]),
]
PIPELINE = [
    lambda pipeline, query: pipeline.search(7),
    lambda pipeline, query: pipeline.search([query]),
    lambda pipeline, query: pipeline.search(query, "3"),
    lambda pipeline, query: pipeline.search(query, 3, "s001"),
    lambda pipeline, query: pipeline.search(query, 3, ["s002", 7]),
    lambda pipeline, query: pipeline.batch_search(query),
    lambda pipeline, query: pipeline.grade(query, ["s001"]),
    lambda pipeline, query: pipeline.batch_search([query], 3, ["s001"]),
    lambda pipeline, query: pipeline.run([Topic("q1", "s036")], 3, "pools.tsv"),
]


def test_wrong_types_are_told(index, pipeline, tmp_path, told):
    output, query = tmp_path / "x", Query(index.paper("s001"))
    actions = [
        *VALUES,
        *(partial(Run("tag", rankings).write, output) for rankings in RUNS),
        *(partial(build_index, output, [PAPER], settings) for settings in SETTINGS),
        *(partial(ask, index) for ask in INDEX),
        *(partial(ask, pipeline, query) for ask in PIPELINE),
    ]
    told("wrong types", messages_of(actions, TypeError))
    assert not any(tmp_path.iterdir())

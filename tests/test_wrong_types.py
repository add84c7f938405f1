"""Values of a wrong type given to Python's interface: a TypeError that names the right one."""

from functools import partial

import pandas as pd
import pytest
from support.messages import messages_of

from qbe import Dense, Facet, Index, Paper, Pipeline, Query, Run, Sentence, open_index

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
    lambda: Paper("x", "t", ("text",)),
    lambda: Paper("x", "t", (Sentence("a", "method"),)),
    lambda: PAPER.positions("method"),
    *(partial(Run("a", {}).evaluate, qrels) for qrels in ("file.qrels", pd.DataFrame({"query_id": ["q"]}))),
    *(partial(act, "x", {}) for act in (Run("a", {}).compare, Run("a", {}).fuse)),
]
INDEX = [
    lambda index: Pipeline(str(index.folder)),
    lambda index: Pipeline(index, "bm25"),
    lambda index: open_index(index.folder, threads="2"),
    lambda index: Index(index.folder, threads=True),
    lambda index: index.append(3),
    lambda index: index.append(["a.jsonl", 3]),
    lambda index: index.append(PAPER),
    lambda index: index.append([PAPER, {"paper_id": "1"}]),
    *(partial(lambda query, index: index.search(query), query) for query in (None, ["s001"])),
]
PIPELINE = [
    lambda pipeline, query: pipeline.search(query, "3"),
    lambda pipeline, query: pipeline.search(query, 3, "s001"),
    lambda pipeline, query: pipeline.search(query, 3, ["s002", 7]),
    lambda pipeline, query: pipeline.batch_search([query], 3, ["s001"]),
    lambda pipeline, query: pipeline.run(["s001"]),
]


def test_wrong_types_are_told(index, pipeline, told):
    query = Query(index.paper("s001"))
    actions = [
        *VALUES,
        *(partial(ask, index) for ask in INDEX),
        *(partial(ask, pipeline, query) for ask in PIPELINE),
    ]
    told("wrong types", messages_of(actions, TypeError))

"""The sample (`tests/data/sample`) is as its README says, and its judgements follow from its layout."""

from collections import Counter
from pathlib import Path

import pytest
from support.layout import SAMPLE, grade, pool, read_layout

from qbe.runs import read_topics, write_pools, write_qrels
from qbe.types import Facet
from qbe.util.files import sha256

LAYOUT = read_layout(SAMPLE / "layout.json")
TOPICS = read_topics(SAMPLE / "topics.tsv")
POOLS = {topic.query_id: pool(LAYOUT, topic.paper_id, topic.facet) for topic in TOPICS}


FROZEN = {
    "corpus.jsonl": "0ee30d970b9910f1e1d00fa0f6e0262d6354c8a3a983c372998fe8cc68cdd38e",
    "layout.json": "7f4552b4ae0a2faf8895cf776a121e7f14066ccb8fca99ceb706f67ff7b3a4de",
    "topics.tsv": "36ebdbad2a13af162d3f95dacd032d994bed63b1bec4a000fc644d2719250264",
    "folds.json": "16f05dc9a0ce8cf5e3e0f22c099fdc202f0cf6c4436562e6ac74fb35fe97ab0e",
}


@pytest.mark.parametrize("name", FROZEN)
def test_files_are_those_whose_design_was_checked(name: str) -> None:
    """When they were made: labels of every paper, balance and independence of the factors, that no two papers
    share seven words in a row, eight queries a facet, folds of which none has what is relevant in another.
    """
    assert sha256(SAMPLE / name) == FROZEN[name]


def test_pools_and_judgements_follow_from_the_layout(tmp_path: Path) -> None:
    judgments: dict[str, dict[str, dict[str, int]]] = {f"sample.{facet}.qrels": {} for facet in Facet}
    for topic in TOPICS:
        members, of_facet = POOLS[topic.query_id], topic.facet
        assert topic.paper_id not in members
        grades = {each: grade(LAYOUT, topic.paper_id, each, of_facet) for each in members}
        assert Counter(grades.values()) == {3: 7, 2: 8, 1: 16, 0: 12}
        judgments[f"sample.{of_facet}.qrels"][topic.query_id] = grades
    write_pools(tmp_path / "pools.tsv", POOLS)
    for name, judged in judgments.items():
        write_qrels(tmp_path / name, judged)
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (SAMPLE / path.name).read_bytes()

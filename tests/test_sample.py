"""The sample in the package is as its README says, and its judgements follow from its layout."""

from collections import Counter
from pathlib import Path

import pytest

import qbe.datasets.embedded
from qbe.datasets.embedded import grade, pool, read_layout
from qbe.files import sha256
from qbe.topics import read_pools, read_topics, write_pools
from qbe.trec import Judgment, write_qrels
from qbe.types import Facet

SAMPLE = Path(qbe.datasets.embedded.__file__).with_name("sample")
LAYOUT = read_layout(SAMPLE / "layout.json")
TOPICS = read_topics(SAMPLE / "topics.tsv")
POOLS = {topic.query_id: pool(LAYOUT, topic.paper_id, topic.facet) for topic in TOPICS}


FROZEN = {
    "papers.jsonl": "0ee30d970b9910f1e1d00fa0f6e0262d6354c8a3a983c372998fe8cc68cdd38e",
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


def test_pools_follow_from_the_layout(tmp_path: Path) -> None:
    write_pools(tmp_path / "pools.tsv", POOLS)
    assert (tmp_path / "pools.tsv").read_bytes() == (SAMPLE / "pools.tsv").read_bytes()
    committed = read_pools(SAMPLE / "pools.tsv")
    for topic in TOPICS:
        assert topic.paper_id not in committed[topic.query_id]
        assert len(committed[topic.query_id]) == 43


@pytest.mark.parametrize("facet", Facet, ids=str)
def test_judgements_follow_from_the_layout(facet: Facet, tmp_path: Path) -> None:
    topics = [topic for topic in TOPICS if topic.facet is facet]
    name = f"sample.{facet}.qrels"
    judgments = [
        Judgment(topic.query_id, paper_id, grade(LAYOUT, topic.paper_id, paper_id, facet))
        for topic in topics
        for paper_id in POOLS[topic.query_id]
    ]
    write_qrels(tmp_path / name, judgments)
    assert (tmp_path / name).read_bytes() == (SAMPLE / name).read_bytes()
    for topic in topics:
        grades = Counter(each.relevance for each in judgments if each.query_id == topic.query_id)
        assert grades == {3: 7, 2: 8, 1: 16, 0: 12}

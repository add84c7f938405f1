"""Graded pairs written as a collection: papers, topics by facet, pools."""

import json

import pytest

from qbe.datasets.__main__ import main
from qbe.datasets.registry import write_dataset
from qbe.errors import DatasetError, FileFormatError
from qbe.topics import read_pools, read_topics
from qbe.types import Facet

PAIRS = "query_id\tpaper_id\tbackground\tmethod\tresult\nq\ta\t3\t0\t1\nq\tb\t0\t2\t0.5\nr\ta\t1\t1\t1\n"


@pytest.fixture
def pairs(tmp_path):
    file = tmp_path / "pairs.tsv"
    file.write_text(PAIRS)
    return file


@pytest.fixture
def corpus(tmp_path):
    file = tmp_path / "papers.jsonl"
    records = ({"paper_id": name, "title": f"On {name}", "abstract": "We cut. It helps."} for name in "xqrab")
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return file


def test_each_query_is_a_topic_by_each_facet(pairs, corpus, tmp_path):
    main(["graded-pairs", "--source", str(pairs), "--corpus", str(corpus), "--output", str(tmp_path / "out")])
    topics = read_topics(tmp_path / "out" / "topics.tsv")
    assert [(topic.query_id, topic.paper_id, topic.facet) for topic in topics] == [
        (f"{query}_{facet}", query, facet) for query in "qr" for facet in Facet
    ]
    pools = read_pools(tmp_path / "out" / "pools.tsv")
    assert pools["q_method"] == ["a", "b"]
    assert pools["r_background"] == ["a"]
    lines = (tmp_path / "out" / "corpus.jsonl").read_text().splitlines()
    assert [json.loads(line)["paper_id"] for line in lines] == ["q", "r", "a", "b"]


def test_a_paper_that_the_corpus_lacks_is_named_and_nothing_is_left(pairs, corpus, tmp_path):
    corpus.write_text(corpus.read_text().splitlines()[0] + "\n")
    with pytest.raises(DatasetError, match=r"expected the 4 papers .* found 4 not there, such as a; give"):
        write_dataset("graded-pairs", tmp_path / "out", source=pairs, corpus=str(corpus))
    assert not list((tmp_path / "out").glob("*"))


def test_another_table_is_refused(corpus, tmp_path):
    (tmp_path / "other.tsv").write_text("query_id\tpaper_id\nq\ta\n")
    with pytest.raises(FileFormatError, match=r"other.tsv, line 1: expected the .* columns query_id"):
        write_dataset("graded-pairs", tmp_path / "out", source=tmp_path / "other.tsv", corpus=str(corpus))


def test_without_pairs_or_corpus_it_says_what_to_give(pairs, tmp_path, monkeypatch):
    with pytest.raises(DatasetError, match=r"expected a file of graded pairs as `source`"):
        write_dataset("graded-pairs", tmp_path / "out")
    monkeypatch.delenv("QBE_DATA", raising=False)
    with pytest.raises(DatasetError, match=r"expected the papers of the pairs as `corpus`, or QBE_DATA"):
        write_dataset("graded-pairs", tmp_path / "out", source=pairs)

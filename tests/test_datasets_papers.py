"""Data sets of the four papers: co-citations of full texts, blended papers, Citeomatic's collections."""

import json

import pytest
from support import releases

from qbe.corpus.identity import TitleIndex
from qbe.corpus.json_formats import read_jsonl
from qbe.datasets.registry import DatasetOptions, write_dataset
from qbe.runs import read_graded_pairs, read_qrels, read_topics
from qbe.train.cocitations import read_cocitations
from qbe.train.losses import OBJECTIVES


def test_contexts_of_full_texts_become_pairs(tmp_path):
    out = tmp_path / "out"
    release = DatasetOptions(releases.write_s2orc(tmp_path / "s2orc"))
    told = "cocitations: 2 pairs of 3 papers in 2 sets cited together, out of 1 files of full texts"
    assert write_dataset("cocitations", out, release)[0] == told
    records = [json.loads(line) for line in (out / "cocitations.jsonl").open()]
    assert [(record["cited_pids"], record["citing_contexts"]) for record in records] == [
        (["11", "12"], ["Counting is hard [1][2]."]),
        (["11", "13", "14"], ["Others count by sonar [1][3][4]."]),
    ]
    pairs = list(read_cocitations(out / "cocitations.jsonl", TitleIndex([]), OBJECTIVES["ts"], align=True))
    assert pairs[0].contexts == ("Counting is hard [1][2].",)
    titles = [(pair.query.title, pair.positive.title) for pair in pairs]
    assert titles == [("River 11", "River 12"), ("River 11", "River 13")]


def test_without_full_texts_papers_that_one_cites_are_pairs(tmp_path):
    records = (
        {"paper_id": f"p{n}", "title": f"River {n}", "abstract": releases.RIVERS.format(n)}
        | {"metadata": {"cites": each}}
        for n, each in enumerate(([], [], ["p0", "p1"]))
    )
    releases.write_lines(tmp_path / "corpus/papers.jsonl", records)
    write_dataset("cocitations", tmp_path / "out", DatasetOptions(tmp_path / "corpus"))
    (record,) = map(json.loads, (tmp_path / "out/cocitations.jsonl").open())
    assert record["cited_pids"] == ["p0", "p1"]
    assert " ".join(record["citing_contexts"]) == releases.RIVERS.format(2)


def test_blends_mix_the_facets_of_papers(tmp_path):
    pairs, papers = releases.write_blendable(tmp_path)
    lines = write_dataset("blended", tmp_path / "out", DatasetOptions(pairs, corpus=str(papers)))
    assert lines == ["blended: 2 blended candidates beside 2 pairs of 2 queries, 4 papers"]
    lists = read_graded_pairs(tmp_path / "out/pairs.tsv")
    blended = {paper.paper_id: paper for paper in read_jsonl(tmp_path / "out/corpus.jsonl")}
    assert lists["p0"][1].grades == (0.0, 3.0, 0.0)
    assert lists["p2"][1].grades == (0.0, 0.0, 2.0)
    mixed = blended[lists["p0"][1].paper_id]
    assert mixed.paper_id == "p3+p1+p3"
    assert (mixed.title, mixed.abstract) == ("Title 3", "background 3. method 1. result 3.")


@pytest.mark.parametrize("name", ["dblp", "pubmed"])
def test_citeomatic_is_split_at_fixed_years(tmp_path, name):
    out = tmp_path / "out"
    summary = write_dataset(name, out, DatasetOptions(releases.write_citeomatic(tmp_path / "release", name)))
    assert summary[0].startswith(f"{name}: 16 candidates")
    cites = {f"o{number}": 1 for number in range(12)}
    for split in ("train", "dev", "test"):
        (topic,) = read_topics(out / f"topics.{split}.tsv")
        assert topic.paper_id == split
        assert read_qrels(out / f"{split}.qrels")[split] == cites


def test_open_research_is_split_by_shares(tmp_path):
    write_dataset("open-research", tmp_path / "out", DatasetOptions(releases.write_open_research(tmp_path)))
    splits = {s: [t.paper_id for t in read_topics(tmp_path / f"out/topics.{s}.tsv")] for s in ("dev", "test")}
    assert splits == {"dev": ["p16", "p17"], "test": ["p18", "p19"]}
    written = {each["paper_id"]: each for each in map(json.loads, (tmp_path / "out/papers.jsonl").open())}
    assert (written["p1"]["abstract"], written["p1"]["metadata"]["authors"]) == ("Paper 1", ["Ann Lee"])

"""RELISH, TRECCOVID-RF and SciDocs: from their published layouts to figures worked by hand."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from support.whole import (
    CITE,
    OTHER,
    RELISH,
    papers,
    write_relish,
    write_small_scidocs,
    write_treccovid,
)

from qbe.datasets.__main__ import main as prepare
from qbe.evaluate.__main__ import main as evaluate
from qbe.index.__main__ import main as build
from qbe.index.index import Index
from qbe.query import Topic
from qbe.run import Run
from qbe.search.__main__ import main as search
from qbe.search.queries import queries_of, topics_of
from qbe.topics import read_pools, read_topics
from qbe.trec import read_qrels


def ndcg(*gains: int) -> float:
    """trec_eval's discounted gain of grades in rank order."""
    return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, start=1))


FIGURES: dict[str, tuple[Any, str, list[float]]] = {
    # NDCG%20, MAP and NDCG. q1: a fifth of 10 papers is 2 ranks, grades 1, 2 of the ideal 2, 2; grade 2 at
    # ranks 2 and 4. q2: 1 rank, ideal; grade 2 at ranks 1 and 3.
    "relish": (
        write_relish,
        "test",
        [
            (3 / 4 + 1) / 2,
            ((1 / 2 + 2 / 4) / 2 + (1 + 2 / 3) / 2) / 2,
            (ndcg(1, 2, 0, 2) / ndcg(2, 2, 1) + ndcg(2, 0, 2, 0, 1) / ndcg(2, 2, 1)) / 2,
        ],
    ),
    # 1 rank of 6 papers, without gain; grade 1 at ranks 2 and 3.
    "treccovid": (write_treccovid, "test", [0, (1 / 2 + 2 / 3) / 2, ndcg(0, 1, 1) / ndcg(1, 1)]),
    # Two relevant papers, one of them at rank 2, the other without a text; a fifth of 6 papers is one rank.
    "scidocs": (write_small_scidocs, "cite.test", [0, (1 / 2) / 2, ndcg(0, 1) / ndcg(1, 1)]),
}


@pytest.mark.parametrize("name", FIGURES)
def test_from_a_release_to_its_figures(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write, split, expected = FIGURES[name]
    data, index, run = tmp_path / "data", tmp_path / "index", tmp_path / f"bm25.{split}.trec"
    prepare([name, "--source", str(write(tmp_path / "release")), "--output", str(data)])
    build(["--corpus", str(data / "corpus.jsonl"), "--only=bm25", "--output", str(index)])
    pools = data / f"pools.{split}.tsv"
    options = ["--topics", str(data / f"topics.{split}.tsv"), "--pool", str(pools), "--first-stage", "bm25"]
    options += ["--rerank", "none"]
    search(["--index", str(index), *options, "--output", str(run)])
    ranked = Run.from_trec(run)
    assert ranked.tag == "qbe-bm25"
    assert {query: {hit.paper_id for hit in hits} for query, hits in ranked.rankings.items()} == {
        query: set(pool) for query, pool in read_pools(pools).items()
    }
    with Index(index) as opened:
        query, *_ = queries_of(opened, topics_of(opened, data / f"topics.{split}.tsv"))
        assert not query.aspects[0].paper.labelled  # nothing was tagged for a whole abstract
    qrels = data / f"{name}.{split}.qrels"
    capsys.readouterr()
    evaluate(["--protocol", "pools", "--qrels", str(qrels), "--run", str(run)])
    title, _, header, row = capsys.readouterr().out.splitlines()
    assert title.startswith("judged pools, means over queries; queries: all ")
    assert header.split()[1::3] == ["NDCG%20", "MAP", "NDCG"]
    assert row.split()[1:] == [f"{100 * figure:.2f}" for figure in expected]


def test_relish_exactly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    release, out = write_relish(tmp_path / "release"), tmp_path / "new" / "out"
    prepare(["relish", "--source", str(release), "--output", str(out)])
    assert {path.name for path in out.iterdir()} == {
        "corpus.jsonl",
        *(f"{kind}.{split}.tsv" for kind in ("topics", "pools") for split in ("dev", "test")),
        "relish.dev.qrels",
        "relish.test.qrels",
    }
    records = [json.loads(line) for line in (out / "corpus.jsonl").read_text().splitlines()]
    expected = papers(RELISH).values()
    assert records == [{k: v for k, v in record.items() if k != "topic_ids"} for record in expected]
    # q1 is judged by two people, and a query once.
    assert (out / "topics.test.tsv").read_text() == "query_id\tpaper_id\nq1\tq1\nq2\tq2\n"
    assert read_topics(out / "topics.dev.tsv") == [Topic("q2", "q2")]
    assert (out / "relish.dev.qrels").read_text() == (
        "q2 0 q2c0 2\nq2 0 q2c1 0\nq2 0 q2c2 2\nq2 0 q2c3 0\nq2 0 q2c4 1\n"
    )
    judged = {query: {d: g for d, g in pool.items() if d != query} for query, pool in RELISH.items()}
    assert read_qrels(out / "relish.test.qrels") == judged
    assert read_pools(out / "pools.test.tsv") == {query: list(pool) for query, pool in judged.items()}
    assert capsys.readouterr().out.splitlines() == [
        f"relish: 16 papers (0 with a title only) from {release}",
        "  dev: 1 queries, 5 judgements",
        "  test: 2 queries, 15 judgements",
        "    left out of its own pool: q1",
        f"written to {out}",
    ]


def test_scidocs_keeps_what_its_own_scorer_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    release, out = write_small_scidocs(tmp_path / "release"), tmp_path / "out"
    prepare(["scidocs", "--source", str(release), "--output", str(out)])
    records = {r["paper_id"]: r for r in map(json.loads, (out / "corpus.jsonl").read_text().splitlines())}
    assert records["q1c4"]["abstract"] == [records["q1c4"]["title"]] == ["Trade q1c4"]
    assert records["q1"]["metadata"] == {"year": 1851}
    assert records.keys() == {"q1", "q1c0", "q1c1", "q1c2", "q1c4", "q2", "q2c0", "q2c1"}
    assert read_pools(out / "pools.cite.test.tsv") == {"q1": ["q1c0", "q1c1", "q1c2", "q1c4"]}
    assert read_qrels(out / "scidocs.cite.test.qrels") == {"q1": CITE["q1"]}
    assert read_qrels(out / "scidocs.coread.val.qrels") == OTHER
    assert len(list(out.glob("topics.co*.*.tsv"))) == 6
    printed = capsys.readouterr().out.splitlines()
    assert printed[:5] == [
        f"scidocs: 8 papers (1 with a title only) from {release}",
        "  papers without text, left out: blank",
        "  cite.val: 1 queries, 2 judgements",
        "  cite.test: 1 queries, 6 judgements",
        "    2 of them of papers without text: in the qrels, in no pool",
    ]
    assert printed[5] == "    queries without text, left out: lost"

"""RELISH and SciDocs out of their published layouts; TRECCOVID-RF has that of RELISH."""

import json
from pathlib import Path

import pytest
from support.whole import CITE, OTHER, RELISH, papers, write_relish, write_small_scidocs

from qbe import Topic, read_pools, read_qrels, read_topics
from qbe.cli.datasets import main as prepare


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
    dev = "q2 0 q2c0 2\nq2 0 q2c1 0\nq2 0 q2c2 2\nq2 0 q2c3 0\nq2 0 q2c4 1\n"
    assert (out / "relish.dev.qrels").read_text() == dev
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

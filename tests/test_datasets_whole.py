"""RELISH, TRECCOVID-RF and SciDocs: from their published layouts to figures worked by hand."""

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.whole import papers, scidocs_records, write_aspire, write_scidocs

from qbe.datasets.__main__ import main as prepare
from qbe.errors import CorpusError, DatasetError, FileFormatError, OutputError, QbeError
from qbe.evaluate.__main__ import main as evaluate
from qbe.index.__main__ import main as build
from qbe.index.index import Index
from qbe.query import Topic
from qbe.search.__main__ import main as search
from qbe.search.queries import queries_of, topics_of
from qbe.topics import read_pools, read_topics
from qbe.trec import read_qrels, read_run

# Candidate i of a query comes i-th, see support.whole. q1 stands in its own pool.
RELISH = {
    "q1": {"q1": 2, "q1c3": 2, "q1c1": 2, "q1c0": 1}
    | dict.fromkeys(["q1c2", "q1c4", "q1c5"], 0)
    | dict.fromkeys(["q1c6", "q1c7", "q1c8", "q2c0"], 0),
    "q2": {"q2c0": 2, "q2c1": 0, "q2c2": 2, "q2c3": 0, "q2c4": 1},
}
RELISH_SPLITS = {"dev": ["q2"], "test": ["q1", "q2", "q1"]}

TRECCOVID = {
    "q1": {"q1c0": 0, "q1c1": 1, "q1c2": 1, "q1c3": 0, "q1c4": 0, "q2": 0},
    "q2": {"q2c0": 1, "q2c1": 0},
}
TRECCOVID_SPLITS = {"dev": ["q2"], "test": ["q1"]}

# "gone" is no paper of the metadata, q1c4 has no abstract, "blank" neither abstract nor title; the query
# "lost" has no text.
CITE = {
    "q1": {"q1c0": 0, "q1c1": 1, "gone": 1, "q1c2": 0, "q1c4": 0, "blank": 0},
    "lost": {"q1c0": 1, "q1c1": 0},
}
OTHER = {"q2": {"q2c0": 1, "q2c1": 0}}
SCIDOCS = {
    f"{task}/{split}": CITE if (task, split) == ("cite", "test") else OTHER
    for task in ("cite", "cocite", "coview", "coread")
    for split in ("val", "test")
}


def write_relish(folder: Path) -> Path:
    return write_aspire(folder, "relish", RELISH, RELISH_SPLITS)


def write_treccovid(folder: Path) -> Path:
    return write_aspire(folder, "treccovid", TRECCOVID, TRECCOVID_SPLITS)


def write_small_scidocs(folder: Path) -> Path:
    records = scidocs_records({"q1": dict.fromkeys(["q1c0", "q1c1", "q1c2", "q1c4"], 0), **OTHER})
    records["q1c4"]["abstract"] = None
    records["blank"] = {"paper_id": "blank", "title": None, "abstract": " "}
    return write_scidocs(folder, SCIDOCS, records)


def ndcg(*gains: int) -> float:
    """trec_eval's discounted gain of grades in rank order."""
    return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, start=1))


COLLECTIONS: dict[str, tuple[Any, str, str]] = {
    # q1: a fifth of 10 papers is 2 ranks, grades 1, 2 of the ideal 2, 2; grade 2 at ranks 2 and 4.
    # q2: 1 rank, ideal; grade 2 at ranks 1 and 3.
    "relish": (
        write_relish,
        "test",
        f"RELISH, means over judged pools; queries: all 2\n\n"
        "run        NDCG%20 (per cent)  MAP (per cent)\n"
        f"bm25.test               {100 * (3 / 4 + 1) / 2:.2f}"
        f"           {100 * ((1 / 2 + 2 / 4) / 2 + (1 + 2 / 3) / 2) / 2:.2f}\n",
    ),
    # 1 rank of 6 papers, without gain; grade 1 at ranks 2 and 3.
    "treccovid": (
        write_treccovid,
        "test",
        "TRECCOVID-RF, means over judged pools; queries: all 1\n\n"
        "run        NDCG%20 (per cent)  MAP (per cent)\n"
        f"bm25.test                0.00           {100 * (1 / 2 + 2 / 3) / 2:.2f}\n",
    ),
    # Two relevant papers, one of them at rank 2, the other without a text.
    "scidocs": (
        write_small_scidocs,
        "cite.test",
        "SciDocs, means over judged pools; queries: all 1\n\n"
        "run             MAP (per cent)  NDCG (per cent)\n"
        f"bm25.cite.test           {100 * (1 / 2) / 2:.2f}            {100 * ndcg(0, 1) / ndcg(1, 1):.2f}\n",
    ),
}


@pytest.mark.parametrize("name", COLLECTIONS)
def test_from_a_release_to_its_figures(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write, split, expected = COLLECTIONS[name]
    data, index, run = tmp_path / "data", tmp_path / "index", tmp_path / f"bm25.{split}.trec"
    prepare([name, "--source", str(write(tmp_path / "release")), "--output", str(data)])
    build(["--corpus", str(data / "corpus.jsonl"), "--only=bm25", "--output", str(index)])
    pools = data / f"pools.{split}.tsv"
    options = ["--topics", str(data / f"topics.{split}.tsv"), "--pool", str(pools), "--first-stage", "bm25"]
    search(["--index", str(index), *options, "--output", str(run)])
    ranked = read_run(run)
    assert ranked.tag == "qbe-bm25"
    assert {query: {hit.paper_id for hit in hits} for query, hits in ranked.rankings.items()} == {
        query: set(pool) for query, pool in read_pools(pools).items()
    }
    with Index(index) as opened:
        query, *_ = queries_of(opened, topics_of(opened, data / f"topics.{split}.tsv"))
        assert not query.aspects[0].paper.labelled  # nothing was tagged for a whole abstract
    qrels = data / f"{name}.{split}.qrels"
    capsys.readouterr()
    evaluate(["--protocol", name, "--qrels", str(qrels), "--run", str(run)])
    assert capsys.readouterr().out == expected


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
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    with pytest.raises(OutputError, match=r"corpus.jsonl: expected no such file, or the data set's own"):
        prepare(["relish", "--raw", "--source", str(release), "--output", str(out)])
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    prepare(["relish", "--raw", "--source", str(release), "--output", str(out), "--overwrite"])
    raw = json.loads((out / "corpus.jsonl").read_text().splitlines()[0])
    assert raw["abstract"] == " ".join(records[0]["abstract"])
    prepare(["relish", "--source", str(release), "--output", str(out), "--overwrite"])
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


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


def relish(**changes: Any) -> Any:
    """How to write RELISH with changes."""

    def write(folder: Path) -> Path:
        records = papers(RELISH)
        records |= changes.pop("records", {})
        write_aspire(folder, "relish", RELISH, RELISH_SPLITS, records)
        for name, content in changes.items():
            path = (
                folder
                / {"pools": "test-pid2anns-relish.json", "splits": "relish-evaluation_splits.json"}[name]
            )
            path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        return folder

    return write


def scidocs(name: str, text: str | None) -> Any:
    """How to write SciDocs with another file, or without it."""

    def write(folder: Path) -> Path:
        write_small_scidocs(folder)
        (folder / name).unlink() if text is None else (folder / name).write_text(text)
        return folder

    return write


@pytest.mark.parametrize(
    ("name", "write", "error", "message"),
    [
        ("relish", lambda folder: folder, DatasetError, "found no folder .*; get it from https://figshare"),
        ("relish", relish(pools=b"{"), DatasetError, "pid2anns-relish.json: expected JSON"),
        ("relish", relish(pools=b'{"q1": "\xff"}'), DatasetError, "pid2anns-relish.json: expected JSON"),
        ("relish", relish(pools=[1]), DatasetError, "expected an object"),
        ("relish", relish(pools={"q1": {"cands": ["q1c0"]}}), DatasetError, "equally long lists"),
        (
            "relish",
            relish(pools={"q1": {"cands": ["q9"], "relevance_adju": [1]}}),
            DatasetError,
            "found q9, which abstracts-relish.jsonl lacks",
        ),
        (
            "relish",
            relish(pools={"q1": {"cands": ["q1c0"], "relevance_adju": [3]}}),
            DatasetError,
            "a grade from 0 to 2, found the grade 3",
        ),
        (
            "relish",
            relish(pools={"q1": {"cands": ["q1c0", "q1c0"], "relevance_adju": [1, 1]}}),
            DatasetError,
            "found a candidate twice",
        ),
        ("relish", relish(splits={"dev": ["q1"]}), DatasetError, "list of query ids as test, found None"),
        ("relish", relish(splits={"dev": ["q1"], "test": ["q1c0"]}), DatasetError, "found 'q1c0'"),
        ("relish", relish(splits={"dev": [["q1"]], "test": ["q1"]}), DatasetError, r"found \['q1'\]"),
        (
            "relish",
            relish(records={"again": papers(RELISH)["q1"]}),
            CorpusError,
            "line 17: expected each paper_id once, found 'q1' again",
        ),
        (
            "relish",
            relish(records={"q1": {"paper_id": "q1", "title": 1, "abstract": ["a"]}}),
            CorpusError,
            "line 1: expected a string as title",
        ),
        (
            "relish",
            relish(records={q: {"paper_id": q, "title": "", "abstract": []} for q in ("q1", "q2")}),
            DatasetError,
            "expected queries in dev, found none that has a text",
        ),
        ("scidocs", scidocs("cite/val.qrel", None), DatasetError, "found no cite/val.qrel"),
        ("scidocs", scidocs("cite/val.qrel", "q1 0 q1c0\n"), FileFormatError, "val.qrel, line 1: expected"),
        (
            "scidocs",
            scidocs("cite/val.qrel", "q1 0 q1c0 2\n"),
            DatasetError,
            "grades 0 and 1, found 2 for q1",
        ),
        (
            "scidocs",
            scidocs("cite/val.qrel", "q1 0 q1c0 1\nq1 0 q1c0 0\n"),
            FileFormatError,
            "line 2: expected each document judged once",
        ),
        ("scidocs", scidocs("paper_metadata_view_cite_read.json", '{"q": 1}'), CorpusError, "expected"),
    ],
)
def test_hostile_releases(tmp_path: Path, name: str, write: Any, error: type[QbeError], message: str) -> None:
    source = write(tmp_path / "release")
    with pytest.raises(error, match=message) as raised:
        prepare([name, "--source", str(source), "--output", str(tmp_path / "out")])
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "out").exists()


def test_a_release_is_found_in_the_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QBE_DATA", raising=False)
    with pytest.raises(
        DatasetError, match=r"\$QBE_DATA/treccovid, found neither; get it from https://figshare"
    ):
        prepare(["treccovid", "--output", str(tmp_path / "out")])
    write_treccovid(tmp_path / "data" / "treccovid")
    monkeypatch.setenv("QBE_DATA", str(tmp_path / "data"))
    prepare(["treccovid", "--output", str(tmp_path / "out")])
    assert read_qrels(tmp_path / "out" / "treccovid.test.qrels") == {"q1": TRECCOVID["q1"]}
    (tmp_path / "data" / "treccovid" / "abstracts-treccovid.jsonl").unlink()
    command = [sys.executable, "-m", "qbe.datasets", "treccovid", "--output", str(tmp_path / "other")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "found no abstracts-treccovid.jsonl; get them from https://figshare" in done.stderr

"""Who cites whom: the papers on visualization, and corpora of one's own, as collections."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from support.releases import CITATION_PAPERS, CITATIONS, contents, write_citations, write_records

from qbe.cli.datasets import main
from qbe.datasets.registry import DatasetOptions, write_dataset
from qbe.errors import DatasetError
from qbe.runs import read_qrels, read_topics

Records = dict[str, dict[str, Any]]


def papers_in(folder: Path) -> Records:
    records = map(json.loads, (folder / "papers.jsonl").read_text().splitlines())
    return {record.pop("paper_id"): record for record in records}


# The papers on visualization.


def test_a_release_exactly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    release, out = write_citations(tmp_path / "release"), tmp_path / "new" / "out"
    main(["citations", "--source", str(release), "--output", str(out)])
    cites = {"10.1/b": ["10.1/a"], "10.1/c": ["10.1/b", "10.1/a"]}
    assert papers_in(out) == {
        paper_id: {
            **record,
            "metadata": record["metadata"] | ({"cites": cites[paper_id]} if paper_id in cites else {}),
        }
        for paper_id, record in CITATION_PAPERS.items()
    }
    written = contents(out)
    del written["papers.jsonl"]
    assert written == {
        "topics.train.tsv": b"query_id\tpaper_id\n10.1/b\t10.1/b\n10.1/c\t10.1/c\n",
        "topics.dev.tsv": b"query_id\tpaper_id\n10.1/d\t10.1/d\n",
        "train.qrels": CITATIONS["train"].encode(),
        "dev.qrels": CITATIONS["dev"].encode(),
    }
    # Words: 1 + 6, 1 + 3, 1 + 5, 1 + 3.
    assert capsys.readouterr().out.splitlines() == [
        f"citations: 4 candidates from {release}, 5.2 words on average",
        "  train: 2 queries (2018), 1.5 citations on average",
        "  dev: 1 queries (2020), 1.0 citations on average",
        f"next: qbe index --corpus {out}/papers.jsonl --output indexes/citations",
        f"written to {out}",
    ]


def test_the_real_release(qbe_data: Path, tmp_path: Path) -> None:
    lines = write_dataset("citations", tmp_path, DatasetOptions(qbe_data / "citations"))
    assert lines[0].startswith("citations: 3,796 candidates")
    assert lines[1:3] == [
        "  train: 2,420 queries (1990 to 2018), 5.1 citations on average",
        "  dev: 353 queries (2019 to 2020), 10.7 citations on average",
    ]
    assert sum("cites" in paper["metadata"] for paper in papers_in(tmp_path).values()) == 2420


# A corpus of one's own. Paper i is of the year 2000 + i, and cites the two before it.

OWN: Records = {
    f"p{i}": {
        "title": f"Paper number {i}",
        "abstract": f"This is the paper of {i}.",
        "metadata": {"year": 2000 + i, "cites": [f"p{i - 1}", f"p{i - 2}"][: min(i, 2)]},
    }
    for i in range(12)
}


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return write_records(tmp_path / "own.jsonl", OWN)


def queries_in(folder: Path, *splits: str) -> list[list[str]]:
    return [[topic.paper_id for topic in read_topics(folder / f"topics.{name}.tsv")] for name in splits]


def test_a_corpus_of_ones_own(tmp_path: Path, own: Path) -> None:
    """Of eleven papers that cite others eight are train; of the three others, one is dev."""
    lines = write_dataset("citations", tmp_path / "out", DatasetOptions(corpus=str(own)))
    assert lines[1:4] == [
        "  train: 8 queries (2001 to 2008), 1.9 citations on average",
        "  dev: 1 queries (2009), 2.0 citations on average",
        "  test: 2 queries (2010 to 2011), 2.0 citations on average",
    ]
    assert queries_in(tmp_path / "out", "dev", "test") == [["p9"], ["p10", "p11"]]
    judged = (tmp_path / "out" / "test.qrels").read_text()
    assert judged == "p10 0 p9 1\np10 0 p8 1\np11 0 p10 1\np11 0 p9 1\n"
    papers = papers_in(tmp_path / "out")
    citing = [paper_id for paper_id, paper in papers.items() if "cites" in paper["metadata"]]
    assert citing == [f"p{i}" for i in range(1, 9)]
    assert papers["p11"] == {**OWN["p11"], "metadata": {"year": 2011}}


@pytest.mark.parametrize(
    ("years", "expected"),
    [
        (["2003"], {"train": ["p1", "p2", "p3"], "dev": [f"p{i}" for i in range(4, 12)]}),
        (["2002", "2009"], {"train": ["p1", "p2"], "test": ["p10", "p11"]}),
    ],
)
def test_splits_at_given_years(tmp_path, own, years, expected):
    out = tmp_path / "out"
    main(["citations", "--corpus", str(own), "--split-year", *years, "--output", str(out)])
    assert dict(zip(expected, queries_in(out, *expected), strict=True)) == expected
    assert len(list(out.glob("*.qrels"))) == len(years) + 1


def test_near_duplicates_of_papers_to_leave_out_are_candidates_alone(tmp_path: Path, own: Path) -> None:
    """Three words of four is more than 0.7; one of the titles is of train, one of dev."""
    others = {
        "x": {**OWN["p8"], "title": "PAPER, number 8!"},
        "y": {**OWN["p9"], "title": "Paper number 9 again"},
    }
    file = write_records(tmp_path / "others.jsonl", others)
    out = tmp_path / "out"
    options = DatasetOptions(corpus=str(own), split_years=(2008, 2010), leave_out=(file,))
    lines = write_dataset("citations", out, options)
    assert "  2 papers are no queries: papers to leave out have their titles" in lines
    assert queries_in(out, "train", "dev", "test") == [[f"p{i}" for i in range(1, 8)], ["p10"], ["p11"]]
    assert papers_in(out)["p8"] == {**OWN["p8"], "metadata": {"year": 2008}}
    assert read_qrels(out / "dev.qrels") == {"p10": {"p9": 1, "p8": 1}}
    told = r"none in train, of 0 papers .* check metadata\.cites, the years and `leave_out`"
    with pytest.raises(DatasetError, match=told):
        write_dataset("citations", tmp_path / "none", DatasetOptions(corpus=str(own), leave_out=(own,)))


def test_what_does_not_count_as_a_citation(tmp_path: Path) -> None:
    """The paper itself, a repetition, a younger paper, one without a year, one that is not there."""
    cites = ["p11", "p1", "p1", "old", "z", "new", "p2"]
    records = {
        **OWN,
        "old": {"title": "Without a year", "abstract": "Nobody knows.", "metadata": {"cites": ["p0"]}},
        "p11": {**OWN["p11"], "metadata": {"year": 2011, "cites": cites}},
        "new": {**OWN["p11"], "metadata": {"date": "2012-05", "cites": ["p11"]}},
    }
    corpus = write_records(tmp_path / "own.jsonl", records)
    out = tmp_path / "out"
    lines = write_dataset("citations", out, DatasetOptions(corpus=str(corpus), split_years=(2010,)))
    assert read_qrels(out / "dev.qrels") == {"p11": {"p1": 1, "p2": 1}, "new": {"p11": 1}}
    assert "  1 papers without a year, left out" in lines
    papers = papers_in(out)
    assert papers.keys() == records.keys() - {"old"}
    assert papers["new"]["metadata"] == {"date": "2012-05", "year": 2012}


def test_records_without_an_abstract_broken_ones_and_labels(tmp_path: Path, own: Path) -> None:
    labels = {"abstract": ["We read.", "It ends."], "pred_labels": ["method_label", "result_label"]}
    write_records(own, {**OWN, "p0": OWN["p0"] | labels})
    record = '{"paper_id": "p12", "title": "No abstract", "metadata": {"year": 1999}}'
    own.write_text(f'{own.read_text()}\n{record}\n{{"title"\n')
    out = tmp_path / "out"
    lines = write_dataset("citations", out, DatasetOptions(corpus=str(own)))
    listed = out / "papers.jsonl.rejected.jsonl"
    assert f"  1 record skipped (malformed JSON: 1), listed in {listed}" in lines
    assert json.loads(listed.read_text())["where"] == f"{own}, line 14"
    papers = papers_in(out)
    assert papers["p12"]["abstract"] == "No abstract"
    assert {name: papers["p0"][name] for name in labels} == labels


def test_a_table_and_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = ["id,title,abstract,year,cites"]
    rows += [f'q{i},Title {i},Abstract {i}.,{2000 + i},"{f"q{i - 1}" if i else ""}"' for i in range(12)]
    data = io.BufferedReader(io.BytesIO("\n".join(rows).encode()))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(data))
    lines = write_dataset("citations", tmp_path / "out", DatasetOptions(corpus="-"))
    assert lines[0] == "citations: 12 candidates from standard input, 4.0 words on average"
    assert read_qrels(tmp_path / "out" / "dev.qrels") == {"q9": {"q8": 1}}

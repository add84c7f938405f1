"""Who cites whom: the papers on visualization, and corpora of one's own, as collections."""

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbe.corpus.titles import TitleIndex
from qbe.datasets import names, write_dataset
from qbe.datasets.__main__ import main
from qbe.datasets.citation_statistics import SplitStatistics, Statistics, statistics
from qbe.datasets.citing import Rules, write_collection
from qbe.datasets.timesplit import SPLITS, by_last_years, by_share
from qbe.errors import CorpusError, DatasetError, OutputError, QbeError, UsageError
from qbe.index.__main__ import main as build
from qbe.query import Topic
from qbe.search.__main__ import main as search
from qbe.topics import read_topics
from qbe.trec import read_qrels, read_run
from qbe.types import Paper, Sentence

Records = dict[str, dict[str, Any]]

RELEASE: Records = {
    "10.1/a": {
        "title": "Potters",
        "abstract": "We count potters. There are six.",
        "metadata": {"year": 1990},
    },
    "10.1/b": {"title": "Weavers", "abstract": "Weavers follow potters.", "metadata": {"year": 2018}},
    "10.1/c": {"title": "Tanners", "abstract": "We count all who tan.", "metadata": {"year": 2018}},
    "10.1/d": {"title": "Coopers", "abstract": "Coopers come last.", "metadata": {"year": 2020}},
}
TRAIN = "10.1/b 0 10.1/a 1\n10.1/c 0 10.1/b 1\n10.1/c 0 10.1/a 1\n"
DEV = "10.1/d 0 10.1/c 1\n"


def write_records(path: Path, records: Records) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps({"paper_id": paper_id, **record}) for paper_id, record in records.items())
    path.write_text("\n".join(lines))
    return path


def write_release(folder: Path, train: str = TRAIN, dev: str = DEV, **changes: Any) -> Path:
    write_records(folder / "papers.jsonl", {**RELEASE, **changes})
    (folder / "train.qrels").write_text(train)
    (folder / "dev.qrels").write_text(dev)
    return folder


def papers_in(folder: Path) -> Records:
    records = map(json.loads, (folder / "papers.jsonl").read_text().splitlines())
    return {record.pop("paper_id"): record for record in records}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# The papers on visualization.


def test_a_release_exactly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    release, out = write_release(tmp_path / "release"), tmp_path / "new" / "out"
    main(["citations", "--source", str(release), "--output", str(out)])
    cites = {"10.1/b": ["10.1/a"], "10.1/c": ["10.1/b", "10.1/a"]}
    assert papers_in(out) == {
        paper_id: {
            **record,
            "metadata": record["metadata"] | ({"cites": cites[paper_id]} if paper_id in cites else {}),
        }
        for paper_id, record in RELEASE.items()
    }
    written = contents(out)
    del written["papers.jsonl"]
    assert written == {
        "topics.train.tsv": b"query_id\tpaper_id\n10.1/b\t10.1/b\n10.1/c\t10.1/c\n",
        "topics.dev.tsv": b"query_id\tpaper_id\n10.1/d\t10.1/d\n",
        "train.qrels": TRAIN.encode(),
        "dev.qrels": DEV.encode(),
    }
    # Words: 1 + 6, 1 + 3, 1 + 5, 1 + 3.
    assert capsys.readouterr().out.splitlines() == [
        f"citations: 4 candidates from {release}, 5.2 words on average",
        "  train: 2 queries (2018), 1.5 citations on average",
        "  dev: 1 queries (2020), 1.0 citations on average",
        f"next: qbe index --corpus {out}/papers.jsonl --output indexes/citations",
        f"written to {out}",
    ]
    assert statistics(out) == Statistics(
        4,
        21 / 4,
        (SplitStatistics("train", 2, (2018, 2018), 1.5), SplitStatistics("dev", 1, (2020, 2020), 1.0)),
    )


def test_topics_of_a_collection_are_searched(tmp_path: Path) -> None:
    release, out = write_release(tmp_path / "release"), tmp_path / "out"
    main(["citations", "--source", str(release), "--output", str(out)])
    index, run = tmp_path / "index", tmp_path / "train.trec"
    build(["--corpus", str(out / "papers.jsonl"), "--only=bm25", "--output", str(index)])
    topics = out / "topics.train.tsv"
    search(["--index", str(index), "--topics", str(topics), "--first-stage", "bm25", "--output", str(run)])
    rankings = read_run(run).rankings
    assert [hit.paper_id for hit in rankings["10.1/b"]] == ["10.1/a"]  # which has potters, too
    assert [hit.paper_id for hit in rankings["10.1/c"]] == ["10.1/a"]  # which counts, too


def test_the_real_release(qbe_data: Path, tmp_path: Path) -> None:
    write_dataset("citations", tmp_path, source=qbe_data / "citations")
    found = statistics(tmp_path)
    assert found.candidates == 3796
    assert found.splits == (
        SplitStatistics("train", 2420, (1990, 2018), 12315 / 2420),
        SplitStatistics("dev", 353, (2019, 2020), 3762 / 353),
    )
    papers = papers_in(tmp_path)
    for name in ("train", "dev"):
        released = read_qrels(qbe_data / "citations" / f"{name}.qrels")
        assert read_qrels(tmp_path / f"{name}.qrels") == released
        assert read_topics(tmp_path / f"topics.{name}.tsv") == [Topic(query, query) for query in released]
        for query, cited in released.items():
            assert papers[query]["metadata"].get("cites") == (list(cited) if name == "train" else None)
    assert sum("cites" in paper["metadata"] for paper in papers.values()) == 2420


def test_a_release_is_found_in_the_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QBE_DATA", str(tmp_path))
    write_release(tmp_path / "citations")
    write_dataset("citations", tmp_path / "out")
    assert (tmp_path / "out" / "dev.qrels").read_text() == DEV
    monkeypatch.delenv("QBE_DATA")
    command = [sys.executable, "-m", "qbe.datasets", "citations", "--output", str(tmp_path / "other")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "qbe datasets: expected citations's release in --source or in $QBE_DATA/citations, found neither; "
        "get it from https://github.com/pisenberg/vispubdata and make papers.jsonl, train.qrels and "
        "dev.qrels of it\n"
    )


def test_files_of_another_content_stay_unless_they_are_to_be_replaced(tmp_path: Path) -> None:
    release, out = write_release(tmp_path / "release"), tmp_path / "out"
    write_dataset("citations", out, source=release)
    before = contents(out)
    write_dataset("citations", out, source=release)
    write_release(release, train="10.1/c 0 10.1/a 1\n")
    with pytest.raises(OutputError, match=r"expected no such file, or the data set's own, found another"):
        write_dataset("citations", out, source=release)
    assert contents(out) == before
    write_dataset("citations", out, source=release, overwrite=True)
    assert (out / "train.qrels").read_text() == "10.1/c 0 10.1/a 1\n"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dev": "10.1/d 0 10.1/a 2\n"}, "found the grade 2 of 10.1/a; take all files from one release"),
        ({"dev": "10.1/d 0 10.1/z 1\n"}, "found 10.1/z, which papers.jsonl lacks or has without a year; "),
        ({"dev": "10.1/z 0 10.1/a 1\n"}, "expected papers that 10.1/z cites, .* found 10.1/z, which"),
        ({"dev": "10.1/a 0 10.1/b 1\n"}, "dev.qrels: expected papers .* found 10.1/b, which is younger; "),
        ({"dev": TRAIN}, "dev.qrels: expected other queries than in train.qrels, found 10.1/b in both; "),
        ({"dev": "10.1/d 10.1/a 1\n"}, "dev.qrels, line 1: expected query_id 0 paper_id relevance"),
        ({"dev": ""}, r"expected queries in each split, found none in dev \(of 2 papers that cite others\)"),
        ({"train": "", "dev": ""}, "expected papers that cite other papers of the collection"),
        (
            {"10.1/a": {"title": "Potters", "abstract": "No year."}},
            "found 10.1/a, which papers.jsonl lacks or has without a year",
        ),
        ({"10.1/a": {"title": 7, "abstract": "No."}}, "papers.jsonl, line 1: expected a string as title"),
    ],
)
def test_hostile_releases(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    release = write_release(tmp_path / "release", **changes)
    with pytest.raises(QbeError, match=message) as raised:
        write_dataset("citations", tmp_path / "out", source=release)
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "out").exists()


def test_a_release_without_a_file(tmp_path: Path) -> None:
    release = write_release(tmp_path / "release")
    (release / "dev.qrels").unlink()
    with pytest.raises(DatasetError, match=r"expected the files of citations's release, found no dev.qrels"):
        write_dataset("citations", tmp_path / "out", source=release)


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
    lines = write_dataset("citations", tmp_path / "out", corpus=str(own))
    assert lines[1:4] == [
        "  train: 8 queries (2001 to 2008), 1.9 citations on average",
        "  dev: 1 queries (2009), 2.0 citations on average",
        "  test: 2 queries (2010 to 2011), 2.0 citations on average",
    ]
    assert queries_in(tmp_path / "out", "dev", "test") == [["p9"], ["p10", "p11"]]
    assert (tmp_path / "out" / "test.qrels").read_text() == (
        "p10 0 p9 1\np10 0 p8 1\np11 0 p10 1\np11 0 p9 1\n"
    )
    papers = papers_in(tmp_path / "out")
    assert [paper_id for paper_id, paper in papers.items() if "cites" in paper["metadata"]] == [
        f"p{i}" for i in range(1, 9)
    ]
    assert papers["p11"] == {
        "title": "Paper number 11",
        "abstract": "This is the paper of 11.",
        "metadata": {"year": 2011},
    }


@pytest.mark.parametrize(
    ("years", "expected"),
    [
        (["2003"], {"train": ["p1", "p2", "p3"], "dev": [f"p{i}" for i in range(4, 12)]}),
        (["2002", "2009"], {"train": ["p1", "p2"], "test": ["p10", "p11"]}),
    ],
)
def test_splits_at_given_years(
    tmp_path: Path, own: Path, years: list[str], expected: dict[str, list[str]]
) -> None:
    out = tmp_path / "out"
    main(["citations", "--corpus", str(own), "--split-year", *years, "--output", str(out)])
    assert dict(zip(expected, queries_in(out, *expected), strict=True)) == expected
    assert len(list(out.glob("*.qrels"))) == len(years) + 1


def test_a_year_after_all_papers_leaves_a_split_empty(tmp_path: Path, own: Path) -> None:
    with pytest.raises(DatasetError, match=r"found none in dev \(of 11 papers that cite others\)"):
        write_dataset("citations", tmp_path / "out", corpus=str(own), split_years=[2011])


def test_near_duplicates_of_papers_to_leave_out_are_candidates_alone(tmp_path: Path, own: Path) -> None:
    """Three words of four is more than 0.7; one of the titles is of train, one of dev."""
    others = {
        "x": {**OWN["p8"], "title": "PAPER, number 8!"},
        "y": {**OWN["p9"], "title": "Paper number 9 again"},
    }
    file = write_records(tmp_path / "others.jsonl", others)
    out = tmp_path / "out"
    lines = write_dataset("citations", out, corpus=str(own), split_years=[2008, 2010], leave_out=[file])
    assert "  2 papers are no queries: papers to leave out have their titles" in lines
    assert queries_in(out, "train", "dev", "test") == [[f"p{i}" for i in range(1, 8)], ["p10"], ["p11"]]
    assert papers_in(out)["p8"] == {**OWN["p8"], "metadata": {"year": 2008}}
    assert read_qrels(out / "dev.qrels") == {"p10": {"p9": 1, "p8": 1}}
    with pytest.raises(DatasetError, match="found that `leave_out` has the titles of all 11; give another"):
        write_dataset("citations", tmp_path / "none", corpus=str(own), leave_out=[own])


def test_what_does_not_count_as_a_citation(tmp_path: Path) -> None:
    """The paper itself, a repetition, a younger paper, one without a year, one that is not there."""
    records = {
        **OWN,
        "old": {"title": "Without a year", "abstract": "Nobody knows.", "metadata": {"cites": ["p0"]}},
        "p11": {
            **OWN["p11"],
            "metadata": {"year": 2011, "cites": ["p11", "p1", "p1", "old", "z", "new", "p2"]},
        },
        "new": {**OWN["p11"], "metadata": {"date": "2012-05", "cites": ["p11"]}},
    }
    corpus = write_records(tmp_path / "own.jsonl", records)
    out = tmp_path / "out"
    lines = write_dataset("citations", out, corpus=str(corpus), split_years=[2010])
    assert read_qrels(out / "dev.qrels") == {"p11": {"p1": 1, "p2": 1}, "new": {"p11": 1}}
    assert "  1 papers without a year, left out" in lines
    papers = papers_in(out)
    assert papers.keys() == records.keys() - {"old"}
    assert papers["new"]["metadata"] == {"date": "2012-05", "year": 2012}


def test_records_without_an_abstract_or_broken_ones(tmp_path: Path, own: Path) -> None:
    own.write_text(
        own.read_text()
        + '\n{"paper_id": "p12", "title": "No abstract", "metadata": {"year": 1999}}\n{"title"\n'
    )
    out = tmp_path / "out"
    lines = write_dataset("citations", out, corpus=str(own))
    listed = out / "papers.jsonl.rejected.jsonl"
    assert f"  1 record skipped (malformed JSON: 1), listed in {listed}" in lines
    assert json.loads(listed.read_text())["where"] == f"{own}, line 14"
    assert papers_in(out)["p12"]["abstract"] == "No abstract"


def test_sentences_and_labels_are_kept(tmp_path: Path) -> None:
    labelled = {
        **OWN["p0"],
        "abstract": ["We read.", "It ends."],
        "pred_labels": ["method_label", "result_label"],
    }
    one = {**OWN["p1"], "abstract": ["We read."], "pred_labels": ["method_label"]}
    corpus = write_records(tmp_path / "own.jsonl", {**OWN, "p0": labelled, "p1": one})
    write_dataset("citations", tmp_path / "out", corpus=str(corpus))
    papers = papers_in(tmp_path / "out")
    for paper_id, record in {"p0": labelled, "p1": one}.items():
        kept = papers[paper_id]
        assert (kept["abstract"], kept["pred_labels"]) == (record["abstract"], record["pred_labels"])


def test_a_table_and_standard_input(tmp_path: Path) -> None:
    rows = ["id,title,abstract,year,cites"]
    rows += [f'q{i},Title {i},Abstract {i}.,{2000 + i},"{f"q{i - 1}" if i else ""}"' for i in range(12)]
    command = [sys.executable, "-m", "qbe.datasets", "citations", "--corpus", "-", "--output"]
    done = subprocess.run(
        [*command, str(tmp_path / "out")], input="\n".join(rows), capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("citations: 12 candidates from standard input, 4.0 words on average\n")
    assert read_qrels(tmp_path / "out" / "dev.qrels") == {"q9": {"q8": 1}}


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"cites": "p1"},
            CorpusError,
            "paper 'p5': expected a list of paper ids as metadata.cites, found 'p1'",
        ),
        ({"cites": [["p1"]]}, CorpusError, r"metadata.cites, found \[\['p1'\]\]; mend the record"),
    ],
)
def test_cites_that_are_no_ids(
    tmp_path: Path, change: dict[str, Any], error: type[QbeError], message: str
) -> None:
    records = {**OWN, "p5": {**OWN["p5"], "metadata": {"year": 2005, **change}}}
    corpus = write_records(tmp_path / "own.jsonl", records)
    with pytest.raises(error, match=message) as raised:
        write_dataset("citations", tmp_path / "out", corpus=str(corpus))
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "out").exists()


def test_a_corpus_without_citations(tmp_path: Path, sample: Path) -> None:
    with pytest.raises(DatasetError, match=r"found none; check the ids in metadata\.cites"):
        write_dataset("citations", tmp_path / "out", corpus=str(sample / "corpus.jsonl"))
    with pytest.raises(CorpusError, match=r"cannot read nosuch\.jsonl"):
        write_dataset("citations", tmp_path / "out", corpus="nosuch.jsonl")


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("relish", {"corpus": "x"}, "relish is no collection of citations; leave out `corpus`"),
        ("sample", {"split_years": [2018]}, "leave out `split_years`"),
        ("csfcube", {"leave_out": ["x"]}, "leave out `leave_out`"),
        ("citations", {"raw": True}, "leave out `raw`"),
        ("citations", {"limit": 3}, "leave out `limit`"),
        ("citations", {"corpus": "x", "source": "y"}, "as `corpus`, found both"),
        ("citations", {"split_years": [2018]}, "the splits of a release are given; leave out `split_years`"),
        ("citations", {"corpus": "x", "split_years": [2019, 2018]}, "the later one second, found 2019 2018"),
        ("citations", {"corpus": "x", "split_years": [2018, 2018]}, "found 2018 2018"),
        ("citations", {"corpus": "x", "split_years": [1, 2, 3]}, "found 1 2 3"),
        ("citeomatic", {}, "expected `corpus` of dblp, pubmed, open-research, found none"),
        ("citeomatic", {"corpus": "acl"}, "found acl"),
        ("citeomatic", {"corpus": "dblp", "split_years": [2018]}, "leave out `split_years`"),
    ],
)
def test_arguments_that_do_not_fit(
    tmp_path: Path, name: str, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        write_dataset(name, tmp_path / "out", **arguments)
    assert not (tmp_path / "out").exists()
    assert set(names.OF_CITATIONS) == {"citations", "citeomatic"}


# Splits, and what a collection may be limited to.


YEARS = st.dictionaries(st.text(max_size=3), st.integers(1960, 1970), max_size=30)


@given(YEARS)
def test_shares_are_in_the_order_of_years(years: dict[str, int]) -> None:
    assigned = by_share(years)
    assert assigned.keys() == years.keys()
    counts = [list(assigned.values()).count(name) for name in SPLITS]
    trained = int(0.8 * len(years))
    assert counts == [trained, (len(years) - trained) // 2, (len(years) - trained + 1) // 2]
    for earlier, later in itertools.pairwise(SPLITS):
        last = max((years[each] for each in years if assigned[each] == earlier), default=0)
        assert all(years[each] >= last for each in years if assigned[each] == later)


def test_papers_of_one_year_keep_their_order() -> None:
    assert by_share(dict.fromkeys("hgfedcba", 2012)) == dict.fromkeys("hgfedc", "train") | {
        "b": "dev",
        "a": "test",
    }


def test_splits_end_with_their_last_years() -> None:
    years = {str(year): year for year in range(1965, 1973)}
    assert by_last_years(years, (1967, 1968, 1970), 1966) == {
        "1966": "train",
        "1967": "train",
        "1968": "dev",
        "1969": "test",
        "1970": "test",
    }


def test_most_queries_are_those_of_the_least_digests(tmp_path: Path) -> None:
    """SHA-256 of a is ca97..., of b 3e23..., of c 2e7d..., of d 18ac...: train is whole."""
    text = (Sentence("One."),)
    papers = [Paper(name, f"On {name}", text, metadata={"cites": ["z"]}) for name in "abcdef"]
    papers.append(Paper("z", "On z", text))
    years = dict.fromkeys("abcdefz", 2000)
    splits = dict.fromkeys("abcd", "dev") | dict.fromkeys("ef", "train")
    rules = Rules(most_queries=2)
    write_collection(
        tmp_path, lambda: papers, years, splits, names=("train", "dev"), leave_out=TitleIndex([]), rules=rules
    )
    assert queries_in(tmp_path, "train", "dev") == [["e", "f"], ["c", "d"]]


def test_statistics_of_files_that_do_not_belong_together(tmp_path: Path) -> None:
    write_records(tmp_path / "papers.jsonl", RELEASE)
    (tmp_path / "train.qrels").write_text("10.1/b 0 10.1/a 1\n10.1/z 0 10.1/a 1\n")
    with pytest.raises(DatasetError, match=r"for the queries of train.qrels, found 1 of 2; take all files"):
        statistics(tmp_path)

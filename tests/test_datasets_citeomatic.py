"""DBLP, PubMed and Open Research as Citeomatic splits them: small files in the published layouts."""

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qbe.corpus.rejected import RejectedRecords
from qbe.datasets import names, write_dataset
from qbe.datasets.__main__ import main
from qbe.datasets.citeomatic import PUBLISHED, read_papers
from qbe.errors import CorpusError, DatasetError
from qbe.topics import read_topics
from qbe.trec import read_qrels

DATA = Path(__file__).parent / "data" / "citeomatic"
DBLP = DATA / "comparison" / "dblp" / "corpus.json"
OPEN_RESEARCH = DATA / "open_corpus" / "papers-2017-02-21.json"


def all_of(*paper_ids: object) -> dict[str, int]:
    """Judgements of grade 1."""
    return dict.fromkeys(map(str, paper_ids), 1)


def judged(folder: Path) -> dict[str, dict[str, dict[str, int]]]:
    """The judgements of each split, whose topics are those that are judged."""
    qrels = {name: read_qrels(folder / f"{name}.qrels") for name in ("train", "dev", "test")}
    for name, of_split in qrels.items():
        assert [topic.query_id for topic in read_topics(folder / f"topics.{name}.tsv")] == list(of_split)
    return qrels


def papers_in(folder: Path) -> dict[str, dict[str, Any]]:
    records = map(json.loads, (folder / "papers.jsonl").read_text().splitlines())
    return {record.pop("paper_id"): record for record in records}


def cites_in(folder: Path) -> dict[str, list[str]]:
    metadata = {paper_id: paper["metadata"] for paper_id, paper in papers_in(folder).items()}
    return {paper_id: each["cites"] for paper_id, each in metadata.items() if "cites" in each}


def test_dblp_exactly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Train is until 2007, dev is 2008, test until 2011; ten citations of train make a query.

    Paper 11 cites itself and one that is not there. 12 has nine citations. 13 cites 14, which is of dev and
    has nine of train. 15 cites one of 1965, and one twice, 16 one without an abstract. 18 is of 2012.
    """
    out = tmp_path / "out"
    main(["citeomatic", "--corpus", "dblp", "--source", str(DATA), "--output", str(out)])
    assert judged(out) == {
        "train": {"11": all_of(*range(10))},
        "dev": {"13": all_of(12, *range(11))},
        "test": {"15": all_of(*range(10)), "16": all_of(*range(1, 13))},
    }
    assert cites_in(out) == {
        "5": ["0"],  # not 10, which is younger
        "11": [str(i) for i in range(10)],
        "12": [str(i) for i in range(9)],
    }
    papers = papers_in(out)
    assert list(papers) == [str(i) for i in (*range(17), 19)]
    assert papers["0"] == {
        "title": "Potters of the Old Town",
        "abstract": "We count the potters. There were 3.",
        "metadata": {"authors": ["Ada Éclair", "Bo Fudge"], "year": 1966, "venue": "TOWN"},
    }
    listed = out / "papers.jsonl.rejected.jsonl"
    assert json.loads(listed.read_text())["where"] == f"{DBLP}, line 21"
    captured = capsys.readouterr()
    assert captured.err.splitlines() == [
        f"reading {DBLP} for years",
        f"reading {DBLP} for texts and citations",
    ]
    # A title has five words, an abstract seven.
    assert captured.out.splitlines() == [
        f"dblp: 18 candidates from {DBLP}, 12.0 words on average",
        "  train: 1 queries (2007), 10.0 citations on average",
        "  dev: 1 queries (2008), 12.0 citations on average",
        "  test: 2 queries (2009 to 2011), 11.0 citations on average",
        "  2 papers of other years than 1966 to 2011, left out",
        "  relevant are the 14 papers of train alone: search with --before 2007",
        f"  1 record skipped (no abstract: 1), listed in {listed}",
        f"next: qbe index --corpus {out}/papers.jsonl --output indexes/dblp",
        f"written to {out}",
    ]


def test_pubmed_ends_its_splits_a_year_or_two_later(tmp_path: Path) -> None:
    release = tmp_path / "comparison" / "pubmed"
    release.mkdir(parents=True)
    shutil.copy(DBLP, release)
    lines = write_dataset("citeomatic", tmp_path / "out", source=tmp_path, corpus="pubmed")
    assert judged(tmp_path / "out") == {
        "train": {
            "11": all_of(*range(10)),
            "13": all_of(12, *range(11), 14),
            "14": all_of(*range(9), 13),
        },
        "dev": {"15": all_of(*range(10))},
        "test": {"16": all_of(*range(1, 13)), "18": all_of(*range(10), 13)},
    }
    assert "  1 papers of other years than 1966 to 2013, left out" in lines
    assert "  relevant are the 16 papers of train alone: search with --before 2008" in lines


# Open Research: ids by title.

IDS = {
    record["title"].split(" ")[0]: record["id"]
    for record in map(json.loads, OPEN_RESEARCH.read_text().splitlines())
}


def titled(folder: Path) -> dict[str, dict[str, list[str]]]:
    """The judgements of each split, with the first words of titles for ids."""
    words = {paper_id: word for word, paper_id in IDS.items()}
    return {
        name: {words[query]: [words[each] for each in grades] for query, grades in of_split.items()}
        for name, of_split in judged(folder).items()
    }


SHARES = {
    "train": {
        "Masts": ["Ropes", "Sails"],
        "Anchors": ["Ropes"],
        "Keels": ["Sails", "Masts"],
        "Pitch": ["Rudders"],
        "Caulking": ["Pitch", "Launching"],
    },
    "dev": {"Launching": ["Caulking", "Ropes"]},
    "test": {"Trials": ["Ropes", "Sails", "Launching"]},
}
"""Eight of ten papers are train, one each dev and test. Sails cites a younger paper, and so is no query."""


def test_open_research_exactly(tmp_path: Path) -> None:
    out = tmp_path / "out"
    lines = write_dataset("citeomatic", out, source=DATA, corpus="open-research")
    assert titled(out) == SHARES
    papers = papers_in(out)
    assert papers.keys() == set(IDS.values()) - {IDS["A"], IDS[""]}
    assert papers[IDS["Masts"]] == {
        "title": "Masts of Fir",
        "abstract": "Fir is straight. Masts bend a little.",
        "metadata": {
            "authors": ["Éva Tar"],
            "year": 2010,
            "venue": "Shipyard",
            "cites": [IDS["Ropes"], IDS["Sails"]],
        },
    }
    assert papers[IDS["Anchors"]]["abstract"] == "Anchors"  # the title stands for an absent abstract
    assert cites_in(out).keys() == {IDS[word] for word in SHARES["train"]}
    assert lines[1:6] == [
        "  train: 5 queries (2010 to 2014), 1.6 citations on average",
        "  dev: 1 queries (2014), 2.0 citations on average",
        "  test: 1 queries (2016), 3.0 citations on average",
        "  1 papers without a year, left out",
        f"  1 record skipped (no abstract: 1), listed in {out / 'papers.jsonl.rejected.jsonl'}",
    ]


def test_the_archive_and_the_file_itself_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "data" / "citeomatic"
    folder.mkdir(parents=True)
    (folder / "papers-2017-02-21.json.gz").write_bytes(gzip.compress(OPEN_RESEARCH.read_bytes()))
    monkeypatch.setenv("QBE_DATA", str(tmp_path / "data"))
    write_dataset("citeomatic", tmp_path / "a", corpus="open-research")
    write_dataset("citeomatic", tmp_path / "b", source=OPEN_RESEARCH, corpus="open-research")
    assert titled(tmp_path / "a") == titled(tmp_path / "b") == SHARES


def test_near_duplicates_of_another_collection_are_no_queries(tmp_path: Path) -> None:
    """Three of four words are more than 0.7, two of three are not; a candidate stays one."""
    titles = ["Caulking the Hull, a", "Masts of Oak", "Pitch & tar AND"]
    other = tmp_path / "dblp.jsonl"
    other.write_text(
        "\n".join(json.dumps({"paper_id": t[:5], "title": t, "abstract": "One."}) for t in titles).replace(
            '"paper_id": "Pitch"', '"paper_id": "pitch"'
        )
    )
    out = tmp_path / "out"
    lines = write_dataset("citeomatic", out, source=DATA, corpus="open-research", leave_out=[other])
    kept = {query: cited for query, cited in SHARES["train"].items() if query not in ("Caulking", "Pitch")}
    assert titled(out) == {**SHARES, "train": kept}
    assert cites_in(out).keys() == {IDS[word] for word in kept}
    assert papers_in(out).keys() == set(IDS.values()) - {IDS["A"], IDS[""]}
    assert "  2 papers are no queries: papers to leave out have their titles" in lines


def test_the_names_are_those_of_the_options() -> None:
    assert tuple(PUBLISHED) == names.CITEOMATIC


def test_an_absent_file_says_where_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QBE_DATA", raising=False)
    with pytest.raises(
        DatasetError,
        match=r"expected dblp's file comparison/dblp/corpus.json in `source` or in \$QBE_DATA/citeomatic, "
        r"found neither; get it from get-data.sh of https://github.com/allenai/citeomatic",
    ):
        write_dataset("citeomatic", tmp_path / "out", corpus="dblp")
    with pytest.raises(
        DatasetError, match=f"found none in {tmp_path}; get it from the Open Corpus of Semantic"
    ):
        write_dataset("citeomatic", tmp_path / "out", source=tmp_path, corpus="open-research")
    assert not (tmp_path / "out").exists()


def broken(records: list[str]) -> list[str]:
    return [*records, '{"id": ["7"], "title": "On stone", "paperAbstract": "One.", "year": 2000}']


def repeated(records: list[str]) -> list[str]:
    return [*records, records[0]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (broken, r"found 1 records that are none beside 11 papers \(no abstract: 1, no paper_id: 1\)"),
        (repeated, r"papers \(no abstract: 1, an id that occurs twice: 1\); take the file of the release"),
        (lambda _: [], r"found 0 records that are none beside 0 papers \(an empty file\)"),
        (lambda _: ["not JSON"], r"found 1 records that are none beside 0 papers \(malformed JSON: 1\)"),
        (lambda lines: lines[:2], "expected papers that cite other papers of the collection"),
    ],
)
def test_hostile_files(tmp_path: Path, change: Callable[[list[str]], list[str]], message: str) -> None:
    path = tmp_path / "papers-2017-02-21.json"
    path.write_text("\n".join(change(OPEN_RESEARCH.read_text().splitlines())))
    with pytest.raises(DatasetError, match=message) as raised:
        write_dataset("citeomatic", tmp_path / "out", source=tmp_path, corpus="open-research")
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "out").exists()


def test_a_damaged_archive_is_named(tmp_path: Path) -> None:
    path = tmp_path / "papers-2017-02-21.json.gz"
    path.write_bytes(gzip.compress(OPEN_RESEARCH.read_bytes())[:-20])
    with pytest.raises(CorpusError, match=str(path)):
        write_dataset("citeomatic", tmp_path / "out", source=tmp_path, corpus="open-research")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"title": 7}, "expected a string as title, found int"),
        ({"outCitations": "x"}, "expected a list as outCitations, found str"),
        ({"outCitations": [7]}, "expected strings as outCitations, found int"),
        ({"authors": [7]}, "expected names, or objects with a name as authors, found int"),
        ({"authors": [{"name": 7}]}, "expected a string as name, found int"),
    ],
)
def test_a_record_of_other_types_is_listed(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    good = OPEN_RESEARCH.read_text().splitlines()[0]
    path = tmp_path / "papers.json"
    path.write_text(json.dumps({**json.loads(good), **change}) + "\n" + good)
    with (tmp_path / "listed.jsonl").open("wb") as lines:
        assert [paper.paper_id for paper in read_papers(path, True, RejectedRecords(lines))] == [IDS["Ropes"]]
    listed = json.loads((tmp_path / "listed.jsonl").read_text())
    assert listed["reason"] == "not a record of this format"
    assert listed["message"] == f"{path}, line 1: {message}; mend or remove the record"

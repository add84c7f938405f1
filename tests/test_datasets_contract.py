"""What every data set promises: its tiny release becomes a valid corpus, topics, pools and judgements."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.whole import (
    CITATIONS,
    TRECCOVID,
    write_citations,
    write_csfcube,
    write_relish,
    write_small_scidocs,
    write_treccovid,
)

from qbe.corpus import read_corpus
from qbe.datasets.names import NAMES, TAKEN_BY
from qbe.datasets.options import parser
from qbe.datasets.registry import _WRITERS, DatasetOptions, write_dataset
from qbe.errors import CorpusError, DatasetError, FileFormatError, OutputError, QbeError, UsageError
from qbe.evaluate.crossed import read_facet_grades
from qbe.topics import read_pools, read_topics
from qbe.trec import read_qrels
from qbe.types import Facet

FORMATS = Path(__file__).parent / "data" / "formats"
PAIRS = "query_id\tpaper_id\tbackground\tmethod\tresult\nq\ta\t3\t0\t1\nq\tb\t0\t2\t0.5\nr\ta\t1\t1\t1\n"


def pairs(folder: Path) -> DatasetOptions:
    folder.mkdir()
    (folder / "pairs.tsv").write_text(PAIRS)
    records = ({"paper_id": name, "title": f"On {name}", "abstract": "We cut. It helps."} for name in "xqrab")
    (folder / "papers.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return DatasetOptions(folder / "pairs.tsv", corpus=str(folder / "papers.jsonl"))


def arxiv(folder: Path) -> DatasetOptions:
    folder.mkdir()
    (folder / "arxiv-metadata-oai-snapshot.json").write_bytes((FORMATS / "arxiv.json").read_bytes())
    return DatasetOptions(folder)


def anthology(folder: Path) -> DatasetOptions:
    (folder / "data" / "xml").mkdir(parents=True)
    (folder / "data" / "xml" / "2020.acl.xml").write_bytes((FORMATS / "acl_anthology.xml").read_bytes())
    return DatasetOptions(folder)


RELEASES: dict[str, Callable[[Path], DatasetOptions]] = {
    "csfcube": lambda folder: DatasetOptions(write_csfcube(folder)),
    "relish": lambda folder: DatasetOptions(write_relish(folder)),
    "treccovid": lambda folder: DatasetOptions(write_treccovid(folder)),
    "scidocs": lambda folder: DatasetOptions(write_small_scidocs(folder)),
    "citations": lambda folder: DatasetOptions(write_citations(folder)),
    "graded-pairs": pairs,
    "arxiv-cs": arxiv,
    "acl-anthology": anthology,
    "sample": lambda folder: DatasetOptions(),
}
"""How to write a tiny release of each data set, and the options that read it."""

EXPECTED = {
    # papers, queries of all splits, judgements
    "csfcube": (4, 4, 6),
    "relish": (16, 3, 20),
    "treccovid": (9, 2, 8),
    "scidocs": (8, 8, 20),
    "citations": (4, 3, 4),
    "graded-pairs": (4, 6, 0),
    "arxiv-cs": (2, 0, 0),
    "acl-anthology": (1, 0, 0),
    "sample": (128, 24, 1032),
}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_every_name_has_a_writer_a_sample_and_is_a_choice():
    assert NAMES.keys() == _WRITERS.keys() == RELEASES.keys() == EXPECTED.keys()
    assert set().union(*TAKEN_BY.values()) <= NAMES.keys()
    assert TAKEN_BY.keys() == set(DatasetOptions.__dataclass_fields__)
    for name in NAMES:
        assert parser().parse_args([name, "--output", "x"]).name == name


@pytest.mark.parametrize("name", NAMES)
def test_a_release_becomes_valid_files_the_same_each_time(name, tmp_path):
    options, out = RELEASES[name](tmp_path / "release"), tmp_path / "new" / "out"
    lines = write_dataset(name, out, options)
    assert lines[0].startswith(f"{name}: ")
    (corpus,) = (path for path in out.glob("*.jsonl") if path.name in ("corpus.jsonl", "papers.jsonl"))
    papers = {paper.paper_id for paper in read_corpus([str(corpus)], lambda text: [text])}
    topics = {topic.query_id: topic for file in out.glob("topics*.tsv") for topic in read_topics(file)}
    count = sum(len(read_topics(file)) for file in out.glob("topics*.tsv"))
    assert {topic.paper_id for topic in topics.values()} <= papers
    for file in out.glob("pools*.tsv"):
        pools = read_pools(file)
        assert pools.keys() <= topics.keys()
        assert set().union(*pools.values()) <= papers
        assert not any(topics[query].paper_id in pool for query, pool in pools.items())
    judged = 0
    for file in out.glob("*.qrels"):
        qrels = read_qrels(file)
        assert qrels.keys() <= topics.keys()
        assert not any(topics[query].paper_id in pool for query, pool in qrels.items())
        judged += sum(map(len, qrels.values()))
    assert (len(papers), count, judged) == EXPECTED[name]
    before = contents(out)
    write_dataset(name, out, options)
    assert contents(out) == before


@pytest.mark.parametrize("name", TAKEN_BY["raw"])
def test_raw_joins_sentences_and_changes_nothing_else(name, tmp_path):
    options = RELEASES[name](tmp_path / "release")
    write_dataset(name, tmp_path / "plain", options)
    write_dataset(name, tmp_path / "raw", DatasetOptions(options.source, raw=True))
    raw, plain = contents(tmp_path / "raw"), contents(tmp_path / "plain")
    joined, papers = (map(json.loads, files.pop("corpus.jsonl").splitlines()) for files in (raw, plain))
    assert raw == plain
    for joined_paper, paper in zip(joined, papers, strict=True):
        paper.pop("pred_labels", None)
        assert joined_paper == paper | {"abstract": " ".join(paper["abstract"])}


def test_a_release_is_found_in_the_data_folder(tmp_path, monkeypatch):
    write_treccovid(tmp_path / "treccovid")
    monkeypatch.setenv("QBE_DATA", str(tmp_path))
    write_dataset("treccovid", tmp_path / "out")
    assert read_qrels(tmp_path / "out" / "treccovid.test.qrels") == {"q1": TRECCOVID["q1"]}


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("csfcube", "sample")])
def test_an_absent_release_says_what_to_give(name, tmp_path, monkeypatch):
    monkeypatch.delenv("QBE_DATA", raising=False)
    with pytest.raises(DatasetError, match="`source`"):
        write_dataset(name, tmp_path / "out")
    if name != "graded-pairs":
        with pytest.raises(DatasetError, match=r"absent.*get it from"):
            write_dataset(name, tmp_path / "out", DatasetOptions(tmp_path / "absent"))
    assert not (tmp_path / "out").exists()


def test_files_of_another_content_stay_unless_they_are_to_be_replaced(tmp_path):
    options, out = DatasetOptions(write_citations(tmp_path / "release")), tmp_path / "out"
    write_dataset("citations", out, options)
    before = contents(out)
    write_citations(tmp_path / "release", train="10.1/c 0 10.1/a 1\n")
    with pytest.raises(OutputError, match=r"expected no such file, or the data set's own, found another"):
        write_dataset("citations", out, options)
    assert contents(out) == before
    write_dataset("citations", out, options, overwrite=True)
    assert (out / "train.qrels").read_text() == "10.1/c 0 10.1/a 1\n"


@pytest.mark.parametrize(
    ("name", "options", "parameter"),
    [
        ("nosuch", {}, "`name`"),
        ("sample", {"source": "x"}, "`source`"),
        ("scidocs", {"raw": True}, "`raw`"),
        ("sample", {"limit": 5}, "`limit`"),
        ("relish", {"corpus": "x"}, "`corpus`"),
        ("sample", {"split_years": (2018,)}, "`split_years`"),
        ("csfcube", {"leave_out": ("x",)}, "`leave_out`"),
        ("citations", {"corpus": "x", "source": "y"}, "`source` or .* `corpus`, found both"),
        ("citations", {"split_years": (2018,)}, "`split_years`"),
        ("citations", {"corpus": "x", "split_years": (2019, 2018)}, "later one second, found 2019 2018"),
        ("citations", {"corpus": "x", "split_years": (2018, 2018)}, "`split_years`"),
        ("citations", {"corpus": "x", "split_years": (1, 2, 3)}, "`split_years`"),
    ],
)
def test_options_that_do_not_fit_are_refused(name, options, parameter, tmp_path):
    with pytest.raises(UsageError, match=parameter):
        write_dataset(name, tmp_path / "out", DatasetOptions(**options))
    assert not (tmp_path / "out").exists()


# What is particular to corpora and to graded pairs


def test_a_snapshot_is_read_in_part_and_its_broken_records_are_listed(tmp_path):
    options, out = arxiv(tmp_path / "release"), tmp_path / "out"
    snapshot = tmp_path / "release" / "arxiv-metadata-oai-snapshot.json"
    good = snapshot.read_text()
    more = [json.dumps({**json.loads(good.splitlines()[2]), "id": f"0705.{n:04}"}) for n in range(200)]
    snapshot.write_text(good + "\n".join(more) + '\n{"id": 7\n')
    reported: list[str] = []
    lines = write_dataset("arxiv-cs", out, options, report=reported.append)
    assert (
        lines[1] == f"1 record skipped (malformed JSON: 1), listed in {out / 'corpus.jsonl.rejected.jsonl'}"
    )
    assert reported[0].startswith("about ")
    records = [json.loads(line) for line in (out / "corpus.jsonl").read_text().splitlines()]
    assert records[1]["abstract"] == "Trees grow. We measure them."
    limited = DatasetOptions(snapshot, limit=1)
    assert write_dataset("arxiv-cs", tmp_path / "one", limited)[0].startswith("arxiv-cs: 1 papers in")


def test_graded_pairs_are_topics_by_each_facet(tmp_path):
    options, out = pairs(tmp_path / "release"), tmp_path / "out"
    write_dataset("graded-pairs", out, options)
    assert [(topic.query_id, topic.facet) for topic in read_topics(out / "topics.tsv")] == [
        (f"{query}_{facet}", facet) for query in "qr" for facet in Facet
    ]
    assert read_pools(out / "pools.tsv")["q_method"] == ["a", "b"]
    assert read_facet_grades([str(options.source)]).keys() == {"q", "r"}


def without_papers(folder: Path) -> None:
    (folder / "papers.jsonl").write_text((folder / "papers.jsonl").read_text().splitlines()[0] + "\n")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (without_papers, DatasetError, r"expected the 4 papers .* found 4 not there, such as a"),
        (
            lambda folder: (folder / "pairs.tsv").write_text("query_id\tpaper_id\nq\ta\n"),
            FileFormatError,
            "pairs.tsv, line 1",
        ),
    ],
)
def test_graded_pairs_that_cannot_be_used(change, error, message, tmp_path):
    options = pairs(tmp_path / "release")
    change(tmp_path / "release")
    with pytest.raises(error, match=message):
        write_dataset("graded-pairs", tmp_path / "out", options)
    assert not list((tmp_path / "out").glob("*"))


# Broken releases: one line that names file and place, and nothing is written


def relish(**changes: Any) -> Callable[[Path], DatasetOptions]:
    """RELISH with other content of its files ``pools`` and ``splits``, or other papers."""
    names = {"pools": "test-pid2anns-relish.json", "splits": "relish-evaluation_splits.json"}

    def write(folder: Path) -> DatasetOptions:
        write_relish(folder, changes.get("records", {}))
        for key in names.keys() & changes.keys():
            content = changes[key]
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            (folder / names[key]).write_bytes(data)
        return DatasetOptions(folder)

    return write


def judged(*candidates: str, grades: Any) -> dict[str, Any]:
    return {"q1": {"cands": list(candidates), "relevance_adju": grades}}


def scidocs(name: str, text: str | None) -> Callable[[Path], DatasetOptions]:
    """SciDocs with another file, or without it."""

    def write(folder: Path) -> DatasetOptions:
        write_small_scidocs(folder)
        (folder / name).unlink() if text is None else (folder / name).write_text(text)
        return DatasetOptions(folder)

    return write


def citations(**changes: Any) -> Callable[[Path], DatasetOptions]:
    return lambda folder: DatasetOptions(write_citations(folder, **changes))


BROKEN: list[tuple[str, Callable[[Path], DatasetOptions], type[QbeError], str]] = [
    ("relish", relish(pools=b"{"), DatasetError, "pid2anns-relish.json: expected JSON"),
    ("relish", relish(pools=b'{"q1": "\xff"}'), DatasetError, "pid2anns-relish.json: expected JSON"),
    ("relish", relish(pools=[1]), DatasetError, "expected an object"),
    ("relish", relish(pools={"q1": {"cands": ["q1c0"]}}), DatasetError, "equally long lists"),
    (
        "relish",
        relish(pools=judged("q9", grades=[1])),
        DatasetError,
        "found q9, which abstracts-relish.jsonl",
    ),
    ("relish", relish(pools=judged("q1c0", grades=[3])), DatasetError, "from 0 to 2, found the grade 3"),
    ("relish", relish(pools=judged("q1c0", grades=[True])), DatasetError, "found the grade True"),
    ("relish", relish(pools=judged("q1c0", "q1c0", grades=[1, 1])), DatasetError, "a candidate twice"),
    ("relish", relish(splits={"dev": ["q1"]}), DatasetError, "queries as test, found None"),
    ("relish", relish(splits={"dev": ["q1"], "test": ["q1c0"]}), DatasetError, "found .*'q1c0'"),
    ("relish", relish(splits={"dev": [["q1"]], "test": ["q1"]}), DatasetError, r"found \[\['q1'\]\]"),
    ("relish", relish(records={"again": "q1"}), CorpusError, "line 17: expected each paper_id once"),
    ("relish", relish(records={"q1": {"title": 1}}), CorpusError, "line 1: expected a string as title"),
    (
        "relish",
        relish(records={q: {"title": "", "abstract": []} for q in ("q1", "q2")}),
        DatasetError,
        "expected queries in dev, found none that has a text",
    ),
    ("scidocs", scidocs("cite/val.qrel", None), DatasetError, "found no cite/val.qrel"),
    ("scidocs", scidocs("cite/val.qrel", "q1 0 q1c0\n"), FileFormatError, "val.qrel, line 1"),
    ("scidocs", scidocs("cite/val.qrel", "q1 0 q1c0 2\n"), DatasetError, "grades 0 and 1, found 2"),
    ("scidocs", scidocs("paper_metadata_view_cite_read.json", '{"q": 1}'), CorpusError, "expected"),
    ("citations", citations(dev="10.1/d 0 10.1/a 2\n"), DatasetError, "found the grade 2 of 10.1/a"),
    ("citations", citations(dev="10.1/d 0 10.1/z 1\n"), DatasetError, "found 10.1/z, which papers.jsonl"),
    ("citations", citations(dev="10.1/z 0 10.1/a 1\n"), DatasetError, "that 10.1/z cites"),
    ("citations", citations(dev="10.1/a 0 10.1/b 1\n"), DatasetError, "found 10.1/b, which is younger"),
    ("citations", citations(dev=CITATIONS["train"]), DatasetError, "found 10.1/b in both"),
    ("citations", citations(dev="10.1/d 10.1/a 1\n"), FileFormatError, "dev.qrels, line 1"),
    ("citations", citations(dev=""), DatasetError, r"found none in dev \(of 2 papers"),
    ("citations", citations(train="", dev=""), DatasetError, "expected papers that cite other papers"),
    (
        "citations",
        citations(papers={"10.1/a": {"title": "Potters", "abstract": "No year."}}),
        DatasetError,
        "found 10.1/a, which papers.jsonl lacks or has without a year",
    ),
]


@pytest.mark.parametrize(("name", "write", "error", "message"), BROKEN)
def test_a_broken_release_is_told_in_one_line_and_writes_nothing(name, write, error, message, tmp_path):
    options = write(tmp_path / "release")
    with pytest.raises(error, match=message) as caught:
        write_dataset(name, tmp_path / "out", options)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()

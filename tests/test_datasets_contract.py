"""What every data set promises: its tiny release becomes a valid corpus, topics, pools and judgements."""

import json
import lzma
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import releases
from support.people import tiny_irds, write_beir, write_cisi, write_reviewers, write_reviews
from support.releases import CITATIONS, CSFCUBE_PAPERS, contents, write_citations, write_csfcube, write_s2orc
from support.whole import write_relish, write_small_scidocs, write_treccovid

from qbe import Facet, QbeError, read_pools, read_qrels, read_topics
from qbe.cli.parser import parse
from qbe.corpus.reading import read_corpus
from qbe.datasets import NAMES, TAKEN_BY
from qbe.datasets.registry import DatasetOptions, write_dataset
from qbe.errors import OutputError
from qbe.evaluate.facets import read_facet_grades

PAIRS = "query_id\tpaper_id\tbackground\tmethod\tresult\nq\ta\t3\t0\t1\nq\tb\t0\t2\t0.5\nr\ta\t1\t1\t1\n"


def pairs(folder: Path) -> DatasetOptions:
    folder.mkdir()
    (folder / "pairs.tsv").write_text(PAIRS)
    records = ({"paper_id": name, "title": f"On {name}", "abstract": "We cut. It helps."} for name in "xqrab")
    (folder / "papers.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return DatasetOptions(folder / "pairs.tsv", corpus=str(folder / "papers.jsonl"))


def snapshot(folder: Path) -> DatasetOptions:
    """Of arXiv's papers one of computer science, one that is younger, one of mathematics, a broken record."""
    folder.mkdir()
    record = {"title": "Fish", "abstract": "We count fish.", "categories": "cs.IR", "authors": "A. Bo"}
    record |= {"versions": [{"version": "v1", "created": "Tue, 1 Jan 2019 00:00:00 GMT"}]}
    younger = [{"version": "v1", "created": "Wed, 1 Jan 2020 00:00:00 GMT"}]
    records: list[dict[str, Any]] = [
        {**record, "id": "1901.00001"},
        {**record, "id": "2001.00001", "versions": younger},
        {**record, "id": "1901.00002", "categories": "math.CO"},
        {**record, "id": "1901.00003", "abstract": 7},
    ]
    name = "arxiv-metadata-oai-snapshot.json"
    (folder / name).write_text("".join(json.dumps(each) + "\n" for each in records))
    return DatasetOptions(folder)


def blendable(folder: Path) -> DatasetOptions:
    source, papers = releases.write_blendable(folder)
    return DatasetOptions(source, corpus=str(papers))


RELEASES: dict[str, tuple[Callable[[Path], DatasetOptions], tuple[int, int, int]]] = {
    "csfcube": (lambda folder: DatasetOptions(write_csfcube(folder)), (4, 4, 6)),
    "relish": (lambda folder: DatasetOptions(write_relish(folder)), (16, 3, 20)),
    "treccovid": (lambda folder: DatasetOptions(write_treccovid(folder)), (9, 2, 8)),
    "scidocs": (lambda folder: DatasetOptions(write_small_scidocs(folder)), (8, 8, 20)),
    "citations": (lambda folder: DatasetOptions(write_citations(folder)), (4, 3, 4)),
    "dblp": (lambda folder: DatasetOptions(releases.write_citeomatic(folder, "dblp")), (16, 3, 36)),
    "pubmed": (lambda folder: DatasetOptions(releases.write_citeomatic(folder, "pubmed")), (16, 3, 36)),
    "open-research": (lambda folder: DatasetOptions(releases.write_open_research(folder)), (20, 19, 19)),
    "cocitations": (lambda folder: DatasetOptions(write_s2orc(folder)), (3, 0, 0)),
    "blended": (blendable, (6, 0, 0)),
    "graded-pairs": (pairs, (4, 6, 0)),
    "arxiv-cs": (snapshot, (1, 0, 0)),
    "reviewers": (lambda folder: DatasetOptions(write_reviewers(folder)), (5, 10, 20)),
    "reviews": (lambda folder: DatasetOptions(write_reviews(folder)), (30, 20, 36)),
    "cisi": (lambda folder: DatasetOptions(write_cisi(folder)), (4, 2, 2)),
    "headings": (lambda folder: DatasetOptions(write_reviews(folder)), (2, 0, 0)),
    "beir": (lambda folder: DatasetOptions(write_beir(folder)), (2, 3, 6)),
    "irds": (lambda folder: DatasetOptions(), (2, 1, 1)),
    "mini": (lambda folder: DatasetOptions(), (3000, 120, 3597)),
}
"""How to write a tiny release of each data set, with the options that read it, and what comes of it: papers,
queries of all splits, judgements.
"""

CORPORA = ("corpus.jsonl", "papers.jsonl", "arxiv-cs.jsonl.xz")


def test_every_name_has_a_writer_a_sample_and_is_a_choice():
    assert NAMES.keys() == RELEASES.keys()
    assert set().union(*TAKEN_BY.values()) <= NAMES.keys()
    assert TAKEN_BY.keys() == set(DatasetOptions.__dataclass_fields__)
    for name in NAMES:
        assert parse("datasets", [name, "--output", "x"]).command == name


@pytest.mark.parametrize("name", NAMES)
def test_a_release_becomes_valid_files_the_same_each_time(name, tmp_path):
    (write, expected), out = RELEASES[name], tmp_path / "new" / "out"
    options = write(tmp_path / "release")
    called = f"irds:{tiny_irds(tmp_path / 'release')}" if name == "irds" else name
    assert write_dataset(called, out, options)[0].startswith(f"{name}: ")
    (corpus,) = (out / file for file in CORPORA if (out / file).exists())
    papers = {paper.paper_id for paper in read_corpus([str(corpus)], lambda text: [text])}
    topics = {topic.query_id: topic for file in out.glob("topics*.tsv") for topic in read_topics(file)}
    count = sum(len(read_topics(file)) for file in out.glob("topics*.tsv"))
    assert {topic.paper_id for topic in topics.values() if not topic.text} <= papers
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
    assert (len(papers), count, judged) == expected
    before = contents(out)
    write_dataset(called, out, options)
    assert contents(out) == before


@pytest.mark.parametrize("name", TAKEN_BY["raw"])
def test_raw_joins_sentences_and_changes_nothing_else(name, tmp_path):
    options = RELEASES[name][0](tmp_path / "release")
    write_dataset(name, tmp_path / "plain", options)
    write_dataset(name, tmp_path / "raw", DatasetOptions(options.source, raw=True))
    raw, plain = contents(tmp_path / "raw"), contents(tmp_path / "plain")
    joined, papers = (map(json.loads, files.pop("corpus.jsonl").splitlines()) for files in (raw, plain))
    assert raw == plain
    for joined_paper, paper in zip(joined, papers, strict=True):
        paper.pop("pred_labels", None)
        assert joined_paper == paper | {"abstract": " ".join(paper["abstract"])}


def test_a_release_is_found_in_the_data_folder(tmp_path, monkeypatch):
    write_citations(tmp_path / "citations")
    monkeypatch.setenv("QBE_DATA", str(tmp_path))
    write_dataset("citations", tmp_path / "out")
    assert (tmp_path / "out" / "dev.qrels").read_text() == CITATIONS["dev"]


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


def test_graded_pairs_are_topics_by_each_facet_and_several_files_are_joined(tmp_path):
    """Of a folder, whatever is below it; pairs that two files have count once."""
    options, out = pairs(tmp_path / "release"), tmp_path / "out"
    write_dataset("graded-pairs", out, options)
    topics = [(topic.query_id, topic.facet) for topic in read_topics(out / "topics.tsv")]
    assert topics == [(f"{query}_{facet}", facet) for query in "qr" for facet in Facet]
    assert read_pools(out / "pools.tsv")["q_method"] == ["a", "b"]
    assert read_facet_grades([str(options.source)]).keys() == {"q", "r"}
    (tmp_path / "release" / "more").mkdir()
    more = PAIRS.replace("q\tb", "q\tr").replace("r\ta", "x\ta")
    (tmp_path / "release" / "more" / "pairs.tsv").write_text(more)
    write_dataset("graded-pairs", tmp_path / "all", replace(options, source=tmp_path / "release"))
    pools = read_pools(tmp_path / "all" / "pools.tsv")
    assert [pools[f"{query}_result"] for query in "qrx"] == [["a", "r", "b"], ["a"], ["a"]]


def test_arxivs_papers_say_where_they_come_from(tmp_path):
    options, out = snapshot(tmp_path / "release"), tmp_path / "out"
    lines = write_dataset("arxiv-cs", out, options)
    target = out / "arxiv-cs.jsonl.xz"
    assert json.loads(lzma.decompress(target.read_bytes()).decode())["abstract"] == "We count fish."
    listed = f"{target}.rejected.jsonl"
    told = f"arxiv-cs: 1 papers to the end of 2019 (cs.*, stat.ML, eess.AS, eess.IV) in {target}"
    assert lines[0] == told
    assert lines[1].endswith(f"listed in {listed}")
    assert f"arXiv's metadata (CC0), from {options.source}" in lines[2]
    assert json.loads(Path(listed).read_text())["where"].endswith("snapshot.json, line 4")


# What is refused: one line that says what to give or names file and place, and nothing is written

WRONG_OPTIONS: list[tuple[str, dict[str, Any]]] = [
    *(("nosuch", {}), ("mini", {"source": "x"}), ("citations", {"raw": True})),
    *(("csfcube", {"corpus": "x"}), ("mini", {"split_years": (2018,)}), ("csfcube", {"leave_out": ("x",)})),
    *(("citations", {"corpus": "x", "source": "y"}), ("citations", {"split_years": (2018,)})),
    ("citations", {"corpus": "x", "split_years": (2019, 2018)}),
    ("citations", {"corpus": "x", "split_years": (2018, 2018)}),
    *(("citations", {"corpus": "x", "split_years": (1, 2, 3)}), ("citations", {"corpus": "nosuch.jsonl"})),
    *(("citations", {}), ("graded-pairs", {}), ("csfcube", {"source": "absent"})),
    *(("graded-pairs", {"source": ".", "corpus": "x"}), ("arxiv-cs", {}), ("arxiv-cs", {"source": "absent"})),
    *(("relish", {}), ("scidocs", {"source": "absent"}), ("citations", {"source": "absent"})),
    *(("dblp", {}), ("open-research", {"source": "absent"}), ("cocitations", {}), ("blended", {})),
    *(("cocitations", {"source": "absent"}), ("blended", {"source": "absent", "corpus": "x"})),
    *(("irds", {}), ("irds:nosuch", {}), ("irds:vaswani", {"source": "x"}), ("cisi:x", {}), ("beir", {})),
    *((name, {"source": "absent"}) for name in ("beir", "reviewers", "reviews", "cisi", "headings")),
]


def csfcube(**changes: Any) -> Callable[[], DatasetOptions]:
    return lambda: DatasetOptions(write_csfcube(Path("release"), **changes))


def pools(**entry: Any) -> Callable[[], DatasetOptions]:
    method = {"method": {"1": {"cands": ["3"], "relevance_adju": [1]} | entry}}
    return csfcube(pools=releases.CSFCUBE_POOLS | method)


def citations(**changes: Any) -> Callable[[], DatasetOptions]:
    return lambda: DatasetOptions(write_citations(Path("release"), **changes))


def own(*cites: Any, **options: Any) -> Callable[[], DatasetOptions]:
    records = {
        f"p{i}": {"title": f"Paper {i}", "abstract": "We cut.", "metadata": {"year": 2000 + i, "cites": each}}
        for i, each in enumerate(cites)
    }
    file = Path("release/own.jsonl")
    return lambda: DatasetOptions(corpus=str(releases.write_records(file, records)), **options)


def changed(write: Callable[[Path], object], name: str, content: bytes | str) -> Callable[[], DatasetOptions]:
    def written() -> DatasetOptions:
        options = write(Path("release"))
        Path("release", name).write_bytes(content.encode() if isinstance(content, str) else content)
        return options if isinstance(options, DatasetOptions) else DatasetOptions(Path("release"))

    return written


PARSES = "pdf_parses/pdf_parses_0.jsonl"
JUDGED, TEXTS = "test-pid2anns-csfcube-method.json", "paper_metadata_view_cite_read.json"
ONE = '{"paper_id": "x", "title": "T", "abstract": "We cut."}\n'


def relish(pools: Any = None, splits: Any = None, **records: Any) -> Callable[[], DatasetOptions]:
    def write() -> DatasetOptions:
        options = DatasetOptions(write_relish(Path("release"), records))
        for name, content in (("test-pid2anns-relish", pools), ("relish-evaluation_splits", splits)):
            if content is not None:
                Path("release", f"{name}.json").write_text(json.dumps(content))
        return options

    return write


BROKEN: list[tuple[str, Callable[[], DatasetOptions]]] = [
    ("csfcube", csfcube(papers=[*CSFCUBE_PAPERS, {**CSFCUBE_PAPERS[0], "title": "Another"}])),
    ("csfcube", csfcube(papers=[{"paper_id": "1"}])),
    *(("csfcube", csfcube(papers=CSFCUBE_PAPERS[:2])), ("csfcube", changed(write_csfcube, JUDGED, b"{"))),
    ("csfcube", changed(write_csfcube, JUDGED, b'{"q1": "\xff"}')),
    *(("csfcube", changed(write_csfcube, JUDGED, b"[1]")), ("csfcube", pools(relevance_adju=None))),
    ("csfcube", pools(cands=[4])),
    ("relish", relish(pools={"q1": {"cands": ["q9"], "relevance_adju": [1]}})),
    ("relish", relish(splits={"dev": ["q1"]})),
    ("relish", relish(splits={"dev": ["q1"], "test": ["q1c0"]})),
    *(("relish", relish(splits={"dev": [["q1"]], "test": ["q1"]})), ("relish", relish(again="q1"))),
    ("relish", relish(q1={"title": 1})),
    ("relish", relish(**{q: {"title": "", "abstract": []} for q in ("q1", "q2")})),
    ("scidocs", changed(write_small_scidocs, "cite/val.qrel", "q1 0 q1c0\n")),
    ("scidocs", changed(write_small_scidocs, TEXTS, '{"q": 1}')),
    ("citations", citations(dev="10.1/d 0 10.1/z 1\n")),
    ("citations", citations(dev="10.1/z 0 10.1/a 1\n")),
    *(("citations", citations(dev="10.1/a 0 10.1/b 1\n")), ("citations", citations(dev=CITATIONS["train"]))),
    *(("citations", citations(dev="10.1/d 10.1/a 1\n")), ("citations", citations(dev=""))),
    ("citations", citations(train="", dev="")),
    ("citations", citations(papers={"10.1/a": {"title": 7}})),
    ("citations", citations(papers={"again": releases.CITATION_PAPERS["10.1/b"] | {"paper_id": "10.1/a"}})),
    *(("citations", own([], "p0")), ("citations", own([], [["p0"]])), ("citations", own([], []))),
    ("citations", own([], ["p0"], ["p1"], split_years=(2011,))),
    ("graded-pairs", changed(pairs, "papers.jsonl", ONE)),
    ("arxiv-cs", lambda: DatasetOptions(changed(pairs, "papers.jsonl", ONE)().corpus)),
    ("graded-pairs", changed(pairs, "pairs.tsv", "query_id\tpaper_id\nq\ta\n")),
    ("blended", changed(blendable, "tagged.jsonl", ONE)),
    ("blended", changed(blendable, "pairs.tsv", PAIRS)),
    ("blended", lambda: pairs(Path("release"))),  # of unlabelled papers
    ("cocitations", changed(write_s2orc, PARSES, '{"bib_entries": {"1": 2}}\n')),
    ("cocitations", changed(write_s2orc, PARSES, '{"body_text": []}\n')),
    ("dblp", changed(lambda at: releases.write_citeomatic(at, "dblp"), "comparison/dblp/corpus.json", ONE)),
    ("reviewers", changed(write_reviewers, "data/evaluations.csv", "ParticipantID\tPaper1\n7\ts1\n")),
    ("reviewers", changed(write_reviewers, "evaluation_datasets/d_20_1/submissions.json", "{}")),
    ("reviewers", changed(write_reviewers, "evaluation_datasets/d_20_4/archives/~7.jsonl", "[]\n")),
    ("reviews", changed(write_reviews, "Cohen_2006/output/local/ADHD.csv", "title\nx\n")),
    ("cisi", changed(write_cisi, "CISI.REL", "3 9\n")),
    ("cisi", changed(write_cisi, "CISI.QRY", b".I 3\n\xff")),
    ("beir", changed(write_beir, "qrels/test.tsv", "query\nq1\td1\tx\n")),
    ("beir", changed(write_beir, "qrels/test.tsv", "query\nq9\td1\t1\n")),
    ("beir", changed(write_beir, "qrels/test.tsv", "q1\td1\t1.0\n")),
    ("beir", changed(write_beir, "queries.jsonl", '{"_id": 7, "text": "x"}\n')),
]


def test_what_cannot_be_used_is_told_in_one_line_and_writes_nothing(tmp_path, monkeypatch, told):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("QBE_DATA", raising=False)
    cases = [(name, lambda options=options: DatasetOptions(**options)) for name, options in WRONG_OPTIONS]
    messages = []
    for name, write in [*cases, *BROKEN]:
        shutil.rmtree("release", ignore_errors=True)
        options = write()
        with pytest.raises(QbeError) as caught:
            write_dataset(name, "out", options)
        messages.append(f"{name} {type(caught.value).__name__} {caught.value}")
        assert not Path("out").exists()
    told("datasets", messages)

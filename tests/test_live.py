"""Papers appended, replaced and deleted: the index is what a build of the same papers would be."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from qbe.index.building.compaction import compact
from support.builds import Job, build_job
from support.live import corpus, files, rankings, raw_corpus
from support.searching import first_stage
from support.tiny_tagger import write_tagger

from qbe.cli.index import main
from qbe.errors import (
    EncoderMismatchError,
    FileFormatError,
    IndexBuildError,
    IndexFormatError,
    PaperNotFoundError,
    UsageError,
)
from qbe.index.building import writer
from qbe.index.building.changes import append_papers, delete_papers
from qbe.index.building.settings import Execution
from qbe.index.building.writer import Written
from qbe.index.opening import Index
from qbe.index.snapshot import COMMIT
from qbe.query import Query
from qbe.types import Facet, Paper, Sentence
from qbe.util.files import lock


@pytest.fixture(scope="module")
def settings(tiny_encoder) -> Job:
    return Job(corpus=(), encoder=str(tiny_encoder))


@pytest.fixture(scope="module")
def built(tmp_path_factory, papers, settings) -> Path:
    """An index of the first sixty papers."""
    folder = tmp_path_factory.mktemp("live")
    build_job(folder / "index", replace(settings, corpus=(corpus(folder, "first", papers[:60]),)))
    return folder / "index"


@pytest.fixture(scope="module")
def appended(tmp_path_factory, built, papers) -> Path:
    """The same with all others, appended in two goes."""
    folder = tmp_path_factory.mktemp("appended")
    index = Path(shutil.copytree(built, folder / "index"))
    done = append_papers(index, [corpus(folder, "second", papers[60:100])])
    assert done == Written(40, 0, 0, papers=100, segments=2, generation=1)
    done = append_papers(index, [corpus(folder, "third", papers[100:])], execution=Execution(2))
    assert done == Written(28, 0, 0, papers=128, segments=3, generation=2)
    return index


@pytest.fixture
def index(tmp_path, appended) -> Path:
    """A copy of the appended index, to be written to."""
    return Path(shutil.copytree(appended, tmp_path / "index"))


@pytest.fixture
def dense(tmp_path, papers, settings) -> Path:
    """An index of twelve papers and four appended, dense only, to be written to."""
    first = corpus(tmp_path, "first", papers[:12])
    build_job(tmp_path / "index", replace(settings, corpus=(first,), bm25=False))
    append_papers(tmp_path / "index", [corpus(tmp_path, "second", papers[12:16])])
    return tmp_path / "index"


def ids(folder: Path) -> list[str]:
    with Index(folder) as index:
        return [paper.paper_id for paper in index.papers.read_from(0)]


def test_rankings_and_scores_are_those_of_one_build(appended, tiny_index, papers):
    assert rankings(appended, papers) == rankings(tiny_index, papers)


def test_papers_and_facets_are_those_of_one_build(appended, tiny_index, papers):
    with Index(appended) as index, Index(tiny_index) as whole:
        assert (index.generation, whole.generation) == (2, 0)
        assert list(index.papers.read_from(70)) == papers[70:]
        assert [index.papers[row] for row in (0, 59, 60, 127)] == [papers[row] for row in (0, 59, 60, 127)]
        for facet in Facet:
            assert (index.facet_mask(facet) == whole.facet_mask(facet)).all()


def test_the_manifest_counts_all_segments(appended, tiny_index):
    manifest, whole = Index(appended).manifest, Index(tiny_index).manifest
    for ours, theirs in ((manifest.corpus, whole.corpus), (manifest.lucene, whole.lucene)):
        assert {**ours, "sha256": None} == {**theirs, "sha256": None}
    assert (manifest.dense, manifest.tagger) == (whole.dense, None)
    assert [Path(source).name for source in manifest.settings["corpus"]] == [
        "first.jsonl",
        "second.jsonl",
        "third.jsonl",
    ]
    for name, entry in manifest.files.items():
        assert (appended / name).stat().st_size == entry["bytes"]
    names = {path.relative_to(appended).as_posix() for path in appended.rglob("*") if path.is_file()}
    assert {name for name in names if Path(name).name not in ("manifest.json", COMMIT)} == set(manifest.files)


def test_compacted_it_is_the_one_build_to_the_digest(index, tiny_index, papers):
    assert compact(index, execution=Execution(2)) == Written(0, 0, 0, papers=128, segments=1, generation=3)
    manifest, whole = Index(index).manifest, Index(tiny_index).manifest
    assert manifest.digest == whole.digest
    assert {**manifest.corpus} == {**whole.corpus}
    assert rankings(index, papers) == rankings(tiny_index, papers)
    assert sorted(path.name for path in index.iterdir()) == ["segments", COMMIT]
    assert [path.name for path in (index / "segments").iterdir()] == ["000003"]
    before = files(index)
    assert compact(index) is None
    assert files(index) == before


def test_deleted_papers_are_not_found(index, papers, settings, tmp_path):
    gone = {"s002", "s003", "s047", "s060", "s061", "s100", "s128"}
    kept = [paper for paper in papers if paper.paper_id not in gone]
    assert delete_papers(index, sorted(gone)) == Written(0, 0, 7, papers=121, segments=3, generation=3)
    whole = tmp_path / "whole"
    build_job(whole, replace(settings, corpus=(corpus(tmp_path, "kept", kept),)))
    assert rankings(index, kept, ["dense"]) == rankings(whole, kept, ["dense"])
    for hits in rankings(index, kept, ["bm25", "fused"]):
        assert not gone & {hit.paper_id for hit in hits}
        assert len(hits) == len({hit.paper_id for hit in hits})
    with Index(index) as opened, Index(whole) as other:
        assert len(opened) == 121
        assert list(opened.papers.read_from(0)) == kept
        assert [opened.paper(paper.paper_id) for paper in kept] == kept
        for paper_id in gone:
            assert paper_id not in opened
        with pytest.raises(PaperNotFoundError, match="one of the 121 papers of the index, found 's047'"):
            opened.paper("s047")
        lexical = [first_stage(index, "bm25").search(Query(kept[5]), 200) for index in (opened, other)]
        assert {hit.paper_id for hit in lexical[0]} == {hit.paper_id for hit in lexical[1]}
        assert opened.manifest.lucene["documents"] == 128  # the dead count in the statistics
        assert {**opened.manifest.corpus, "sha256": 0} == {**other.manifest.corpus, "sha256": 0}
        digest = other.manifest.digest
    compact(index)
    assert Index(index).manifest.digest == digest
    assert rankings(index, kept) == rankings(whole, kept)


def test_papers_are_replaced_and_come_back(index, papers, tmp_path):
    """Of two papers the text changes, one is new, a deleted one comes again; in the order of coming."""
    delete_papers(index, ["s010"])
    words = (Sentence("Zymurgists yodel quokkas.", Facet.METHOD), Sentence("Quokkas yodel.", Facet.RESULT))
    changed = [replace(paper, sentences=words) for paper in (papers[0], papers[99])]
    new = Paper("n001", "Quokkas", words, labelled=True)
    done = append_papers(index, [corpus(tmp_path, "changed", [*changed, new])], update=True)
    assert done == Written(1, 2, 0, papers=128, segments=4, generation=4)
    append_papers(index, [corpus(tmp_path, "again", [papers[9]])])
    order = [paper for paper in papers if paper not in (papers[0], papers[9], papers[99])]
    expected = [*order, *changed, new, papers[9]]
    with Index(index) as opened:
        assert list(opened.papers.read_from(0)) == expected
        assert opened.papers.row("s001") == 128
        query = Query(Paper("outside", "", words, labelled=True))
        hits = {stage: first_stage(opened, stage).search(query, 200) for stage in ("bm25", "dense", "fused")}
        assert {hit.paper_id for hit in hits["bm25"]} == {"s001", "s100", "n001"}
        for stage in ("dense", "fused"):
            assert sorted(hit.paper_id for hit in hits[stage]) == sorted(paper.paper_id for paper in expected)
        pool = [
            hit.paper_id for hit in first_stage(opened, "bm25").search(query, 9, ["s100", "s001", "s002"])
        ]
        assert sorted(pool[:2]) == ["s001", "s100"]
        assert pool[2:] == ["s002"]
        rows = [opened.papers.row(paper.paper_id) for paper in changed]
        assert opened.layout.starts[rows[1] + 1] - opened.layout.starts[rows[1]] == 2


def test_a_segment_without_a_living_paper_is_dropped(dense, papers, tmp_path):
    assert delete_papers(dense, [paper.paper_id for paper in papers[:12]]).segments == 1
    assert sorted(path.name for path in dense.iterdir()) == ["segments", COMMIT]
    assert ids(dense) == [paper.paper_id for paper in papers[12:16]]
    second, third = ([replace(paper, title=title) for paper in papers] for title in ("Second", "Third"))
    done = append_papers(dense, [corpus(tmp_path, "third", second[10:14])], update=True)
    assert done == Written(2, 2, 0, papers=6, segments=2, generation=3)
    done = append_papers(dense, [corpus(tmp_path, "fourth", third[10:16])], update=True)
    assert done == Written(0, 6, 0, papers=6, segments=1, generation=4)
    assert ids(dense) == [paper.paper_id for paper in papers[10:16]]
    assert [path.name for path in (dense / "segments").iterdir()] == ["000004"]


def test_predictions_are_those_of_one_build(tmp_path, papers, settings, tiny_tagger):
    """The second segment has given labels alone, the third predicted ones alone."""
    settings = replace(settings, bm25=False, tagger=str(tiny_tagger))
    mixed = [*papers[:6], *papers[20:24]]
    given, raw = corpus(tmp_path, "given", papers[:6]), raw_corpus(tmp_path, "raw", papers[20:24])
    build_job(tmp_path / "index", replace(settings, corpus=(given, raw)))
    append_papers(tmp_path / "index", [corpus(tmp_path, "more", papers[6:12])])
    append_papers(tmp_path / "index", [raw_corpus(tmp_path, "last", papers[30:40])])
    gone = [mixed[1].paper_id, mixed[7].paper_id, "s033"]
    delete_papers(tmp_path / "index", gone)
    order = [*mixed, *papers[6:12], *papers[30:40]]
    sources = [
        (raw_corpus if paper in [*papers[20:24], *papers[30:40]] else corpus)(tmp_path, f"{number}", [paper])
        for number, paper in enumerate(order)
        if paper.paper_id not in gone
    ]
    whole = build_job(tmp_path / "whole", replace(settings, corpus=tuple(sources)))
    with Index(tmp_path / "index") as index, Index(tmp_path / "whole") as other:
        assert index.manifest.tagger == whole.tagger
        assert {**index.manifest.corpus, "sha256": 0} == {**whole.corpus, "sha256": 0}
        assert list(index.papers.read_from(0)) == list(other.papers.read_from(0))
        alive = np.repeat(np.isin(np.arange(26), index.papers.live), np.diff(index.layout.starts))
        for facet in Facet:
            assert (index.facet_mask(facet)[alive] == other.facet_mask(facet)).all()
    kept = [paper for paper in order if paper.paper_id not in gone]
    assert rankings(tmp_path / "index", kept, ["dense"]) == rankings(tmp_path / "whole", kept, ["dense"])
    compact(tmp_path / "index")
    assert Index(tmp_path / "index").manifest.digest == whole.digest
    delete_papers(tmp_path / "index", [paper.paper_id for paper in kept if paper in papers[20:40]])
    compact(tmp_path / "index")
    manifest = Index(tmp_path / "index").manifest
    assert manifest.tagger is None
    assert "facet_probabilities.npy" not in manifest.files
    write_tagger(tmp_path / "tagger", Path(settings.encoder), seed=1)
    append_papers(
        tmp_path / "index", [raw_corpus(tmp_path, "one", papers[50:51])], tagger=str(tmp_path / "tagger")
    )
    with pytest.raises(IndexBuildError, match=r"expected the tagger tiny-tagger \(.{12}\) that labelled"):
        append_papers(
            tmp_path / "index", [raw_corpus(tmp_path, "two", papers[51:52])], tagger=str(tiny_tagger)
        )


def test_refusals_leave_everything_as_it_was(dense, papers, tmp_path, other_encoder):
    new = corpus(tmp_path, "new", papers[16:20])
    before = files(dense)
    with pytest.raises(EncoderMismatchError, match=r"the encoder tiny-bert .* found other \(f{12}\)"):
        append_papers(dense, [new], encoder=str(other_encoder))
    with pytest.raises(
        PaperNotFoundError, match=r"found 2 of 3 that it lacks, such as 's099'; nothing was del"
    ):
        delete_papers(dense, ["s001", "s099", "s098"])
    for wrong in ([], [paper.paper_id for paper in papers[:16]]):
        with pytest.raises(
            UsageError, match=f"ids of 1 to 15 of the 16 papers .* found {len(wrong)}; an index"
        ):
            delete_papers(dense, wrong)
    with lock(dense.parent / ".index.lock") as alone:
        assert alone
        for write in (
            lambda: append_papers(dense, [new]),
            lambda: delete_papers(dense, ["s001"]),
            lambda: compact(dense),
        ):
            with pytest.raises(
                IndexBuildError, match=r"is being written by another process; wait until it ends"
            ):
                write()
    assert files(dense) == before
    assert not list(dense.parent.glob(".index*"))
    with pytest.raises(IndexFormatError, match=r"expected an index with .* qbe index"):
        delete_papers(tmp_path / "absent" / "index", ["s001"])
    assert not (tmp_path / "absent").exists()
    delete_papers(dense, [paper.paper_id for paper in papers[1:16]])
    with pytest.raises(
        UsageError, match=r"papers beside the only one of .* found 1; an index keeps at least"
    ):
        delete_papers(dense, ["s001"])


def test_many_segments_are_warned_of(dense, papers, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(writer, "MANY_SEGMENTS", 2)
    append_papers(dense, [corpus(tmp_path, "third", papers[16:18])])
    told = [record.getMessage() for record in caplog.records if record.name == writer.__name__]
    assert told == [f"{dense}: 3 segments, each of which is searched by itself; compact the index"]


def test_an_index_that_was_written_to_is_replaced_as_a_whole(dense, papers, settings, tmp_path):
    again = replace(settings, corpus=(corpus(tmp_path, "first", papers[:12]),), bm25=False)
    for resume in (False, True):
        with pytest.raises(IndexBuildError, match=r"is an index already; .* replace it with `overwrite`"):
            build_job(dense, again, resume=resume)
    compact(dense)
    with pytest.raises(IndexBuildError, match="is an index already"):
        build_job(dense, again)
    manifest = build_job(dense, again, overwrite=True)
    assert set(files(dense)) == {"manifest.json", *manifest.files}
    with Index(dense) as index:
        assert (index.generation, len(index)) == (0, 12)


def test_command_line(dense, papers, tmp_path, capsys):
    def run(*arguments: object) -> str:
        main(["--output", str(dense), *map(str, arguments)])
        return re.sub(r"\d+\.\d s$", "T", capsys.readouterr().out.strip()).removeprefix(f"{dense}: ")

    third = corpus(tmp_path, "third", [replace(papers[14], title="Other"), *papers[15:20]])
    assert run("--update", "--corpus", third, "--threads", 1) == (
        "4 papers added, 1 replaced, 0 deleted, 1 unchanged, now 20 in 3 segments, generation 2, T"
    )
    (tmp_path / "ids").write_bytes(b"\xef\xbb\xbfs001 \r\n\n\ts017\n")  # as spreadsheets and people write
    assert run("--delete", f"@{tmp_path / 'ids'}", "s003") == (
        "0 papers added, 0 replaced, 3 deleted, now 17 in 3 segments, generation 3, T"
    )
    assert run("--compact") == "0 papers added, 0 replaced, 0 deleted, now 17 in 1 segment, generation 4, T"
    assert run("--compact") == "nothing to compact: one segment, no paper deleted"
    before = files(dense)
    (tmp_path / "ids").write_bytes(b"s004\n\xff\n")
    for name, message in (("none", "^cannot read .*: No such file"), ("ids", "line 2: expected UTF-8 text")):
        with pytest.raises(FileFormatError, match=message):
            run("--delete", f"@{tmp_path / name}")
    assert files(dense) == before

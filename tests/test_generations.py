"""Updates of an index: each is a generation, what a build of the same papers would be."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support.builds import Job, build_job
from support.damage import full_disk
from support.live import corpus, rankings, raw_corpus
from support.releases import contents as files
from support.searching import first_stage
from support.tiny_tagger import write_tagger

from qbe import Facet, IndexFormatError, Paper, PaperNotFoundError, Query, Sentence, UsageError
from qbe.cli.index import main
from qbe.errors import EncoderMismatchError, FileFormatError, IndexBuildError, OutputError
from qbe.index import store
from qbe.index.index import Index
from qbe.index.source import Execution
from qbe.index.store import current, open_generation, read_manifest
from qbe.index.update import Written, append_papers, delete_papers
from qbe.util.files import lock

WORDS = (Sentence("Zymurgists yodel quokkas.", Facet.METHOD), Sentence("Quokkas yodel.", Facet.RESULT))


@pytest.fixture(scope="module")
def job(tiny_encoder) -> Job:
    return Job(encoder=str(tiny_encoder))


@pytest.fixture(scope="module")
def built(tmp_path_factory, papers, job) -> Path:
    folder = tmp_path_factory.mktemp("built")
    build_job(folder / "index", replace(job, corpus=(corpus(folder, "first", papers[:60]),)))
    return folder / "index"


@pytest.fixture
def index(tmp_path, built) -> Path:
    return Path(shutil.copytree(built, tmp_path / "index"))


@pytest.fixture
def dense(tmp_path, papers, job) -> Path:
    build_job(tmp_path / "index", replace(job, corpus=(corpus(tmp_path, "first", papers[:12]),), bm25=False))
    return tmp_path / "index"


def ids(folder: Path) -> list[str]:
    with Index(folder) as index:
        return [paper.paper_id for paper in index]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_papers_appended_in_two_goes_are_those_of_one_build(index, tiny_index, papers, tmp_path):
    done = append_papers(index, [corpus(tmp_path, "second", papers[60:100])])
    assert done == Written(40, 0, 0, papers=100, generation=2)
    done = append_papers(index, [corpus(tmp_path, "third", papers[100:])], execution=Execution(2))
    assert done == Written(28, 0, 0, papers=128, generation=3)
    assert names(index) == ["000003", "CURRENT"]
    assert rankings(index, papers) == rankings(tiny_index, papers)
    with Index(index) as opened, Index(tiny_index) as whole:
        assert (opened.generation, whole.generation, list(opened)) == (3, 1, papers)
        assert list(opened.papers.read_from(70)) == papers[70:]
        manifest, other = opened.manifest, whole.manifest
    assert manifest.digest == other.digest
    assert (manifest.lucene, manifest.dense, manifest.tagger) == (other.lucene, other.dense, None)
    assert manifest.corpus == {**other.corpus, "updates": 2}
    sources = [Path(source).name for source in manifest.settings["corpus"]]
    assert sources == ["first.jsonl", "second.jsonl", "third.jsonl"]
    open_generation(index).verify()


def test_papers_deleted_replaced_and_brought_back(index, papers, tmp_path, job):
    """Of two papers the text changes, one is new, a deleted one comes again; in the order of coming."""
    gone = ["s002", "s003", "s010", "s047", "s060"]
    assert delete_papers(index, gone) == Written(0, 0, 5, papers=55, generation=2)
    kept = [paper for paper in papers[:60] if paper.paper_id not in gone]
    with Index(index) as opened:
        assert list(opened) == kept
        assert not any(paper_id in opened for paper_id in gone)
        with pytest.raises(PaperNotFoundError, match="one of the 55 papers of the index, found 's047'"):
            opened.paper("s047")
    changed = [replace(paper, sentences=WORDS) for paper in (papers[0], papers[50])]
    new = Paper("n001", "Quokkas", WORDS, labelled=True)
    done = append_papers(index, [*changed, new, kept[5]], update=True)
    assert done == Written(1, 2, 0, papers=56, generation=3, unchanged=1)
    append_papers(index, [corpus(tmp_path, "again", [papers[9]])])
    expected = [*(paper for paper in kept if paper not in (papers[0], papers[50])), *changed, new, papers[9]]
    whole = build_job(tmp_path / "whole", replace(job, corpus=(corpus(tmp_path, "whole", expected),)))
    assert read_manifest(index).digest == whole.digest
    assert rankings(index, expected) == rankings(tmp_path / "whole", expected)


def test_predictions_are_those_of_one_build(tmp_path, papers, job, tiny_tagger):
    job = replace(job, bm25=False, tagger=str(tiny_tagger))
    raw, given = raw_corpus(tmp_path, "raw", papers[20:24]), corpus(tmp_path, "given", papers[:6])
    build_job(tmp_path / "index", replace(job, corpus=(given,)))
    append_papers(tmp_path / "index", [raw], tagger=job.tagger)
    append_papers(tmp_path / "index", [corpus(tmp_path, "more", papers[6:12])])
    delete_papers(tmp_path / "index", ["s002", "s022"])
    sources = [
        (raw_corpus if paper in papers[20:24] else corpus)(tmp_path, f"{number}", [paper])
        for number, paper in enumerate([*papers[:6], *papers[20:24], *papers[6:12]])
        if paper.paper_id not in ("s002", "s022")
    ]
    whole = build_job(tmp_path / "whole", replace(job, corpus=tuple(sources)))
    with Index(tmp_path / "index") as index, Index(tmp_path / "whole") as other:
        assert (index.manifest.digest, index.manifest.tagger) == (whole.digest, whole.tagger)
        assert list(index) == list(other)
        for facet in Facet:
            assert (index.facet_mask(facet) == other.facet_mask(facet)).all()
    delete_papers(tmp_path / "index", ["s021", "s023", "s024"])
    manifest = read_manifest(tmp_path / "index")
    assert manifest.tagger is None
    assert "facet_probabilities.npy" not in manifest.files
    write_tagger(tmp_path / "tagger", Path(job.encoder), seed=1)
    one, two = (raw_corpus(tmp_path, name, [paper]) for name, paper in (("a", papers[50]), ("b", papers[51])))
    append_papers(tmp_path / "index", [one], tagger=str(tmp_path / "tagger"))
    with pytest.raises(IndexBuildError, match=r"expected the tagger tiny-tagger \(.{12}\) that labelled"):
        append_papers(tmp_path / "index", [two], tagger=str(tiny_tagger))


def test_bytes_lists_and_what_they_learned(tmp_path, papers, job, monkeypatch):
    """Half precision becomes bytes where the index grows large, centroids stay until it has doubled."""
    monkeypatch.setattr(store, "AUTO_SENTENCES", 100)
    job = replace(job, bm25=False)
    build_job(tmp_path / "index", replace(job, corpus=(corpus(tmp_path, "some", papers[:20]),)))

    def kinds(size: int) -> list[object]:
        given = replace(job, corpus=(corpus(tmp_path, "all", papers[:size]),))
        whole = build_job(tmp_path / str(size), given)
        ours = read_manifest(tmp_path / "index")
        different = {name for name in ours.files if ours.files[name] != whole.files.get(name)}
        return [ours.dense["stored"], ours.dense["ann"]["factory"], ours.dense.get("trained"), different]

    sizes = [sum(len(paper.sentences) for paper in papers[:count]) for count in (20, 40, 60, 128)]
    assert kinds(20) == ["float16", "SQfp16", None, set()]
    append_papers(tmp_path / "index", papers[20:40])
    assert kinds(40) == ["int8", "IVF16,PQ4x4fs", sizes[1], set()]
    append_papers(tmp_path / "index", papers[40:60])
    assert kinds(60) == ["int8", "IVF16,PQ4x4fs", sizes[1], {"faiss.index"}]
    hits = []
    for folder in (tmp_path / "index", tmp_path / "60"):
        with Index(folder) as opened, first_stage(opened, "dense", nprobe=16) as pipeline:
            hits.append(pipeline.search(Query(papers[3]), 60))
    assert hits[0] == hits[1]  # with all lists read
    append_papers(tmp_path / "index", papers[60:])
    assert kinds(128)[2:] == [sizes[3], set()]
    delete_papers(tmp_path / "index", [paper.paper_id for paper in papers[10:]])
    assert kinds(10)[:3] == ["int8", "SQfp16", None]  # bytes are not made half precision again


def test_readers_keep_their_generation(index, built, papers, tmp_path):
    """Also parts that they load only afterwards; then the next writer removes it."""
    expected = rankings(built, papers[:60])
    first, second = Index(index), Index(index)
    delete_papers(index, ["s001"])
    append_papers(index, [corpus(tmp_path, "more", papers[60:62])])
    assert names(index) == ["000001", "000003", "CURRENT"]
    assert list(first) == papers[:60]
    assert first.reader.gather(first.layout.starts[:1]).vectors.shape[1] == 16
    assert first.reader.text_search().reader.maxDoc() == 60
    first.close()
    assert second.refresh()
    assert not second.refresh()
    assert (second.generation, len(second), "s001" in second) == (3, 61, False)
    reader = second.reader
    assert second.append(papers[:1]).generation == second.generation == 4
    assert (len(reader), len(second)) == (61, 62)
    del reader
    second.close()
    delete_papers(index, ["s062"])
    assert names(index) == ["000005", "CURRENT"]
    assert rankings(built, papers[:60]) == expected


def test_readers_need_no_right_to_write(index):
    paths = [index, *index.rglob("*")]
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    with Index(index) as opened:
        assert len(opened.papers.ids) == opened.reader.text_search().reader.maxDoc() == 60
    for path in paths:
        path.chmod(0o755 if path.is_dir() else 0o644)


def test_an_index_of_an_older_version_becomes_a_generation_and_is_removed_when_nobody_reads_it(
    tmp_path, built, papers
):
    index = Path(shutil.copytree(current(built), tmp_path / "index"))
    before = names(index)
    with Index(index) as opened:
        assert (opened.generation, list(opened)) == (0, papers[:60])
        delete_papers(index, ["s001"])
        assert names(index) == sorted([*before, "000001", "CURRENT"])
        assert len(opened.reader.text_search().rows) == 60
    assert ids(index) == [paper.paper_id for paper in papers[1:60]]
    (index / "notes.txt").write_text("mine")
    delete_papers(index, ["s002"])
    assert names(index) == ["000002", "CURRENT", "notes.txt"]


@pytest.mark.parametrize("name", ["segments.json", "part.json"])
def test_an_older_index_of_several_segments_says_how_to_go_on(tmp_path, papers, name):
    index = tmp_path / "old"
    index.mkdir()
    (index / name).write_text("{}")
    for use in (lambda: Index(index), lambda: delete_papers(index, ["s001"])):
        with pytest.raises(IndexFormatError, match=r"found several, or a part, .* qbe index --overwrite$"):
            use()
    job = Job(corpus=(corpus(tmp_path, "a", papers[:5]),), dense=False)
    with pytest.raises(IndexBuildError, match=r"is an index already; .* `overwrite`"):
        build_job(index, job)
    build_job(index, job, overwrite=True)
    assert names(index) == ["000001", "CURRENT", name]
    assert len(ids(index)) == 5


def test_refusals_leave_everything_as_it_was(dense, papers, tmp_path, other_encoder):
    new, before = corpus(tmp_path, "new", papers[16:20]), files(dense)
    with pytest.raises(EncoderMismatchError, match=r"the encoder tiny-bert .* found other \(f{12}\)"):
        append_papers(dense, [new], encoder=str(other_encoder))
    with pytest.raises(PaperNotFoundError, match=r"found 2 of 3 that it lacks, such as 's099'; nothing was"):
        delete_papers(dense, ["s001", "s099", "s098"])
    for wrong in ([], [paper.paper_id for paper in papers[:12]]):
        message = f"ids of 1 to 11 of the 12 papers .* found {len(wrong)}; an ind"
        with pytest.raises(UsageError, match=message):
            delete_papers(dense, wrong)
    with lock(dense.parent / ".index.lock") as alone:
        assert alone
        for write in (lambda: append_papers(dense, [new]), lambda: delete_papers(dense, ["s001"])):
            with pytest.raises(IndexBuildError, match=r"written by another process; wait until it ends"):
                write()
    with full_disk(4), pytest.raises(OutputError, match=r"^[^\n]*File too large[^\n]*$"):
        append_papers(dense, papers[16:60])
    assert files(dense) == before
    assert not list(dense.parent.glob(".index*"))
    with pytest.raises(IndexFormatError, match=r"expected an index with .* qbe index"):
        delete_papers(tmp_path / "absent" / "index", ["s001"])
    assert not (tmp_path / "absent").exists()
    delete_papers(dense, [paper.paper_id for paper in papers[1:12]])
    with pytest.raises(UsageError, match=r"papers beside the only one of .* found 1; an index keeps at"):
        delete_papers(dense, ["s001"])


def test_what_a_killed_writer_left_is_removed(dense, built):
    clean = names(dense)
    shutil.copytree(current(built), dense / "000002")  # published, but for CURRENT
    (dense / ".next" / "added").mkdir(parents=True)
    (dense / ".CURRENT.abc.partial").write_text("0000")
    assert len(ids(dense)) == 12
    with pytest.raises(PaperNotFoundError, match="nothing was deleted"):
        delete_papers(dense, ["absent"])
    assert names(dense) == clean
    (dense / "CURRENT").unlink()  # of a build killed between its last two steps
    assert len(ids(dense)) == 12


def test_an_updated_index_is_replaced_only_when_told(dense, papers, job, tmp_path):
    again = replace(job, corpus=(corpus(tmp_path, "first", papers[:12]),), bm25=False)
    delete_papers(dense, ["s001"])
    with pytest.raises(IndexBuildError, match=r"is an index already; .* replace it with `overwrite`"):
        build_job(dense, again)
    build_job(dense, again, resume=True)
    assert "s001" not in ids(dense)
    manifest = build_job(dense, again, overwrite=True)
    assert names(dense) == ["000003", "CURRENT"]
    inside = {f"000003/{name}" for name in ("manifest.json", *manifest.files)}
    assert set(files(dense)) == {"CURRENT", *inside}


def test_command_line(dense, papers, tmp_path, capsys):
    def run(*arguments: object) -> str:
        main(["--output", str(dense), *map(str, arguments)])
        return re.sub(r"\d+\.\d s$", "T", capsys.readouterr().out.strip()).removeprefix(f"{dense}: ")

    more = corpus(tmp_path, "more", [replace(papers[10], title="Other"), *papers[11:16]])
    done = "4 papers added, 1 replaced, 0 deleted, 1 unchanged, now 16, generation 2, T"
    assert run("--update", "--corpus", more, "--threads", 1) == done
    (tmp_path / "ids").write_bytes(b"\xef\xbb\xbfs001 \r\n\n\ts015\n")  # as spreadsheets and people write
    done = "0 papers added, 0 replaced, 3 deleted, now 13, generation 3, T"
    assert run("--delete", f"@{tmp_path / 'ids'}", "s003") == done
    before = files(dense)
    (tmp_path / "ids").write_bytes(b"s004\n\xff\n")
    for name, message in (("none", "^cannot read .*: No such file"), ("ids", "line 2: expected UTF-8 text")):
        with pytest.raises(FileFormatError, match=message):
            run("--delete", f"@{tmp_path / name}")
    assert files(dense) == before


@pytest.mark.slow
def test_kills_full_disks_readers_and_damages(tiny_encoder):
    counts = ["--kills=2", "--disks=4", "--updates=2", "--clients=2", "--damages=12"]
    command = [sys.executable, "-m", "benchmarks.kills", "--encoder", str(tiny_encoder), *counts]
    root = Path(__file__).parent.parent
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines()[2:]]
    assert json.loads(f"[{','.join(row[1] for row in rows)}]") == [2, 4, 2, 12]
    assert {row[6] for row in rows} == {"0"}

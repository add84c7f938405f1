"""A build that is killed leaves the old index or none, and goes on to the same digest."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from support.builds import Job, build_job
from support.killed_build import BLOCK, LUCENE, MOMENTS
from support.searching import first_stage

from qbe.errors import IndexBuildError
from qbe.index import build
from qbe.index.index import Index
from qbe.models.encoder import Encoder
from qbe.query import Query
from qbe.util.files import lock, sha256

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(build, "BLOCK", BLOCK)


PAPERS = 60


@pytest.fixture(scope="module")
def lines(sample) -> list[str]:
    return (sample / "corpus.jsonl").read_text().splitlines(keepends=True)[:PAPERS]


@pytest.fixture(scope="module")
def settings(tmp_path_factory, lines, tiny_encoder) -> Job:
    corpus = tmp_path_factory.mktemp("corpus") / "corpus.jsonl"
    corpus.write_text("".join(lines))
    return Job(corpus=(str(corpus),), encoder=str(tiny_encoder))


@pytest.fixture(scope="module")
def old_settings(tmp_path_factory, lines, settings) -> Job:
    corpus = tmp_path_factory.mktemp("old") / "old.jsonl"
    corpus.write_text("".join(lines[:20]))
    return replace(settings, corpus=(str(corpus),), bm25=False)


@pytest.fixture(scope="module")
def jobs(settings, tiny_tagger) -> dict[str, Job]:
    """Builds with postings, without, and without but with all papers tagged."""
    dense = replace(settings, bm25=False)
    tagged = replace(dense, facets="predicted", tagger=str(tiny_tagger))
    return {"bm25": settings, "dense": dense, "tagged": tagged}


@pytest.fixture(scope="module")
def digests(tmp_path_factory, jobs) -> dict[str, str]:
    """Digests of builds that nothing interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    return {kind: build_job(folder / kind, job).digest for kind, job in jobs.items()}


def works(folder: Path, papers: int) -> None:
    with Index(folder) as index:
        assert len(index) == papers
        stages = ["dense"] if index.manifest.lucene is None else ["dense", "bm25", "fused"]
        for stage in stages:
            assert len(first_stage(index, stage).search(Query(index.paper("s001")), 5)) == 5


# Moments before and inside Lucene need postings; the others do without them where they can: it is quicker.
MOMENTS_OF = {
    "bm25": ["papers noted", LUCENE, "lucene ended"],
    "dense": ["papers begun", "first block noted", "third block noted", "manifest written", "put in place"],
    "tagged": ["papers written, not noted", "facets begun", "second block noted", "FAISS begun"],
}


@pytest.mark.parametrize(
    ("kind", "moment"), [(kind, moment) for kind, moments in MOMENTS_OF.items() for moment in moments]
)
def test_a_killed_build_leaves_nothing_and_resumes(tmp_path, kill, jobs, digests, kind, moment):
    output = tmp_path / "index"
    kill(moment, output, jobs[kind])
    assert not output.exists() or not any(output.iterdir())
    manifest = build_job(output, jobs[kind], resume=True)
    assert manifest.digest == digests[kind]
    assert [path.name for path in tmp_path.iterdir()] == ["index"]
    files = {path.relative_to(output).as_posix() for path in output.rglob("*") if path.is_file()}
    assert files == {"CURRENT", *(f"000001/{name}" for name in ("manifest.json", *manifest.files))}
    works(output, PAPERS)


@pytest.mark.parametrize("moment", ["papers begun", "manifest written"])
def test_a_killed_replacement_leaves_the_old_index(tmp_path, kill, settings, old_settings, digests, moment):
    settings, output = replace(settings, bm25=False), tmp_path / "index"
    old = build_job(output, old_settings)
    kill(moment, output, settings, "--overwrite")
    assert Index(output).manifest == old
    again = "`overwrite` and `resume`" if moment != "papers begun" else "replace it with `overwrite`$"
    with pytest.raises(IndexBuildError, match=f"is an index already; .*{again}"):
        build_job(output, settings, resume=True)
    works(output, 20)
    assert all(sha256(output / "000001" / name) == entry["sha256"] for name, entry in old.files.items())
    assert build_job(output, settings, overwrite=True, resume=True).digest == digests["dense"]
    works(output, PAPERS)
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


def test_killed_between_the_last_two_steps(tmp_path, kill, settings, old_settings, digests):
    """Without an index the new one stands, else the old one."""
    settings, output = replace(settings, bm25=False), tmp_path / "index"
    kill("published, not current", output, old_settings)
    works(output, 20)
    kill("published, not current", output, settings, "--overwrite")
    works(output, 20)
    assert build_job(output, settings, overwrite=True).digest == digests["dense"]
    assert sorted(path.name for path in output.iterdir()) == ["000003", "CURRENT"]
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


def test_an_unfinished_build_is_in_the_way_until_told(tmp_path, kill, settings, digests, lines, monkeypatch):
    """It goes on where settings and corpus are as they were, and encodes no finished block again."""
    corpus, output = tmp_path / "corpus.jsonl", tmp_path / "index"
    content = "".join(lines).encode()
    corpus.write_bytes(content)
    times = corpus.stat()
    settings = replace(settings, corpus=(str(corpus),), bm25=False)
    kill("all encoded", output, settings)
    with pytest.raises(IndexBuildError, match=r"unfinished build.* `resume`, or discard it"):
        build_job(output, settings)
    other = replace(settings, precision="fp32")
    for job, found in ((other, "settings, encoder; repeat"), (replace(settings, bm25=True), "settings")):
        with pytest.raises(IndexBuildError, match=f"found other {found}"):
            build_job(output, job, resume=True)
    corpus.write_bytes(content + b"\n")
    with pytest.raises(IndexBuildError, match="found other sources"):
        build_job(output, settings, resume=True)
    corpus.write_bytes(content)
    os.utime(corpus, ns=(times.st_atime_ns, times.st_mtime_ns))
    monkeypatch.setattr(Encoder, "encode_paper", None)
    assert build_job(output, replace(settings, threads=2), resume=True).digest == digests["dense"]


def test_a_folder_of_papers_that_changed_is_not_resumed(tmp_path, kill, settings, digests, lines):
    folder = tmp_path / "papers"
    folder.mkdir()
    for name, some in (("a.jsonl", lines[:40]), ("b.jsonl", lines[40:])):
        (folder / name).write_text("".join(some))
    settings, output = replace(settings, corpus=(str(folder),), bm25=False), tmp_path / "index"
    kill("all encoded", output, settings)

    def refused():
        with pytest.raises(IndexBuildError, match="found other sources"):
            build_job(output, settings, resume=True)

    (folder / "c.jsonl").write_text(lines[0].replace("s001", "new"))
    refused()
    (folder / "c.jsonl").unlink()
    (folder / "b.jsonl").rename(tmp_path / "b.jsonl")
    refused()
    (tmp_path / "b.jsonl").rename(folder / "b.jsonl")
    times = (folder / "b.jsonl").stat()
    os.utime(folder / "b.jsonl")
    refused()
    os.utime(folder / "b.jsonl", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert build_job(output, settings, resume=True).digest == digests["dense"]


def test_a_second_builder_is_refused_while_the_first_runs(tmp_path, settings):
    with lock(tmp_path / ".index.lock"):
        for options in ({}, {"resume": True}, {"overwrite": True}):
            with pytest.raises(IndexBuildError, match="being written by another process"):
                build_job(tmp_path / "index", settings, **options)
    assert not any(tmp_path.iterdir())


def test_moments_are_all_tried():
    tried = {moment for moments in MOMENTS_OF.values() for moment in moments}
    assert tried | {"all encoded", "published, not current"} == {*MOMENTS, LUCENE}

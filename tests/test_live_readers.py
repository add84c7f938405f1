"""Readers beside a writer, killed writers, full disks, damage."""

import json
import os
import random
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from qbe.index.building.compaction import compact
from support import reading_clients
from support.builds import Job, build_job
from support.damage import full_disk
from support.live import corpus, files
from support.searching import first_stage
from support.serving import serving

from qbe.errors import IndexFormatError, OutputError
from qbe.index import snapshot
from qbe.index.building import writer
from qbe.index.building.build import build
from qbe.index.building.changes import append_papers, delete_papers
from qbe.index.building.settings import BuildSettings
from qbe.index.opening import Index, build_index
from qbe.index.reader import IndexReader
from qbe.index.snapshot import COMMIT, read_commit
from qbe.query import Query
from qbe.search.form import SearchForm
from qbe.serve.app import REFRESH_SECONDS
from qbe.serve.service import SearchService
from qbe.types import Facet
from qbe.util.files import shared_lock, try_exclusive_lock

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
SUPPORT = ROOT / "tests" / "support"


@pytest.fixture(scope="module")
def both(tmp_path_factory, papers, tiny_encoder) -> Path:
    """An index of twelve papers and four appended, with both sides."""
    folder = tmp_path_factory.mktemp("both")
    build(folder / "index", [corpus(folder, "a", papers[:12])], BuildSettings(encoder=str(tiny_encoder)))
    append_papers(folder / "index", [corpus(folder, "b", papers[12:16])])
    return folder / "index"


@pytest.fixture
def index(tmp_path, both) -> Path:
    """A copy of it, to be written to."""
    return Path(shutil.copytree(both, tmp_path / "index"))


def hits(index: Index) -> list:
    return [
        first_stage(index, stage).search(Query(index.paper("s005")), 20)
        for stage in ("bm25", "dense", "fused")
    ]


def test_readers_go_on_with_what_they_opened(index, both, papers, tmp_path):
    """Parts that they load only after the compaction are still there; then they are removed."""
    with Index(both) as other:
        expected = hits(other)
    first = Index(index)
    second = Index(index)
    assert compact(index).generation == 2
    delete_papers(index, ["s001"])
    names = ["deleted", "facets.npy", "faiss.index", "lucene", "manifest.json", "papers.ids", "papers.jsonl"]
    names += ["papers.offsets.npy", "segments", "segments.json", "sentences.npy", "vectors.npy", "whole.npy"]
    assert sorted(path.name for path in index.iterdir()) == names
    assert hits(first) == expected
    assert list(first.papers.read_from(0)) == papers[:16]
    assert (first.generation, Index(index).generation) == (1, 3)
    first.close()
    append_papers(index, [corpus(tmp_path, "c", papers[:1])])
    assert "manifest.json" in files(index)  # the second reader holds it
    assert len(second.papers.ids) == 16
    second.close()
    third = Index(index)
    compact(index)
    assert sorted(path.name for path in index.iterdir()) == ["segments", "segments.json"]
    assert sorted(path.name for path in (index / "segments").iterdir()) == ["000002", "000004", "000005"]
    assert third.paper("s001") == papers[0]
    third.close()
    compact(index)
    assert {name.split("/")[1] for name in files(index) if "/" in name} == {"000005"}
    with Index(index) as last:
        assert [paper.paper_id for paper in last.papers.read_from(0)] == [
            *(paper.paper_id for paper in papers[1:16]),
            "s001",
        ]


def test_a_segment_that_goes_while_an_index_is_opened_is_no_error(index, monkeypatch):
    """The commit is read, then a writer compacts and cleans up, then the segments are to be held."""
    read, wrote = read_commit, []

    def slow(folder: Path):
        commit = read(folder)
        if not wrote:
            wrote.append(folder)
            compact(folder)
        return commit

    monkeypatch.setattr(snapshot, "read_commit", slow)
    with Index(index) as opened:
        assert (opened.generation, len(opened)) == (2, 16)
    assert wrote


def test_the_folder_itself_goes_while_an_index_is_opened(tmp_path, papers, tiny_encoder, monkeypatch):
    """The same where there was no commit yet: first found gone, then gone before it is held."""
    first = corpus(tmp_path, "a", papers[:6])
    settings = Job(corpus=(first,), encoder=str(tiny_encoder), bm25=False)
    read = read_commit
    for moment in (1, 2):
        build_job(tmp_path / "index", settings, overwrite=True)
        calls = []

        def slow(folder: Path, calls=calls, moment=moment):
            calls.append(folder)
            commit = read(folder)
            if len(calls) == 1:
                append_papers(folder, [corpus(tmp_path, "b", papers[6:8])])
                if moment == 2:
                    compact(folder)
            return commit

        monkeypatch.setattr(snapshot, "read_commit", slow)
        with Index(tmp_path / "index") as opened:
            monkeypatch.undo()
            assert len(opened) == (6 if moment == 1 else 8)


def test_readers_need_no_right_to_write(index):
    for path in [index, *index.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    with Index(index) as opened:
        assert len(hits(opened)[0]) > 0
    for path in [index, *index.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)


def test_locks(tmp_path):
    path = tmp_path / "manifest.json"
    path.write_text("")
    first, second = shared_lock(path), shared_lock(path)
    for descriptor in (first, second):
        with try_exclusive_lock(path) as alone:
            assert not alone
        os.close(descriptor)
    with try_exclusive_lock(path) as alone:
        assert alone
        with pytest.raises(BlockingIOError):
            shared_lock(path)
    with pytest.raises(FileNotFoundError):
        shared_lock(tmp_path / "absent")


def test_debris_of_a_killed_writer_is_removed(index, papers):
    """Half a segment, a whole one that was not committed, files of dead rows, a commit half written."""
    clean = files(index)
    shutil.copytree(index / "segments" / "000001", index / "segments" / "000002")
    (index / "segments" / ".000003.building").mkdir()
    (index / "segments" / ".000003.building" / "papers.jsonl").write_text("{")
    (index / "deleted").mkdir()
    (index / "deleted" / "root.000002.npy").write_text("")
    (index / f".{COMMIT}.abc.partial").write_text("{")
    with Index(index) as opened:
        assert len(opened) == 16
    with pytest.raises(Exception, match="nothing was deleted"):
        delete_papers(index, ["absent"])
    assert files(index) == clean
    assert not (index / "deleted").exists()


def test_the_removal_of_the_first_segment_is_finished(index, monkeypatch):
    """A writer that is killed between two of its files leaves the rest to the next."""
    (index / "notes.txt").write_text("mine")
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", _stops_at("papers.jsonl"))
        compact(index)
    left = set(files(index))
    assert {writer.SUPERSEDED, "papers.jsonl", "notes.txt"} < left
    assert not {"papers.ids", "lucene/segments_1", "manifest.json"} & left
    with Index(index) as opened:
        assert len(opened) == 16
    assert compact(index) is None
    assert sorted(path.name for path in index.iterdir()) == ["notes.txt", "segments", COMMIT]


def _stops_at(name: str):
    unlink = Path.unlink

    def stopping(path: Path, missing_ok: bool = False) -> None:
        if path.name == name:
            raise OSError
        unlink(path, missing_ok)

    return stopping


def test_damage_is_told_in_one_line(index, both):
    def told(pattern: str) -> None:
        with pytest.raises(IndexFormatError, match=pattern) as caught:
            Index(index)
        assert "\n" not in str(caught.value)

    delete_papers(index, ["s001", "s013"])
    kept = files(index)
    dead = index / "deleted" / "root.000002.npy"
    dead.write_bytes(dead.read_bytes()[:-1] + b"\1")
    told(r"root\.000002\.npy: expected the deleted rows of 12 papers, found other bytes; put back")
    dead.unlink()
    told(r"root\.000002\.npy: expected a file of the index, found No such file")
    dead.write_bytes(kept["deleted/root.000002.npy"])
    vectors = index / "segments" / "000001" / "vectors.npy"
    vectors.write_bytes(b"")
    told(r"vectors\.npy: expected \d+ bytes, found 0 bytes")
    shutil.rmtree(index / "segments" / "000001")
    told(r"000001/manifest\.json: expected a file of the index, found No such file")
    shutil.copytree(both, index / "segments" / "000001", ignore=shutil.ignore_patterns("segments", COMMIT))
    told(r"000001: expected the segment .{12} of .*segments\.json, found .{12}; put back")
    (index / COMMIT).write_text("{")
    told(r"segments\.json: expected the segments of the index, found")
    with pytest.raises(IndexFormatError, match="expected the segments of the index"):
        delete_papers(index, ["s002"])


def test_a_full_disk_leaves_the_index_as_it_was(index, papers):
    before = files(index)
    for write in (lambda: append_papers(index, papers[16:60]), lambda: compact(index)):
        with full_disk(4), pytest.raises(OutputError, match=r"^[^\n]*File too large[^\n]*$"):
            write()
        assert files(index) == before


def test_readers_and_a_server_get_the_old_or_the_new_answer(tmp_path, papers, tiny_encoder):
    """The papers are built anew in another order, others appended, and all made one segment, over and over.

    Each paper's title ends in its id, and the order changes no ranking, so that any mixture shows.
    """
    titled = [replace(paper, title=f"{paper.title} {paper.paper_id}") for paper in papers[:40]]
    settings, index = BuildSettings(encoder=str(tiny_encoder)), tmp_path / "index"
    expected = {}
    for count in (40, 32):
        with build_index(index, titled[:count], settings, overwrite=count == 32) as built:
            expected[count] = {
                stage: reading_clients.answer(built, stage) for stage in reading_clients.STAGES
            }
            with SearchService(built) as service:
                served = service.search(SearchForm(paper_ids=["s003"], k=8, rerank=False))
                expected[count]["served"] = [hit["paper_id"] for hit in served["hits"]]
    (tmp_path / "expected.json").write_text(json.dumps(expected))
    chance, stop = random.Random(3), tmp_path / "stop"
    with serving(index, tmp_path / "log") as server:
        script = SUPPORT / "reading_clients.py"
        command = [sys.executable, script, index, str(server.port), tmp_path / "expected.json", stop]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
        clients = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        for number in range(int(os.environ.get("QBE_WRITES", "5"))):
            if number % 3 == 0:
                build(index, chance.sample(titled[:32], 32), settings, overwrite=True)
            elif number % 3 == 1:
                append_papers(index, titled[32:])
            else:
                compact(index)
            time.sleep(0.2)
        stop.touch()
        outcome, _ = clients.communicate(timeout=60)
        print(outcome)
        assert json.loads(outcome)["wrong"] == []
        assert json.loads(outcome)["answers"] > reading_clients.CLIENTS
        shutil.rmtree(index)
        time.sleep(2 * REFRESH_SECONDS)
        assert [server.ask("GET", "/health").status, server.search(paper_ids=["s003"]).status] == [503, 200]


@pytest.mark.parametrize(
    ("read", "use"),
    [
        ("paper", lambda index, paper: index.paper(paper.paper_id)),
        ("stored_vectors", lambda index, paper: index.vectors(paper).whole[0]),
        ("__contains__", lambda index, paper: paper.paper_id in index),
        ("__iter__", lambda index, paper: next(iter(index))),
        ("facet_mask", lambda index, paper: index.facet_mask(Facet.METHOD).sum()),
    ],
)
def test_a_refresh_in_the_middle_of_a_reading_leaves_it_its_reader(
    index, papers, tmp_path, monkeypatch, read, use
):
    with Index(index) as opened:
        expected = use(opened, papers[0])
        append_papers(index, [corpus(tmp_path, "c", papers[16:18])])
        original = getattr(IndexReader, read)

        def slow(reader, *arguments):
            opened.refresh()
            return original(reader, *arguments)

        monkeypatch.setattr(IndexReader, read, slow)
        assert use(opened, papers[0]) == expected
        monkeypatch.undo()
        assert len(opened) == 18


def test_a_write_killed_at_its_commit_leaves_the_old_index_or_the_new_one(tmp_path, papers, tiny_encoder):
    """Before each of its steps on the disk: builds, replacements, appending, deleting, compacting."""
    corpus(tmp_path, "first", papers[:12])
    corpus(tmp_path, "second", papers[12:20])
    script, kills = SUPPORT / "killed_commits.py", os.environ.get("QBE_KILLS", "6")
    command = [sys.executable, script, tmp_path, str(tiny_encoder), kills, "5"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    print(done.stdout)
    outcomes = json.loads(done.stdout)
    assert outcomes["wrong"] == []
    assert outcomes["old"] > 0
    assert outcomes["new"] > 0
    assert outcomes["old"] + outcomes["new"] == min(int(kills), outcomes["steps"])

"""Files of an index read from what was opened, compared with their digests, and remembered."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from support.damage import change_manifest
from support.searching import first_stage

from qbe.errors import IndexFormatError, OutputError, UsageError
from qbe.index import openfiles
from qbe.index.building.build import build
from qbe.index.building.settings import BuildSettings
from qbe.index.index import Index
from qbe.index.openfiles import OpenFiles
from qbe.query import Query
from qbe.util.files import lock, sha256


def hits(index: Index) -> list:
    query = Query(index.paper("s005"))
    return [first_stage(index, stage).search(query, 20) for stage in ("bm25", "dense", "fused")]


@pytest.mark.parametrize("faiss", ["auto", "IVF4,SQ8"])
def test_an_index_whose_folder_is_removed_goes_on(tmp_path, papers, tiny_encoder, faiss):
    """All that is read later comes from the files that were opened."""
    build(tmp_path / "index", papers[:60], BuildSettings(encoder=str(tiny_encoder), faiss=faiss))
    with Index(tmp_path / "index") as before:
        expected, titles = hits(before), [paper.title for paper in before]
    with Index(tmp_path / "index") as index:
        shutil.rmtree(tmp_path / "index")
        assert hits(index) == expected
        assert [paper.title for paper in index] == titles
        with pytest.raises(IndexFormatError):
            index.refresh()
        assert hits(index) == expected


def test_a_folder_that_is_exchanged_while_it_is_opened_is_opened_again(tmp_path, copy, papers, monkeypatch):
    """The manifest is of the old index, and the first file that is opened of the new one."""
    opened = OpenFiles.__init__
    writes = []

    def slow(self, path, expected=None) -> None:
        if not writes and path == copy:
            writes.append(path)
            build(copy, papers[:20], BuildSettings(dense=False), overwrite=True)
        opened(self, path, expected)

    monkeypatch.setattr(OpenFiles, "__init__", slow)
    with Index(copy) as index:
        assert list(index) == papers[:20]
    assert writes


def test_without_descriptors_by_name_a_replaced_file_is_told(copy, monkeypatch):
    monkeypatch.setattr(openfiles, "DESCRIPTORS", Path("/nowhere"))
    with Index(copy) as index:
        assert len(hits(index)[0]) == 20
    with Index(copy) as index:
        shutil.copytree(copy / "lucene", copy.parent / "lucene")
        shutil.rmtree(copy / "lucene")
        (copy.parent / "lucene").rename(copy / "lucene")
        with pytest.raises(IndexFormatError, match="expected the file that was opened, found another"):
            hits(index)


def test_descriptors_are_closed(copy):
    def count() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    with Index(copy) as index:
        hits(index)
    before = count()
    with Index(copy) as index:
        papers = index.papers
        assert 20 < count() - before < 40
        for _ in range(3):
            assert not index.refresh()
        assert count() - before < 40
    with pytest.raises(UsageError, match="found a closed one; open it again"):
        papers[0]
    del papers
    assert count() <= before


def test_more_files_than_the_limit_raise_it_or_are_told(copy):
    script = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from qbe.index.manifest import read_manifest\n"
        "from qbe.index.openfiles import OpenFiles\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (20, int(sys.argv[2])))\n"
        "folder = Path(sys.argv[1])\n"
        "files = OpenFiles(folder, read_manifest(folder).files)\n"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])\n"
    )
    run = [sys.executable, "-c", script, str(copy)]
    done = subprocess.run([*run, "100"], capture_output=True, text=True, check=True)
    assert done.stdout == "100\n"
    done = subprocess.run([*run, "22"], capture_output=True, text=True, check=False)
    assert "InputError: cannot open" in done.stderr
    assert "compact the index, or raise the limit" in done.stderr


def test_arrays_are_checked_before_they_are_allocated(tmp_path):
    """By the header alone it would take 128 TiB."""
    np.save(tmp_path / "a.npy", np.zeros((4, 2), np.float16))
    whole = (tmp_path / "a.npy").read_bytes()
    assert OpenFiles(tmp_path).array("a.npy", "float16", 2).shape == (4, 2)
    for change in (
        whole.replace(b"(4, 2), }" + b" " * 12, b"(40000000000000, 2), }"[:21]),
        whole.replace(b"<f2", b"<f4"),
        whole.replace(b"(4, 2)", b"(8, 2)"),
        whole.replace(b"False", b"True "),
        whole[:-1],
        b"",
    ):
        assert change != whole
        (tmp_path / "a.npy").write_bytes(change)
        with pytest.raises(IndexFormatError, match=r"a\.npy: expected .*, found .*; the index is damaged"):
            OpenFiles(tmp_path).array("a.npy", "float16", 2)
    with pytest.raises(IndexFormatError, match=r"b\.npy: expected a file, found no file"):
        OpenFiles(tmp_path).array("b.npy", "float16", 2)


@pytest.fixture
def large(monkeypatch, cache) -> list[int]:
    """All files count as large, and as old once 50 ms have passed; gives the files that were read."""
    monkeypatch.setattr(openfiles, "SMALL", 0)
    monkeypatch.setattr(openfiles, "_RECENT", 40_000_000)
    read, digest_of = [], openfiles.digest_of
    monkeypatch.setattr(openfiles, "digest_of", lambda file: read.append(file) or digest_of(file))
    return read


def test_a_large_file_is_read_when_it_changed_since_it_was(tmp_path, large, cache):
    path = tmp_path / "a"
    path.write_text("text")
    digest = sha256(path)

    def is_right() -> bool:
        time.sleep(0.05)
        with path.open("rb") as stream:
            return openfiles.has_digest(stream.fileno(), digest)

    assert [is_right(), is_right(), is_right(), len(large)] == [True, True, True, 1]
    times = path.stat()
    path.write_text("tex.")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # the time of its state tells
    assert [is_right(), is_right(), len(large)] == [False, False, 3]
    path.write_text("text")
    assert [is_right(), is_right(), len(large)] == [True, True, 4]
    (cache / openfiles.MEMORY).chmod(0)
    (cache / openfiles.MEMORY).unlink()
    (cache / openfiles.MEMORY).mkdir()  # cannot be read, nor written
    assert [is_right(), is_right(), len(large)] == [True, True, 6]


def test_a_file_that_has_just_been_written_is_not_remembered(tmp_path, large, cache):
    (tmp_path / "a").write_text("text")
    with (tmp_path / "a").open("rb") as stream:
        assert openfiles.has_digest(stream.fileno(), sha256(tmp_path / "a"))
    assert not (cache / openfiles.MEMORY).exists()


def test_the_memory_of_files_is_bounded(tmp_path, large, cache, monkeypatch):
    monkeypatch.setattr(openfiles, "_MOST", 1000)
    for number in range(30):
        (tmp_path / str(number)).write_text("text")
    time.sleep(0.05)
    for number in range(30):
        with (tmp_path / str(number)).open("rb") as stream:
            openfiles.digest_of(stream.fileno())
        assert (cache / openfiles.MEMORY).stat().st_size < 1200
    assert b" 4 " in (cache / openfiles.MEMORY).read_bytes()


def test_changed_vectors_and_a_changed_manifest_are_told(copy, large):
    with (copy / "whole.npy").open("r+b") as stream:
        stream.seek(-2, os.SEEK_END)
        stream.write(b"\1\1")
    with Index(copy) as index, pytest.raises(IndexFormatError, match=r"whole\.npy: expected the SHA-256 "):
        hits(index)
    path = copy / "manifest.json"
    path.write_text(path.read_text().replace('"k1": 0.9', '"k1": 0.8'))
    with pytest.raises(IndexFormatError, match=r"manifest\.json: expected a manifest, found .*checksum"):
        Index(copy)


@pytest.mark.parametrize(
    "name", ["papers.jsonl", "papers.ids", "papers.offsets.npy", "sentences.npy", "facets.npy"]
)
def test_damage_that_is_not_verified_is_told_where_it_shows(copy, name):
    """Of an index without digests."""
    (copy / name).write_bytes(bytes((copy / name).stat().st_size))
    change_manifest(copy, lambda record: [entry.pop("sha256") for entry in record["files"].values()])
    with pytest.raises(IndexFormatError, match=rf"{name}: expected .*; the index is damaged"):  # noqa: SIM117
        with Index(copy) as index:
            hits(index)
            list(index)


def test_a_lock_file_is_no_link(tmp_path):
    (tmp_path / "mine").write_text("mine")
    (tmp_path / ".index.lock").symlink_to("mine")
    with (
        pytest.raises(OutputError, match="remove the symbolic link in its place"),
        lock(tmp_path / ".index.lock"),
    ):
        pass
    assert (tmp_path / "mine").read_text() == "mine"

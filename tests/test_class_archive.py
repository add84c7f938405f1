"""The archive of Java's classes: searches use it where it is whole, and find the same with it and without."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from qbe import _jvm
from qbe._jvm import make_class_archive
from qbe.index.__main__ import main as index_main

pytestmark = pytest.mark.slow

SEARCH = """
import sys
from qbe import _jvm
from qbe.search.__main__ import main

main(["--index", sys.argv[1], "--paper", "s036", "--first-stage", "bm25", "--rerank", "none"])
print(_jvm.java_class("java.lang.System").getProperty("java.vm.info"))
"""


def search(index: Path, cache: Path) -> tuple[str, bool]:
    """The run of a search in a process of its own, and whether its Java uses an archive."""
    environment = {**os.environ, "QBE_CACHE": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", SEARCH, index], capture_output=True, text=True, check=False, env=environment
    )
    assert (done.returncode, done.stderr) == (0, "")
    *run, machine = done.stdout.splitlines()
    return "\n".join(run), "sharing" in machine


@pytest.fixture(scope="module")
def without(tiny_index, tmp_path_factory) -> str:
    """The run of a search without an archive."""
    run, uses_archive = search(tiny_index, tmp_path_factory.mktemp("empty"))
    if uses_archive:
        pytest.skip("this Java comes with an archive of its own")
    return run


@pytest.fixture(scope="module")
def cache(tiny_index, tmp_path_factory) -> Path:
    """A cache with the archive."""
    cache = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QBE_CACHE", str(cache))
        assert make_class_archive(tiny_index)
    return cache


def archive_in(cache: Path) -> Path:
    (archive,) = (cache / "java").iterdir()
    return archive


def test_a_search_uses_it_and_finds_the_same(tiny_index, cache, without):
    assert search(tiny_index, cache) == (without, True)


def test_it_is_made_once_and_replaces_those_of_other_versions(tiny_index, cache, monkeypatch):
    monkeypatch.setenv("QBE_CACHE", str(cache))
    archive = archive_in(cache)
    assert archive == _jvm.class_archive(_jvm.find_java(), _jvm.anserini_jar())
    before = archive.stat().st_mtime_ns
    assert not make_class_archive(tiny_index)
    assert archive.stat().st_mtime_ns == before
    former = archive.with_name(f"{archive.name.partition('-')[0]}-0123abcd.jsa")
    of_another_environment = archive.with_name("01234567-0123abcd.jsa")
    of_another_environment.touch()
    archive.rename(former)
    assert make_class_archive(tiny_index)
    assert {*archive.parent.iterdir()} == {archive, of_another_environment}
    of_another_environment.unlink()


def flipped(content: bytes) -> bytes:
    middle = len(content) // 7
    return (
        content[:middle]
        + bytes(byte ^ 90 for byte in content[middle : middle + 100_000])
        + content[middle + 100_000 :]
    )


@pytest.mark.parametrize("damage", [flipped, lambda content: content[:5_000_000], lambda content: b"text"])
def test_a_damaged_one_is_not_used(tiny_index, cache, without, tmp_path, damage):
    damaged = tmp_path / "java" / archive_in(cache).name
    damaged.parent.mkdir()
    damaged.write_bytes(damage(archive_in(cache).read_bytes()))
    assert search(tiny_index, tmp_path) == (without, False)


@pytest.mark.parametrize("option", ["--only=bm25", "--only=dense"])
def test_building_an_index_with_postings_makes_it(
    option, tmp_path, monkeypatch, sample, tiny_encoder, capsys
):
    monkeypatch.setenv("QBE_CACHE", str(tmp_path / "cache"))
    output = tmp_path / "index"
    options = ["--encoder", str(tiny_encoder)] if option == "--only=dense" else []
    index_main(["--corpus", str(sample / "corpus.jsonl"), "--output", str(output), option, *options])
    assert capsys.readouterr().out.startswith(f"{output}: 128 papers")
    archive = _jvm.class_archive(_jvm.find_java(), _jvm.anserini_jar())
    assert archive.is_file() == (option == "--only=bm25")


def test_where_it_cannot_be_made_nothing_is_left(tmp_path, monkeypatch, tiny_index):
    (tmp_path / "file").touch()
    monkeypatch.setenv("QBE_CACHE", str(tmp_path / "file"))
    assert not make_class_archive(tiny_index)
    monkeypatch.setenv("QBE_CACHE", str(tmp_path / "cache"))
    assert not make_class_archive(tmp_path / "no-index")
    assert not (tmp_path / "cache").exists()

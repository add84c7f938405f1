"""The archive of Java's classes: searches use it where it is whole, and find the same with it and without."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from qbe.cli.index import main as index_main
from qbe.index import jvm as _jvm
from qbe.index.jvm import make_class_archive

pytestmark = pytest.mark.slow

SEARCH = """
import sys
from qbe.index import jvm as _jvm
from qbe.cli.search import main

main(["--index", sys.argv[1], "--paper", "s036", "--first-stage", "bm25", "--rerank", "none"])
print(_jvm.java_class("java.lang.System").getProperty("java.vm.info"))
"""


def searched(index: Path, cache: Path) -> tuple[str, bool]:
    environment = {**os.environ, "QBE_CACHE": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", SEARCH, index], capture_output=True, text=True, check=False, env=environment
    )
    assert (done.returncode, done.stderr) == (0, "")
    *run, machine = done.stdout.splitlines(keepends=True)
    return "".join(run), "sharing" in machine


@pytest.fixture
def expected(search) -> str:
    return search("--paper", "s036", "--first-stage", "bm25", "--rerank", "none")


# The end of the name of another version's archive, and the name of another environment's.
FORMER, FOREIGN = "0123abcd.jsa", "01234567-0123abcd.jsa"


@pytest.fixture(scope="module")
def cache(sample, tmp_path_factory, with_jar) -> Path:
    """A cache with the archive that building an index with postings makes, and others before that."""
    folder = tmp_path_factory.mktemp("archive")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QBE_CACHE", str(with_jar(folder / "cache")))
        archive = _jvm.class_archive(_jvm.find_java(), _jvm.anserini_jar())
        for name in (f"{archive.name.partition('-')[0]}-{FORMER}", FOREIGN):
            archive.with_name(name).touch()
        index_main(["--corpus", str(sample / "corpus.jsonl"), "--output", str(folder / "i"), "--only=bm25"])
    return folder / "cache"


def test_building_an_index_with_postings_makes_it_once_and_removes_those_of_other_versions(
    tiny_index, cache, monkeypatch
):
    monkeypatch.setenv("QBE_CACHE", str(cache))
    archive = _jvm.class_archive(_jvm.find_java(), _jvm.anserini_jar())
    assert {*archive.parent.glob("*.jsa")} == {archive, archive.with_name(FOREIGN)}
    before = archive.stat().st_mtime_ns
    assert not make_class_archive(tiny_index)
    assert archive.stat().st_mtime_ns == before


def test_building_an_index_without_postings_makes_none(tmp_path, monkeypatch, sample, tiny_encoder, capsys):
    monkeypatch.setenv("QBE_CACHE", str(tmp_path / "cache"))
    output = str(tmp_path / "index")
    options = ["--only=dense", "--encoder", str(tiny_encoder)]
    index_main(["--corpus", str(sample / "corpus.jsonl"), "--output", output, *options])
    assert capsys.readouterr().out.startswith(f"{output}: 128 papers")
    assert not (tmp_path / "cache").exists()


def test_a_search_uses_it_unless_it_is_damaged_and_finds_the_same(tiny_index, cache, expected):
    assert searched(tiny_index, cache) == (expected, True)
    if (_jvm.find_java() / "lib" / "server" / "classes.jsa").exists():
        pytest.skip("this Java comes with an archive of its own")
    (archive,) = (path for path in (cache / "java").glob("*.jsa") if path.name != FOREIGN)
    content = bytearray(archive.read_bytes())
    middle = slice(len(content) // 7, len(content) // 7 + 100_000)
    content[middle] = bytes(byte ^ 90 for byte in content[middle])
    archive.write_bytes(content)
    assert searched(tiny_index, cache) == (expected, False)

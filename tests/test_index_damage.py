"""Damaged indexes, and indexes of another encoder, are told in one line."""

import json
import os
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from support.damage import change_manifest, vouch_index
from support.searching import first_stage

from qbe.errors import EncoderMismatchError, IndexFormatError
from qbe.index.building.build import build
from qbe.index.building.changes import append_papers, delete_papers
from qbe.index.building.settings import BuildSettings
from qbe.index.building.sharding import IndexShards, build_shards
from qbe.index.index import Index
from qbe.index.jvm import lucene_version
from qbe.index.papers import read_metadata
from qbe.query import Query
from qbe.types import Paper, Sentence

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
SUPPORT = ROOT / "tests" / "support"
OUTSIDE = Query(Paper("outside", "A title", (Sentence("One sentence."),)))


def test_a_truncated_or_missing_file_is_told(copy):
    names = [name for name in Index(copy).manifest.files if "lucene/" not in name or "segments" in name]
    assert len(names) == 9  # but for Lucene's others, which it checks itself
    for name in names:
        path, content = copy / name, (copy / name).read_bytes()
        for kept, found in ((content[:-1], f"{len(content) - 1} bytes;"), (None, "no file")):
            path.unlink() if kept is None else path.write_bytes(kept)
            with pytest.raises(
                IndexFormatError, match=rf"{path.name}: expected {len(content)} bytes, found {found}"
            ):
                Index(copy)
        path.write_bytes(content)
    Index(copy).close()


def test_postings_of_a_later_lucene_are_told_from_damaged_ones(copy):
    """Of the file of segments the numbers behind the header are changed: the Lucene that wrote it, and the
    major version of the one that created it.
    """
    path = copy / "lucene" / "segments_1"
    content = bytearray(path.read_bytes())
    suffix = 4 + 1 + len("segments") + 4 + 16
    writer = suffix + 1 + content[suffix]
    major = int(lucene_version().partition(".")[0])
    assert (content[writer], content[writer + 3]) == (major, major)
    content[writer], content[writer + 3] = major + 1, major + 1
    content[-8:] = zlib.crc32(content[:-8]).to_bytes(8, "big")
    path.write_bytes(content)
    vouch_index(copy, "lucene/segments_1")
    message = (
        rf"that Lucene {major}\.\d+\.\d+ can read, found one of a later Lucene; open it with Python 3\.12"
    )
    with Index(copy) as index, pytest.raises(IndexFormatError, match=message):
        first_stage(index, "bm25").search(Query(index.paper("s001")))


def test_a_folder_that_is_no_index(tmp_path, copy):
    with pytest.raises(IndexFormatError, match="expected the folder of an index, found a file; of a pack"):
        Index(copy / "papers.jsonl")
    for folder in (tmp_path, tmp_path / "absent"):
        with pytest.raises(
            IndexFormatError, match=r"expected an index with .* check `folder`, or build one with: qbe index"
        ):
            Index(folder)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "3", '{"format_version": 6}', "\udcff"])
def test_a_damaged_manifest_is_told(copy, text):
    (copy / "manifest.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(IndexFormatError, match=r"manifest\.json: expected a manifest, .* again"):
        Index(copy)


@pytest.mark.parametrize("version", [1, 3, 99])
def test_another_format_version_is_told(copy, version):
    change_manifest(copy, lambda record: record.update({"format_version": version, "new": "field"}))
    with pytest.raises(
        IndexFormatError, match=f"expected an index of format 4 or 5 or 6, found format {version};"
    ):
        Index(copy)


def test_another_encoder_is_refused_at_once(tiny_index, other_encoder):
    with pytest.raises(EncoderMismatchError, match=r"the encoder tiny-bert .* found other \(f{12}\)"):
        Index(tiny_index, encoder=str(other_encoder))


def test_an_encoder_that_was_exchanged_since_is_refused(copy, other_encoder):
    change_manifest(copy, lambda record: record["settings"].update(encoder=str(other_encoder)))
    index = Index(copy)
    assert first_stage(index, "dense").search(Query(index.paper("s001")))  # stored vectors serve it
    with pytest.raises(EncoderMismatchError):
        first_stage(index, "dense").search(OUTSIDE)


def test_the_encoder_may_have_moved(copy, tiny_encoder):
    change_manifest(copy, lambda record: record["settings"].update(encoder="/nowhere/to/be/found"))
    assert len(first_stage(Index(copy, encoder=str(tiny_encoder)), "dense").search(OUTSIDE)) == 10


@pytest.fixture(scope="module")
def indexes(tmp_path_factory, papers, tiny_encoder) -> Path:
    """An index with segments and deletions and one of shards, and of each another one with files of the same
    lengths: the papers are in another order.
    """
    folder = tmp_path_factory.mktemp("damages")
    settings = BuildSettings(encoder=str(tiny_encoder))
    for ending, order in (("", 1), ("-other", -1)):
        whole, segments = folder / f".whole{ending}", folder / f"segments{ending}"
        build(whole, papers[:40][::order], settings)
        build_shards(folder / f"shards{ending}", IndexShards(whole), 2)
        whole.rename(segments)
        append_papers(segments, papers[40:46][::order])
        delete_papers(segments, [papers[:40][::order][5].paper_id, papers[43].paper_id])
        append_papers(segments, papers[46:50][::order])
    return folder


def test_damage_is_told_or_changes_nothing(indexes):
    """Each file emptied, halved, lengthened, exchanged for another index's, and with a bit flipped."""
    count = os.environ.get("QBE_DAMAGES", "40")
    command = [sys.executable, SUPPORT / "random_damage.py", indexes, count, "1"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    outcomes = json.loads(done.stdout)
    print(outcomes)
    assert outcomes.pop("wrong") == []
    assert outcomes["told"] > 0
    assert sum(outcomes.values()) == int(count)


def test_metadata_that_are_nested_too_deeply_are_named():
    nested = b'{"paper_id": "1", "metadata": {"x": ' + b"[" * 50_000 + b"]" * 50_000 + b"}}\n"
    with pytest.raises(RecursionError):
        list(read_metadata([nested]))

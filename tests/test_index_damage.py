"""Damaged indexes, and indexes of another encoder, are told in one line."""

import pytest
from support.damage import change_manifest
from support.searching import first_stage

from qbe import Paper, Query, Sentence
from qbe.errors import EncoderMismatchError, IndexFormatError
from qbe.index.index import Index
from qbe.index.store import current

pytestmark = pytest.mark.slow

OUTSIDE = Query(Paper("outside", "A title", (Sentence("One sentence."),)))


def test_a_truncated_or_missing_file_is_told(copy):
    names = [name for name in Index(copy).manifest.files if "lucene/" not in name or "segments" in name]
    assert len(names) == 9  # but for Lucene's others, which it checks itself
    for name in names:
        path, content = current(copy) / name, (current(copy) / name).read_bytes()
        for kept, found in ((content[:-1], f"{len(content) - 1} bytes;"), (None, "no file")):
            path.unlink() if kept is None else path.write_bytes(kept)
            message = rf"{path.name}: expected {len(content)} bytes, found {found}"
            with pytest.raises(IndexFormatError, match=message):
                Index(copy)
        path.write_bytes(content)
    Index(copy).close()


@pytest.mark.parametrize("text", ["", "7", "000007", "../index", "\udcff"])
def test_a_damaged_name_of_the_generation_is_told(copy, text):
    (copy / "CURRENT").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(IndexFormatError, match=r"CURRENT: expected the name of a gen|manifest\.json, found"):
        Index(copy)


def test_a_folder_that_is_no_index(tmp_path, copy):
    with pytest.raises(IndexFormatError, match="expected the folder of an index, found a file; of a pack"):
        Index(copy / "CURRENT")
    message = r"expected an index with .* check `folder`, or build one with: qbe index"
    for folder in (tmp_path, tmp_path / "absent"):
        with pytest.raises(IndexFormatError, match=message):
            Index(folder)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "3", '{"format_version": 6}', "\udcff"])
def test_a_damaged_manifest_is_told(copy, text):
    (current(copy) / "manifest.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(IndexFormatError, match=r"manifest\.json: expected a manifest, .* again"):
        Index(copy)


@pytest.mark.parametrize("version", [1, 5, 99])
def test_another_format_version_is_told(copy, version):
    change_manifest(copy, lambda record: record.update({"format_version": version, "new": "field"}))
    with pytest.raises(IndexFormatError, match=f"index of format 6, found format {version};"):
        Index(copy)


def test_another_encoder_is_refused_at_once_and_one_exchanged_since_when_it_is_used(copy, other_encoder):
    with pytest.raises(EncoderMismatchError, match=r"the encoder tiny-bert .* found other \(f{12}\)"):
        Index(copy, encoder=str(other_encoder))
    change_manifest(copy, lambda record: record["settings"].update(encoder=str(other_encoder)))
    index = Index(copy)
    assert first_stage(index, "dense").search(Query(index.paper("s001")))  # stored vectors serve it
    with pytest.raises(EncoderMismatchError):
        first_stage(index, "dense").search(OUTSIDE)


def test_the_encoder_may_have_moved(copy, tiny_encoder):
    change_manifest(copy, lambda record: record["settings"].update(encoder="/nowhere/to/be/found"))
    assert len(first_stage(Index(copy, encoder=str(tiny_encoder)), "dense").search(OUTSIDE)) == 10

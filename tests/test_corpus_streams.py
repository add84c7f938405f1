"""Plain and compressed sources, standard input, and what goes wrong with them."""

import bz2
import gzip
import io
import json
import lzma
import os
import re
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from qbe import CorpusError, paper_from_file
from qbe.corpus.json_formats import read_jsonl
from qbe.corpus.reading import read_corpus
from qbe.corpus.streams import open_source
from qbe.errors import MissingDependencyError

PAPERS = b"".join(
    json.dumps({"paper_id": i, "title": f"Title {i * 7919}", "abstract": [f"Sentence {i * i}."]}).encode()
    + b"\n"
    for i in range(300)
)


def zstd(data: bytes) -> bytes:
    return pytest.importorskip("zstandard").ZstdCompressor().compress(data)


def zipped(data: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("papers.jsonl", data)
        archive.writestr("__MACOSX/._papers.jsonl", b"x")
        archive.writestr(".DS_Store", b"x")
    return stream.getvalue()


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstd,
    ".zip": zipped,
}
every_compression = pytest.mark.parametrize("suffix", COMPRESS)


def count(path: Path) -> int:
    return sum(1 for _ in read_jsonl(path))


@every_compression
@pytest.mark.parametrize("name", ["papers.jsonl{}", "papers"])
def test_compressed_files_with_and_without_the_suffix(tmp_path: Path, suffix: str, name: str) -> None:
    path = tmp_path / name.format(suffix)
    path.write_bytes(COMPRESS[suffix](PAPERS))
    assert count(path) == 300
    if suffix != ".zip":  # several members
        path.write_bytes(COMPRESS[suffix](PAPERS[:5000]) + COMPRESS[suffix](PAPERS[5000:]))
        assert count(path) == 300


@every_compression
def test_truncated_files_and_suffixes_that_lie(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"papers{suffix}"
    data = COMPRESS[suffix](PAPERS)
    for kept in (0.99, 0.5, 0.01):
        path.write_bytes(data[: int(len(data) * kept)])
        with pytest.raises(CorpusError, match=r"papers.*expected whole compressed data, found them trunc"):
            count(path)
    path.write_bytes(PAPERS)
    with pytest.raises(CorpusError, match="truncated or corrupt"):
        count(path)


@every_compression
def test_corrupt_files(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"papers{suffix}"
    data = bytearray(COMPRESS[suffix](PAPERS))
    middle = len(data) // 2
    data[middle : middle + 40] = bytes(255 - byte for byte in data[middle : middle + 40])
    path.write_bytes(data)
    # Flipped bits may first show as broken text; the line is named then.
    with pytest.raises(CorpusError, match=r"truncated or corrupt|, line \d+: expected"):
        count(path)


def test_archives_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "papers.zip", "w") as archive:
        archive.writestr("a", b"")
        archive.writestr("b", b"")
    with pytest.raises(CorpusError, match="expected an archive of one file, found 2"):
        count(tmp_path / "papers.zip")
    monkeypatch.setitem(sys.modules, "zstandard", None)
    (tmp_path / "papers.zst").write_bytes(b"\x28\xb5\x2f\xfd")
    with pytest.raises(MissingDependencyError, match="run: pip install zstandard"):
        count(tmp_path / "papers.zst")


def test_folders_as_files_and_files_as_folders(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "file" / "x", tmp_path / ("x" * 300)):
        with pytest.raises(CorpusError, match=f"^cannot read {path}: "):
            count(path)


@pytest.mark.parametrize("name", ["./nosuch.jsonl", "a//b", "x/"])
@pytest.mark.parametrize("read", [lambda name: list(read_corpus([name])), paper_from_file])
def test_a_missing_file_is_named_as_it_was_typed(tmp_path, monkeypatch, name, read):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CorpusError, match=f"^cannot read {re.escape(name)}: No such file or directory; "):
        read(name)


def test_an_address_is_opened_by_fsspec() -> None:
    filesystem = pytest.importorskip("fsspec").filesystem("memory")
    data = gzip.compress(b'{"paper_id": 1, "title": "A", "abstract": ["B."]}')
    filesystem.pipe("/bucket/papers.jsonl.gz", data)
    assert [paper.title for paper in read_corpus(["memory://bucket/papers.jsonl.gz"])] == ["A"]
    with pytest.raises(CorpusError, match=r"^cannot read memory://bucket/absent: .*; check the address, or "):
        list(read_corpus(["memory://bucket/absent"]))


def test_errors_with_other_files_pass(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileNotFoundError), open_source(tmp_path / "file"):
        (tmp_path / "absent").read_bytes()


@pytest.mark.parametrize("compress", [bytes, gzip.compress, lzma.compress, zstd])
def test_standard_input_may_be_compressed(monkeypatch, compress):
    def stdin(data: bytes) -> None:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(data))))

    stdin(compress(PAPERS))
    assert sum(1 for _ in read_corpus(["-"])) == 300
    stdin(compress(b'{\n"title": "T",\n"abstract": ["One."]}'))
    assert paper_from_file("-").title == "T"
    stdin(compress(b"{}\n"))
    with pytest.raises(CorpusError, match=r"^standard input: format not recognized: .*found JSON;"):
        list(read_corpus(["-"]))


def test_a_pipe_as_standard_input(monkeypatch):
    def piped(data: bytes) -> int:
        reader, writer = os.pipe()
        os.write(writer, data)
        os.close(writer)
        with os.fdopen(reader) as stream:
            monkeypatch.setattr("sys.stdin", stream)
            return sum(1 for _ in read_corpus(["-"]))

    assert piped(gzip.compress(PAPERS)) == 300
    message = "^standard input: a zip archive cannot be read from a pipe; unpack it first$"
    with pytest.raises(CorpusError, match=message):
        piped(zipped(PAPERS))

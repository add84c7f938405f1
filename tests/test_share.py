"""Packed indexes: the same index after pulling, faults of networks, hostile archives."""

import io
import shutil
import tarfile
from pathlib import Path

import pytest
import zstandard
from support.http_files import served

import qbe
from qbe.errors import IndexBuildError, OutputError, PackError
from qbe.index.share import pack_index, pull, pulled_as
from qbe.util import web


@pytest.fixture(autouse=True)
def alone(cache, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(web.time, "sleep", lambda _: None)


@pytest.fixture(scope="module")
def pack(tmp_path_factory, tiny_index) -> Path:
    path = tmp_path_factory.mktemp("packs") / "tiny.tar.zst"
    pack_index(tiny_index, path, license="CC0-1.0", source="invented")
    return path


def members(pack: Path) -> dict[str, bytes]:
    content = zstandard.ZstdDecompressor().stream_reader(pack.read_bytes()).read()
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}


def test_a_pulled_index_is_the_packed_one(pack, tiny_index, tmp_path):
    pulled = pull(str(pack), tmp_path / "pulled")
    with qbe.open(tiny_index) as one, qbe.open(tmp_path / "pulled") as other:
        assert other.manifest == one.manifest
        assert list(other) == list(one)
    assert (pulled.pack.papers, pulled.pack.license, pulled.was_there) == (128, "CC0-1.0", False)
    assert pulled_as(tmp_path / "pulled") == pulled.pack
    assert pull(str(pack), tmp_path / "pulled").was_there
    assert [path.name for path in (tmp_path / "pulled").glob("0*")] == ["000001"]  # nothing was written
    pack_index(tmp_path / "pulled", tmp_path / "again.tar.zst", threads=2)
    assert (tmp_path / "again.tar.zst").read_bytes() == pack.read_bytes()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_connection_that_breaks_and_a_wrong_byte(pack, tmp_path):
    content = pack.read_bytes()
    (tmp_path / "served").mkdir()
    copy = tmp_path / "served" / pack.name
    copy.write_bytes(content[:-3000] + bytes([content[-3000] ^ 1]) + content[-2999:])
    with served(copy.parent, ranges=True) as server:
        server.failures[pack.name] = ["short"] * 3
        with pytest.raises(PackError):
            pull(server.url + pack.name, tmp_path / "pulled")
        assert server.failures[pack.name] == []
        assert list(tmp_path.iterdir()) == [copy.parent]
        copy.write_bytes(content)
        assert pull(server.url + pack.name, tmp_path / "pulled").pack.papers == 128
        assert {path.name for path in tmp_path.iterdir()} == {"pulled", "served"}
        assert pull(server.url + pack.name, tmp_path / "pulled").was_there


def test_a_newer_pack_brings_it_up_to_date_under_readers(pack, copy, tmp_path):
    address, folder = str(tmp_path / "newer.tar.zst"), tmp_path / "pulled"
    shutil.copyfile(pack, address)
    pull(address, folder)
    with qbe.open(copy) as index:
        index.delete(["s001"])
    pack_index(copy, address, overwrite=True)
    with qbe.open(folder) as index:
        assert not pull(address, folder).was_there
        assert pull(address, folder).was_there
        assert ("s001" in index, index.refresh(), "s001" in index, index.generation) == (True, True, False, 2)


def test_what_is_there_is_not_lost(pack, tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("text")
    with pytest.raises(IndexBuildError, match="found other files"):
        pull(str(pack), tmp_path / "notes")
    with pytest.raises(OutputError, match="it is a file"):
        pull(str(pack), tmp_path / "notes" / "mine.txt")
    pull(str(pack), tmp_path / "pulled")
    with qbe.open(tmp_path / "pulled") as index:
        index.delete(["s001"])
    with pytest.raises(IndexBuildError, match="changed since"):
        pull(str(pack), tmp_path / "pulled")
    assert pull(str(pack), tmp_path / "pulled", overwrite=True).pack.papers == 128
    with pytest.raises(OutputError, match="found one; choose another `output`"):
        pack_index(tmp_path / "pulled", tmp_path / "notes" / "mine.txt")


def member(name: str, content: bytes, **other: object) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for key, value in other.items():
        setattr(info, key, value)
    return info.tobuf(tarfile.GNU_FORMAT) + content + bytes(-len(content) % 512)


HOSTILE = {
    "an absolute path": member("/etc/cron.d/a.npy", b"text"),
    "a path upwards": member("../../a.npy", b"text"),
    "a file that no index has": member("other.npy", b"text"),
    "a symbolic link": member("facets.npy", b"", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
    "a hard link": member("facets.npy", b"", type=tarfile.LNKTYPE, linkname="/etc/passwd"),
    "a device": member("facets.npy", b"", type=tarfile.CHRTYPE),
    "a huge file": member("facets.npy", b"", size=1 << 52),
    "another content": None,
    "a long name": member("a", b"x" * 600, type=tarfile.GNUTYPE_LONGNAME),
    "no more": b"",
}


@pytest.mark.parametrize("kind", [*HOSTILE, "no archive", "cut off"])
def test_hostile_archives(kind, pack, tmp_path):
    files, forged = members(pack), HOSTILE.get(kind)
    if forged is None:
        forged = member("facets.npy", bytes(len(files["facets.npy"])))
    head = member("pack.json", files["pack.json"]) + member("manifest.json", files["manifest.json"])
    content = zstandard.compress(head + forged + bytes(1024))
    if kind == "no archive":
        content = b"PK\3\4" * 1000
    elif kind == "cut off":
        content = pack.read_bytes()[:-3000]
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "a.tar.zst").write_bytes(content)
    with served(tmp_path / "served") as server:
        for source in (str(tmp_path / "served" / "a.tar.zst"), f"{server.url}a.tar.zst"):
            with pytest.raises(PackError) as raised:
                pull(source, tmp_path / "pulled")
            assert "\n" not in str(raised.value)
            assert [path.name for path in tmp_path.iterdir()] == ["served"]


def test_a_data_set_of_the_hub(pack, tmp_path, monkeypatch):
    import huggingface_hub

    asked = []

    def snapshot_download(repo: str, **named: object) -> str:
        asked.append((repo, named))
        return str(pack.parent)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    with qbe.open("hf:someone/arxiv@v1/tiny.tar.zst") as index:
        assert len(index) == 128
    named = {"repo_type": "dataset", "revision": "v1", "allow_patterns": ["tiny.tar.zst"]}
    assert asked == [("someone/arxiv", named)]


def test_without_the_texts_of_abstracts(tiny_index, tmp_path):
    pack_index(tiny_index, tmp_path / "a.tar.zst", abstracts=False)
    pull(str(tmp_path / "a.tar.zst"), tmp_path / "pulled")
    with qbe.open(tmp_path / "pulled") as index, qbe.open(tiny_index) as whole:
        paper, original = index.paper("s036"), whole.paper("s036")
        assert {sentence.text for sentence in paper.sentences} == {"(text not included)"}
        assert (paper.title, paper.metadata) == (original.title, original.metadata)
        assert index.manifest.digest != whole.manifest.digest


def test_no_file_behind_a_link_is_removed(pack, tmp_path):
    thesis = tmp_path / "thesis" / "index"
    thesis.mkdir(parents=True)
    (thesis / "1.tex").write_text("chapter")
    (tmp_path / ".out.pulling").symlink_to(thesis.parent)
    with pytest.raises(OutputError, match="found a link"):
        pull(str(pack), tmp_path / "out")
    assert (thesis / "1.tex").read_text() == "chapter"

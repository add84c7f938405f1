"""Packed indexes: the same index after pulling, faults of networks, hostile archives, updates, registries."""

import dataclasses
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import zstandard
from qbe.index.packs import layout, pulling, sources
from qbe.index.packs.layout import HEADER_BYTES, Pack, PackedFile, padding, read_header, tar_header
from qbe.index.packs.packing import pack_index
from qbe.index.packs.pulling import pull
from qbe.index.packs.registry import find_pack, read_registry
from qbe.index.packs.sources import Source
from support.live import files, rankings

from benchmarks.faulty_server import Faults, serving
from qbe import BM25, BuildSettings, Dense, Fused, Pipeline, Query, build_index, open_index
from qbe.cli.doctor_index import index_checks
from qbe.cli.pack import main as pack_command
from qbe.cli.pull import main as pull_command
from qbe.errors import IndexBuildError, IndexFormatError, OutputError, PackError, QbeError, UsageError
from qbe.index.checking import check_index
from qbe.types import Paper, Sentence
from qbe.util import web
from qbe.util.files import lock

NEW = Paper("new", "On new papers", (Sentence("We add a paper."), Sentence("It is found.")))


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """A cache of its own, no registry, no pauses."""
    monkeypatch.setenv("QBE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("QBE_REGISTRY", raising=False)
    monkeypatch.setattr(web.time, "sleep", lambda _: None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_index) -> Path:
    """A folder with a pack of the tiny index."""
    folder = tmp_path_factory.mktemp("packs")
    pack_index(tiny_index, folder / "tiny.tar.zst", license="CC0-1.0", source="invented")
    return folder


@pytest.fixture
def grown(tmp_path, tiny_index) -> Path:
    """A copy of the tiny index with a paper more and two fewer: two segments."""
    index = Path(shutil.copytree(tiny_index, tmp_path / "grown"))
    with open_index(index) as opened:
        opened.append([NEW])
        opened.delete(["s001", "s002"])
    return index


def described(path: Path) -> Pack:
    with path.open("rb") as stream:
        return layout.decode_description(read_header(stream, str(path))[0], str(path))


def pulled_files(folder: Path) -> dict[str, bytes]:
    """The files of a pulled index but the description of its pack."""
    return {name: content for name, content in files(folder).items() if name != "pack.json"}


def hidden(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


def test_a_pulled_index_is_the_packed_one(folder, tiny_index, tmp_path, sample, papers):
    pulled = pull(str(folder / "tiny.tar.zst"), tmp_path / "pulled")
    description = json.loads((tmp_path / "pulled" / "pack.json").read_text())
    assert pulled_files(tmp_path / "pulled") == files(tiny_index)
    assert (description["license"], description["source"]) == ("CC0-1.0", "invented")
    assert (pulled.pack.papers, pulled.pack.sentences, pulled.kept) == (128, 594, 0)
    assert pulled.read == pulled.pack.frame_bytes
    assert rankings(tmp_path / "pulled", papers) == rankings(tiny_index, papers)
    again = pull(str(folder / "tiny.tar.zst"), tmp_path / "pulled")
    assert (again.read, again.kept) == (0, pulled.pack.bytes)
    assert hidden(tmp_path) == []
    assert index_checks(tmp_path / "pulled")[1].found == "license CC0-1.0, source invented"


def test_the_same_index_gives_the_same_bytes_which_tar_unpacks(folder, tmp_path, tiny_index):
    pack_index(tiny_index, tmp_path / "again.tar.zst", license="CC0-1.0", source="invented", threads=2)
    assert (tmp_path / "again.tar.zst").read_bytes() == (folder / "tiny.tar.zst").read_bytes()
    pull(str(folder / "tiny.tar.zst"), tmp_path / "pulled")
    pack_index(tmp_path / "pulled", tmp_path / "again.tar.zst")  # licence and source are those of the first
    assert (tmp_path / "again.tar.zst").read_bytes() == (folder / "tiny.tar.zst").read_bytes()
    with (folder / "tiny.tar.zst").open("rb") as stream:
        reader = zstandard.ZstdDecompressor().stream_reader(stream, read_across_frames=True)
        with tarfile.open(fileobj=reader, mode="r|") as archive:
            assert archive.next().name == "pack.json"
            archive.extractall(tmp_path / "unpacked", filter="data")
    assert files(tmp_path / "unpacked").keys() - {"pack.json"} == files(tiny_index).keys()
    with pytest.raises(IndexFormatError, match=r"found a file; .*: qbe pull .*/tiny\.tar\.zst --output DIR"):
        open_index(folder / "tiny.tar.zst")


def test_a_connection_that_breaks_five_times_then_a_wrong_byte(folder, tmp_path, tiny_index):
    size = (folder / "tiny.tar.zst").stat().st_size
    faults = Faults(breaks=[30, 2000, size // 3, size // 2, size * 2 // 3], wrong=size - 3000)
    with serving(folder, faults) as address:
        address += "/tiny.tar.zst"
        with pytest.raises(PackError, match="as it was packed, found other bytes"):
            pull(address, tmp_path / "pulled")
        assert faults.breaks == []
        assert not (tmp_path / "pulled").exists()
        assert hidden(tmp_path) == [".pulled.pulling"]  # what is right is kept
        faults.wrong, faults.sent = None, 0
        pulled = pull(address, tmp_path / "pulled")
    assert pulled.read < pulled.pack.frame_bytes / 2
    assert faults.sent < size / 2 + (1 << 17)
    assert pulled_files(tmp_path / "pulled") == files(tiny_index)
    assert hidden(tmp_path) == []


def test_a_killed_pull_goes_on(folder, tmp_path):
    half = (folder / "tiny.tar.zst").stat().st_size // 2
    seen = []

    def stop(done: int, total: int) -> None:
        seen.append((done, total))
        if done > total / 2:
            raise KeyboardInterrupt

    with serving(folder, faults := Faults()) as address:
        with pytest.raises(KeyboardInterrupt, match="; the same command goes on"):
            pull(f"{address}/tiny.tar.zst", tmp_path / "pulled", progress=stop)
        faults.sent = 0
        pulled = pull(f"{address}/tiny.tar.zst", tmp_path / "pulled")
    assert seen[-1][0] + pulled.read >= pulled.pack.frame_bytes
    assert pulled.read <= half


def test_a_server_without_ranges_and_statuses(folder, tmp_path):
    faults = Faults(breaks=[50_000], ranges=False, statuses=[503, 429])
    with serving(folder, faults) as address:
        assert pull(f"{address}/tiny.tar.zst", tmp_path / "pulled").pack.papers == 128
    assert len(faults.asked) == 4


def test_a_server_that_is_gone(folder, tmp_path, told):
    messages = []
    with serving(folder, Faults(statuses=[500] * sources.FIRST_RETRIES.attempts)) as address:
        for name in ("tiny.tar.zst", "absent.tar.zst"):
            with pytest.raises(PackError) as raised:
                pull(f"{address}/{name}", tmp_path / "pulled")
            messages.append(str(raised.value).replace(address, "http://localhost"))
    for absent in ("absent.tar.zst", "hf:someone", "nosuch://a.tar.zst", "http://localhost:1/a.tar.zst"):
        with pytest.raises(QbeError) as other:
            pull(absent, tmp_path / "pulled")
        messages.append(str(other.value))
    told("packs: addresses", messages)
    assert not (tmp_path / "pulled").exists()
    assert hidden(tmp_path) == []


def test_an_update_reads_the_new_segments_alone(folder, tmp_path, grown):
    shutil.copyfile(folder / "tiny.tar.zst", tmp_path / "index.tar.zst")
    with serving(tmp_path, faults := Faults()) as address:
        pull(f"{address}/index.tar.zst", tmp_path / "pulled")
        with open_index(tmp_path / "pulled") as reader:
            pack_index(grown, tmp_path / "index.tar.zst")
            faults.sent = 0
            pulled = pull(f"{address}/index.tar.zst", tmp_path / "pulled")
            assert len(reader) == 128
            assert reader.paper("s001").title  # it reads what it has opened
            reader.refresh()
            assert len(reader) == 127
    new = [file for file in described(tmp_path / "index.tar.zst").files if "/" in file.name]
    new = [file for file in new if not file.name.startswith("lucene/")]
    assert {file.name.split("/")[0] for file in new} == {"segments", "deleted"}
    assert pulled.read == sum(file.frame_bytes for file in new) + next(
        file.frame_bytes for file in pulled.pack.files if file.name == "segments.json"
    )
    assert pulled_files(tmp_path / "pulled") == files(grown)
    with open_index(tmp_path / "pulled") as opened:  # it can be changed further
        assert opened.append([dataclasses.replace(NEW, paper_id="newer")]).added == 1
        assert opened.compact().papers == 128


def test_what_is_there_is_not_lost(folder, tmp_path, tiny_index, grown, told):
    pack, messages = str(folder / "tiny.tar.zst"), []
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "mine.txt").write_text("text")
    changed = tmp_path / "changed"
    pull(pack, changed)
    with open_index(changed) as opened:
        opened.append([NEW])
    other = tmp_path / "other"
    shutil.copytree(grown, other)
    for target in (notes, changed, other, notes / "mine.txt"):
        before = files(target) if target.is_dir() else target.read_text()
        with pytest.raises((IndexBuildError, OutputError)) as raised:
            pull(pack, target)
        messages.append(str(raised.value).replace(str(tmp_path), ""))
        assert before == (files(target) if target.is_dir() else target.read_text())
    told("packs: folders", messages)
    assert pull(pack, changed, overwrite=True).pack.papers == 128
    whole = files(changed)
    postings = max((changed / "lucene").iterdir(), key=lambda path: path.stat().st_size)
    content = bytearray(postings.read_bytes())
    content[len(content) // 2] ^= 1
    postings.write_bytes(content)
    assert pull(pack, changed).read == 0  # by the manifest it is there
    assert pull(pack, changed, overwrite=True).read > 0
    assert files(changed) == whole
    (other / "mine.txt").write_text("text")
    with pytest.raises(IndexBuildError, match=r"mine\.txt"):
        pull(pack, other, overwrite=True)
    with lock(tmp_path / ".pulled.lock"), pytest.raises(IndexBuildError, match="another process"):
        pull(pack, tmp_path / "pulled")
    (tmp_path / "notes.txt").write_text("text")
    with pytest.raises(OutputError, match="or a pack to replace"):
        pack_index(tiny_index, tmp_path / "notes.txt")


def test_a_full_disk(folder, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(pulling.shutil, "disk_usage", lambda _: usage._replace(free=1 << 20))
    with pytest.raises(OutputError, match="MB of disk, found 1; free some space"):
        pull(str(folder / "tiny.tar.zst"), tmp_path / "pulled")
    assert list(tmp_path.iterdir()) == []


# Hostile archives: each is refused in one line, and leaves nothing.


def forged(
    pack: Pack, frames: Sequence[bytes], description: Callable[[bytes], bytes] = lambda frame: frame
) -> bytes:
    """A pack of a description and of frames, with the right digest of the description."""
    text = layout.encode_description(pack)
    frame = zstandard.compress(tar_header("pack.json", len(text)) + text + padding(len(text)))
    frame = description(frame)
    return layout.header(frame) + frame + b"".join(frames)


def frame_of(name: str, content: bytes, header: bytes | None = None) -> bytes:
    return zstandard.compress((header or tar_header(name, len(content))) + content + padding(len(content)))


def file_of(name: str, content: bytes, frame: bytes, **other: object) -> PackedFile:
    digest, frame_digest = (hashlib.sha256(each).hexdigest() for each in (content, frame))
    return dataclasses.replace(PackedFile(name, len(content), digest, len(frame), frame_digest), **other)


def member(kind: bytes, name: str = "facets.npy") -> bytes:
    """A header of another type than that of a file."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, "/etc/passwd", 4
    return info.tobuf(tarfile.GNU_FORMAT)


def names(*files: str) -> Callable[[Pack], tuple[Pack, list[bytes]]]:
    """A pack that has these files besides."""

    def forge(pack: Pack) -> tuple[Pack, list[bytes]]:
        frames = [frame_of(name[:100], b"text") for name in files]
        added = [file_of(name, b"text", frame) for name, frame in zip(files, frames, strict=True)]
        return dataclasses.replace(pack, files=[*added, *pack.files]), frames

    return forge


def first(content: bytes, frame: bytes, **other: object) -> Callable[[Pack], tuple[Pack, list[bytes]]]:
    """A pack whose first file is this."""

    def forge(pack: Pack) -> tuple[Pack, list[bytes]]:
        return dataclasses.replace(pack, files=[file_of("facets.npy", content, frame, **other)]), [frame]

    return forge


def stated(**values: object) -> Callable[[Pack], tuple[Pack, list[bytes]]]:
    return lambda pack: (dataclasses.replace(pack, **values), [])


ZEROS = bytes(64 << 20)
HOSTILE = {
    "an absolute path": names("/etc/cron.d/a.npy"),
    "a path upwards": names("../../a.npy"),
    "a path upwards inside": names("lucene/../../a.npy"),
    "a hidden file": names(".bashrc"),
    "a path of another system": names("..\\a.npy"),
    "a control character": names("a\n.npy"),
    "a program": names("lucene/sub/run.sh"),
    "a name that is long": names("a" * 200 + ".npy"),
    "a file twice": names("facets.npy"),
    "a file that no index has": names("other.npy"),
    "a symbolic link": first(b"text", frame_of("facets.npy", b"text", member(tarfile.SYMTYPE))),
    "a hard link": first(b"text", frame_of("facets.npy", b"text", member(tarfile.LNKTYPE))),
    "a device": first(b"text", frame_of("facets.npy", b"text", member(tarfile.CHRTYPE))),
    "another name": first(b"text", frame_of("manifest.json", b"text")),
    "a bomb": first(b"text", frame_of("facets.npy", ZEROS, tar_header("facets.npy", 4))),
    "more than is stated": first(ZEROS[:1024], frame_of("facets.npy", ZEROS), sha256="0" * 64),
    "less than is stated": first(b"text", frame_of("facets.npy", b"text"), bytes=5),
    "another content": first(b"text", frame_of("facets.npy", b"test")),
    "another frame": first(b"text", frame_of("facets.npy", b"text"), frame_sha256="0" * 64),
    "no zstd": first(b"text", b"text"),
    "a negative size": stated(papers=-1),
    "a size that is none": stated(papers=True),
    "a size beyond all disks": lambda pack: (
        dataclasses.replace(pack, files=[dataclasses.replace(pack.files[0], bytes=1 << 52)]),
        [],
    ),
    "a digest that is none": stated(digest="0"),
    "another digest": stated(digest="0" * 64),
    "other counts": stated(papers=7),
    "other fields": stated(license=7),
    "no files": stated(files=[]),
}


OTHERS: list[Callable[[bytes], bytes]] = [
    lambda data: b"",
    lambda data: b"PK\3\4" + data,
    lambda data: data[: HEADER_BYTES - 1],
    lambda data: data[: HEADER_BYTES + 9],
    lambda data: data.replace(b"qbe pack 01", b"qbe pack 02", 1),
    lambda data: data[:19] + (1 << 60).to_bytes(8, "little") + data[27:],
    lambda data: data[:30] + b"\0" + data[31:],
    lambda data: data[:-3000],
    lambda data: _description(ZEROS),
    lambda data: _description(b'{"format": 1'),
    lambda data: _description(b"[" * 100_000),
    lambda data: _description(b"7"),
]
"""Files that are no packs."""


@pytest.mark.parametrize("kind", [*HOSTILE, *range(len(OTHERS))])
def test_hostile_archives(kind, folder, tmp_path):
    data = (folder / "tiny.tar.zst").read_bytes()
    if isinstance(kind, str):
        with (folder / "tiny.tar.zst").open("rb") as stream:
            read_header(stream, "")
            rest = data[stream.tell() :]
        forgery, frames = HOSTILE[kind](described(folder / "tiny.tar.zst"))
        hostile = forged(forgery, [*frames, rest])
    else:
        hostile = OTHERS[kind](data)
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "a.tar.zst").write_bytes(hostile)
    with serving(tmp_path / "served", Faults()) as address:
        places = [str(tmp_path / "served" / "a.tar.zst"), f"{address}/a.tar.zst"]
        for source in places[: 2 if isinstance(kind, str) else 1]:  # of what breaks off, some is kept
            with pytest.raises((PackError, OutputError)) as raised:
                pull(source, tmp_path / "pulled")
            assert "\n" not in str(raised.value)
            assert [path.name for path in tmp_path.iterdir()] == ["served"], kind


def _description(text: bytes) -> bytes:
    frame = frame_of("pack.json", text)
    return layout.header(frame) + frame


def test_without_the_texts_of_abstracts(tmp_path, grown, papers, told):
    packed = pack_index(grown, tmp_path / "a.tar.zst", abstracts=False)
    assert hidden(tmp_path) == []
    pulled = pull(str(tmp_path / "a.tar.zst"), tmp_path / "pulled")
    assert not pulled.pack.abstracts
    texts = [sentence.text.encode() for paper in (*papers, NEW) for sentence in paper.sentences]
    for name, content in files(tmp_path / "pulled").items():
        assert not any(text in content for text in texts), name
    with open_index(grown) as whole, open_index(tmp_path / "pulled") as index:
        assert index.manifest.digest == packed.pack.digest != whole.manifest.digest
        paper, original = index.find("Two Crops of a Paragraph"), whole.paper("s036")
        assert [sentence.text for sentence in paper.sentences] == ["(text not included)"] * 5
        assert [sentence.facet for sentence in paper.sentences] == [each.facet for each in original.sentences]
        assert (paper.title, paper.metadata, paper.abstract) == (original.title, original.metadata, "")
        for stages, pairs in (
            # by stored vectors, and texts from outside, nothing changes
            (Dense(), [(paper, original)]),
            (Fused(), [(NEW, NEW)]),
            (BM25(), [(NEW, NEW), (paper, dataclasses.replace(original, sentences=paper.sentences))]),
        ):
            with Pipeline(whole, stages) as before, Pipeline(index, stages) as now:
                for mine, other in pairs:
                    found = before.search(Query(other), k=20)
                    assert [hit[:2] for hit in now.search(Query(mine), k=20)] == [hit[:2] for hit in found]
                    assert found
    with pytest.raises(IndexBuildError) as compacting, open_index(tmp_path / "pulled") as index:
        index.compact()
    messages = [str(compacting.value)]
    for stored in ("positions", "docvectors"):  # term vectors have positions, too
        build_index(tmp_path / stored, [NEW], BuildSettings(dense=False, **{stored: True})).close()
        with pytest.raises(UsageError) as raised:
            pack_index(tmp_path / stored, tmp_path / "b.tar.zst", abstracts=False)
        messages.append(str(raised.value))
    told("packs: without abstracts", messages)
    assert check_index(tmp_path / "pulled").damages == {}
    assert not (tmp_path / "b.tar.zst").exists()


# From Python and the command line


def test_an_index_is_pulled_when_it_is_first_opened(folder, tmp_path, monkeypatch, caplog):
    with serving(folder, faults := Faults()) as address:
        address += "/tiny.tar.zst"
        for _ in range(2):
            with open_index(address) as index:
                assert len(index) == 128
                assert index.folder.parent == tmp_path / "cache" / "indexes"
            requests = len(faults.asked)
        assert requests == len(faults.asked) == 1
        monkeypatch.setenv("QBE_CACHE", str(tmp_path / "other"))
        caplog.set_level("INFO", "qbe")
        caplog.clear()
        with ThreadPoolExecutor(2) as pool:
            opened = list(pool.map(open_index, [address] * 2))
    for index in opened:
        assert index.find("Two Crops of a Paragraph").paper_id == "s036"
        index.close()
    assert len(faults.asked) == 2  # one of them pulls, the other waits
    assert sum(message.startswith("pulling http") for message in caplog.messages) == 1


def test_other_protocols(folder, tmp_path):
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    memory.pipe("/packs/tiny.tar.zst", (folder / "tiny.tar.zst").read_bytes())
    memory.pipe("/packs/registry.json", b'{"packs": {}}')
    assert pull("memory://packs/tiny.tar.zst", tmp_path / "pulled").pack.papers == 128
    assert read_registry("memory://packs/registry.json") == {}


def test_a_repository_of_the_hub(folder, tmp_path):
    served = tmp_path / "served" / "datasets" / "someone" / "arxiv" / "resolve" / "main"
    served.mkdir(parents=True)
    shutil.copyfile(folder / "tiny.tar.zst", served / "index.tar.zst")
    with serving(tmp_path / "served", faults := Faults()) as address:
        environment = {"HF_ENDPOINT": address, "HF_TOKEN": "hf_secret", "QBE_CACHE": str(tmp_path / "cache")}
        done = subprocess.run(
            [sys.executable, "-m", "qbe", "list", "--index", "hf:someone/arxiv", "two", "crops"],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=True,
        )
    assert done.stdout.startswith("s036")
    assert Source("hf:someone/arxiv@v1/two.tar.zst").url.endswith(
        "/datasets/someone/arxiv/resolve/v1/two.tar.zst"
    )
    assert {asked["Authorization"] for asked in faults.asked} == {"Bearer hf_secret"}


def test_a_registry(folder, tmp_path, tiny_index, grown, capsys, told, monkeypatch):
    registry, notes, messages = tmp_path / "registry.json", tmp_path / "notes.txt", []
    notes.write_text("no JSON")
    pack_command(
        [str(tiny_index), str(tmp_path / "tiny.tar.zst"), "--license", "CC0", "--registry", str(registry)]
    )
    pack_command([str(tiny_index), str(tmp_path / "tiny.tar.zst"), "--registry", str(registry)])
    assert read_registry(str(registry))["tiny"].license == "CC0"  # of the entry, where none is stated
    with lock(tmp_path / ".registry.json.lock"), pytest.raises(OutputError, match="found another process"):
        monkeypatch.setattr("qbe.util.files._CHANGE_SECONDS", 0)
        pack_command([str(tiny_index), str(tmp_path / "tiny.tar.zst"), "--registry", str(registry)])
    pack_command([str(grown), str(tmp_path / "packs" / "two ways.tar.zst"), "--registry", str(registry)])
    capsys.readouterr()
    with serving(tmp_path, Faults()) as address:
        pull_command(["--list", "--registry", f"{address}/registry.json"])
        listed = capsys.readouterr().out.splitlines()
        assert [line.split()[0] for line in listed] == ["tiny", "two"]
        assert "128 papers" in listed[0]
        assert listed[0].endswith("CC0")
        entry = find_pack("two ways", f"{address}/registry.json")
        assert entry.address == f"{address}/packs/two%20ways.tar.zst"
    pull_command(["two ways", "--registry", str(registry), "--output", str(tmp_path / "pulled")])
    assert "127 papers" in capsys.readouterr().out
    for arguments in (
        ["tini", "--registry", str(registry)],
        ["elsewhere", "--registry", str(registry)],
        ["tini"],
        ["--list"],
        [],
        ["--list", "tiny"],
        ["tiny", "--registry", str(notes)],
    ):
        with pytest.raises((UsageError, PackError)) as raised:
            pull_command(arguments)
        messages.append(str(raised.value).replace(str(tmp_path), ""))
    with pytest.raises(PackError, match="expected a registry"):
        pack_command([str(tiny_index), str(tmp_path / "unnamed.tar.zst"), "--registry", str(notes)])
    assert not (tmp_path / "unnamed.tar.zst").exists()
    shutil.copyfile(tmp_path / "packs" / "two ways.tar.zst", tmp_path / "tiny.tar.zst")
    with pytest.raises(PackError) as raised:
        pull_command(["tiny", "--registry", str(registry)])
    messages.append(re.sub(r"[0-9a-f]{12}", "DIGEST", str(raised.value).replace(str(tmp_path), "")))
    told("packs: registries", messages)

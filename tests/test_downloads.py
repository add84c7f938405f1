"""Downloads: continued, tried again, verified; nothing that is not whole is in place."""

import hashlib
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from support.http_files import Server, served

from qbe.errors import DatasetError
from qbe.util import web
from qbe.util.web import matches

DATA = bytes(range(256)) * 4000
SHA256 = f"sha256:{hashlib.sha256(DATA).hexdigest()}"

download = partial(web.download, error=DatasetError, remedy="check the network")


@pytest.fixture(params=[False, True], ids=["whole", "ranges"])
def server(request, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server of the file ``x``, which continues where it is asked to, or does not."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(web.time, "sleep", lambda _: None)
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "x").write_bytes(DATA)
    with served(tmp_path / "files", ranges=request.param) as running:
        yield running


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_digests(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "hello").write_text("hello\n")
    empty, hello = tmp_path / "empty", tmp_path / "hello"
    assert matches(empty, "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
    assert matches(empty, "git:e69de29bb2d1d6434b8b29ae775ad8c2e48c5391")  # git hash-object /dev/null
    assert matches(hello, "git:ce013625030ba8dba906f756967f9e9ca394464a")
    assert not matches(hello, "git:e69de29bb2d1d6434b8b29ae775ad8c2e48c5391")


@pytest.mark.parametrize("failures", [["503"], ["short"], ["500", "short"]])
def test_temporary_failures_are_tried_again(server: Server, tmp_path: Path, failures: list[str]) -> None:
    server.failures["x"] = list(failures)
    assert download(server.url + "x", tmp_path / "x", SHA256)
    assert (tmp_path / "x").read_bytes() == DATA
    assert server.requests["x"] == len(failures) + 1
    assert not download(server.url + "x", tmp_path / "x", SHA256)
    assert server.requests["x"] == len(failures) + 1
    assert files(tmp_path) == ["files", "x"]


@pytest.mark.parametrize(
    ("failures", "reason", "requests"),
    [
        (["404"], "HTTP status 404 Not Found", 1),
        (["403"], "HTTP status 403 Forbidden", 1),
        (["503"] * 4, "HTTP status 503 Service Unavailable", 4),
        (["short", "404"], "HTTP status 404 Not Found", 2),
    ],
)
def test_downloads_that_fail(server, tmp_path, failures, reason, requests):
    server.failures["x"] = list(failures)
    with pytest.raises(DatasetError, match=f"cannot download {server.url}x: {reason}; check the network"):
        download(server.url + "x", tmp_path / "new" / "x", SHA256)
    assert server.requests["x"] == requests
    assert files(tmp_path / "new") == ([".x.partial"] if requests == 2 else [])


def test_a_broken_connection_is_continued_and_no_byte_comes_twice(server: Server, tmp_path: Path) -> None:
    server.failures["x"] = ["short"] * 5
    if not server.ranges:
        with pytest.raises(DatasetError, match="the connection broke"):
            download(server.url + "x", tmp_path / "x", SHA256)
        return
    assert download(server.url + "x", tmp_path / "x", SHA256)
    assert (server.requests["x"], server.sent["x"]) == (6, len(DATA))


@pytest.mark.parametrize("come", [1000, len(DATA)])
def test_what_another_process_left_is_continued(server: Server, tmp_path: Path, come: int) -> None:
    (tmp_path / ".x.partial").write_bytes(DATA[:come])
    assert download(server.url + "x", tmp_path / "x", SHA256)
    assert (tmp_path / "x").read_bytes() == DATA
    assert server.sent["x"] == len(DATA) - (come if server.ranges else 0)
    assert files(tmp_path) == ["files", "x"]


def test_a_download_with_another_digest_is_thrown_away(server: Server, tmp_path: Path) -> None:
    (tmp_path / ".x.partial").write_bytes(b"wrong")
    for _ in range(2):
        message = rf"expected the digest sha256:0, found sha256:\w+ \({len(DATA):,} bytes\); try again"
        with pytest.raises(DatasetError, match=message):
            download(server.url + "x", tmp_path / "x", "sha256:0")
        assert files(tmp_path) == ["files"]


def test_files_are_addresses_too(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(DATA)
    assert download((tmp_path / "a").as_uri(), tmp_path / "x", SHA256)
    assert (tmp_path / "x").read_bytes() == DATA
    with pytest.raises(DatasetError, match=r"cannot download file://.*No such file"):
        download((tmp_path / "b").as_uri(), tmp_path / "y", SHA256)


def test_more_than_any_file_should_have_is_refused(server, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(web, "MAX_BYTES", len(DATA) - 1)
    with pytest.raises(DatasetError, match=r"cannot download .*more than 0 MiB"):
        download(server.url + "x", tmp_path / "x", SHA256)
    assert (files(tmp_path), server.requests["x"]) == (["files"], 1)


def test_no_server_and_a_silent_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web.time, "sleep", lambda _: None)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        with pytest.raises(DatasetError, match="Connection refused; check the network"):
            download(f"http://127.0.0.1:{port}/x", tmp_path / "x", SHA256)
        silent.listen()
        monkeypatch.setattr(web, "TIMEOUT_S", 0.05)
        with pytest.raises(DatasetError, match=r"no answer within 0.05 seconds|timed out"):
            download(f"http://127.0.0.1:{port}/x", tmp_path / "x", SHA256)

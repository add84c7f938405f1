"""Anserini's jar: taken out of the pinned source distribution of pyserini, once, by every Python."""

import hashlib
import io
import os
import subprocess
import sys
import tarfile

import pytest
from support.http_files import served

from qbe.errors import MissingDependencyError
from qbe.index import jvm as _anserini
from qbe.index.jvm import anserini_jar, find_jar
from qbe.util.files import cache_folder

pytestmark = pytest.mark.slow

JAR = bytes(range(256)) * 5000
NAME = _anserini.PYSERINI


@pytest.fixture
def server(cache, tmp_path, monkeypatch):
    """The index that pip is configured for: a server with a small jar in a file of the pinned name, which is
    of a release for later versions of Python.
    """
    folder = tmp_path / "index" / "pyserini"
    folder.mkdir(parents=True)
    with tarfile.open(folder / f"{NAME}.tar.gz", "w:gz") as archive:
        information = f"Metadata-Version: 2.1\nName: pyserini\nVersion: {NAME.partition('-')[2]}\n"
        for path, content in (
            ("PKG-INFO", information.encode()),
            ("setup.py", b"raise SystemExit('nothing of it is run')\n"),
            (f"pyserini/resources/jars/{_anserini.JAR}", JAR),
        ):
            member = tarfile.TarInfo(f"{NAME}/{path}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    (folder / "index.html").write_text(
        f'<a href="{NAME}.tar.gz" data-requires-python="&gt;=3.99">{NAME}.tar.gz</a>'
    )
    digest = hashlib.sha256((folder / f"{NAME}.tar.gz").read_bytes()).hexdigest()
    monkeypatch.setattr(_anserini, "SHA256", digest)
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with served(tmp_path / "index", ranges=True) as running:
        monkeypatch.setenv("PIP_INDEX_URL", running.url)
        yield running


def test_the_jar_is_fetched_once_over_a_connection_that_breaks_and_goes_on_in_another_process(server):
    name = f"pyserini/{NAME}.tar.gz"
    server.failures[name] = ["short"] * 5
    archive = server.folder / name
    jars = cache_folder() / "java"
    jars.mkdir(parents=True)
    (jars / f".{NAME}.tar.gz.partial").write_bytes(archive.read_bytes()[:1000])
    assert find_jar() is None
    jar = anserini_jar()
    assert (jar, jar.read_bytes()) == (jars / _anserini.JAR, JAR)
    assert [path.name for path in jar.parent.iterdir()] == [jar.name]
    requests = server.requests.copy()
    assert anserini_jar() == find_jar() == jar
    assert server.requests == requests
    assert server.sent[name] == archive.stat().st_size - 1000


def test_another_file_of_that_name_is_not_used(server, monkeypatch):
    monkeypatch.setattr(_anserini, "SHA256", "0" * 64)
    with pytest.raises(MissingDependencyError, match=f"expected the digest sha256:{'0' * 64}, found"):
        anserini_jar()
    assert not list((cache_folder() / "java").iterdir())


SEARCHES = """
import sys
from qbe.cli import common as _cli
from qbe.cli.search import main

given = ["--index", sys.argv[1], "--paper", "s001", "--rerank", "none", "--first-stage"]
main([*given, "dense"])
_cli.run("qbe search", main, [*given, "fused"])
"""


@pytest.mark.usefixtures("cache")
def test_neither_a_jar_nor_a_network(tmp_path, tiny_index):
    """Searching by words ends with one line; dense search works meanwhile."""
    environment = os.environ | {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
    search = [sys.executable, "-c", SEARCHES, tiny_index]
    done = subprocess.run(search, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 1
    assert done.stdout.count("\n") > 100
    message = done.stderr.splitlines()[-1]
    assert message.startswith("qbe search: expected Anserini's jar, which holds Lucene, found none, and pip ")
    assert f"set PIP_FIND_LINKS to a folder with {NAME}.tar.gz; without" in message


def test_a_file_of_a_folder_needs_no_network(server, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(server.folder / "pyserini"))
    assert anserini_jar().read_bytes() == JAR
    assert not server.requests

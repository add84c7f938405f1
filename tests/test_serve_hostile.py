"""What a server stands: clients that are slow, broken or hostile, a killed process, an index that changes."""

import contextlib
import gzip
import json
import logging
import shutil
import signal
import socket
import string
import threading
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.serving import serving, wait_until

from qbe.index.build import build
from qbe.index.index import open_index
from qbe.index.source import BuildSettings
from qbe.index.update import delete_papers
from qbe.serve import app, guard, mcp
from qbe.serve.app import create_app, listen
from qbe.serve.service import SearchService
from qbe.serve.turns import MAX_WAITING, OverloadedError
from qbe.util.work import pause

pytestmark = pytest.mark.slow

SOON = 15.0  # seconds within which anything must be answered, refused or closed


@pytest.fixture(scope="module")
def running(graded_index, tmp_path_factory):
    with serving(graded_index, tmp_path_factory.mktemp("hostile") / "log") as opened:
        yield opened
        assert opened.process.poll() is None
        assert "Traceback" not in opened.log.read_text()


def exchanged(port: int, data: bytes, *, seconds: float = SOON, end: bool = False) -> bytes:
    """What comes back for some bytes until the connection is closed; ``end`` says that no more will come."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
        with contextlib.suppress(OSError):
            connection.sendall(data)
            if end:
                connection.shutdown(socket.SHUT_WR)
        received = b""
        with contextlib.suppress(ConnectionError):
            while part := connection.recv(65_536):
                received += part
        return received


def posted(path: str, body: bytes, *headers: str) -> bytes:
    head = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", "Connection: close"]
    return "\r\n".join([*head, "Content-Type: application/json", *headers, "", ""]).encode() + body


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
NAMES = st.sampled_from(
    ["paper_ids", "text", "title", "k", "start", "facet", "like", "unlike", "sentences", "explore", "exclude"]
)
BODIES = st.one_of(
    st.binary(max_size=200),
    JSON.map(lambda value: json.dumps(value).encode()),
    st.dictionaries(NAMES, JSON, max_size=5).map(lambda value: json.dumps(value).encode()),
)
PATHS = st.sampled_from(
    ["/api/search", "/api/search/stream", "/api/facets", "/api/compare", "/api/citations", "/api/export"]
) | st.text(string.ascii_letters + "/.%~?&=", max_size=40).map(lambda text: "/" + text)
REQUESTS = st.one_of(
    st.binary(max_size=300),
    st.builds(posted, PATHS, BODIES),
    PATHS.map(lambda path: f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()),
)


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(REQUESTS)
def test_malformed_requests_are_refused_in_time_without_a_traceback(running, request_bytes):
    begin = time.monotonic()
    answer = exchanged(running.port, request_bytes, end=not request_bytes.startswith((b"GET /", b"POST /")))
    assert time.monotonic() - begin < SOON
    assert b"Traceback" not in answer
    if answer:
        status = int(answer.split(b" ", 2)[1])
        # A page of the interface may be hit by chance.
        assert 400 <= status < 500 or status in (200, 307), answer[:200]


FLOODS = {
    "many headers": b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X-A: b\r\n" * 20_000 + b"\r\n",
    "long path": b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "long header": b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 1_000_000 + b"\r\n\r\n",
    "many headers at once": b"GET / HTTP/1.1\r\nConnection: close\r\n" + b"X-A: b\r\n" * 8_500 + b"\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
}


@pytest.mark.parametrize("data", FLOODS.values(), ids=FLOODS)
def test_floods_of_headers_are_refused(running, data):
    assert exchanged(running.port, data)[:12] in (b"HTTP/1.1 400", b"HTTP/1.1 431", b"")


def test_many_clients_that_never_finish_their_requests_keep_no_other_waiting(running):
    held = [socket.create_connection(("127.0.0.1", running.port), timeout=2) for _ in range(250)]
    for each in held:
        each.sendall(b"POST /api/search HTTP/1.1\r\nHost: localhost\r\nX: ")
    begin = time.monotonic()
    assert running.search(paper_ids=["s036"], k=1, first_stage="dense").status == 200
    assert time.monotonic() - begin < 5
    for each in held:
        each.close()


def test_a_body_of_a_hundred_megabytes_is_refused_before_its_end(running):
    head = posted("/api/search", b"").replace(b"Content-Length: 0", b"Content-Length: 100000000")
    sent = 0
    with socket.create_connection(("127.0.0.1", running.port), timeout=SOON) as connection:
        connection.sendall(head)
        with contextlib.suppress(OSError):
            while sent < 100_000_000:
                sent += connection.send(b" " * 1_000_000)
    assert sent < 60_000_000
    assert running.ask("GET", "/health").status == 200


def test_chunks_without_end_are_refused_and_a_compressed_body_is_not_unpacked(running):
    head = posted("/api/search", b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    chunks = b"FFFF\r\n" + b" " * 0xFFFF + b"\r\n"
    assert exchanged(running.port, head + chunks * 30 + b"0\r\n\r\n").startswith(b"HTTP/1.1 413")
    bomb = gzip.compress(b'{"text": "' + b"a" * 100_000_000 + b'"}')
    assert len(bomb) < guard.MAX_BODY
    begin = time.monotonic()
    answer = exchanged(running.port, posted("/api/search", bomb, "Content-Encoding: gzip"))
    assert answer.startswith((b"HTTP/1.1 422", b"HTTP/1.1 400"))
    assert time.monotonic() - begin < 5


@contextlib.contextmanager
def local(folder, make_app=create_app):
    """A server in this process, which logs nothing: its port and its service."""
    logger = logging.getLogger("qbe.serve")
    logger.setLevel(logging.CRITICAL)
    with open_index(folder, threads=1) as index, SearchService(index) as service:
        listening = listen("127.0.0.1", 0)
        instance = app.server_of(make_app(service))
        thread = threading.Thread(target=instance.run, kwargs={"sockets": [listening]})
        thread.start()
        yield listening.getsockname()[1], service
        instance.should_exit = True
        thread.join(60)
    logger.setLevel(logging.NOTSET)


@pytest.fixture
def impatient(graded_index, monkeypatch):
    """A server that waits for nobody."""
    for module, limit in ((app, "HEAD_SECONDS"), (guard, "BODY_SECONDS")):
        monkeypatch.setattr(module, limit, 0.5)
    with local(graded_index) as running:
        yield running


def test_clients_that_send_slowly_or_not_at_all_are_dropped(impatient):
    port, _ = impatient
    half_body = posted("/api/search", b"{}").replace(b"Content-Length: 2", b"Content-Length: 20")
    cut = (b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: localhost\r\n")
    for sent, expected in (*((each, b"") for each in cut), (half_body, b"HTTP/1.1 408")):
        begin = time.monotonic()
        with socket.create_connection(("127.0.0.1", port), timeout=SOON) as connection:
            connection.sendall(sent)
            assert connection.recv(12) == expected
        assert time.monotonic() - begin < 5
    with socket.create_connection(("127.0.0.1", port), timeout=SOON) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(65_536).startswith(b"HTTP/1.1 ")
        connection.sendall(b"GET /health HTTP/1.1\r\nHo")
        begin = time.monotonic()
        while connection.recv(65_536):
            pass
        assert time.monotonic() - begin < 5


def test_too_many_searches_are_told_when_to_come_back(impatient, monkeypatch):
    port, service = impatient

    def refuse(request):
        raise OverloadedError

    monkeypatch.setattr(service, "_session", refuse)
    answer = exchanged(port, posted("/api/search", b'{"paper_ids": ["s036"]}')).decode()
    assert answer.startswith("HTTP/1.1 429") and "\r\nretry-after: 1\r\n" in answer


def for_agents(service):
    return mcp.http_app(mcp.create_server(service), "127.0.0.1", None)


def hold(service, monkeypatch):
    """Have searches with a first stage that is named set an event, and go on until another one is set."""
    begun, may_end, session_of = threading.Event(), threading.Event(), service._session

    def session(first_stage):
        while first_stage is not None and not may_end.wait(0.001):
            begun.set()
            pause()
        return session_of(None)

    monkeypatch.setattr(service, "_session", session)
    return begun, may_end


def begin(port, address, **fields):
    """Send a search from an address of this machine."""
    body = json.dumps({"paper_ids": ["s036"], "k": 1, "rerank": False, **fields}).encode()
    connection = socket.create_connection(("127.0.0.1", port), SOON, (address, 0))
    connection.sendall(posted("/api/search", body))
    return connection


def status(connection):
    with connection:
        return int(connection.makefile("rb").readline().split(b" ")[1])


def test_a_flood_of_one_address_is_refused_while_others_are_answered(impatient, monkeypatch):
    port, service = impatient
    begun, may_end = hold(service, monkeypatch)
    flood = [begin(port, "127.0.0.2", first_stage="dense")]
    assert begun.wait(SOON)
    flood += [begin(port, "127.0.0.2", first_stage="dense") for _ in range(MAX_WAITING + 9)]
    wait_until(lambda: service.turns.waiting == MAX_WAITING + 1)
    assert status(begin(port, "127.0.0.1")) == 200
    may_end.set()
    statuses = [status(each) for each in flood]
    assert statuses.count(429) in (9, 10) and statuses.count(200) + statuses.count(429) == len(flood)


def called(port, address, **fields):
    """Send the same to a server for agents."""
    arguments = {"paper_ids": ["s036"], "k": 1, "rerank": False, **fields}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    call |= {"params": {"name": "search_papers", "arguments": arguments}}
    connection = socket.create_connection(("127.0.0.1", port), SOON, (address, 0))
    connection.sendall(posted("/mcp", json.dumps(call).encode(), "Accept: application/json"))
    return connection


@pytest.mark.parametrize(("make_app", "send"), [(create_app, begin), (for_agents, called)])
def test_work_whose_client_is_gone_ends(graded_index, monkeypatch, make_app, send):
    with local(graded_index, make_app) as (port, service):
        begun, _ = hold(service, monkeypatch)
        first = send(port, "127.0.0.1", first_stage="dense")
        assert begun.wait(SOON)
        second = send(port, "127.0.0.1", first_stage="dense")
        wait_until(lambda: service.turns.waiting == 2)
        for connection in (second, first):
            connection.close()
        wait_until(lambda: service.turns.waiting == 0)
        assert status(send(port, "127.0.0.1")) == 200


def test_workers_end_with_the_process_that_started_them(light_index, tmp_path):
    with serving(light_index, tmp_path / "log", "--rerank", "none", "--workers", "2") as opened:
        assert opened.search(paper_ids=["s036"], k=1).status == 200
        assert opened.stop(signal.SIGKILL) == -signal.SIGKILL

        def is_closed() -> bool:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", opened.port), SOON):
                return False
            return True

        wait_until(is_closed)


def test_a_server_follows_its_index_whatever_fails(graded_index, papers, tmp_path):
    folder = Path(shutil.copytree(graded_index, tmp_path / "index"))
    watches = tmp_path / "watches.json"
    with serving(folder, tmp_path / "log", "--rerank", "none", "--watches", str(watches)) as opened:

        def served() -> tuple[int, int]:
            return opened.ask("GET", "/health").status, opened.ask("GET", "/api/index").json()["papers"]

        watch = {"name": "w", "search": {"paper_ids": ["s036"]}}
        assert opened.ask("POST", "/api/watches", watch).status == 200
        watches.write_text(watches.read_text().replace('"seen": 128', '"seen": "128"'))
        delete_papers(folder, ["s001"])
        wait_until(lambda: served() == (200, 127))
        build(folder, papers[:20], BuildSettings(dense=False), overwrite=True)  # without vectors
        wait_until(lambda: served() == (503, 127))
        assert opened.search(paper_ids=["s036"], k=1, first_stage="dense").status == 200
        assert opened.ask("GET", "/metrics").status == 200
        assert "an index with vectors" in opened.log.read_text()
        assert opened.ask("GET", "/api/papers/s001").status == 404
        assert opened.ask("POST", "/api/export", {"paper_ids": ["s001"]}).status == 404
        noted = opened.search(paper_ids=["s036"], k=1, exclude=["s001", "Two Crops"]).json()["notes"]
        assert "2 papers are not in the index and left out" in noted

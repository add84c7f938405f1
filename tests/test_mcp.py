"""Tools for agents, as a real client of fastmcp calls them: over a pipe and over HTTP."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from anyio.from_thread import start_blocking_portal
from fastmcp import Client
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
from jsonschema import Draft202012Validator
from support.messages import refusals
from support.serving import ABSTRACT, serving

from qbe import Paper, Sentence, UsageError
from qbe.cli.mcp import main
from qbe.index.index import open_index
from qbe.search.writers import export_parts
from qbe.serve import mcp
from qbe.serve.mcp import LIMIT, Hit, create_server
from qbe.serve.service import SearchService

pytestmark = pytest.mark.slow

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
KEY = "0123456789abcdef"
CALLS: dict[str, dict[str, Any]] = {
    "search_papers": {"text": ABSTRACT, "title": "On search", "facet": "method", "year_to": 2018, "k": 3},
    "get_paper": {"paper_id": "s036"},
    "label_facets": {"text": ABSTRACT},
    "compare_papers": {"text": ABSTRACT, "other_id": "s051"},
    "recommend_citations": {"paper_ids": ["s036"], "cited": ["s051"], "year_to": 2021, "k": 3},
    "export_citations": {"paper_ids": ["s036", "s051"], "format": "ris"},
}


class Answer(NamedTuple):
    """What a client got: the fields of the answer, and the same as text."""

    fields: dict[str, Any] | None
    text: str
    is_error: bool


class Caller:
    """A connected client, for tests that are no coroutines."""

    def __init__(self, portal, client: Client) -> None:
        self._portal, self.client = portal, client

    def tools(self) -> dict[str, Any]:
        return {tool.name: tool for tool in self._portal.call(self.client.list_tools)}

    def __call__(self, name: str, **arguments: Any) -> Answer:
        result = self._portal.call(self.client.call_tool_mcp, name, arguments)
        (content,) = result.content
        return Answer(result.structured_content, content.text, result.is_error)


@pytest.fixture(scope="module")
def connect() -> Iterator[Callable[[Any], Caller]]:
    """Connects a client until the end of the module."""
    with start_blocking_portal() as portal, ExitStack() as stack:

        def connect(transport: Any) -> Caller:
            return Caller(portal, stack.enter_context(portal.wrap_async_context_manager(Client(transport))))

        yield connect


@pytest.fixture(scope="module")
def stdio(connect, graded_index) -> Caller:
    arguments = ["-m", "qbe", "mcp", "--index", str(graded_index)]
    return connect(StdioTransport(sys.executable, arguments, env=ENVIRONMENT, keep_alive=False))


@pytest.fixture(scope="module")
def url(graded_index, tmp_path_factory) -> Iterator[str]:
    """Where a server is that wants a key; it ends in order."""
    folder = tmp_path_factory.mktemp("mcp")
    (folder / "key").write_text(f"{KEY}\n")
    (folder / "key").chmod(0o600)
    options = ("--transport", "http", "--api-key-file", str(folder / "key"))
    with serving(graded_index, folder / "log", *options, package="mcp") as server:
        yield f"http://127.0.0.1:{server.port}/mcp"
        assert server.stop(signal.SIGINT) == 0
    assert "Traceback" not in (folder / "log").read_text()


@pytest.fixture(scope="module", params=["stdio", "http"])
def caller(request, connect) -> Caller:
    if request.param == "stdio":
        return request.getfixturevalue("stdio")
    return connect(StreamableHttpTransport(request.getfixturevalue("url"), auth=KEY))


def test_all_tools_are_listed_and_answer_as_their_schemas_say(caller):
    tools = caller.tools()
    assert sorted(tools) == sorted(CALLS)
    assert "128 scientific papers" in caller.client.instructions
    assert "look like s001" in caller.client.instructions
    for name, tool in tools.items():
        hints = tool.annotations
        assert (hints.read_only_hint, hints.open_world_hint, hints.destructive_hint) == (True, False, False)
        assert tool.input_schema["additionalProperties"] is False
        assert all("description" in str(field) for field in tool.input_schema["properties"].values())
        assert '"null"' not in json.dumps(tool.input_schema)  # some clients fill no union with null
        Draft202012Validator(tool.input_schema).validate(CALLS[name])
        answer = caller(name, **CALLS[name])
        assert not answer.is_error, answer.text
        Draft202012Validator(tool.output_schema).validate(answer.fields)
        assert json.loads(answer.text) == answer.fields
        assert answer.fields.get("cut") is None


def test_a_search_is_reranked_and_keeps_to_its_filters(stdio):
    found = stdio("search_papers", **CALLS["search_papers"]).fields
    assert found["passing"] < 128
    assert [hit["rank"] for hit in found["hits"]] == [1, 2, 3]
    assert all(hit["year"] <= 2018 for hit in found["hits"])
    assert (found["stage"], found["has_more"], found["next_start"]) == ("reranked", True, 3)
    best = found["hits"][0]
    assert best["matches"][0]["query_sentence"] in ABSTRACT
    assert best["matches"][0]["sentence"] in best["abstract"]
    assert all(0 <= grade <= 3 for grade in best["grades"].values())


def pages(call: Callable[..., Answer], name: str, **arguments: Any) -> list[dict[str, Any]]:
    """The fields of all pages, the size of each checked."""
    answers, start = [], 0
    while start is not None:
        answer = call(name, **arguments, start=start)
        assert not answer.is_error, answer.text
        assert len(answer.text.encode()) <= LIMIT
        assert answer.fields["has_more"] is (answer.fields["next_start"] is not None)
        answers.append(answer.fields)
        start = answer.fields["next_start"]
    return answers


def test_paging_to_the_end_gives_each_paper_once(stdio):
    """The pages are cut to 20 kB, so that they are shorter than asked for."""
    found = pages(stdio, "recommend_citations", paper_ids=["s036"], k=100)
    assert len(found) > 2
    ids = [hit["paper_id"] for page in found for hit in page["hits"]]
    assert len(ids) == len(set(ids)) == 127
    assert [hit["rank"] for page in found for hit in page["hits"]] == list(range(1, 128))


def test_the_parts_of_a_long_export_joined_are_the_file(stdio, graded_index):
    ids = [f"s{number:03d}" for number in range(1, 129)]
    with open_index(graded_index) as index, SearchService(index) as service:
        for form in ("bibtex", "ris", "csv", "markdown", "json"):
            parts = pages(stdio, "export_citations", paper_ids=ids, format=form)
            assert sum(part["papers"] for part in parts) == 128
            assert [bool(part["cut"]) for part in parts] == [True] * (len(parts) - 1) + [False]
            whole = "".join(export_parts(map(service.index.paper, ids), form))
            assert "".join(part["text"] for part in parts) == whole
            assert (len(parts) > 1) is (len(whole) > LIMIT)


def test_an_entry_that_is_too_long_is_refused(graded_index, monkeypatch):
    monkeypatch.setattr("qbe.serve.mcp.LIMIT", 500)
    expected = pytest.raises(UsageError, match="found s036 longer; leave it out, or choose markdown")
    with open_index(graded_index) as index, SearchService(index) as service, expected:
        mcp.export_citations(service, ["s001", "s036"], start=1)


def test_a_long_text_is_labelled_in_parts(stdio):
    text = " ".join(f"We measured the speed of fish number {n} in cold water with care." for n in range(290))
    parts = pages(stdio, "label_facets", text=text)
    assert len(parts) > 1
    assert re.search(r"call again with start=\d+", parts[0]["cut"])
    sentences = [sentence for part in parts for sentence in part["sentences"]]
    assert [sentence["position"] for sentence in sentences] == list(range(290))


def test_errors_say_in_one_line_what_to_do(stdio, told):
    answers = [
        stdio("search_papers"),
        stdio("search_papers", paper_ids=["nosuch"]),
        stdio("search_papers", text="We swim.", query="fish"),
        stdio("search_papers", paper_ids=["s036"], facet="topic"),
        stdio("get_paper", paper_id="s036", start=9),
        stdio("get_paper", paper_id={}),
        stdio("compare_papers", paper_id="s036"),
        stdio("search", text="We swim."),
    ]
    long = stdio("export_citations", paper_ids=["a" * 5000])
    assert all(answer.is_error and len(answer.text) <= 500 for answer in [*answers, long])
    told("tools for agents", [answer.text for answer in answers])


def test_a_commit_of_the_index_is_picked_up_and_an_error_shows_nothing(
    connect, graded_index, tmp_path, monkeypatch
):
    folder = shutil.copytree(graded_index, tmp_path / "index")
    with open_index(folder) as index, SearchService(index) as service:
        caller = connect(create_server(service))
        assert caller("get_paper", paper_id="new").is_error
        with open_index(folder) as other:
            other.append([Paper("new", "On fish", (Sentence("Fish swim."), Sentence("We watch them.")))])
        assert caller("get_paper", paper_id="new").fields["title"] == "On fish"
        monkeypatch.setattr(service, "paper", lambda _: 1 / 0)
        answer = caller("get_paper", paper_id="s036")
        assert (answer.is_error, answer.text) == (True, "Error calling tool 'get_paper'")


def started(index: Path, *options: str) -> subprocess.Popen[str]:
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    command = [sys.executable, "-m", "qbe", "mcp", "--index", str(index), *options]
    return subprocess.Popen(command, text=True, env=ENVIRONMENT, **pipes)


def request(number: int, method: str, **params: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + "\n"


def test_nothing_but_messages_of_the_protocol_is_printed(light_index):
    process = started(light_index, "--rerank", "none")
    client = {"protocolVersion": "2025-06-18", "capabilities": {}}
    process.stdin.write(request(1, "initialize", **client, clientInfo={"name": "a", "version": "1"}))
    process.stdin.write('{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
    process.stdin.write('this is no message\n{"neither": "is this"}\n')
    process.stdin.write(request(2, "tools/call", name="search_papers", arguments=CALLS["search_papers"]))
    process.stdin.write(request(3, "tools/call", name="get_paper", arguments={"paper_id": "nosuch"}))
    process.stdin.flush()
    lines = []
    while not {1, 2, 3} <= {message.get("id") for message in lines}:
        lines.append(json.loads(process.stdout.readline()))
    rest, errors = process.communicate(timeout=60)
    assert (process.returncode, rest) == (0, "")
    assert all(message["jsonrpc"] == "2.0" for message in lines)
    answers = {message["id"]: message["result"] for message in lines if "result" in message}
    assert answers[1]["serverInfo"]["name"] == "qbe"
    assert len(answers[2]["structuredContent"]["hits"]) == 3
    assert answers[3]["isError"] is True
    assert "Traceback" not in errors
    assert not any(each in errors for each in ("no message", "nine in ten"))  # what was searched for


def test_a_signal_ends_it_in_order(light_index):
    process = started(light_index)
    process.stdin.write(request(1, "ping"))
    process.stdin.flush()
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    assert "Traceback" not in process.stderr.read()


def refused(url: str, body: Any, headers: dict[str, str], key: str = KEY) -> tuple[int, Any]:
    """The status of a request that is refused, and what is said."""
    accept = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    accept |= {"Authorization": f"Bearer {key}"} if key else {}
    with pytest.raises(urllib.error.HTTPError) as refusal:
        urllib.request.urlopen(urllib.request.Request(url, data=body, headers=accept | headers))
    text = refusal.value.read().decode()
    return refusal.value.code, json.loads(text) if text.startswith("{") else text


def test_what_comes_over_http_needs_the_key_and_is_limited(url):
    for key, found in (("", "none"), ("0123456789abcdeg", "another one")):
        status, body = refused(url, b"{}", {}, key)
        expected = f"expected an API key in the header Authorization: Bearer KEY, found {found}"
        assert (status, body["error"]["message"]) == (401, expected)
    assert refused(url, b"{}", {"Host": "papers.example"})[0] == 421
    assert refused(url, b"{}", {"Origin": "http://papers.example"})[0] == 403
    assert refused(url, b'{"jsonrpc"', {})[0] == 400
    for body in (b"x" * 1_000_001, (b"x" * 100_000 for _ in range(11))):
        status, answer = refused(url, body, {})
        assert (status, answer["error"]["message"]) == (413, "expected a request of at most 1,000,000 bytes")


def test_options_that_do_not_go_together_are_refused(told):
    wrong = ("--transport http --port 65536", "--transport http --host 0.0.0.0", "--threads 0")
    told("options of qbe mcp", refusals(lambda *line: main(["--index", "nosuch", *line]), wrong))


RECORD = {"paper_id": "p1", "title": "On fish", "year": "2019", "authors": ["Ann Lee"], "links": {}}
RECORD |= {"venue": "Fish Letters", "rank": 1, "score": 0.12345678, "matches": [], "abstract": ""}


def test_a_hit_of_many_authors_names_the_first():
    links = {"doi": "https://doi.org/10.1/7", "url": "https://example.org/" + "a" * 300}
    authors = [f"Ann Lee {n}" for n in range(3000)]
    shown = Hit.model_validate({**RECORD, "year": "to appear", "authors": authors, "links": links})
    assert shown.authors == [*(f"Ann Lee {n}" for n in range(mcp.MAX_AUTHORS)), "et al."]
    assert (shown.year, shown.grades, shown.score) == (None, None, 0.123457)
    assert shown.links == {"doi": links["doi"]}


def test_a_hit_is_explained_by_the_closest_pair_of_what_is_liked():
    def match(aspect: int, sentence: str, score: float) -> dict[str, object]:
        pair = {"query_sentence": f"{sentence}?", "sentence": sentence, "facet": "method", "score": score}
        return {"aspect": aspect, "query_position": 0, "position": 0, "offsets": None, **pair}

    matches = [match(0, "a", 0.1), match(0, "b " * 400, 0.3), match(1, "c", 0.9)]
    (pair,) = Hit.model_validate({**RECORD, "matches": matches}).matches
    assert pair.score == 0.3
    assert len(pair.sentence) <= 600 and pair.sentence.endswith("b…")

"""The HTTP interface, asked over real connections."""

import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from support.messages import messages_of
from support.serving import ABSTRACT, serving

from qbe.cli.parser import parse
from qbe.cli.serve import main, run
from qbe.errors import CorpusError, InputError, UsageError
from qbe.index.index import open_index
from qbe.search.request import SearchForm
from qbe.serve.app import listen, page_files
from qbe.serve.guard import LOCAL, read_key, settings_for

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(graded_index, tmp_path_factory):
    with serving(graded_index, tmp_path_factory.mktemp("serve") / "log") as running:
        yield running
        assert running.stop(signal.SIGINT) == 0


def untimed(record):
    return {name: value for name, value in record.items() if name != "seconds"}


def test_post_and_get_answer_what_the_service_answers(server, service):
    request = {"paper_ids": ["s036"], "facet": "method", "k": 5, "rerank": False, "year_from": 2016}
    expected = untimed(service.search(SearchForm(**request)))
    posted = server.ask("POST", "/api/search", request)
    got = server.ask("GET", "/api/search?" + urllib.parse.urlencode({**request, "paper_ids": "s036"}))
    assert posted.status == got.status == 200
    assert untimed(posted.json()) == untimed(got.json()) == json.loads(json.dumps(expected))


def test_a_stream_has_the_first_stage_then_the_reranked_order_if_any(server, service):
    request = {"paper_ids": ["s036"], "facet": "method", "k": 3}
    answer = server.ask("POST", "/api/search/stream", request)
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = re.findall(r"event: (\w+)\ndata: (.*)\n\n", answer.body.decode())
    assert [name for name, _ in events] == ["ranking", "ranking", "ranking", "end"]
    first, graded, last = (json.loads(data) for _, data in events[:3])
    assert [each["stage"] for each in (first, graded, last)] == ["first-stage", "graded", "reranked"]
    assert untimed(last) == json.loads(json.dumps(untimed(service.search(SearchForm(**request)))))
    answer = server.ask("POST", "/api/search/stream", {"paper_ids": ["s036"], "k": 1, "sentences": [0]})
    assert re.findall(r"event: (\w+)", answer.body.decode()) == ["ranking", "end"]


def test_papers_labels_comparisons_titles_and_recommendations(server):
    for path in ("/api/papers/s036", "/api/papers?paper_id=s036"):
        assert server.ask("GET", path).json()["paper_id"] == "s036"
    labels = server.ask("POST", "/api/facets", {"text": ABSTRACT}).json()
    assert [sentence["facet"] for sentence in labels["sentences"]] == ["background", "method", "result"]
    compared = server.ask("GET", "/api/compare?paper_id=s036&other_id=s051").json()
    assert compared == server.ask("POST", "/api/compare", {"paper_id": "s036", "other_id": "s051"}).json()
    assert set(compared["facets"]) == {"background", "method", "result"}
    assert server.ask("GET", "/api/titles?text=two+crops&k=3").json()["papers"][0]["paper_id"] == "s036"
    assert len(server.ask("POST", "/api/citations", {"text": ABSTRACT, "k": 4}).json()["hits"]) == 4
    exported = server.ask("GET", "/api/export?paper_ids=s036&paper_ids=s051&format=ris")
    assert exported.headers["content-disposition"] == 'attachment; filename="papers.ris"'
    assert exported.body.decode().count("TY  - ") == 2
    assert server.ask("POST", "/api/export", {"paper_ids": ["s036"]}).body.startswith(b"@misc{")
    assert server.ask("GET", "/api/index").json()["papers"] == 128


BAD: list[tuple[str, str, object]] = [
    ("GET", "/api/search?paper_ids=nope", None),
    ("GET", "/api/search?paper_ids=s036&k=0", None),
    ("POST", "/api/search", b"{"),
    ("POST", "/api/search", b"\xff\xfe{}"),
    ("POST", "/api/search", b"[" * 100_000),
    ("POST", "/api/search", b'{"k": ' + b"9" * 5000 + b"}"),
    ("POST", "/api/search", [1]),
    ("POST", "/api/search", {"text": "a" * 20_001}),
    ("POST", "/api/search", {"paper_ids": ["s036"], "sentences": [99]}),
    ("POST", "/api/search", b" " * 1_000_001),
    ("POST", "/api/facets", {"text": "\ud800"}),
    ("POST", "/api/search/stream", {"paper_ids": ["nope"]}),
    ("GET", "/api/papers/../../etc/passwd", None),
    *(("GET", path, None) for path in ("/api", "/docs", "/api/nosuch", "/redoc", "/page/index.html")),
    ("GET", "/../../etc/passwd", None),
    ("GET", "/%2e%2e/%2e%2e/etc/passwd", None),
    ("DELETE", "/api/search", None),
    ("GET", "/api/compare?paper_id=s036", None),
    ("GET", "/api/search?paper_ids=s036&facet=method&facet=result", None),
    ("GET", "/api/titles?text=two&k=1&k=2", None),
    ("POST", "/api/search", {"paper_ids": ["s036"], "k": True}),
    ("POST", "/api/search", {"paper_ids": ["s036"], "sentences": [True]}),
    ("POST", "/api/search", b""),
    ("GET", "/api/labels?assessor=cy", None),
]


def test_bad_requests(server, told):
    answers = [server.ask(*each) for each in BAD]
    told("bad requests", [f"{answer.status} {answer.message}" for answer in answers])
    assert not any("Traceback" in answer.body.decode() for answer in answers)
    assert server.ask("POST", "/api/facets", {"text": "."}).status == 200


def test_head_is_answered_like_get_and_options_says_what_can_be_asked(server):
    for path in ("/", "/page.js", "/api/index", "/health", "/openapi.json", "/api/papers/nope"):
        get, head = server.ask("GET", path), server.ask("HEAD", path)
        assert (head.status, head.body) == (get.status, b"")
        assert head.headers["content-type"] == get.headers["content-type"]
        assert head.headers["content-length"] == str(len(get.body))
    posted = {"search": "GET, HEAD, OPTIONS, POST", "facets": "OPTIONS, POST"}
    for path, allowed in {**posted, "papers/s036": "GET, HEAD, OPTIONS"}.items():
        answer = server.ask("OPTIONS", f"/api/{path}")
        assert (answer.status, answer.headers["allow"], answer.body) == (204, allowed, b"")


def test_json_is_read_whatever_its_type_unless_a_page_sends_it(server):
    body = json.dumps({"paper_ids": ["s036"], "k": 1, "rerank": False}).encode()
    curl = {"Content-Type": "application/x-www-form-urlencoded"}
    assert server.ask("POST", "/api/search", body, curl).status == 200
    for of_a_page in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "none"}):
        assert server.ask("POST", "/api/search", body, curl | of_a_page).status == 415


def test_a_question_says_how_it_was_read_and_a_text_may_begin_with_its_title(server):
    question = "does eye tracking help usability testing?"
    texts = question, f"Title: On letters\nAbstract: {ABSTRACT}"
    asked, plain = (server.ask("POST", "/api/search", {"text": text}).json()["query"] for text in texts)
    assert asked["question"]["text"] == question and asked["question"]["problem"] == "usability testing"
    assert plain["question"] is None
    assert plain["papers"][0]["title"] == "On letters" and len(plain["papers"][0]["sentences"]) == 3


def test_corrected_labels_count(server):
    plain = server.search(paper_ids=["s036"], facet="method", k=1).json()["query"]
    assert plain["aspects"][0]["positions"] in ([2, 3], [2])
    labels = ["0:method", "2:other", "3:other", "4:other"]
    query = server.search(paper_ids=["s036"], facet="method", labels=labels, k=1).json()["query"]
    assert query["aspects"][0]["positions"] == [0]
    assert query["papers"][0]["sentences"][0]["facet"] == "method"
    for wrong, message in ((["0:aims"], "such as 2:method"), (["9:method"], "positions from 0 to 4")):
        answer = server.search(paper_ids=["s036"], facet="method", labels=wrong)
        assert answer.status == 422 and message in answer.message


def test_a_kept_connection_answers_at_once(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    seconds = []
    for _ in range(20):
        begin = time.perf_counter()
        connection.request("GET", "/api/index")
        assert connection.getresponse().read()
        seconds.append(time.perf_counter() - begin)
    connection.close()
    assert sorted(seconds)[10] < 0.03  # 0.04 and more where the body waits for the client's confirmation
    with listen("127.0.0.1", 0) as listening:
        assert listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_the_page_is_served_to_this_host_and_forbids_what_it_does_not_need(server):
    answer = server.ask("GET", "/api/index", headers={"Host": "evil.example"})
    assert answer.status == 400 and "found 'evil.example'" in answer.message
    paths = {"/": "text/html; charset=utf-8", "/api/index": "application/json"}
    for path, kind in {**paths, "/<script>alert(1)</script>": "application/json"}.items():
        headers = server.ask("GET", path).headers
        assert headers["content-type"] == kind
        assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self';")
        assert headers["x-content-type-options"] == "nosniff"
        assert not {"access-control-allow-origin", "set-cookie"} & set(headers)
    for path, (content, media_type) in page_files().items():
        answer = server.ask("GET", path)
        assert (answer.status, answer.body, answer.headers["content-type"]) == (200, content, media_type)


def test_the_interface_describes_itself(server):
    paths = server.ask("GET", "/openapi.json").json()["paths"]
    named = {"/api/search", "/api/search/stream", "/api/papers/{paper_id}", "/health", "/metrics"}
    assert named <= set(paths)
    examples = paths["/api/search"]["post"]["requestBody"]["content"]["application/json"]["examples"]
    for example in examples.values():
        value = example["value"]
        known = {"paper_ids": ["s036"]} if "paper_ids" in value else {}  # for those of `mini`
        assert server.search(**{**value, **known, "k": 1}).status == 200


def test_metrics_count_requests_by_route_and_status(server):
    def count() -> float:
        text = server.ask("GET", "/metrics").body.decode()
        series = 'method="GET",route="/api/papers/{paper_id:path}",status="404"'
        match = re.search(re.escape(f"qbe_http_requests_total{{{series}}} ") + r"(\S+)", text)
        return float(match[1]) if match else 0.0

    before = count()
    server.ask("GET", "/api/papers/nosuch")
    assert count() == before + 1
    for number in range(30):
        assert server.ask(f"M{number}", "/api/index").status == 405
    text = server.ask("GET", "/metrics").body.decode()
    assert 'method="M' not in text  # made-up methods make no series
    assert 'method="other",route="/api/index",status="405"' in text
    assert "qbe_index_papers 128.0" in text
    assert "qbe_searches_waiting 0.0" in text


def test_what_is_searched_for_is_not_logged(server):
    server.ask("GET", "/api/search?text=a+secret+plan&rerank=false")
    server.search(text="Another secret plan.")
    log = server.log.read_text()
    assert "GET /api/search 200" in log
    assert "secret" not in log


def test_a_server_with_a_key_behind_a_path_logs_queries_where_that_is_wanted_and_keys_never(
    graded_index, tmp_path
):
    """The server in front may keep the path, or take it away."""
    key = tmp_path / "key"
    key.write_text("a-key-that-is-long-enough\n")
    options = ["--log-queries", "--api-key-file", str(key), "--allow-origin", "https://example.org"]
    options += ["--root-path", "/qbe"]
    with serving(graded_index, tmp_path / "log", *options) as server:
        assert server.ask("GET", "/").status == 200
        refused = server.ask("GET", "/api/index")
        assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert "found none" in refused.message
        wrong = server.ask("GET", "/api/index", headers={"Authorization": "Bearer other"})
        assert "found another one" in wrong.message
        right = "a-key-that-is-long-enough"
        for header in ({"Authorization": f"Bearer {right}"}, {"X-API-Key": right}):
            assert server.ask("GET", "/api/index", headers=header).status == 200
        asked = server.ask("POST", "/api/search", {"text": "An open plan.", "rerank": False}, header)
        assert asked.status == 200
        for prefix in ("", "/qbe"):
            assert server.ask("GET", f"{prefix}/").body == page_files()["/"][0]
            assert server.ask("GET", f"{prefix}/api/index", headers=header).status == 200
            described = server.ask("GET", f"{prefix}/openapi.json", headers=header).json()
            assert described["servers"] == [{"url": "/qbe"}]
        assert server.ask("GET", "/qbe").headers["location"] == "/qbe/"
        assert server.ask("GET", "/qbe/docs", headers=header).message.endswith("see /qbe/openapi.json")
        preflight = {"Origin": "https://example.org", "Access-Control-Request-Method": "POST"}
        allowed = server.ask("OPTIONS", "/api/search", headers=preflight)
        assert allowed.headers["access-control-allow-origin"] == "https://example.org"
        other = server.ask("OPTIONS", "/api/search", headers={**preflight, "Origin": "https://evil.example"})
        assert "access-control-allow-origin" not in other.headers
        # It is told to end when it has reranked, and answers before.
        request, text = {"paper_ids": ["s036"], "facet": "method", "k": 20}, ""
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(server.ask, "POST", "/api/search", request, header)
            while 'stage="reranked"} 1' not in text and not answer.done():
                text = server.ask("GET", "/metrics", headers=header).body.decode()
            assert (server.stop(), answer.result(30).status) == (0, 200)
    log = (tmp_path / "log").read_text()
    assert "An open plan." in log and "long-enough" not in log and "Traceback" not in log


def test_a_cluster_has_no_workers_and_what_is_wrong_for_all_is_said_once(tmp_path):
    with pytest.raises(UsageError, match="one of --workers"):
        run(parse("serve", ["--index", "index", "--workers", "2"]), open_index=open_index)
    command = [sys.executable, "-m", "qbe", "serve", "--index", tmp_path, "--port", "0", "--workers", "2"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert re.fullmatch(r"qbe serve: .*: expected an index with a manifest.json.*\n", done.stderr)


def test_bad_options(server, graded_index, told):
    wrong = [["--host", "0.0.0.0"], ["--workers", "0"], ["--port", "70000"], ["--port", str(server.port)]]
    paths = ("qbe", "//evil.example", "/a b", "/a?b", "https://evil.example/")
    wrong += [["--root-path", path] for path in paths]
    starts = [partial(main, ["--index", str(graded_index), *arguments]) for arguments in wrong]
    messages = messages_of(starts, (UsageError, InputError))
    told("options of qbe serve", [message.replace(str(server.port), "PORT") for message in messages])


def test_keys_and_the_names_that_whoever_has_one_may_use(tmp_path, caplog):
    file = tmp_path / "key"
    file.write_text("short")
    with pytest.raises(UsageError, match="expected a key of 16 or more characters"):
        read_key(str(file))
    file.write_text("a-key-that-is-long-enough")
    for mode, warnings in ((0o600, 0), (0o640, 1), (0o604, 1)):
        file.chmod(mode)
        caplog.clear()
        assert read_key(str(file)) == "a-key-that-is-long-enough"
        assert len(caplog.records) == warnings
    file.write_bytes(b"\xff" * 20)
    with pytest.raises(UsageError, match="ASCII"):
        read_key(str(file))

    def hosts(*names):
        return settings_for("0.0.0.0", "k" * 16, names, (), log_queries=False).hosts

    assert (hosts(), hosts("Papers.Example")) == (None, LOCAL | {"papers.example"})


def test_a_paper_may_be_sent_as_a_file(server, tmp_path):
    pytest.importorskip("reportlab")
    from support.pdfs import Paper, article, laid_out, without_abstract

    paper = Paper("On old letters", ABSTRACT, [ABSTRACT.replace("Old", "Very old"), ABSTRACT])
    answer = server.ask("POST", "/api/paper-file?name=../a.pdf", laid_out(article, paper))
    assert answer.json() == {"title": paper.title, "text": ABSTRACT, "note": ""}
    noted = server.ask("POST", "/api/paper-file", laid_out(without_abstract, paper)).json()
    assert noted["text"] == paper.body[0]
    assert noted["note"].endswith("the introduction's first paragraph stands for it")
    (tmp_path / "secret.tex").write_text(r"\abstract{Secret.}")
    source = rf"\title{{T}}\input{{{tmp_path}/secret}}".encode()
    refused = server.ask("POST", "/api/paper-file?name=a.tex", source)
    assert (refused.status, refused.message[:15]) == (422, "a.tex: expected")


@pytest.mark.parametrize("name", ["a.csv", "a.bib", "a.tex", "a.json", "a.pdf"])
def test_a_file_that_takes_too_long_is_given_up(service, monkeypatch, name):
    monkeypatch.setattr("qbe.corpus.pdf.SECONDS", 0.01)
    with pytest.raises(CorpusError, match=f"^{name}: expected a file that is read in 0.01 s and 1 GiB"):
        service.read_file(b"%PDF-1.7", name)


def test_files_of_other_sites_and_of_any_size_are_refused(server):
    for kind in ("text/plain", "multipart/form-data; boundary=x", ""):
        headers = {"Origin": "https://example.org", "Content-Type": kind}
        assert server.ask("POST", "/api/paper-file", b"%PDF-1.7", headers).status == 415
    # The last is of no kind that is read.
    for path, size, status in (("paper-file", 32e6, 413), ("facets", 1e6, 413), ("paper-file", 1e6, 422)):
        assert server.ask("POST", f"/api/{path}", bytes(int(size) + 1)).status == status


def test_more_files_than_are_held_are_refused(server):
    senders = []
    for _ in range(5):
        sender = socket.create_connection(("127.0.0.1", server.port))
        sender.sendall(b"POST /api/paper-file HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n%PDF")
        senders.append(sender)
    assert senders[-1].recv(100).startswith(b"HTTP/1.1 429")
    for sender in senders:
        sender.close()
    assert server.ask("POST", "/api/paper-file", b"Title: T\nFish swim.").status in (200, 429)

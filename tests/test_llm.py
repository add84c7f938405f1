"""Requests to a language model: what is retried, what ends all, what is kept, what is never shown."""

import contextlib
import json
import math
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest
from support.endpoint import Behaviour, Sent, answer, endpoint, error, grades, kept
from support.endpoint import Endpoint as Running
from support.messages import messages_of

from qbe import Facet, FileFormatError, ModelError, Paper, Sentence, UsageError
from qbe.models import language_model as lm
from qbe.models.endpoint import Client, Endpoint, EndpointError, RequestError, answer_schema
from qbe.models.language_model import Answers, Grader, PaperPair

KEY = "sk-a-key-that-nobody-may-see"


def paper(number: int) -> Paper:
    return Paper(f"id-{number}", f"Title {number}", (Sentence(f"We cut stone {number}."),))


def pairs(count: int) -> list[PaperPair]:
    return [(paper(0), paper(number)) for number in range(1, count + 1)]


def in_turn(*sent: Sent) -> Behaviour:
    """Answers one after the other, the last one for ever."""
    lock, left = threading.Lock(), chain(sent, repeat(sent[-1]))

    def behave(_: object) -> Sent:
        with lock:
            return next(left)

    return behave


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch) -> None:
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)


@contextmanager
def running(
    behaviour: Behaviour | Sent, budget: Sequence[int | None] = (), tries: int = 6, **settings: Any
) -> Iterator[tuple[Running, Client]]:
    """A server that behaves so, or sends the same for ever, and a client of it."""
    with endpoint(behaviour) as server:
        given = {"timeout": 5, "key": KEY, **settings}
        yield server, Client(Endpoint(server.url, "tiny", **given), *budget, retries=tries - 1)


def test_what_fails_for_a_while_is_asked_again():
    whole = grades()
    cut = Sent(body=whole.body[:50], length=len(whole.body))  # by a connection that fails
    with running(in_turn(error(429, Retry_After="0.01"), error(500), cut, whole)) as (server, asking):
        assert Grader(asking).grade(pairs(1)).answers[0].grades == (2, 1, 0)
    assert len(server.requests) == 4
    assert len({request.prompt for request in server.requests}) == 1


@pytest.mark.parametrize("sent", [Sent(body=b"<html>"), Sent(body=b"[]"), error(503), answer("x", 1, 1)])
def test_what_fails_for_ever_is_given_up(sent):
    with running(sent, tries=2) as (server, asking):
        outcome = Grader(asking).grade(pairs(2))
    assert outcome.answers == [None, None]
    assert sorted(outcome.problems) == [0, 1]
    tries = lm.MAX_ATTEMPTS if b"choices" in sent.body else 2 if sent.status == 503 else 1
    assert len(server.requests) == 2 * tries


def test_a_slow_answer_is_not_waited_for():
    with running(in_turn(grades()._replace(seconds=1.0), grades(3)), timeout=0.2) as (server, asking):
        assert Grader(asking).grade(pairs(1)).answers[0].grades[0] == 3
    assert len(server.requests) == 2


def test_a_request_that_is_refused_leaves_the_others():
    def behave(request) -> Sent:
        return error(400, "too long") if "Title 2" in request.prompt else grades()

    with running(behave) as (server, asking):
        outcome = Grader(asking).grade(pairs(3))
    assert [each and each.grades for each in outcome.answers] == [(2, 1, 0), None, (2, 1, 0)]
    assert list(outcome.problems) == [1]
    assert "too long" in outcome.problems[1]
    assert len(server.requests) == 3


def refusing(status: int) -> Sent:
    return error(status, f"bad key {KEY}", Location="http://127.0.0.1:1/")


@pytest.mark.parametrize(
    ("behaviour", "tries", "parallel", "asked", "requests", "message"),
    [
        *((refusing(status), 6, 1, 3, 1, f"{status}") for status in (401, 404, 301)),
        (in_turn(grades(), error(500)), 2, 1, 9, 1 + 3 * 2, "3 pairs in a row"),
        # pairs under way are not counted when all has ended
        (lambda each: error(500)._replace(seconds=0.3 * ("Title 1" in each.prompt)), 1, 4, 4, 4, "in a row"),
    ],
)
def test_what_no_request_can_change_ends_all_and_shows_no_key(
    behaviour, tries, parallel, asked, requests, message
):
    ended = pytest.raises(EndpointError, match=message)
    with running(behaviour, tries=tries) as (server, asking), ended as told:
        Grader(asking, parallel=parallel).grade(pairs(asked))
    assert len(server.requests) == requests
    assert server.requests[0].headers["Authorization"] == f"Bearer {KEY}"
    assert KEY not in str(told.value) + repr(asking.endpoint)


def test_parameters_that_an_endpoint_refuses_are_left_out_from_then_on():
    together = threading.Barrier(4, timeout=10)

    def behave(request) -> Sent:
        if "maxLength" in json.dumps(request.body):
            together.wait()
            return error(400, "response_format: 'maxLength' is not permitted")
        return error(422, "no 'temperature' here") if "temperature" in request.body else grades()

    with running(behave) as (server, asking):
        assert None not in Grader(asking, parallel=4).grade(pairs(4)).answers
        Grader(asking).grade([(paper(9), paper(1))])
    assert sorted(server.requests[-1].body) == ["max_tokens", "messages", "model", "response_format"]
    assert len(server.requests) <= 4 * 3 + 1


def test_the_form_of_answers_is_requested_as_the_endpoint_is_said_to_know_it():
    formats = {}
    for name in ("json_schema", "json_object", "none"):
        with running(grades(), response_format=name) as (server, asking):
            assert Grader(asking).grade(pairs(1)).answers[0].grades == (2, 1, 0)
        formats[name] = server.requests[0].body.get("response_format")
    schema = {"name": "grades", "strict": True, "schema": answer_schema()}
    assert formats == {
        "json_schema": {"type": "json_schema", "json_schema": schema},
        "json_object": {"type": "json_object", "schema": answer_schema()},
        "none": None,
    }


def test_an_endpoint_that_refuses_a_schema_is_told_with_the_option():
    refusal = error(400, "{'loc': ('body', 'response_format', 'type'), 'input': 'json_schema'}")
    with running(refusal) as (server, asking):
        outcome = Grader(asking).grade(pairs(1))
    assert "give another `response_format` or $QBE_LLM_RESPONSE_FORMAT" in outcome.problems[0]
    with pytest.raises(UsageError, match="`response_format` of json_schema, json_object, none, found 'xml'"):
        Endpoint(server.url, "tiny", response_format="xml")


def test_nothing_of_the_environment_is_sent(monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, "of-another-service")
    with endpoint(grades()) as server:
        Grader(Client(Endpoint(server.url, "tiny"))).grade(pairs(1))
    assert "Authorization" not in server.requests[0].headers
    assert "of-another-service" not in server.requests[0].headers.values()


def test_the_model_sees_texts_alone():
    with running(grades()) as (server, asking):
        Grader(asking, guideline=lm.Guideline("Grade.")).grade(pairs(1))
    (request,) = server.requests
    assert request.path == "/v1/chat/completions"
    assert request.prompt.startswith("Grade.\n")
    assert "Title: Title 1\nAbstract: We cut stone 1." in request.prompt
    assert "id-" not in request.prompt


WHOLE = '"background": {"grade": 3}, "method": {"grade": 1.0}, "result": 0'


@pytest.mark.parametrize(
    "text",
    [
        f"{{{WHOLE}}}",
        f"{{{WHOLE}, 'of': 'a\nb'}}".replace("'", '"'),
        f"```json\n{{{WHOLE}}}\n```",
        f"Here: {{{WHOLE}}} I hope it helps.",
    ],
)
def test_grades_are_found_in_what_stands_around_them(text):
    assert lm.parse_answer(text).grades == (3, 1, 0)


def test_answers_in_the_form_of_sciface_are_taken():
    """Two facets, by score and reason; a facet that is not asked for has no grade."""
    guideline = lm.read_guideline(Path("sciface"))
    assert guideline.form.told().startswith('Answer with a JSON object alone: for each of "background" and')
    schema = answer_schema(guideline.form)
    assert list(schema["properties"]) == ["background", "method"]
    assert list(schema["properties"]["method"]["properties"]) == ["reason", "score"]
    found = lm.parse_answer('{"BG": {"score": 2, "reason": "stone"}, "MT": {"score": 0}}', guideline.form)
    assert found.grades[:2] == (2, 0)
    assert math.isnan(found.grades[2])
    assert found.rationales == ("stone", "", "")


@pytest.mark.parametrize(("first", "facets"), [("Facets: Method", "method"), ("Grade.", "all")])
def test_a_guideline_says_which_facets_are_graded(tmp_path, first, facets):
    (tmp_path / "own.md").write_text(f"{first}\nBe fair.\n", "utf-8-sig")
    guideline = lm.read_guideline(tmp_path / "own.md")
    assert guideline.text.startswith("Be fair." if facets == "method" else "Grade.")
    assert guideline.form.facets == ((Facet.METHOD,) if facets == "method" else tuple(Facet))
    mood = "expected facets of background, method, result, found 'mood'"
    for text, told in (("Facets: mood\nx", mood), ("Facets: method\n", "found no text")):
        (tmp_path / "own.md").write_text(text)
        with pytest.raises(FileFormatError, match=told):
            lm.read_guideline(tmp_path / "own.md")


BAD = {
    "nothing": "",
    "prose": "Both are about stone.",
    "no object": "[3, 1, 0]",
    "cut off": '{"background": {"grade": 3}, "meth',
    "a facet too few": '{"background": 3, "method": 1}',
    "a grade too high": "{" + WHOLE.replace("3", "4") + "}",
    "a half": "{" + WHOLE.replace("1.0", "1.5") + "}",
    "a truth value": "{" + WHOLE.replace("3", "true") + "}",
    "too deep": '{"a": ' * 100_000 + "}",
}


def test_other_answers_are_refused(told):
    answers = [lambda text=text: lm.parse_answer(text) for text in BAD.values()]
    told("answers of a language model", messages_of(answers, lm.AnswerError))


def test_an_answer_that_is_refused_is_asked_for_again_and_told_why(tmp_path):
    file = tmp_path / "answers.sqlite"
    with running(in_turn(answer("Hm.", 5, 2), grades())) as (server, asking), Answers(file) as answers:
        assert Grader(asking, answers).grade(pairs(1)).answers[0].grades == (2, 1, 0)
    assert "found 'Hm.'" in server.requests[1].prompt
    first, second = kept(file)
    assert (first["completion_tokens"], first["grades"], second["grades"]) == (2, None, [2, 1, 0])
    assert second["rationales"][2] == "of result"
    assert KEY.encode() not in file.read_bytes()


def test_what_is_kept_is_not_asked_for_again(tmp_path):
    file = tmp_path / "answers.sqlite"
    with endpoint(grades()) as server:
        for count, asked in ((3, 3), (5, 5), (5, 5)):
            with Answers(file) as answers:
                grader = Grader(Client(Endpoint(server.url, "tiny")), answers)
                assert grader.estimate(pairs(count)).requests == count - min(count, len(server.requests))
                assert len([*filter(None, grader.grade([*pairs(count), *pairs(2)]).answers)]) == count + 2
            assert len(server.requests) == asked
        with Answers(file) as answers:  # another guideline is another question
            Grader(Client(Endpoint(server.url, "tiny")), answers, lm.Guideline("Grade.")).grade(pairs(1))
        assert len(server.requests) == 6


def test_another_file_is_no_file_of_answers(tmp_path):
    with closing(sqlite3.connect(tmp_path / "other")) as database:
        database.execute("CREATE TABLE notes (text)")
    (tmp_path / "notes").write_text("notes on stone, kept for years")
    for name in ("notes", "other"):
        before = (tmp_path / name).read_bytes()
        with pytest.raises(FileFormatError, match="expected answers that qbe label kept"):
            Answers(tmp_path / name)
        assert (tmp_path / name).read_bytes() == before
    with Answers(tmp_path / "absent") as answers:
        assert answers.get("a") is None
    assert not (tmp_path / "absent").exists()


def test_tokens_are_counted_as_the_endpoint_counts_them():
    with running(grades(), [None, 2700]) as (server, asking):
        outcome = Grader(asking, guideline=lm.Guideline("Grade."), parallel=1).grade(pairs(20))
    # 430 tokens each; 120 are too few for another
    assert len(server.requests) == 6
    assert asking.tokens_spent == 6 * 430
    assert "2,580 of 2,700 tokens" in outcome.stopped


def test_addresses_that_are_none(told, monkeypatch):
    for name in ("QBE_LLM_ENDPOINT", "QBE_LLM_KEY"):
        monkeypatch.delenv(name, raising=False)
    urls = (None, "localhost:8080", "ftp://a/v1", "http://ann:secret@a/v1", "http://a/v1?key=1", "http://[a")
    calls = [lambda url=url: Endpoint(url, "tiny") for url in (*urls, "http://a..b/v1")]
    messages = messages_of([*calls, lambda: Endpoint("http://a/v1", "tiny", timeout=1e10)], UsageError)
    monkeypatch.setenv("QBE_LLM_KEY", "my secret\nkey")
    messages += messages_of([lambda: Endpoint("http://127.0.0.1/v1", "tiny")], UsageError)
    assert "secret" not in " ".join(messages)
    told("endpoints", messages)


def test_the_environment_has_the_key_and_may_have_the_address(monkeypatch, caplog):
    monkeypatch.setenv("QBE_LLM_ENDPOINT", "http://models.example.org/v1/chat/completions")
    monkeypatch.setenv("QBE_LLM_KEY", KEY)
    given = Endpoint(None, "tiny")
    assert (given.url, given.key) == ("http://models.example.org/v1", KEY)
    assert "without encryption" in caplog.text
    assert KEY not in caplog.text


def test_a_server_that_is_not_there_is_told_at_once():
    with endpoint(grades()) as server:
        pass
    with pytest.raises(EndpointError, match="start it"):
        Grader(Client(Endpoint(server.url, "tiny"))).grade(pairs(9))
    assert issubclass(RequestError, ModelError)


@pytest.mark.parametrize(
    "told", [f"You sent {KEY}", KEY[3:18], json.dumps({"background": {"rationale": KEY, "grade": 1}})]
)
def test_a_model_that_repeats_the_key_does_not_show_it(tmp_path, told):
    escaped = "".join(f"\\u{ord(each):04x}" for each in KEY)
    whole = json.dumps({name: {"rationale": "@", "grade": 1} for name in ("background", "method", "result")})
    sent = [answer(told), answer(told), answer(whole.replace("@", escaped))]
    with running(in_turn(*sent)) as (server, asking), Answers(tmp_path / "answers") as answers:
        (found,) = Grader(asking, answers, parallel=1).grade(pairs(1)).answers
    assert found.rationales == ("...",) * 3
    with running(answer(told)) as (_, asking):
        (problem,) = Grader(asking).grade(pairs(1)).problems.values()
    shown = [problem, *(request.prompt for request in server.requests), *map(str, kept(tmp_path / "answers"))]
    parts = [KEY[place : place + 12] for place in range(len(KEY) - 11)]
    assert not [text for text in shown if any(part in text for part in parts)]


def test_an_endpoint_may_not_count_down():
    with running(answer(f"{{{WHOLE}}}", -(10**9), -1), budget=(None, 2000)) as (_, asking):
        outcome = Grader(asking, parallel=1).grade(pairs(20))
    assert outcome.stopped and 0 < asking.tokens_spent <= 2000


def test_a_head_that_drips_is_not_waited_for():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    connection.sendall(b"HTTP/1.1 200 OK\r\nA: ")
                    for _ in range(40):
                        connection.sendall(b"x")
                        time.sleep(0.1)

        threading.Thread(target=drip, daemon=True).start()
        url, begin = f"http://127.0.0.1:{server.getsockname()[1]}/v1", time.monotonic()
        with pytest.raises(RequestError, match="no answer within"):
            Client(Endpoint(url, "tiny", timeout=0.5), retries=0).ask("p")
        assert time.monotonic() - begin < 3

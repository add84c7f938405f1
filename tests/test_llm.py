"""Requests to a language model: what is retried, what ends all, what is kept, what is never shown."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, repeat

import pytest
from support.endpoint import Behaviour, Sent, answer, endpoint, error, grades
from support.messages import messages_of

from qbe.errors import FileFormatError, ModelError, UsageError
from qbe.models.llm.answers import Answer, Answers
from qbe.models.llm.endpoint import (
    RETRIES,
    Budget,
    BudgetSpentError,
    Client,
    Endpoint,
    EndpointError,
    RequestError,
)
from qbe.models.llm.grading import ASKED, SCHEMA, AnswerError, Grader, PaperPair, parse_answer
from qbe.types import Paper, Sentence

KEY = "sk-a-key-that-nobody-may-see"


def paper(number: int) -> Paper:
    return Paper(f"id-{number}", f"Title {number}", (Sentence(f"We cut stone {number}."),))


def pairs(count: int) -> list[PaperPair]:
    return [PaperPair(paper(0), paper(number)) for number in range(1, count + 1)]


def in_turn(*sent: Sent, then: Sent | None = None) -> Behaviour:
    """Answers one after the other, the last one for ever."""
    lock, left = threading.Lock(), chain(sent, repeat(then or sent[-1]))

    def behave(_: object) -> Sent:
        with lock:
            return next(left)

    return behave


@contextmanager
def client(url: str, budget: Budget | None = None, timeout: float = 5, tries: int = 6) -> Iterator[Client]:
    retries = RETRIES._replace(attempts=tries, pause=0.01)
    yield Client(Endpoint(url, "tiny", timeout, KEY), budget, retries=retries)


def test_what_fails_for_a_while_is_asked_again():
    whole = grades()
    failing = [
        error(429, Retry_After="0.01"),
        error(429, Retry_After="Thu, 01 Jan 1970 00:00:00 GMT"),
        error(500),
        Sent(body=whole.body[:50]),  # JSON that ends too early
        Sent(body=whole.body[:50], length=len(whole.body)),  # a connection that does
    ]
    with endpoint(in_turn(*failing, whole)) as server, client(server.url) as asking:
        assert Grader(asking).answer(pairs(1)[0]).grades == (2, 1, 0)
    assert len(server.requests) == 6
    assert len({request.prompt for request in server.requests}) == 1


@pytest.mark.parametrize("sent", [Sent(body=b"<html>"), Sent(body=b"[]"), error(503), answer("x", 1, 1)])
def test_what_fails_for_ever_is_given_up(sent):
    with endpoint(in_turn(sent)) as server, client(server.url, tries=2) as asking:
        outcome = Grader(asking).grade(pairs(2))
    assert outcome.answers == [None, None]
    assert sorted(outcome.problems) == [0, 1]
    assert len(server.requests) == 2 * (ASKED if b"choices" in sent.body else 2)


def test_a_slow_answer_is_not_waited_for():
    slow = grades()._replace(seconds=1.0)
    with endpoint(in_turn(slow, grades(3))) as server, client(server.url, timeout=0.2) as asking:
        assert Grader(asking).answer(pairs(1)[0]).grades[0] == 3
    assert len(server.requests) == 2


def test_an_endpoint_that_asks_to_wait_long_ends_all():
    with (
        endpoint(in_turn(error(429, Retry_After="3600"))) as server,
        client(server.url) as asking,
        pytest.raises(EndpointError, match="3,600 s"),
    ):
        Grader(asking, parallel=1).grade(pairs(3))
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [401, 404, 301])
def test_what_no_request_can_change_ends_all_and_shows_no_key(status):
    refused = error(status, f"bad key {KEY}", Location="http://127.0.0.1:1/")
    with (
        endpoint(in_turn(refused)) as server,
        client(server.url) as asking,
        pytest.raises(EndpointError) as told,
    ):
        Grader(asking, parallel=1).grade(pairs(3))
    assert len(server.requests) == 1
    assert KEY not in str(told.value)
    assert server.requests[0].headers["Authorization"] == f"Bearer {KEY}"
    assert KEY not in repr(asking.endpoint)


def test_a_request_that_is_refused_leaves_the_others():
    def behave(request) -> Sent:
        return error(400, "too long") if "Title 2" in request.prompt else grades()

    with endpoint(behave) as server, client(server.url) as asking:
        outcome = Grader(asking).grade(pairs(3))
    assert [each and each.grades for each in outcome.answers] == [(2, 1, 0), None, (2, 1, 0)]
    assert list(outcome.problems) == [1]
    assert "too long" in outcome.problems[1]
    assert len(server.requests) == 3


def test_all_ends_after_three_pairs_in_a_row_without_an_answer():
    with (
        endpoint(in_turn(grades(), error(500))) as server,
        client(server.url, tries=2) as asking,
        pytest.raises(EndpointError, match="3 pairs in a row"),
    ):
        Grader(asking, parallel=1).grade(pairs(9))
    assert len(server.requests) == 1 + 3 * 2


def test_a_call_that_failed_takes_no_retries_from_the_next():
    failing = in_turn(*[error(500)] * 7, grades())
    with endpoint(failing) as server, client(server.url, tries=2) as asking:
        grader = Grader(asking, parallel=1)
        with pytest.raises(EndpointError, match="3 pairs in a row"):
            grader.grade(pairs(3))
        assert grader.grade(pairs(1)).answers[0].grades == (2, 1, 0)
    assert len(server.requests) == 8


def test_pairs_under_way_are_not_counted_when_all_has_ended():
    def behave(request) -> Sent:
        return error(500)._replace(seconds=0.3 if "Title 1" in request.prompt else 0)

    with (
        endpoint(behave) as server,
        client(server.url, tries=1) as asking,
        pytest.raises(EndpointError, match="3 pairs in a row"),
    ):
        Grader(asking, parallel=4).grade(pairs(4))
    assert len(server.requests) == 4


def test_the_newest_answers_are_kept_where_there_is_no_file(monkeypatch):
    monkeypatch.setattr("qbe.models.llm.answers.MOST_UNWRITTEN", 2)
    answers = Answers()
    for digest in "abc":
        answers.add(digest, {}, Answer((1, 2, 3), ("", "", "")), tokens=(1, 1))
    assert [answers.get(digest) is not None for digest in "abc"] == [False, True, True]


def test_parameters_that_an_endpoint_does_not_know_are_left_out_from_then_on():
    def behave(request) -> Sent:
        if "maxLength" in json.dumps(request.body):
            return error(400, "response_format: 'maxLength' is not permitted")
        if "response_format" in request.body:
            form = request.body["response_format"]["type"]
            return error(400, "." * 300 + f"{form} is not supported")
        return error(422, "no 'temperature' here") if "temperature" in request.body else grades()

    with endpoint(behave) as server, client(server.url) as asking:
        outcome = Grader(asking, parallel=1).grade(pairs(2))
    assert None not in outcome.answers
    assert [sorted(request.body) for request in server.requests[4:]] == [
        ["max_tokens", "messages", "model"]
    ] * 2


@pytest.mark.parametrize("status", [400, 500])
def test_a_schema_is_given_in_the_form_that_an_endpoint_knows(status):
    """As llama-cpp-python 0.3 refuses OpenAI's form; four requests under way at a time."""
    together = threading.Barrier(4, timeout=10)
    told = "1 validation error:\n  {'loc': ('body', 'response_format', 'type'), 'input': 'json_schema'}"

    def behave(request) -> Sent:
        if request.body["response_format"]["type"] == "json_schema":
            together.wait()
            return error(status, told)
        return grades()

    with endpoint(behave) as server, client(server.url, tries=1) as asking:
        outcome = Grader(asking, parallel=4).grade(pairs(5))
    assert None not in outcome.answers
    assert len(server.requests) == 4 + 5
    formats = [request.body["response_format"] for request in server.requests[4:]]
    assert formats == [{"type": "json_object", "schema": SCHEMA}] * 5


def test_a_failure_that_repeats_the_request_leaves_nothing_out():
    def behave(request) -> Sent:
        return grades() if len(server.requests) > 1 else error(500, json.dumps(request.body))

    with endpoint(behave) as server, client(server.url) as asking:
        assert Grader(asking).answer(pairs(1)[0]).grades == (2, 1, 0)
    assert server.requests[0].body == server.requests[1].body


def test_requests_under_way_at_a_time_all_learn_what_is_left_out():
    together = threading.Barrier(4, timeout=10)

    def behave(request) -> Sent:
        if "maxLength" in json.dumps(request.body):
            together.wait()
            return error(400, "response_format: 'maxLength' is not permitted")
        return grades()

    with endpoint(behave) as server, client(server.url) as asking:
        outcome = Grader(asking, parallel=4).grade(pairs(4))
    assert None not in outcome.answers
    assert all("response_format" in request.body for request in server.requests)
    assert len(server.requests) == 8


def test_the_model_sees_texts_alone():
    with endpoint(in_turn(grades())) as server, client(server.url) as asking:
        Grader(asking, guideline="Grade.").grade(pairs(1))
    (request,) = server.requests
    assert request.path == "/v1/chat/completions"
    assert request.prompt.startswith("Grade.\n")
    assert "Title: Title 1\nAbstract: We cut stone 1." in request.prompt
    assert "id-" not in request.prompt


# Answers


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
    assert parse_answer(text).grades == (3, 1, 0)


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
    answers = [lambda text=text: parse_answer(text) for text in BAD.values()]
    told("answers of a language model", messages_of(answers, AnswerError))


def test_an_answer_that_is_refused_is_asked_for_again_and_told_why(tmp_path):
    file = tmp_path / "answers.jsonl"
    with (
        endpoint(in_turn(answer("Hm.", 5, 2), grades())) as server,
        client(server.url) as asking,
        Answers(file) as answers,
    ):
        assert Grader(asking, answers).answer(pairs(1)[0]).grades == (2, 1, 0)
    assert "found 'Hm.'" in server.requests[1].prompt
    first, second = map(json.loads, file.read_text().splitlines())
    assert (first["completion_tokens"], second["grades"]) == (2, {"background": 2, "method": 1, "result": 0})
    assert second["rationales"]["result"] == "of result"
    assert KEY not in file.read_text()


def test_what_is_kept_is_not_asked_for_again(tmp_path):
    file = tmp_path / "answers.jsonl"
    with endpoint(in_turn(grades())) as server:
        for count, asked in ((3, 3), (5, 5), (5, 5)):
            with client(server.url) as asking, Answers(file) as answers:
                grader = Grader(asking, answers)
                assert grader.estimate(pairs(count)).requests == count - min(count, len(server.requests))
                assert len([*filter(None, grader.grade([*pairs(count), *pairs(2)]).answers)]) == count + 2
            assert len(server.requests) == asked
        with client(server.url) as asking, Answers(file) as answers:  # another guideline is another question
            Grader(asking, answers, "Grade.").grade(pairs(1))
        assert len(server.requests) == 6


@pytest.mark.parametrize("cut", [1, 5, 40, 300])
def test_an_answer_that_was_cut_off_is_taken_away(tmp_path, cut):
    file = tmp_path / "answers.jsonl"
    with Answers(file) as answers:
        for digest in ("a", "b"):
            answers.add(digest, {}, Answer((1, 2, 3), ("", "", "")), tokens=(1, 1))
    whole = file.read_bytes()
    file.write_bytes(whole[:-cut])
    with Answers(file) as answers:
        assert (answers.get("a") is None) == (cut == 300)
        assert answers.get("b") is None
        answers.add("b", {}, Answer((1, 2, 3), ("", "", "")), tokens=(1, 1))
    if cut < 300:
        assert file.read_bytes() == whole


def test_another_file_is_no_file_of_answers(tmp_path):
    for content in ("notes on stone", '{"paper_id": "p"}\n', '{"digest": "a"}\n', "[]\n"):
        (tmp_path / "notes").write_text(content)
        with pytest.raises(FileFormatError):
            Answers(tmp_path / "notes")
        assert (tmp_path / "notes").read_text() == content


# The budget


def test_no_request_exceeds_the_budget():
    with endpoint(in_turn(grades())) as server, client(server.url, Budget(requests=4)) as asking:
        outcome = Grader(asking, parallel=3).grade(pairs(9))
    assert len(server.requests) == len([*filter(None, outcome.answers)]) == 4
    assert "4 of 4 requests" in outcome.stopped
    assert not outcome.problems


def test_answers_that_are_kept_are_used_when_the_budget_is_spent():
    answers = Answers()
    with endpoint(in_turn(grades())) as server, client(server.url) as asking:
        Grader(asking, answers).grade(pairs(6)[3:])
        with client(server.url, Budget(requests=0)) as spent:
            outcome = Grader(spent, answers, parallel=1).grade(pairs(6))
    assert [each is not None for each in outcome.answers] == [False] * 3 + [True] * 3
    assert "0 of 0 requests" in outcome.stopped
    assert len(server.requests) == 3


def test_tokens_are_counted_as_the_endpoint_counts_them():
    budget = Budget(tokens=2700)
    with endpoint(in_turn(grades())) as server, client(server.url, budget) as asking:
        outcome = Grader(asking, guideline="Grade.", parallel=1).grade(pairs(20))
    # 430 tokens each; 120 are too few for another
    assert len(server.requests) == 6
    assert budget.tokens_spent == 6 * 430
    assert "2,580 of 2,700 tokens" in outcome.stopped


def test_requests_that_fail_are_part_of_the_budget():
    with (
        endpoint(in_turn(error(500))) as server,
        client(server.url, Budget(requests=2)) as asking,
        pytest.raises(BudgetSpentError),
    ):
        asking.ask("Grade.", {})
    assert len(server.requests) == 2


# Settings


def test_addresses_that_are_none(told, monkeypatch):
    for name in ("QBE_LLM_ENDPOINT", "QBE_LLM_KEY"):
        monkeypatch.delenv(name, raising=False)
    urls = (None, "localhost:8080", "ftp://a/v1", "http://ann:secret@a/v1", "http://a/v1?key=1", "http://[a")
    messages = messages_of([lambda url=url: Endpoint.of(url, "tiny") for url in urls], UsageError)
    monkeypatch.setenv("QBE_LLM_KEY", "my secret\nkey")
    messages += messages_of([lambda: Endpoint.of("http://127.0.0.1/v1", "tiny")], UsageError)
    assert "secret" not in " ".join(messages)
    told("endpoints", messages)


def test_the_environment_has_the_key_and_may_have_the_address(monkeypatch, caplog):
    monkeypatch.setenv("QBE_LLM_ENDPOINT", "http://models.example.org/v1/chat/completions")
    monkeypatch.setenv("QBE_LLM_KEY", KEY)
    given = Endpoint.of(None, "tiny")
    assert (given.url, given.key) == ("http://models.example.org/v1", KEY)
    assert "without encryption" in caplog.text
    assert KEY not in caplog.text


def test_a_server_that_is_not_there_is_told_at_once():
    with endpoint(in_turn(grades())) as server:
        pass
    with client(server.url) as asking, pytest.raises(EndpointError, match="start it"):
        Grader(asking).grade(pairs(9))
    assert issubclass(RequestError, ModelError)

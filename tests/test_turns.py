"""Requests of several clients: who is worked on first, who is interrupted, refused and given up."""

import asyncio
import threading

import pytest

from qbe.serve import turns as module
from qbe.serve.turns import GivenUpError, OverloadedError, TooSlowError, Turns, client_at
from qbe.util.work import Workers, idle, pause, undisturbed

SOON = 30


@pytest.fixture
def turns():
    with Turns() as opened:
        yield opened


class Held:
    """Work that goes on, pausing again and again, until it is let go."""

    def __init__(self, pause=pause):
        self.is_begun, self._may_end, self._pause = threading.Event(), threading.Event(), pause

    def __call__(self):
        self.is_begun.set()
        while not self._may_end.wait(0.001):
            self._pause()
        return "held"

    def let_go(self):
        self._may_end.set()


def held(turns, client, **more):
    """Work of a client that is worked on, and its turn."""
    work = Held(**more)
    turn = turns.submit(client, work, is_long=True)
    assert work.is_begun.wait(SOON)
    return work, turn


def test_a_client_of_few_requests_comes_first_and_short_ones_before_long_ones(turns):
    work, first = held(turns, "many", pause=lambda: None)
    done = []

    def submit(client, name, **more):
        return turns.submit(client, lambda: done.append(name), **more)

    queued = [submit("many", "long", is_long=True), *(submit("many", number) for number in range(5))]
    queued.append(submit("few", "few"))
    assert turns.waiting == 8
    work.let_go()
    for each in (first, *queued):
        each.answer.result(SOON)
    assert done == ["few", 0, 1, 2, 3, 4, "long"]


@pytest.mark.parametrize("client", ["the same", "another"])
def test_long_work_lets_short_requests_go_first(turns, client):
    work, long = held(turns, "the same")
    assert turns.submit(client, lambda: "short").answer.result(SOON) == "short"
    assert not long.answer.done()
    work.let_go()
    assert long.answer.result(SOON) == "held"


def test_work_pauses_between_items_waits_idly_and_is_undisturbed_where_it_must(turns):
    order = []

    def items():
        order.append("first")
        yield 1
        turns.submit("b", lambda: order.append("b"))
        yield 2

    def work():
        with Workers(2) as workers:
            list(workers.map(order.append, items()))
        turns.submit("c", lambda: order.append("c"))
        with undisturbed():
            pause()
        order.append("not disturbed")
        meanwhile = threading.Event()
        turns.submit("a", meanwhile.set)
        with idle():
            assert meanwhile.wait(SOON)

    turns.submit("a", work, is_long=True).answer.result(SOON)
    assert [each for each in order if each != 1] == ["first", "b", 2, "not disturbed", "c"]


def test_a_client_with_too_many_requests_loses_its_last(turns):
    work, first = held(turns, "many", pause=lambda: None)
    queued = [turns.submit("many", int, is_long=number == 3) for number in range(module.MAX_WAITING)]
    for _ in range(2):  # the first in the place of the long one
        queued += [turns.submit("many", int)]
    queued.append(turns.submit("few", int))
    work.let_go()
    errors = [each.answer.exception(SOON) for each in (first, *queued)]
    refused = [number for number, error in enumerate(errors) if isinstance(error, OverloadedError)]
    assert refused == [4, len(queued) - 2, len(queued) - 1]
    assert sum(error is not None for error in errors) == len(refused)


def test_what_nobody_waits_for_is_not_begun_and_not_gone_on_with(turns):
    _, running = held(turns, "a")
    begun = []
    waiting = turns.submit("a", lambda: begun.append("waiting"), is_long=True)
    turns.give_up(waiting)
    turns.give_up(running)
    with pytest.raises(GivenUpError):
        running.answer.result(SOON)
    assert turns.submit("a", lambda: "next").answer.result(SOON) == "next"
    assert waiting.answer.cancelled() and not begun and turns.waiting == 0


def test_an_error_is_that_of_its_request_and_what_takes_too_long_ends(turns, monkeypatch):
    with pytest.raises(ZeroDivisionError):
        asyncio.run(turns.answer(lambda: 1 / 0))
    monkeypatch.setattr(module, "MAX_SECONDS", 0.05)
    with pytest.raises(TooSlowError, match=r"longer than 0\.05 s"):
        asyncio.run(turns.answer(Held()))
    assert turns.submit("", lambda: "next").answer.result(SOON) == "next"


def test_closing_refuses_what_waits_and_ends_what_is_begun():
    with Turns() as turns:
        _, running = held(turns, "a")
        waiting = turns.submit("a", int, is_long=True)
    assert isinstance(running.answer.exception(SOON), GivenUpError)
    assert isinstance(waiting.answer.exception(SOON), OverloadedError)
    assert isinstance(turns.submit("a", int).answer.exception(SOON), OverloadedError)


def test_clients_are_told_apart_by_address_and_network(turns, monkeypatch):
    addresses = ["10.0.0.1", "::ffff:10.0.0.1", "2001:db8:1:2:3::4", "2001:db8:1:2::9", "testclient", ""]
    network = "2001:0db8:0001:0002"
    assert [*map(client_at, addresses)] == ["10.0.0.1", "10.0.0.1", network, network, "testclient", ""]
    monkeypatch.setattr(module, "MAX_CLIENTS", 2)
    for address in "abcd":
        turns.submit(address, int).answer.result(SOON)
    turns.close()
    assert len(turns._loads) <= 2

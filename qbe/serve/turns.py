"""Whose request is worked on: one at a time, that of the client who has had the fewest lately."""

import asyncio
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from ipaddress import IPv6Address, ip_address
from typing import Any, NamedTuple, TypeVar

from qbe.errors import QbeError
from qbe.index import jvm
from qbe.util.work import Closing, take_turns

T = TypeVar("T")

MAX_WAITING = 64  # requests that wait
MAX_BEGUN = 8  # requests that are begun and not answered, beyond which no long one is begun
MAX_SECONDS = 60.0  # within which a request must be answered, waiting included
LATELY = 20.0  # seconds after which what was counts for 1 / e
LONG_COUNTS = 10  # short requests for a long one
FIRST_BELOW = 0.5  # of the load of who is worked on: others wait to the end
MAX_CLIENTS = 1000  # clients whose load is known, beside those of whom requests are here

client: ContextVar[str] = ContextVar("client", default="")  # who sent the request


def client_at(address: str) -> str:
    """The client at an IP address: in IPv6 all addresses of a network are one."""
    with suppress(ValueError):
        parsed = ip_address(address)
        if isinstance(parsed, IPv6Address):
            return str(parsed.ipv4_mapped or parsed.exploded[:19])
    return address


class OverloadedError(QbeError):
    """Too many requests are waiting."""

    def __init__(self) -> None:
        super().__init__("too many searches are waiting; try again in 1 s")


class TooSlowError(QbeError):
    """A request took longer than its limit."""


class GivenUpError(QbeError):
    """Nobody waits for the answer any more."""


class Load(NamedTuple):
    """How many requests of a client are here, waiting or worked on, and the mean of that lately."""

    here: int
    mean: float
    since: float

    def at(self, now: float) -> float:
        return self.here + (self.mean - self.here) * math.exp((self.since - now) / LATELY)


class Turn:
    """A request of a client on its way: ``number`` counts them, ``answer`` is what will come of it."""

    def __init__(self, client: str, number: int, work: Callable[[], Any], *, is_long: bool):
        self.client, self.number, self.work, self.is_long = client, number, work, is_long
        self.answer: Future[Any] = Future()
        self.is_begun = self.is_given_up = False


class Turns(Closing):
    """Gives the processors to one request at a time: that of the client of whom fewest have been here lately,
    waiting or worked on, short before long ones (LONG_COUNTS), the first before later ones.

    A request that is worked on lets another go first between two pieces of work, and ends there if nobody
    waits for its answer. Each is worked on by a thread of its own.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: list[Turn] = []
        self._running: Turn | None = None
        self._begun = set[Turn]()
        self._loads: dict[str, Load] = {}  # by client
        self._count, self._closed = 0, False

    @property
    def waiting(self) -> int:
        """How many requests are not answered yet."""
        with self._changed:
            return len(self._begun.union(self._waiting))

    async def answer(self, function: Callable[..., T], *given: Any, is_long: bool = False) -> T:
        """Call a function when it is the turn of this `client`; cancelling it ends the work.

        Raises OverloadedError where too many wait, now or later, and TooSlowError after MAX_SECONDS.
        """
        turn = self.submit(client.get(), partial(function, *given), is_long=is_long)
        try:
            async with asyncio.timeout(MAX_SECONDS):
                answer: T = await asyncio.wrap_future(turn.answer)
                return answer
        except TimeoutError:
            took = f"longer than {MAX_SECONDS:g} s and was given up"
            raise TooSlowError(f"the search took {took}; ask for fewer hits") from None
        finally:
            self.give_up(turn)

    def submit(self, client: str, work: Callable[[], Any], *, is_long: bool = False) -> Turn:
        """Queue a request. Where too many wait, the last one of the client who has most is refused."""
        with self._changed:
            self._count += 1
            turn = Turn(client, self._count, work, is_long=is_long)
            self._waiting.append(turn)
            self._count_of(client, 1)
            if self._closed or len(self._waiting) > MAX_WAITING:
                fresh = [each for each in self._waiting if not each.is_begun]
                self._refuse(max(fresh, key=lambda e: (self._loads[e.client].here, e.is_long, e.number)))
            self._go_on()
        return turn

    def _refuse(self, turn: Turn) -> None:
        self._forget(turn)
        if turn.answer.set_running_or_notify_cancel():
            turn.answer.set_exception(OverloadedError())

    def give_up(self, turn: Turn) -> None:
        """End the work on a request that is not answered yet."""
        with self._changed:
            turn.is_given_up = True
            if turn in self._waiting and not turn.is_begun:
                self._forget(turn)
                turn.answer.cancel()
            self._changed.notify_all()

    def pause(self, turn: Turn) -> None:
        """Let another request go first that should; raises GivenUpError."""
        with self._changed:
            if self._running is turn and (able := self._able()):
                now = time.monotonic()
                if min(self._rank(each, now) for each in able) < FIRST_BELOW * self._rank(turn, now):
                    with self.idle(turn):
                        pass
            if turn.is_given_up:
                raise GivenUpError("nobody waits for this answer")

    @contextmanager
    def idle(self, turn: Turn) -> Iterator[None]:
        """Let others go on meanwhile, then wait until it is this one's turn, or nobody waits for it."""
        self._leave(turn)
        try:
            yield
        finally:
            with self._changed:
                self._waiting.append(turn)
                self._go_on()
                self._changed.wait_for(lambda: self._running is turn or turn.is_given_up)
                if self._running is not turn:
                    self._waiting.remove(turn)

    def _leave(self, turn: Turn) -> None:
        with self._changed:
            if self._running is turn:
                self._running = None
                self._go_on()

    def _go_on(self) -> None:
        """Begin or go on with the best of the requests that wait, if none is worked on."""
        while self._running is None and (able := self._able()):
            now = time.monotonic()
            best = min(able, key=lambda each: (self._rank(each, now), each.is_long, each.number))
            if not (best.is_begun or best.answer.set_running_or_notify_cancel()):
                self._forget(best)
                continue
            if not best.is_begun:
                best.is_begun = True
                self._begun.add(best)
                threading.Thread(target=self._work, args=[best], name="qbe-turn", daemon=True).start()
            self._waiting.remove(best)
            self._running = best
        self._changed.notify_all()

    def _able(self) -> list[Turn]:
        is_full = len(self._begun) >= MAX_BEGUN
        return [each for each in self._waiting if each.is_begun or not (each.is_long and is_full)]

    def _rank(self, turn: Turn, now: float) -> float:
        return self._loads[turn.client].at(now) * (LONG_COUNTS if turn.is_long else 1)

    def _forget(self, turn: Turn) -> None:
        self._waiting.remove(turn)
        self._count_of(turn.client, -1)

    def _count_of(self, client: str, more: int) -> None:
        load, now = self._loads.get(client, Load(0, 0.0, 0.0)), time.monotonic()
        self._loads[client] = Load(load.here + more, load.at(now), now)
        if more < 0 and len(self._loads) > MAX_CLIENTS:
            self._loads = {name: each for name, each in self._loads.items() if each.here}

    def _work(self, turn: Turn) -> None:
        take_turns(partial(self.pause, turn), partial(self.idle, turn))
        try:
            tell = partial(turn.answer.set_result, turn.work())
        except BaseException as error:
            tell = partial(turn.answer.set_exception, error)
        if "jnius" in sys.modules:
            jvm.detach()
        with self._changed:
            self._begun.remove(turn)
            self._count_of(turn.client, -1)
            self._leave(turn)
            self._changed.notify_all()
        tell()

    def close(self) -> None:
        """Refuse the requests that wait, and end the others at their next pause."""
        with self._changed:
            self._closed = True
            for turn in [each for each in self._waiting if not each.is_begun]:
                self._refuse(turn)
            for turn in self._begun:
                turn.is_given_up = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._begun)

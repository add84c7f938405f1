"""Requests to an OpenAI-compatible endpoint: retries with back-off, within a budget."""

from __future__ import annotations

import email.utils
import ipaddress
import json
import logging
import os
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from qbe.errors import ModelError, QbeError, UsageError, check_positive
from qbe.parallel import Closing
from qbe.plain import one_line

log = logging.getLogger("qbe.llm")

KEY_VARIABLE, ENDPOINT_VARIABLE = "QBE_LLM_KEY", "QBE_LLM_ENDPOINT"
TIMEOUT_SECONDS = 120.0
TRIES = 6
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds before the second try, doubled with each further one; an endpoint may ask for more, up to
MOST_PAUSE.
"""
MOST_PAUSE = 300.0
MOST_BYTES = 1 << 20
"""Of an answer."""
ANSWER_TOKENS, MOST_ANSWER_TOKENS = 150, 2048
"""What an answer is estimated to have, and what the endpoint is told that it may have at most."""
CHARACTERS_A_TOKEN = 4
"""Of English text, for estimates."""

_OTHER_WORDS = {"json_schema": "response_format", "context length": "max_tokens"}
"""What endpoints say of parameters without their names."""

_LIMIT = "maxLength"
"""A keyword of schemas that some endpoints refuse; without it small models may write on and on."""

_TEMPORARY = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_REFUSED = {
    401: f"the key; check ${KEY_VARIABLE}",
    402: "payment; check the account",
    403: f"access; check ${KEY_VARIABLE} and what it may use",
    404: "the address or the model; check `endpoint` and `model`",
    405: "the address; check `endpoint`, such as http://127.0.0.1:8080/v1",
}
"""Answers after which no other request will be taken either."""


class RequestError(ModelError):
    """One request that was given up; others may be answered."""


class EndpointError(ModelError):
    """No request will be answered."""


class BudgetSpentError(QbeError):
    """The next request would exceed the budget."""


class _TemporaryError(Exception):
    """A try that failed; the next may not. ``pause`` is what the endpoint asks to wait, in seconds."""

    def __init__(self, reason: str, pause: float | None = None) -> None:
        super().__init__(reason)
        self.pause = pause


class Reply(NamedTuple):
    """The text of an answer, and the tokens of the request and of the answer."""

    text: str
    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a model is reached: the base address (``.../v1``), its name there, and a key that is never shown.

    >>> Endpoint("http://127.0.0.1:8080/v1/", "qwen3", key="secret")
    Endpoint(url='http://127.0.0.1:8080/v1', model='qwen3', timeout=120.0)
    """

    url: str
    model: str
    timeout: float = TIMEOUT_SECONDS
    key: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            is_address = parts.scheme in ("http", "https") and parts.port != 0 and not parts.query
        except ValueError:
            is_address = False
        if not is_address or not parts.hostname:
            raise UsageError(
                "expected an `endpoint` such as http://127.0.0.1:8080/v1, without a query, found "
                f"{self.url.partition('?')[0]!r:.80}"
            )
        if parts.username or parts.password:
            raise UsageError(
                f"expected an `endpoint` without user and password, found some; set ${KEY_VARIABLE} instead"
            )
        if not self.model:
            raise UsageError("expected the name of a `model` at the endpoint, found none")
        check_positive("timeout", self.timeout)
        if self.key and not (self.key.isascii() and self.key.isprintable()):
            raise UsageError(f"expected a key of printable ASCII characters in ${KEY_VARIABLE}, found others")
        object.__setattr__(self, "url", self.url.rstrip("/").removesuffix("/chat/completions"))
        if self.key and parts.scheme == "http" and not _is_this_machine(parts.hostname):
            log.warning("the key is sent to %s without encryption; use https", parts.hostname)

    @classmethod
    def of(cls, url: str | None, model: str, timeout: float = TIMEOUT_SECONDS) -> Endpoint:
        """An endpoint, by default that of ``$QBE_LLM_ENDPOINT``, with the key of ``$QBE_LLM_KEY``, if there
        is one; raises UsageError for what is no address, and where there is none.
        """
        url = url or os.environ.get(ENDPOINT_VARIABLE)
        if not url:
            raise UsageError(
                "expected the address of an `endpoint` such as http://127.0.0.1:8080/v1, or "
                f"${ENDPOINT_VARIABLE}, found neither"
            )
        return cls(url, model, timeout, os.environ.get(KEY_VARIABLE, "").strip() or None)


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Budget:
    """How many requests may be sent, and how many tokens they and their answers may have (None: any number).

    What a request will cost is reserved before it is sent, and corrected when it is answered. Threads may
    share it.

    >>> budget = Budget(requests=2, tokens=1000)
    >>> budget.reserve(400), budget.settle(400, 350), budget.tokens_spent
    (None, None, 350)
    >>> budget.reserve(700)
    Traceback (most recent call last):
    ...
    qbe.llm.endpoint.BudgetSpentError: 350 of 1,000 tokens are spent
    """

    def __init__(self, requests: int | None = None, tokens: int | None = None) -> None:
        self._lock = threading.Lock()
        self._requests, self._tokens = requests, tokens
        self.requests_spent = self.tokens_spent = 0

    def reserve(self, tokens: int) -> None:
        """Take a request of so many tokens into account; raises BudgetSpentError where it is too much."""
        with self._lock:
            if self._requests is not None and self.requests_spent >= self._requests:
                raise BudgetSpentError(f"{self.requests_spent:,} of {self._requests:,} requests are spent")
            if self._tokens is not None and self.tokens_spent + tokens > self._tokens:
                raise BudgetSpentError(f"{self.tokens_spent:,} of {self._tokens:,} tokens are spent")
            self.requests_spent += 1
            self.tokens_spent += tokens

    def settle(self, reserved: int, tokens: int) -> None:
        """Put the tokens that a request had in the place of those reserved for it."""
        with self._lock:
            self.tokens_spent += tokens - reserved

    def add(self, requests: int, tokens: int) -> None:
        """Take into account what was spent before."""
        with self._lock:
            self.requests_spent += requests
            self.tokens_spent += tokens


class Client(Closing):
    """Asks a model. Threads may share it.

    Requests that are refused for a while (429, 5xx), time out or break off are sent again, up to ``tries``
    times in all, after pauses that double from ``pause`` seconds on, or after what ``Retry-After`` says.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        budget: Budget | None = None,
        *,
        tries: int = TRIES,
        pause: float = FIRST_PAUSE,
    ) -> None:
        import httpx2

        self.endpoint, self.budget = endpoint, budget or Budget()
        self._tries, self._pause = tries, pause
        headers = {"Authorization": f"Bearer {endpoint.key}"} if endpoint.key else {}
        self._http = httpx2.Client(timeout=endpoint.timeout, headers=headers)
        self._was_answered = False
        self._unknown: set[str] = set()

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def ask(self, prompt: str, schema: Mapping[str, Any], stop: threading.Event | None = None) -> Reply:
        """The answer to a prompt, which the endpoint is asked to give as JSON of a schema; after ``stop`` it
        is not asked again.

        Raises BudgetSpentError, RequestError where this request is given up, EndpointError where no other
        will be answered either.
        """
        estimate, stop = estimated_tokens(prompt) + ANSWER_TOKENS, stop or threading.Event()
        for number in range(1, self._tries + 1):
            spent = 0
            self.budget.reserve(estimate)
            try:
                reply = self._taken(prompt, schema)
                spent = reply.prompt_tokens + reply.completion_tokens
                self._was_answered = True
                return reply
            except _TemporaryError as error:
                reason, asked = self._plain(str(error)), error.pause
            finally:
                self.budget.settle(estimate, spent)
            if asked is not None and asked > MOST_PAUSE:
                raise EndpointError(
                    f"{self.endpoint.url} asks to wait {asked:,.0f} s ({reason}); try again then"
                )
            if number < self._tries:
                doubled = min(self._pause * 2 ** (number - 1), LONGEST_PAUSE) * random.uniform(1, 1.25)
                if stop.wait(doubled if asked is None else asked):
                    break
        raise RequestError(
            f"expected an answer of {self.endpoint.url}, found none in {number} tries: {reason}"
        )

    def _taken(self, prompt: str, schema: Mapping[str, Any]) -> Reply:
        """The answer of one try, without parameters that the endpoint does not know: what it has named as
        wrong is left out from then on.
        """
        while True:
            has_limits = _LIMIT not in self._unknown
            given = schema if has_limits else _without_limits(schema)
            optional = {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "grades", "strict": True, "schema": given},
                },
                "temperature": 0,
                "max_tokens": MOST_ANSWER_TOKENS,
            }
            known = {name: value for name, value in optional.items() if name not in self._unknown}
            message = {"role": "user", "content": prompt}
            status, headers, data = self._sent({"model": self.endpoint.model, "messages": [message], **known})
            if status == 200:
                return self._reply(prompt, data)
            words = _message(data)
            reason = f"{status}: {self._plain(words) or 'no reason given'}"
            for other, name in _OTHER_WORDS.items():
                words = words.replace(other, name)
            named = {name for name in known if name in words}
            if _LIMIT in words and has_limits:  # whatever another thread has learnt since
                named = {_LIMIT}
            if status not in (400, 422):
                named.clear()
            if not named:
                raise self._error(status, reason, headers)
            log.info("%s is left out of requests: the endpoint answered %s", ", ".join(sorted(named)), reason)
            self._unknown |= named

    def _sent(self, body: Mapping[str, Any]) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers and body of the answer to a request."""
        import httpx2

        until = time.monotonic() + self.endpoint.timeout
        data = bytearray()
        try:
            with self._http.stream("POST", f"{self.endpoint.url}/chat/completions", json=body) as response:
                for part in response.iter_bytes():
                    data += part
                    if len(data) > MOST_BYTES:
                        raise _TemporaryError(f"an answer of more than {MOST_BYTES:,} bytes")
                    if time.monotonic() > until:
                        raise _TemporaryError(f"no whole answer within {self.endpoint.timeout:g} s")
                return response.status_code, response.headers, bytes(data)
        except httpx2.ConnectError as error:
            if self._was_answered:
                raise _TemporaryError(f"no connection ({error})") from None
            raise EndpointError(
                f"expected a server at {self.endpoint.url}, found none ({error}); start it, or check "
                "`endpoint`"
            ) from None
        except httpx2.TimeoutException:
            raise _TemporaryError(f"no answer within {self.endpoint.timeout:g} s") from None
        except (httpx2.RequestError, httpx2.InvalidURL) as error:
            raise _TemporaryError(f"{type(error).__name__}: {error}") from None

    def _reply(self, prompt: str, data: bytes) -> Reply:
        try:
            answer = json.loads(data)
            text = answer["choices"][0]["message"]["content"] or ""
            usage = answer.get("usage") or {}
            counts = usage.get("prompt_tokens"), usage.get("completion_tokens")
            if not isinstance(text, str):
                raise TypeError
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            found = self._plain(data[:80].decode(errors="replace"))
            raise _TemporaryError(f"expected an answer with choices, found {found!r}") from None
        estimates = estimated_tokens(prompt), estimated_tokens(text)
        used = (n if isinstance(n, int) else guess for n, guess in zip(counts, estimates, strict=True))
        return Reply(text, *used)

    def _error(self, status: int, reason: str, headers: Mapping[str, str]) -> Exception:
        if status in _TEMPORARY:
            return _TemporaryError(reason, seconds_of(headers.get("retry-after", "")))
        if status in _REFUSED:
            return EndpointError(f"{self.endpoint.url} refuses {_REFUSED[status]} ({reason})")
        if 300 <= status < 400:
            return EndpointError(
                f"{self.endpoint.url} leads elsewhere ({status}), where no key is sent; give the address "
                "that answers as `endpoint`"
            )
        return RequestError(f"{self.endpoint.url} refuses the request ({reason})")

    def _plain(self, text: str) -> str:
        """A text of the endpoint in a line, without the key, which some repeat."""
        return one_line(text.replace(self.endpoint.key, "...") if self.endpoint.key else text)[:200]


def estimated_tokens(text: str) -> int:
    """How many tokens a text of English has, about.

    >>> estimated_tokens("We cut stone with water.")
    6
    """
    return -(-len(text) // CHARACTERS_A_TOKEN)


def seconds_of(value: str, now: Callable[[], float] = time.time) -> float | None:
    """The seconds that a ``Retry-After`` says, as a number or as a date; None for anything else.

    >>> seconds_of("1.5"), seconds_of("soon")
    (1.5, None)
    >>> seconds_of("Thu, 01 Jan 1970 00:01:00 GMT", lambda: 50.0)
    10.0
    """
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - now()
        except ValueError:
            return None
    return max(seconds, 0.0) if seconds < float("inf") else None


def _without_limits(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON schema without limits of lengths.

    >>> _without_limits({"type": "object", "properties": {"a": {"type": "string", "maxLength": 9}}})
    {'type': 'object', 'properties': {'a': {'type': 'string'}}}
    """
    without: dict[str, Any] = json.loads(
        json.dumps(schema),
        object_hook=lambda part: {name: value for name, value in part.items() if name != _LIMIT},
    )
    return without


def _message(data: bytes) -> str:
    """What an answer says is wrong."""
    try:
        error = json.loads(data)["error"]
        return str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, LookupError, TypeError, RecursionError):
        return data[:400].decode(errors="replace")

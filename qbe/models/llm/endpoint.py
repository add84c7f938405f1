"""Requests to an OpenAI-compatible endpoint, within a budget."""

from __future__ import annotations

import http.client
import ipaddress
import json
import logging
import os
import threading
import urllib.error
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from qbe.errors import ModelError, QbeError, UsageError, check_positive
from qbe.util import web
from qbe.util.text import one_line

log = logging.getLogger("qbe.models.llm")

KEY_VARIABLE, ENDPOINT_VARIABLE = "QBE_LLM_KEY", "QBE_LLM_ENDPOINT"
TIMEOUT_SECONDS = 120.0
RETRIES = web.Retries(spread=0.25)
MOST_BYTES = 1 << 20
"""Of an answer."""
ANSWER_TOKENS, MOST_ANSWER_TOKENS = 150, 2048
"""What an answer is estimated to have, and what the endpoint is told that it may have at most."""
CHARACTERS_A_TOKEN = 4
"""Of English text, for estimates."""

_OTHER_WORDS = {
    "json_schema": "response_format",
    "json_object": "response_format",
    "context length": "max_tokens",
}
"""What endpoints say of parameters without their names."""

_LIMIT = "maxLength"
"""A keyword of schemas that some endpoints refuse; without it small models may write on and on."""

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
    qbe.models.llm.endpoint.BudgetSpentError: 350 of 1,000 tokens are spent
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


class Client:
    """Asks a model. Threads may share it.

    Requests that are refused for a while (429, 5xx), time out or break off are sent again, see `qbe.util.web`.
    """

    def __init__(
        self, endpoint: Endpoint, budget: Budget | None = None, *, retries: web.Retries = RETRIES
    ) -> None:
        self.endpoint, self.budget = endpoint, budget or Budget()
        self._retries = retries
        self._headers = {"Content-Type": "application/json"}
        if endpoint.key:
            self._headers["Authorization"] = f"Bearer {endpoint.key}"
        self._was_answered = False
        self._unknown: set[str] = set()

    def ask(self, prompt: str, schema: Mapping[str, Any], stop: threading.Event | None = None) -> Reply:
        """The answer to a prompt, which the endpoint is asked to give as JSON of a schema; after ``stop`` it
        is not asked again.

        Raises BudgetSpentError, RequestError where this request is given up, EndpointError where no other
        will be answered either.
        """
        sleep = None if stop is None else stop.wait
        try:
            return self._retries.run(lambda: self._tried(prompt, schema), sleep=sleep)
        except web.TemporaryError as error:
            reason, wait = self._plain(str(error)), error.wait or 0.0
            if wait > self._retries.longest_wait:
                raise EndpointError(
                    f"{self.endpoint.url} asks to wait {wait:,.0f} s ({reason}); try again then"
                ) from None
            raise RequestError(
                f"expected an answer of {self.endpoint.url}, found none in {error.attempts} tries: {reason}"
            ) from None

    def _tried(self, prompt: str, schema: Mapping[str, Any]) -> Reply:
        """The answer of one try, within the budget."""
        estimate, spent = estimated_tokens(prompt) + ANSWER_TOKENS, 0
        self.budget.reserve(estimate)
        try:
            reply = self._taken(prompt, schema)
            spent = reply.prompt_tokens + reply.completion_tokens
            self._was_answered = True
            return reply
        finally:
            self.budget.settle(estimate, spent)

    def _taken(self, prompt: str, schema: Mapping[str, Any]) -> Reply:
        """The answer of one try, without parameters that the endpoint does not know: what it has named as
        wrong is left out from then on. A schema is given in OpenAI's form, then in that of llama-cpp-python.
        """
        while True:
            has_limits = _LIMIT not in self._unknown
            given = schema if has_limits else _without_limits(schema)
            forms: dict[str, dict[str, Any]] = {
                "json_schema": {"json_schema": {"name": "grades", "strict": True, "schema": given}},
                "json_object": {"schema": given},
            }
            form = next((name for name in forms if name not in self._unknown), None)
            known: dict[str, Any] = {} if form is None else {"response_format": {"type": form, **forms[form]}}
            optional = {"temperature": 0, "max_tokens": MOST_ANSWER_TOKENS}
            known |= {name: value for name, value in optional.items() if name not in self._unknown}
            message = {"role": "user", "content": prompt}
            answer = self._sent({"model": self.endpoint.model, "messages": [message], **known})
            if answer.status == 200:
                return self._reply(prompt, answer.body)
            words = _message(answer.body)
            reason = f"{answer.status}: {self._plain(words) or 'no reason given'}"
            for other, name in _OTHER_WORDS.items():
                words = words.replace(other, name)
            named = {name for name in known if name in words}
            # a failure that names several repeats the request
            is_refusal = answer.status in (400, 422) or (answer.status >= 500 and len(named) < 2)
            if _LIMIT in words and has_limits:  # whatever another thread has learnt since
                named = {_LIMIT}
            elif form is not None and "response_format" in named:
                named = named - {"response_format"} | {form}
            if not (named and is_refusal):
                raise self._error(answer, reason)
            if not named <= self._unknown:
                left = ", ".join(sorted(named))
                log.info("%s is left out of requests: the endpoint answered %s", left, reason)
            self._unknown |= named

    def _sent(self, body: Mapping[str, Any]) -> web.Answer:
        """The answer to a request."""
        url, timeout = self.endpoint.url, self.endpoint.timeout
        try:
            return web.ask(
                f"{url}/chat/completions",
                data=json.dumps(body).encode(),
                headers=self._headers,
                timeout=timeout,
                within=timeout,
                most=MOST_BYTES,
                redirected=False,
            )
        except web.TooLargeError as error:
            raise web.TemporaryError(f"an answer of {error}") from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, TimeoutError):
                raise web.TemporaryError(f"no answer within {timeout:g} s") from None
            is_absent = isinstance(error, urllib.error.URLError)
            if is_absent and not isinstance(reason, ConnectionResetError | BrokenPipeError):
                if not self._was_answered:
                    raise EndpointError(
                        f"expected a server at {url}, found none ({reason}); start it, or check `endpoint`"
                    ) from None
                raise web.TemporaryError(f"no connection ({reason})") from None
            raise web.TemporaryError(f"{type(reason).__name__}: {reason}") from None

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
            raise web.TemporaryError(f"expected an answer with choices, found {found!r}") from None
        estimates = estimated_tokens(prompt), estimated_tokens(text)
        used = (n if isinstance(n, int) else guess for n, guess in zip(counts, estimates, strict=True))
        return Reply(text, *used)

    def _error(self, answer: web.Answer, reason: str) -> Exception:
        status = answer.status
        if web.is_temporary_status(status):
            return web.TemporaryError(reason, web.retry_after(answer.headers))
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

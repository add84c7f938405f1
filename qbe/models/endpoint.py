"""A language model behind an OpenAI-compatible endpoint: where it is, what is sent, and what it may cost."""

import logging
import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from qbe.errors import ModelError, QbeError, UsageError, check_package, check_positive
from qbe.types import Facet
from qbe.util.text import one_line
from qbe.util.web import deadline

log = logging.getLogger(__name__)

KEY_VARIABLE, ENDPOINT_VARIABLE = "QBE_LLM_KEY", "QBE_LLM_ENDPOINT"
FORMAT_VARIABLE = "QBE_LLM_RESPONSE_FORMAT"
# How an answer's form is requested: OpenAI's way, that of llama-cpp-python, or by the prompt alone.
RESPONSE_FORMATS = ("json_schema", "json_object", "none")
TIMEOUT_SECONDS = 120.0
RETRIES = 5
KEY_PART = 12  # characters of a key that are not shown, either
MAX_TOLD_TOKENS = 10_000_000  # that an endpoint may say one request took
ANSWER_TOKENS, MAX_ANSWER_TOKENS = 150, 2048  # of an answer: estimated, and the most that are asked for
_OPTIONAL = ("maxLength", "temperature", "max_tokens")  # which some endpoints refuse
_REFUSED = (301, 302, 307, 308, 401, 402, 403, 404, 405)  # no other request will be answered either


class RequestError(ModelError):
    """One request that was given up; others may be answered."""


class EndpointError(ModelError):
    """No request will be answered."""


class BudgetSpentError(QbeError):
    """The next request would exceed the budget."""


class Form(NamedTuple):
    """The form of an answer: the facets it has grades of, and the keys of a reason and of a grade."""

    facets: tuple[Facet, ...] = tuple(Facet)
    reason: str = "rationale"
    grade: str = "grade"

    def told(self) -> str:
        *names, last = (f'"{facet}"' for facet in self.facets)
        return (
            f"Answer with a JSON object alone: for {'each of ' if names else ''}{', '.join(names)}"
            f'{" and " if names else ""}{last} an object with a "{self.reason}" (at most 20 words), then a '
            f'"{self.grade}" (0, 1, 2 or 3).'
        )


OWN_FORM = Form()


def answer_schema(form: Form = OWN_FORM, *, limited: bool = True) -> dict[str, Any]:
    """Return the JSON schema of an answer, by which small models do not write on and on if ``limited``."""

    def of(properties: Mapping[str, Any]) -> dict[str, Any]:
        required = {"required": list(properties), "additionalProperties": False}
        return {"type": "object", "properties": properties, **required}

    rationale = {"type": "string", "maxLength": 300} if limited else {"type": "string"}
    of_facet = of({form.reason: rationale, form.grade: {"type": "integer", "enum": [0, 1, 2, 3]}})
    return of({facet.value: of_facet for facet in form.facets})


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a model is reached: the base URL (``.../v1``), its name there, and a key that is never shown."""

    url: str | None
    model: str
    timeout: float = TIMEOUT_SECONDS
    key: str | None = field(default=None, repr=False)
    response_format: str | None = None

    def __post_init__(self) -> None:
        """Take what is not given from the environment; raise UsageError for a value that cannot be used."""
        such = "an `endpoint` such as http://127.0.0.1:8080/v1"
        url = self.url or os.environ.get(ENDPOINT_VARIABLE)
        if not url:
            raise UsageError(f"expected the address of {such}, or ${ENDPOINT_VARIABLE}, found neither")
        key = self.key or os.environ.get(KEY_VARIABLE, "").strip() or None
        form = self.response_format or os.environ.get(FORMAT_VARIABLE) or RESPONSE_FORMATS[0]
        try:
            parts = urlsplit(url)
            host = parts.hostname if parts.port != 0 and not parts.query else None
            (host or "").encode("idna")
        except ValueError:
            parts, host = urlsplit(""), None
        expected = ""
        if not host or parts.scheme not in ("http", "https"):
            expected = f"{such}, without a query, found {url.partition('?')[0]!r:.80}"
        elif parts.username or parts.password:
            expected = f"an `endpoint` without user and password, found some; set ${KEY_VARIABLE} instead"
        elif not self.model:
            expected = "the name of a `model` at the endpoint, found none"
        elif form not in RESPONSE_FORMATS:
            known = ", ".join(RESPONSE_FORMATS)
            expected = f"a `response_format` of {known}, found {form!r}; check it or ${FORMAT_VARIABLE}"
        elif key and not (key.isascii() and key.isprintable()):
            expected = f"a key of printable ASCII characters in ${KEY_VARIABLE}, found others"
        if expected:
            raise UsageError(f"expected {expected}")
        check_positive("timeout", self.timeout)
        url = url.rstrip("/").removesuffix("/chat/completions")
        for name, value in (("url", url), ("key", key), ("response_format", form)):
            object.__setattr__(self, name, value)
        if key and parts.scheme == "http" and host not in ("localhost", "127.0.0.1", "::1"):
            log.warning("the key is sent to %s without encryption; use https", host)


class Client:
    """Asks a model by the package openai, which retries requests. Threads may share it.

    It spends at most ``max_requests`` (retries are not counted), and ``max_tokens`` of prompts and answers.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        max_requests: int | None = None,
        max_tokens: int | None = None,
        *,
        retries: int = RETRIES,
    ) -> None:
        check_package("openai")
        import openai

        self.endpoint, self.max_requests, self.max_tokens = endpoint, max_requests, max_tokens
        self.requests_spent = self.tokens_spent = 0
        self._lock = threading.Lock()

        # The package is httpx, or httpx2 of later releases.
        transport = sys.modules[openai.DefaultHttpxClient.__mro__[1].__module__.partition(".")[0]]

        class Within(openai.DefaultHttpxClient):
            """Ends a request after the timeout, whatever comes of its answer; each has its own connection."""

            def send(self, request: Any, **options: Any) -> Any:
                opened: list[Any] = []

                def trace(event: str, info: Mapping[str, Any]) -> None:
                    if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
                        opened.append(info["return_value"].get_extra_info("socket"))

                request.extensions["trace"] = trace
                try:
                    with deadline(endpoint.timeout, opened):
                        return super().send(request, **options)
                except TimeoutError as error:
                    raise transport.ReadTimeout("the answer is not complete", request=request) from error

        hooks = [] if endpoint.key else [lambda request: request.headers.pop("Authorization", None)]
        self._client = openai.OpenAI(
            base_url=endpoint.url,
            api_key=endpoint.key or "none",
            timeout=endpoint.timeout,
            max_retries=retries,
            default_headers={"Connection": "close"},
            http_client=Within(follow_redirects=False, event_hooks={"request": hooks}),
        )
        self._client.organization = self._client.project = None  # it takes OpenAI's from the environment
        self._refused: set[str] = set()

    def ask(self, prompt: str, form: Form = OWN_FORM) -> tuple[str, tuple[int, ...]]:
        """Return a text, requested as JSON of `answer_schema`, and the tokens of prompt and text."""
        estimate = estimated_tokens(prompt) + ANSWER_TOKENS
        tokens: tuple[int, ...] = (0, 0)
        with self._lock:
            for spent, more, most, what in (
                (self.requests_spent, 1, self.max_requests, "requests"),
                (self.tokens_spent, estimate, self.max_tokens, "tokens"),
            ):
                if most is not None and spent + more > most:
                    raise BudgetSpentError(f"{spent:,} of {most:,} {what} are spent")
            self.requests_spent += 1
            self.tokens_spent += estimate
        try:
            answer = self._send(prompt, form)
            text, usage = self.without_key(str(answer.choices[0].message.content or "")), answer.usage
            told: list[Any] = [getattr(usage, f"{part}_tokens", None) for part in ("prompt", "completion")]
            guessed = (estimated_tokens(prompt), estimated_tokens(text))
            tokens = tuple(
                count if isinstance(count, int) and 0 <= count <= MAX_TOLD_TOKENS else guess
                for count, guess in zip(told, guessed, strict=True)
            )
            return text, tokens
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise RequestError(f"{self.endpoint.url}: expected an answer with choices, found none") from None
        finally:
            with self._lock:
                self.tokens_spent += sum(tokens) - estimate

    def _send(self, prompt: str, form: Form) -> Any:
        import openai

        url = self.endpoint.url
        while True:
            known = {name for name in _OPTIONAL if name not in self._refused}
            try:
                return self._client.chat.completions.create(**self._body(prompt, form, known))
            except openai.APIStatusError as error:
                named = {name for name in known if error.status_code in (400, 422) and name in str(error)}
                if not named:
                    reason = f"{error.status_code}: {self._plain(error.message)}"
                    if error.status_code in _REFUSED:
                        check = f"check `endpoint`, `model` and ${KEY_VARIABLE}"
                        raise EndpointError(f"{url} refuses requests ({reason}); {check}") from None
                    is_form = "response_format" in reason or "json_schema" in reason
                    hint = f"; give another `response_format` or ${FORMAT_VARIABLE}" if is_form else ""
                    raise RequestError(f"{url} refuses the request ({reason}){hint}") from None
                log.info("%s is left out of requests: the endpoint refuses it", ", ".join(sorted(named)))
                self._refused |= named
            except openai.APITimeoutError:
                raise RequestError(f"{url}: no answer within {self.endpoint.timeout:g} s") from None
            except openai.APIConnectionError as error:
                reason = self._plain(str(error.__cause__ or error))
                if type(error.__cause__).__name__ == "ConnectError":
                    raise EndpointError(
                        f"expected a server at {url}, found none ({reason}); start it, or check `endpoint`"
                    ) from None
                raise RequestError(f"{url}: the connection failed ({reason})") from None

    def _body(self, prompt: str, answer: Form, known: set[str]) -> dict[str, Any]:
        optional = {"temperature": 0, "max_tokens": MAX_ANSWER_TOKENS}
        body: dict[str, Any] = {name: value for name, value in optional.items() if name in known}
        body |= {"model": self.endpoint.model, "messages": [{"role": "user", "content": prompt}]}
        schema, form = answer_schema(answer, limited="maxLength" in known), self.endpoint.response_format
        if form == "json_schema":
            named = {"name": "grades", "strict": True, "schema": schema}
            body["response_format"] = {"type": form, "json_schema": named}
        elif form == "json_object":
            body["response_format"] = {"type": form, "schema": schema}
        return body

    def _plain(self, text: str) -> str:
        return one_line(self.without_key(text))[:200]

    def without_key(self, text: str) -> str:
        """Return a text with dots for the key, which some endpoints repeat, and for parts of it."""
        key = self.endpoint.key or ""
        size = min(len(key), KEY_PART)
        parts = {key[place : place + size] for place in range(len(key) - size + 1)} if key else set()
        shown, end = list[str](), 0
        for place in range(len(text) - size + 1 if key else 0):
            if text[place : place + size] in parts:
                if place >= end:
                    shown += text[end:place], "..."
                end = place + size
        return "".join((*shown, text[end:]))


def estimated_tokens(text: str) -> int:
    return -(-len(text) // 4)

"""Grades of pairs of papers by a language model behind an OpenAI-compatible endpoint, paid for only once."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import sqlite3
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from qbe.errors import (
    FileFormatError,
    ModelError,
    OutputError,
    QbeError,
    UsageError,
    check_package,
    check_positive,
    input_error,
)
from qbe.types import Facet, Paper
from qbe.util.text import one_line
from qbe.util.web import deadline
from qbe.util.work import Closing

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
MAX_ABSTRACT_CHARACTERS = 6000
MAX_ATTEMPTS, MAX_FAILURES = 3, 3  # to get valid grades of a pair; pairs in a row before grading ends
MAX_IN_MEMORY = 10_000  # answers that are kept where there is no file

GUIDELINES = {"facets": "guideline.md", "sciface": "sciface.md"}  # shipped, by name
_OPTIONAL = ("maxLength", "temperature", "max_tokens")  # which some endpoints refuse
_REFUSED = (301, 302, 307, 308, 401, 402, 403, 404, 405)  # no other request will be answered either


class AnswerError(ValueError):
    """A text that is no valid answer."""


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


PaperPair = tuple[Paper, Paper]  # a paper and a candidate, whose similarity to it is graded
OWN_FORM = Form()
_KEYS = {"background": "bg", "method": "mt"}  # short names of facets in answers, such as SciFACE's


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
    """Where a model is reached: the base URL (``.../v1``), its name there, and a key that is never shown.

    What is not given is taken from the environment.
    """

    url: str | None
    model: str
    timeout: float = TIMEOUT_SECONDS
    key: str | None = field(default=None, repr=False)
    response_format: str | None = None

    def __post_init__(self) -> None:
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
            is_told = [isinstance(count, int) and 0 <= count <= MAX_TOLD_TOKENS for count in told]
            tokens = tuple(
                count if right else guess for count, right, guess in zip(told, is_told, guessed, strict=True)
            )
            return text, tokens
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise RequestError(f"{self.endpoint.url}: expected an answer with choices, found none") from None
        finally:
            with self._lock:
                self.tokens_spent += sum(tokens) - estimate

    def _send(self, prompt: str, form: Form) -> Any:
        """Send a prompt, again without the optional parameters that an endpoint refuses."""
        import openai

        url = self.endpoint.url
        while True:
            known = {name for name in _OPTIONAL if name not in self._refused}
            try:
                return self._client.chat.completions.create(**self._body(prompt, form, known))
            except openai.APIStatusError as error:
                named = {name for name in known if error.status_code in (400, 422) and name in str(error)}
                if not named:
                    raise self._status_error(error) from None
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

    def _status_error(self, error: Any) -> ModelError:
        url, status, hint = self.endpoint.url, error.status_code, ""
        reason = f"{status}: {self._plain(error.message)}"
        if status in _REFUSED:
            text = f"{url} refuses requests ({reason}); check `endpoint`, `model` and ${KEY_VARIABLE}"
            return EndpointError(text)
        if "response_format" in reason or "json_schema" in reason:
            hint = f"; give another `response_format` or ${FORMAT_VARIABLE}"
        return RequestError(f"{url} refuses the request ({reason}){hint}")

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


class Answer(NamedTuple):
    """A candidate's grades by facet, from 0 to 3, NaN for one without, and the reasons given for them."""

    grades: tuple[float, ...]
    rationales: tuple[str, ...]


def parse_answer(text: str, form: Form = OWN_FORM) -> Answer:
    """Parse an answer, or raise AnswerError; text around its JSON, such as a model's thoughts, is skipped.

    ``score`` and ``reason`` are taken for ``grade`` and ``rationale``, ``BG`` and ``MT`` for two facets.
    """
    text = text.rpartition("</think>")[2]
    begin, end = text.find("{"), text.rfind("}")
    try:
        record = json.loads(text[begin : end + 1] if begin >= 0 else text, strict=False)
    except (ValueError, RecursionError):
        raise AnswerError(f"expected a JSON object, found {one_line(text)[:60]!r}") from None
    named = {str(key).lower(): value for key, value in record.items()} if isinstance(record, dict) else {}
    grades, rationales = list[float](), list[str]()
    for facet in Facet:
        value = named.get(facet.value, named.get(_KEYS.get(facet.value, "")))
        given = value if isinstance(value, dict) else {"grade": value}
        found = given.get("grade", given.get("score"))
        grade = str(found).strip().removesuffix(".0")
        if grade in ("0", "1", "2", "3"):
            grades.append(int(grade))
        elif facet in form.facets:
            raise AnswerError(f"expected a grade of 0, 1, 2 or 3 for {facet.value}, found {f'{found!r:.40}'}")
        else:
            grades.append(math.nan)
        rationales.append(one_line(given.get("rationale") or given.get("reason") or "")[:500])
    return Answer(tuple(grades), tuple(rationales))


_TABLE = """\
CREATE TABLE IF NOT EXISTS answers (
    digest TEXT NOT NULL, query_id TEXT, paper_id TEXT, model TEXT, guideline TEXT, grades TEXT,
    rationales TEXT, problem TEXT, prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS by_digest ON answers (digest);
"""


class Answers(Closing):
    """Answers by the digest of the question in an SQLite file, each flushed to the disk, or in memory."""

    def __init__(self, path: Path | None = None) -> None:
        """Open a file; one that is absent is made by the first answer."""
        self.path, self._lock = path, threading.Lock()
        self._database: sqlite3.Connection | None = None
        if path is None or path.exists():
            self._open()

    def _open(self) -> sqlite3.Connection:
        try:
            if self.path is not None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            database = sqlite3.connect(self.path or ":memory:", check_same_thread=False)
            tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
            if tables and "answers" not in tables:
                database.close()
                raise sqlite3.DatabaseError
            database.executescript(_TABLE)
        except (OSError, sqlite3.OperationalError) as error:
            raise OutputError(f"cannot open {self.path}: {error}") from None
        except sqlite3.DatabaseError:
            expected = f"{self.path}: expected answers that qbe label kept"
            raise FileFormatError(f"{expected}; give another file as `answers`") from None
        self._database = database
        return database

    def close(self) -> None:
        if self._database is not None:
            self._database.close()

    def _select(self, query: str, *parameters: str) -> tuple[Any, ...] | None:
        if self._database is None:
            return None
        with self._lock:
            found: tuple[Any, ...] | None = self._database.execute(query, parameters).fetchone()
        return found

    def spent(self) -> tuple[int, int]:
        """Return the requests that were answered, and their tokens and the answers'."""
        total = "SELECT count(*), total(prompt_tokens + completion_tokens) FROM answers"
        requests, tokens = self._select(total) or (0, 0)
        return requests, int(tokens)

    def get(self, digest: str) -> Answer | None:
        valid = "SELECT grades, rationales FROM answers WHERE digest = ? AND grades IS NOT NULL"
        if (row := self._select(valid, digest)) is None:
            return None
        grades, rationales = map(json.loads, row)
        return Answer(tuple(math.nan if grade is None else grade for grade in grades), tuple(rationales))

    def add(self, digest: str, about: Sequence[str], answer: Answer | str, tokens: tuple[int, ...]) -> None:
        """Keep an answer, or what is wrong with an invalid one; raises OutputError where it cannot.

        ``about`` are the ids of both papers, the model and the version of the guideline.
        """
        texts: tuple[str | None, ...] = (None, None, str(answer))
        if isinstance(answer, Answer):
            grades = [None if math.isnan(grade) else grade for grade in answer.grades]
            texts = (json.dumps(grades), json.dumps(answer.rationales, ensure_ascii=False), None)
        row = (digest, *about, *texts, *tokens)
        with self._lock:
            database = self._database or self._open()
            try:
                with database:
                    database.execute("INSERT INTO answers VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
                    if self.path is None:
                        oldest = "DELETE FROM answers WHERE rowid <= (SELECT max(rowid) FROM answers) - ?"
                        database.execute(oldest, (MAX_IN_MEMORY,))
            except sqlite3.Error as error:
                raise OutputError(f"cannot write {self.path}: {error}") from None


class Outcome(NamedTuple):
    """Answers of pairs in order, problems of pairs by place, and (``stopped``) why not all were asked for."""

    answers: Sequence[Answer | None]
    problems: dict[int, str]
    stopped: str


class Estimate(NamedTuple):
    """Requests that are not answered yet, and estimates of their tokens."""

    requests: int
    prompt_tokens: int
    completion_tokens: int


class Guideline(NamedTuple):
    """What a model is told of facets and grades, and the form of its answers."""

    text: str
    form: Form = OWN_FORM

    @property
    def version(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()[:12]


def read_guideline(source: Path | None = None) -> Guideline:
    """Read a guideline: qbe's own, SciFACE's for the name ``sciface``, or that of a file.

    A first line such as ``Facets: background, method`` says which facets are graded (else all). Raises
    InputError and FileFormatError.
    """
    path = source or Path("facets")
    if str(path) in GUIDELINES:
        path = Path(__file__).parent / GUIDELINES[str(path)]
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise input_error(path, error) from None
    except UnicodeDecodeError:
        raise FileFormatError(f"{path} is not valid UTF-8") from None
    first, _, rest = text.partition("\n")
    title, _, names = first.partition(":")
    if not (rest if title == "Facets" else text).strip():
        raise FileFormatError(f"{path}: expected a guideline, found no text; say what the grades mean")
    if title != "Facets":
        return Guideline(text)
    facets = {name.strip().lower() for name in names.split(",")}
    if not facets <= {facet.value for facet in Facet}:
        raise FileFormatError(
            f"{path}, line 1: expected facets of {', '.join(map(str, Facet))}, found {names.strip()!r}"
        )
    keys = ("reason", "score") if path.name == GUIDELINES["sciface"] else OWN_FORM[1:]
    return Guideline(rest, Form(tuple(facet for facet in Facet if facet.value in facets), *keys))


class Grader:
    """Grades pairs by a model, several at a time; a pair whose answer is kept is not asked for again."""

    def __init__(
        self,
        client: Client,
        answers: Answers | None = None,
        guideline: Guideline | None = None,
        *,
        parallel: int = 4,
    ) -> None:
        self.client, self.answers = client, Answers() if answers is None else answers
        self._guideline = read_guideline() if guideline is None else guideline
        self._parallel = parallel

    def estimate(self, pairs: Sequence[PaperPair]) -> Estimate:
        """Estimate the requests left to send for pairs."""
        questions = self._questions(pairs).items()
        prompts = [prompt for digest, (prompt, _) in questions if not self.answers.get(digest)]
        return Estimate(len(prompts), sum(map(estimated_tokens, prompts)), len(prompts) * ANSWER_TOKENS)

    def grade(self, pairs: Sequence[PaperPair], progress: Callable[[int], object] | None = None) -> Outcome:
        """Grade pairs, equal ones once, until the budget is spent; ``progress`` gets counts of finished ones.

        Raises EndpointError where no request is answered any more; earlier answers are kept.
        """
        answers: list[Answer | None] = [None] * len(pairs)
        problems: dict[int, str] = {}
        stopped, failures, ended = "", 0, threading.Event()

        def grade_one(digest: str, prompt: str, places: Sequence[int]) -> int:
            nonlocal stopped, failures
            answer = self.answers.get(digest)
            try:
                if answer is None and not ended.is_set():
                    answer = self._ask(digest, prompt, pairs[places[0]])
                    failures = 0
            except BudgetSpentError as error:
                stopped = str(error)
                ended.set()
            except (AnswerError, RequestError) as error:
                problems.update(dict.fromkeys(places, str(error)))
                failures += isinstance(error, RequestError)
                if failures >= MAX_FAILURES:
                    ended.set()
                    raise EndpointError(f"given up after {MAX_FAILURES} pairs in a row: {error}") from None
            except (EndpointError, OutputError):
                ended.set()
                raise
            for place in places:
                answers[place] = answer
            return len(places)

        questions = [(digest, *question) for digest, question in self._questions(pairs).items()]
        with ThreadPoolExecutor(self._parallel, "qbe-llm") as pool:
            try:
                for finished in pool.map(lambda question: grade_one(*question), questions):
                    if progress is not None:
                        progress(finished)
            except KeyboardInterrupt:
                log.info("waiting for requests under way, whose answers are kept")
                raise
            finally:
                ended.set()
        return Outcome(answers, problems, stopped)

    def _questions(self, pairs: Sequence[PaperPair]) -> dict[str, tuple[str, list[int]]]:
        """Map the digest of each prompt to the prompt, and the places of its pairs.

        Prompts have titles and abstracts, and neither ids nor how a candidate was found.
        """
        questions: dict[str, tuple[str, list[int]]] = {}
        for place, pair in enumerate(pairs):
            parts = [self._guideline.text.strip(), self._guideline.form.told()]
            for name, paper in zip(("query_paper", "candidate_paper"), pair, strict=True):
                title, abstract = map(one_line, (paper.title, paper.abstract[:MAX_ABSTRACT_CHARACTERS]))
                parts.append(f"<{name}>\nTitle: {title}\nAbstract: {abstract}\n</{name}>")
            prompt = "\n\n".join(parts)
            digest = hashlib.sha256(json.dumps([self.client.endpoint.model, prompt]).encode()).hexdigest()
            questions.setdefault(digest, (prompt, []))[1].append(place)
        return questions

    def _ask(self, digest: str, prompt: str, pair: PaperPair) -> Answer:
        form, refusal, asked = self._guideline.form, "", prompt
        about = (*(paper.paper_id for paper in pair), self.client.endpoint.model, self._guideline.version)
        for _ in range(MAX_ATTEMPTS):
            text, tokens = self.client.ask(asked, form)
            try:
                answer = parse_answer(text, form)  # of JSON that may write the key by escapes
                answer = answer._replace(rationales=tuple(map(self.client.without_key, answer.rationales)))
            except AnswerError as error:
                refusal = self.client.without_key(str(error))
                self.answers.add(digest, about, refusal, tokens)
                asked = f"{prompt}\n\nAn earlier answer was refused: {refusal}. {form.told()}"
            else:
                self.answers.add(digest, about, answer, tokens)
                return answer
        raise AnswerError(f"no valid answer in {MAX_ATTEMPTS}: {refusal}")

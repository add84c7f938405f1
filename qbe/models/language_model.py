"""Grades of pairs of papers by a language model behind an OpenAI-compatible endpoint, paid for only once."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from qbe.errors import (
    FileFormatError,
    InputError,
    ModelError,
    OutputError,
    QbeError,
    UsageError,
    check_package,
    check_positive,
)
from qbe.types import Facet, Paper
from qbe.util.text import one_line
from qbe.util.work import Closing

log = logging.getLogger(__name__)

KEY_VARIABLE, ENDPOINT_VARIABLE = "QBE_LLM_KEY", "QBE_LLM_ENDPOINT"
FORMAT_VARIABLE = "QBE_LLM_RESPONSE_FORMAT"
# How an answer's form is requested: OpenAI's way, that of llama-cpp-python, or by the prompt alone.
RESPONSE_FORMATS = ("json_schema", "json_object", "none")
TIMEOUT_SECONDS = 120.0
RETRIES = 5
ANSWER_TOKENS, MAX_ANSWER_TOKENS = 150, 2048  # of an answer: estimated, and the most that are asked for
MAX_ABSTRACT_CHARACTERS = 6000
MAX_ATTEMPTS, MAX_FAILURES = 3, 3  # to get valid grades of a pair; pairs in a row before grading ends
MAX_IN_MEMORY = 10_000  # answers that are kept where there is no file

_GRADES = ("0", "1", "2", "3")
_OPTIONAL = ("maxLength", "temperature", "max_tokens")  # which some endpoints refuse
_TOKENS = ("prompt_tokens", "completion_tokens")
_FORM = (
    'Answer with a JSON object alone: for each of "background", "method" and "result" an object with a '
    '"rationale" (at most 20 words), then a "grade" (0, 1, 2 or 3).'
)
_REFUSED = {  # statuses after which no other request will be answered either
    401: f"the key; check ${KEY_VARIABLE}",
    402: "payment; check the account",
    403: f"access; check ${KEY_VARIABLE} and what it may use",
    404: "the address or the model; check `endpoint` and `model`",
    405: "the address; check `endpoint`, such as http://127.0.0.1:8080/v1",
}


class AnswerError(ValueError):
    """A text that is no valid answer."""


class RequestError(ModelError):
    """One request that was given up; others may be answered."""


class EndpointError(ModelError):
    """No request will be answered."""


class BudgetSpentError(QbeError):
    """The next request would exceed the budget."""


def answer_schema(*, limited: bool = True) -> dict[str, Any]:
    """Return the JSON schema of an answer, by which small models do not write on and on if ``limited``."""
    rationale = {"type": "string", "maxLength": 300} if limited else {"type": "string"}
    of_facet = {"rationale": rationale, "grade": {"type": "integer", "enum": list(map(int, _GRADES))}}

    def of(properties: Mapping[str, Any]) -> dict[str, Any]:
        required = {"required": list(properties), "additionalProperties": False}
        return {"type": "object", "properties": properties, **required}

    return of({facet.value: of(of_facet) for facet in Facet})


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
        except ValueError:
            parts, host = urlsplit(""), None
        shown = f"{url.partition('?')[0]!r:.80}"
        for is_wrong, expected in (
            (not host or parts.scheme not in ("http", "https"), f"{such}, without a query, found {shown}"),
            (
                parts.username or parts.password,
                f"an `endpoint` without user and password, found some; set ${KEY_VARIABLE} instead",
            ),
            (not self.model, "the name of a `model` at the endpoint, found none"),
            (
                form not in RESPONSE_FORMATS,
                f"a `response_format` of {', '.join(RESPONSE_FORMATS)}, found {form!r}; check it or "
                f"${FORMAT_VARIABLE}",
            ),
            (
                key and not (key.isascii() and key.isprintable()),
                f"a key of printable ASCII characters in ${KEY_VARIABLE}, found others",
            ),
        ):
            if is_wrong:
                raise UsageError(f"expected {expected}")
        check_positive("timeout", self.timeout)
        url = url.rstrip("/").removesuffix("/chat/completions")
        for name, value in (("url", url), ("key", key), ("response_format", form)):
            object.__setattr__(self, name, value)
        try:
            is_local = ipaddress.ip_address(str(host)).is_loopback
        except ValueError:
            is_local = host == "localhost"
        if key and parts.scheme == "http" and not is_local:
            log.warning("the key is sent to %s without encryption; use https", host)


class Budget:
    """A limit of requests, and of tokens of them and their answers (None: none), that threads may share."""

    def __init__(self, requests: int | None = None, tokens: int | None = None) -> None:
        self._lock = threading.Lock()
        self._requests, self._tokens = requests, tokens
        self.requests_spent = self.tokens_spent = 0

    def reserve(self, tokens: int) -> None:
        """Reserve a request, its retries included; raises BudgetSpentError where it is too much."""
        with self._lock:
            if self._requests is not None and self.requests_spent >= self._requests:
                raise BudgetSpentError(f"{self.requests_spent:,} of {self._requests:,} requests are spent")
            if self._tokens is not None and self.tokens_spent + tokens > self._tokens:
                raise BudgetSpentError(f"{self.tokens_spent:,} of {self._tokens:,} tokens are spent")
            self.requests_spent += 1
            self.tokens_spent += tokens

    def add(self, requests: int, tokens: int) -> None:
        """Add costs of before, or (``tokens``, perhaps negative) correct a reservation."""
        with self._lock:
            self.requests_spent += requests
            self.tokens_spent += tokens


class Client:
    """Asks a model by the package openai, which retries requests. Threads may share it."""

    def __init__(self, endpoint: Endpoint, budget: Budget | None = None, *, retries: int = RETRIES) -> None:
        check_package("openai")
        import openai

        self.endpoint, self.budget = endpoint, budget or Budget()
        hooks = [] if endpoint.key else [lambda request: request.headers.pop("Authorization", None)]
        self._client = openai.OpenAI(
            base_url=endpoint.url,
            api_key=endpoint.key or "none",
            timeout=endpoint.timeout,
            max_retries=retries,
            http_client=openai.DefaultHttpxClient(follow_redirects=False, event_hooks={"request": hooks}),
        )
        self._client.organization = self._client.project = None  # it takes OpenAI's from the environment
        self._was_answered = False
        self._refused: set[str] = set()

    def ask(self, prompt: str) -> tuple[str, tuple[int, int]]:
        """Return a text, requested as JSON of `answer_schema`, and the tokens of prompt and text."""
        estimate, spent, content = estimated_tokens(prompt) + ANSWER_TOKENS, 0, b""
        self.budget.reserve(estimate)
        try:
            content = self._content(prompt)
            answer = json.loads(content)
            text = str(answer["choices"][0]["message"]["content"] or "")
            counts = [(answer.get("usage") or {}).get(name) for name in _TOKENS]
            guesses = map(estimated_tokens, (prompt, text))
            asked, answered = (n if isinstance(n, int) else m for n, m in zip(counts, guesses, strict=True))
            spent = asked + answered
            return text, (asked, answered)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            found = self._plain(content[:80].decode(errors="replace"))
            url = self.endpoint.url
            raise RequestError(f"{url}: expected an answer with choices, found {found!r}") from None
        finally:
            self.budget.add(0, spent - estimate)

    def _content(self, prompt: str) -> bytes:
        import openai

        url = self.endpoint.url
        while True:
            known = {name for name in _OPTIONAL if name not in self._refused}
            try:
                create = self._client.chat.completions.with_raw_response.create
                response = create(**self._body(prompt, known))
                self._was_answered = True
                return bytes(response.content)
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
                if not self._was_answered and type(error.__cause__).__name__ == "ConnectError":
                    raise EndpointError(
                        f"expected a server at {url}, found none ({reason}); start it, or check `endpoint`"
                    ) from None
                raise RequestError(f"{url}: the connection failed ({reason})") from None

    def _body(self, prompt: str, known: set[str]) -> dict[str, Any]:
        optional = {"temperature": 0, "max_tokens": MAX_ANSWER_TOKENS}
        schema = answer_schema(limited="maxLength" in known)
        forms: dict[str, Any] = {
            "json_schema": {"json_schema": {"name": "grades", "strict": True, "schema": schema}},
            "json_object": {"schema": schema},
        }
        form = self.endpoint.response_format
        body: dict[str, Any] = {"model": self.endpoint.model}
        body["messages"] = [{"role": "user", "content": prompt}]
        body |= {name: value for name, value in optional.items() if name in known}
        return body | ({"response_format": {"type": form, **forms[form]}} if form in forms else {})

    def _status_error(self, error: Any) -> ModelError:
        url, status, hint = self.endpoint.url, error.status_code, ""
        reason = f"{status}: {self._plain(error.message)}"
        wait = error.response.headers.get("retry-after", "")
        if wait.isdigit() and int(wait) > 120:  # longer than the library waits
            return EndpointError(f"{url} asks to wait {int(wait):,} s ({reason}); try again then")
        if status in _REFUSED:
            return EndpointError(f"{url} refuses {_REFUSED[status]} ({reason})")
        if 300 <= status < 400:
            remedy = "give the address that answers as `endpoint`"
            return EndpointError(f"{url} leads elsewhere ({status}), where no key is sent; {remedy}")
        if "response_format" in reason or "json_schema" in reason:
            hint = f"; give another `response_format` or ${FORMAT_VARIABLE}"
        return RequestError(f"{url} refuses the request ({reason}){hint}")

    def _plain(self, text: str) -> str:  # in a line, without the key, which some endpoints repeat
        return one_line(text.replace(self.endpoint.key, "...") if self.endpoint.key else text)[:200]


def estimated_tokens(text: str) -> int:
    return -(-len(text) // 4)


class Answer(NamedTuple):
    """The grades of a candidate, from 0 to 3, and the reasons given for them, in the order of the facets."""

    grades: tuple[int, ...]
    rationales: tuple[str, ...]


_APPLICATION_ID = 0x716265  # "qbe"
_ABOUT = ("query_id", "paper_id", "model", "guideline")
_COLUMNS = ("digest", *_ABOUT, "grades", "rationales", "problem", *_TOKENS)
_TABLE = """\
CREATE TABLE IF NOT EXISTS answers (
    digest TEXT NOT NULL, query_id TEXT, paper_id TEXT, model TEXT, guideline TEXT, grades TEXT,
    rationales TEXT, problem TEXT, prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS by_digest ON answers (digest);
"""
_INSERT = "INSERT INTO answers VALUES (:" + ", :".join(_COLUMNS) + ")"  # noqa: S608


def _old_rows(path: Path) -> list[dict[str, Any]]:
    """Read answers of version 0.8; a last line without an end is of a killed process, and no answer."""
    rows: list[dict[str, Any]] = []
    try:
        for line in path.read_bytes().split(b"\n")[:-1]:
            record = json.loads(line)
            for name in ("grades", "rationales") if record.get("grades") is not None else ():
                each = [record[name][facet.value] for facet in Facet]
                record[name] = json.dumps(each, ensure_ascii=False)
            tokens = {name: int(record[name]) for name in _TOKENS}
            row = {name: record.get(name) for name in _COLUMNS}
            rows.append(row | tokens | {"digest": str(record["digest"])})
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise FileFormatError(
            f"{path}, line {len(rows) + 1}: expected an answer that qbe label 0.8 kept, to be taken "
            "over; correct the line, or move the file away to pay for its answers again"
        ) from None
    return rows


class Answers(Closing):
    """Answers by the digest of the question in an SQLite file, each flushed to the disk, or in memory."""

    def __init__(self, path: Path | None = None) -> None:
        """Open a file; a new one takes over answers of version 0.8 in the ``.jsonl`` file beside it."""
        self.path = path
        self._lock = threading.Lock()
        self._database: sqlite3.Connection | None = None
        if path is None or path.exists() or path.with_suffix(".jsonl").exists():
            self._database = self._open()

    def _open(self) -> sqlite3.Connection:
        hint, rows = "another file", list[dict[str, Any]]()
        if self.path is not None:
            old = self.path.with_suffix(".jsonl")
            if self.path == old:
                hint = f"{self.path.with_suffix('.sqlite')}, which takes over answers of version 0.8,"
            elif old.exists() and not (self.path.exists() and self.path.stat().st_size):
                rows = _old_rows(old)
                log.info("%s takes over %s answers of %s", self.path, f"{len(rows):,}", old)
        remedy = f"expected answers that qbe label kept; give {hint} as `answers`"
        wrong = FileFormatError(f"{self.path}: {remedy}")
        try:
            if self.path is not None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            database = sqlite3.connect(self.path or ":memory:", check_same_thread=False)
            (application,) = database.execute("PRAGMA application_id").fetchone()
            (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if tables and application != _APPLICATION_ID:
                database.close()
                raise wrong
            if not tables:  # in one transaction, so that no file is left with a part of the old answers
                with database:
                    database.executescript(f"BEGIN;PRAGMA application_id = {_APPLICATION_ID};{_TABLE}")
                    database.executemany(_INSERT, rows)
        except (OSError, sqlite3.OperationalError) as error:
            raise OutputError(f"cannot open {self.path}: {error}") from None
        except sqlite3.DatabaseError:
            raise wrong from None
        return database

    def _select(self, columns: str, *digest: str) -> Any:
        where = "WHERE digest = ? AND grades IS NOT NULL" if digest else ""
        with self._lock:
            if self._database is None:
                return None
            query = f"SELECT {columns} FROM answers {where}"  # noqa: S608
            return self._database.execute(query, digest).fetchone()

    def spent(self) -> tuple[int, int]:
        """Return the requests that were answered, and their tokens and the answers'."""
        requests, tokens = self._select("count(*), total(prompt_tokens + completion_tokens)") or (0, 0)
        return requests, int(tokens)

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    def get(self, digest: str) -> Answer | None:
        row = self._select("grades, rationales", digest)
        return None if row is None else Answer(*(tuple(json.loads(each)) for each in row))

    def add(
        self, digest: str, about: Mapping[str, str], answer: Answer | str, tokens: tuple[int, int]
    ) -> None:
        """Keep an answer, or what is wrong with an invalid one; raises OutputError where it cannot."""
        row: dict[str, Any] = dict.fromkeys(_COLUMNS)
        row |= dict(about) | dict(zip(("digest", *_TOKENS), (digest, *tokens), strict=True))
        if isinstance(answer, str):
            row["problem"] = answer
        else:
            row |= {name: json.dumps(each, ensure_ascii=False) for name, each in answer._asdict().items()}
        with self._lock:
            if self._database is None:
                self._database = self._open()
            try:
                with self._database:
                    self._database.execute(_INSERT, row)
                    if self.path is None:
                        oldest = "DELETE FROM answers WHERE rowid <= (SELECT max(rowid) FROM answers) - ?"
                        self._database.execute(oldest, (MAX_IN_MEMORY,))
            except sqlite3.Error as error:
                raise OutputError(f"cannot write {self.path}: {error}") from None


class PaperPair(NamedTuple):
    """A paper and a candidate, whose similarity to it is graded."""

    query: Paper
    candidate: Paper


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


def default_guideline() -> str:
    return (Path(__file__).parent / "guideline.md").read_text(encoding="utf-8")


def prompt_of(guideline: str, pair: PaperPair) -> str:
    """Write the question. It has titles and abstracts, and neither ids nor how a candidate was found."""
    parts = [guideline.strip(), _FORM]
    for name, paper in zip(("query_paper", "candidate_paper"), pair, strict=True):
        abstract = paper.abstract[:MAX_ABSTRACT_CHARACTERS]
        parts.append(f"<{name}>\nTitle: {one_line(paper.title)}\nAbstract: {one_line(abstract)}\n</{name}>")
    return "\n\n".join(parts)


def digest_of(model: str, prompt: str) -> str:
    """Return the SHA-256 of a model's name and a prompt: equal questions are asked once."""
    return hashlib.sha256(json.dumps([model, prompt]).encode()).hexdigest()


def parse_answer(text: str) -> Answer:
    """Parse an answer, or raise AnswerError; text around its JSON, such as a model's thoughts, is skipped."""
    text = text.rpartition("</think>")[2]
    begin, end = text.find("{"), text.rfind("}")
    try:
        record = json.loads(text[begin : end + 1] if begin >= 0 else text, strict=False)
    except (ValueError, RecursionError):
        raise AnswerError(f"expected a JSON object, found {one_line(text)[:60]!r}") from None
    grades, rationales = [], []
    for facet in Facet:
        value = record.get(facet.value) if isinstance(record, dict) else None
        given = value if isinstance(value, dict) else {"grade": value}
        grade = str(given.get("grade")).strip().removesuffix(".0")
        if grade not in _GRADES:
            found = f"{given.get('grade')!r:.40}"
            raise AnswerError(f"expected a grade of 0, 1, 2 or 3 for {facet.value}, found {found}")
        grades.append(int(grade))
        rationales.append(one_line(given.get("rationale") or "")[:500])
    return Answer(tuple(grades), tuple(rationales))


class Grader:
    """Grades pairs by a model, several at a time; a pair whose answer is kept is not asked for again."""

    def __init__(
        self,
        client: Client,
        answers: Answers | None = None,
        guideline: str | None = None,
        *,
        parallel: int = 4,
    ) -> None:
        self.client, self.answers = client, Answers() if answers is None else answers
        self._guideline = default_guideline() if guideline is None else guideline
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

        def grade_one(digest: str, prompt: str, places: Sequence[int]) -> None:
            nonlocal stopped, failures
            answer = self.answers.get(digest)
            try:
                if answer is None and not ended.is_set():
                    answer = self._ask(digest, prompt, pairs[places[0]])
                    failures = 0
            except BudgetSpentError as error:
                stopped = str(error)
                ended.set()
            except AnswerError as error:
                problem = f"no valid answer in {MAX_ATTEMPTS}: {error}"
                problems.update(dict.fromkeys(places, problem))
            except RequestError as error:
                problems.update(dict.fromkeys(places, str(error)))
                failures += 1
                if failures >= MAX_FAILURES:
                    ended.set()
                    raise EndpointError(f"given up after {MAX_FAILURES} pairs in a row: {error}") from None
            except (EndpointError, OutputError):
                ended.set()
                raise
            for place in places:
                answers[place] = answer

        questions = [(digest, *question) for digest, question in self._questions(pairs).items()]
        with ThreadPoolExecutor(self._parallel, "qbe-llm") as pool:
            try:
                graded = pool.map(grade_one, *zip(*questions, strict=True)) if questions else ()
                for (_, _, places), _ in zip(questions, graded, strict=True):
                    if progress is not None:
                        progress(len(places))
            except KeyboardInterrupt:
                log.info("waiting for requests under way, whose answers are kept")
                raise
            finally:
                ended.set()
        return Outcome(answers, problems, stopped)

    def _questions(self, pairs: Sequence[PaperPair]) -> dict[str, tuple[str, list[int]]]:
        """Map the digest of each prompt to the prompt, and the places of its pairs."""
        questions: dict[str, tuple[str, list[int]]] = {}
        for place, pair in enumerate(pairs):
            prompt = prompt_of(self._guideline, pair)
            digest = digest_of(self.client.endpoint.model, prompt)
            questions.setdefault(digest, (prompt, []))[1].append(place)
        return questions

    def _ask(self, digest: str, prompt: str, pair: PaperPair) -> Answer:
        version = hashlib.sha256(self._guideline.encode()).hexdigest()[:12]
        ids, model = [paper.paper_id for paper in pair], self.client.endpoint.model
        about = dict(zip(_ABOUT, (*ids, model, version), strict=True))
        asked = prompt
        for attempt in range(1, MAX_ATTEMPTS + 1):
            text, tokens = self.client.ask(asked)
            try:
                answer = parse_answer(text)
            except AnswerError as error:
                self.answers.add(digest, about, str(error), tokens)
                if attempt == MAX_ATTEMPTS:
                    raise
                asked = f"{prompt}\n\nAn earlier answer was refused: {error}. {_FORM}"
            else:
                self.answers.add(digest, about, answer, tokens)
                break
        return answer

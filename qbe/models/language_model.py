"""Grades of pairs of papers by a language model, whose answers are kept and paid for only once."""

import hashlib
import json
import logging
import math
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from qbe.errors import FileFormatError, OutputError, input_error
from qbe.models import endpoint
from qbe.models.endpoint import OWN_FORM, BudgetSpentError, Client, EndpointError, Form, RequestError
from qbe.types import Facet, Paper
from qbe.util.text import one_line
from qbe.util.work import Closing

log = logging.getLogger(__name__)

MAX_ABSTRACT_CHARACTERS = 6000
MAX_ATTEMPTS, MAX_FAILURES = 3, 3  # to get valid grades of a pair; pairs in a row before grading ends
MAX_IN_MEMORY = 10_000  # answers that are kept where there is no file

GUIDELINES = {"facets": "guideline.md", "sciface": "sciface.md"}  # shipped, by name
_KEYS = {"background": "bg", "method": "mt"}  # short names of facets in answers, such as SciFACE's

PaperPair = tuple[Paper, Paper]  # a paper and a candidate, whose similarity to it is graded


class AnswerError(ValueError):
    """A text that is no valid answer."""


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
        tokens = sum(map(endpoint.estimated_tokens, prompts))
        return Estimate(len(prompts), tokens, len(prompts) * endpoint.ANSWER_TOKENS)

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
        # By digest. Prompts tell neither ids nor how a candidate was found.
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
        version = hashlib.sha256(self._guideline.text.encode()).hexdigest()[:12]
        about = (*(paper.paper_id for paper in pair), self.client.endpoint.model, version)
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

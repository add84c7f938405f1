"""Pairs of papers graded by a model: what it is asked, and what its answers must be."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from typing import Any, NamedTuple

from qbe.errors import OutputError
from qbe.models.llm.answers import Answer, Answers
from qbe.models.llm.endpoint import (
    ANSWER_TOKENS,
    BudgetSpentError,
    Client,
    EndpointError,
    RequestError,
    estimated_tokens,
)
from qbe.types import Facet, Paper
from qbe.util.text import one_line

log = logging.getLogger("qbe.models.llm")

GRADES = ("0", "1", "2", "3")
MOST_CHARACTERS = 6000
"""Of an abstract that are shown to the model."""

ASKED, FAILED_IN_A_ROW = 3, 3
"""How often a model is asked that gives no valid grades; after how many pairs in a row that get no answer all
is given up."""

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        facet.value: {
            "type": "object",
            "properties": {
                "rationale": {"type": "string", "maxLength": 300},
                "grade": {"type": "integer", "enum": list(map(int, GRADES))},
            },
            "required": ["rationale", "grade"],
            "additionalProperties": False,
        }
        for facet in Facet
    },
    "required": [facet.value for facet in Facet],
    "additionalProperties": False,
}
"""The JSON schema of an answer: the rationale of each facet before its grade."""

_FORM = (
    'Answer with a JSON object alone: for each of "background", "method" and "result" an object with a '
    '"rationale" (at most 20 words), then a "grade" (0, 1, 2 or 3).'
)


class AnswerError(ValueError):
    """A text that is no valid answer."""


class PaperPair(NamedTuple):
    """A paper and a candidate, whose similarity to it is graded."""

    query: Paper
    candidate: Paper


class Outcome(NamedTuple):
    """The answers of pairs in their order, None where there is none; why, for each of these that was asked
    for;
    and ``stopped``, why not all were asked for (empty: they were).
    """

    answers: Sequence[Answer | None]
    problems: dict[int, str]
    stopped: str


def default_guideline() -> str:
    """The guideline that comes with qbe.

    >>> default_guideline().partition(chr(10))[0]
    'Guideline of facet grades, version 1'
    """
    return (resources.files("qbe.models.llm") / "guideline.md").read_text(encoding="utf-8")


def prompt_of(guideline: str, pair: PaperPair) -> str:
    """What a model is asked. It sees titles and abstracts, and neither ids nor how a candidate was found."""
    parts = [guideline.strip(), _FORM]
    for name, paper in zip(("query_paper", "candidate_paper"), pair, strict=True):
        abstract = paper.abstract[:MOST_CHARACTERS]
        parts.append(f"<{name}>\nTitle: {one_line(paper.title)}\nAbstract: {one_line(abstract)}\n</{name}>")
    return "\n\n".join(parts)


def digest_of(model: str, prompt: str) -> str:
    """The SHA-256 of a model's name and what it is asked: equal ones are asked once."""
    return hashlib.sha256(json.dumps([model, prompt]).encode()).hexdigest()


def parse_answer(text: str) -> Answer:
    """The grades and rationales of an answer; what stands around its JSON, such as a model's thoughts, is
    passed over, and so are line ends in its strings. Raises AnswerError for one that lacks a facet or has
    another grade than 0, 1, 2 or 3.

    >>> both = '"method": {"rationale": "same", "grade": 3}, "result": {"rationale": "none", "grade": 0}'
    >>> parse_answer('<think>Hm {1}</think> {"background": {"grade": "2"}, %s}' % both)
    Answer(grades=(2, 3, 0), rationales=('', 'same', 'none'))
    """
    text = text.rpartition("</think>")[2]
    begin, end = text.find("{"), text.rfind("}")
    try:
        record = json.loads(text[begin : end + 1] if begin >= 0 else text, strict=False)
    except (ValueError, RecursionError):
        raise AnswerError(f"expected a JSON object, found {one_line(text)[:60]!r}") from None
    grades, rationales = [], []
    for facet in Facet:
        value = record.get(facet.value) if isinstance(record, dict) else None
        given = value.get("grade") if isinstance(value, dict) else value
        grade = str(given).strip().removesuffix(".0")
        if grade not in GRADES:
            raise AnswerError(f"expected a grade of 0, 1, 2 or 3 for {facet.value}, found {given!r:.40}")
        grades.append(int(grade))
        rationale = value.get("rationale") if isinstance(value, dict) else ""
        rationales.append(one_line(rationale or "")[:500])
    return Answer(tuple(grades), tuple(rationales))


class Estimate(NamedTuple):
    """What grading will take: requests that are not answered yet, and their tokens, about."""

    requests: int
    prompt_tokens: int
    completion_tokens: int


class Grader:
    """Grades pairs by a model, some at a time; a pair whose answer is kept is not asked for again."""

    def __init__(
        self,
        client: Client,
        answers: Answers | None = None,
        guideline: str | None = None,
        *,
        parallel: int = 4,
    ) -> None:
        """``parallel`` is the number of requests under way at a time."""
        self.client, self.answers = client, Answers() if answers is None else answers
        self._guideline = default_guideline() if guideline is None else guideline
        self._version = hashlib.sha256(self._guideline.encode()).hexdigest()[:12]
        self._parallel = parallel

    def estimate(self, pairs: Sequence[PaperPair]) -> Estimate:
        """What is left to ask for pairs."""
        prompts = [
            prompt for digest, (prompt, _) in self._asked(pairs).items() if not self.answers.get(digest)
        ]
        return Estimate(len(prompts), sum(map(estimated_tokens, prompts)), len(prompts) * ANSWER_TOKENS)

    def grade(self, pairs: Sequence[PaperPair], progress: Callable[[int], object] | None = None) -> Outcome:
        """The grades of pairs, equal ones asked for once; ``progress`` is called, from the calling thread,
        with the number of pairs that are finished.

        A pair of which the model gives no valid grades, or whose request is given up, has none. All ends
        where the budget is spent. Raises EndpointError where no request is answered any more, OutputError
        where an answer cannot be kept; what was answered by then is kept. An interrupt waits for requests
        under way.
        """
        places = [places for _, places in self._asked(pairs).values()]
        run = _Run(self, pairs)
        with ThreadPoolExecutor(self._parallel, "qbe-llm") as pool:
            try:
                for some, _ in zip(places, pool.map(run.grade, places), strict=True):
                    if progress is not None:
                        progress(len(some))
            except BaseException as error:
                run.ended.set()
                if isinstance(error, KeyboardInterrupt):
                    log.info("waiting for requests under way, whose answers are kept")
                run.stop.set()
                pool.shutdown(cancel_futures=True)
                raise
        return Outcome(run.answers, run.problems, run.stopped)

    def _asked(self, pairs: Sequence[PaperPair]) -> dict[str, tuple[str, list[int]]]:
        """By the digest of each prompt the prompt, and the places of its pairs."""
        asked: dict[str, tuple[str, list[int]]] = {}
        for place, pair in enumerate(pairs):
            prompt = prompt_of(self._guideline, pair)
            digest = digest_of(self.client.endpoint.model, prompt)
            asked.setdefault(digest, (prompt, []))[1].append(place)
        return asked

    def answer(self, pair: PaperPair, stop: threading.Event | None = None) -> Answer:
        """The grades of one pair, see `Client.ask` for ``stop``; raises AnswerError after ASKED answers that
        are none, and what `Client.ask` does.
        """
        ((digest, (prompt, _)),) = self._asked([pair]).items()
        asked = prompt
        about = {
            "query_id": pair.query.paper_id,
            "paper_id": pair.candidate.paper_id,
            "model": self.client.endpoint.model,
            "guideline": self._version,
        }
        if known := self.answers.get(digest):
            return known
        for number in range(ASKED):
            reply = self.client.ask(asked, SCHEMA, stop)
            tokens = reply.prompt_tokens, reply.completion_tokens
            try:
                answer = parse_answer(reply.text)
            except AnswerError as error:
                self.answers.add(digest, about, None, tokens=tokens, problem=str(error))
                if number + 1 == ASKED:
                    raise
                asked = f"{prompt}\n\nAn earlier answer was refused: {error}. {_FORM}"
            else:
                self.answers.add(digest, about, answer, tokens=tokens)
                return answer
        raise AssertionError


class _Run:
    """The pairs of a call, shared by its threads."""

    def __init__(self, grader: Grader, pairs: Sequence[PaperPair]) -> None:
        self._grader, self._pairs = grader, pairs
        self.answers: list[Answer | None] = [None] * len(pairs)
        self.problems: dict[int, str] = {}
        self.stopped, self.ended, self.stop = "", threading.Event(), threading.Event()
        self._failed = 0

    def grade(self, places: Sequence[int]) -> None:
        """Grade the pair that stands at some places; once all has ended, only by an answer that is kept."""
        pair, problem = self._pairs[places[0]], ""
        if self.ended.is_set() and self._grader.estimate([pair]).requests:
            return
        try:
            answer = self._grader.answer(pair, self.stop)
            for place in places:
                self.answers[place] = answer
            self._failed = 0
        except BudgetSpentError as error:
            self.stopped = str(error)
            self.ended.set()
        except AnswerError as error:
            problem = f"no valid answer in {ASKED}: {error}"
        except RequestError as error:
            problem = str(error)
            self._failed += 1
            if self._failed >= FAILED_IN_A_ROW:
                self.ended.set()
                raise EndpointError(f"given up after {FAILED_IN_A_ROW} pairs in a row: {error}") from None
        except (EndpointError, OutputError):
            self.ended.set()
            raise
        if problem:
            self.problems.update(dict.fromkeys(places, problem))

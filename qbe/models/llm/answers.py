"""What a model answered, kept in a file: one JSON line an answer, so that nothing is paid for twice."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from qbe.errors import FileFormatError, input_error, output_error
from qbe.types import Facet
from qbe.util.files import sync
from qbe.util.parallel import Closing

MOST_UNWRITTEN = 10_000
"""Answers, the newest, that are kept where there is no file, such as those of a reranker."""

_BEGINS = b'{"digest": "'
"""How a file of answers begins."""


class Answer(NamedTuple):
    """The grades of a candidate, from 0 to 3, and the reasons given for them, by facet in their order."""

    grades: tuple[int, ...]
    rationales: tuple[str, ...]


class Answers(Closing):
    r"""Answers by the digest of what was asked (`qbe.models.llm.grading.digest_of`), in memory and in a file.

    Each is written and flushed to the disk before the next request of its thread. A last line that a killed
    process left unfinished is taken away. Without a path nothing is written,
    and MOST_UNWRITTEN answers are kept.

    >>> with Answers(Path("a.jsonl")) as answers:
    ...     answers.add("d1", {"paper_id": "p"}, Answer((3, 1, 0), ("same task", "", "")), tokens=(400, 30))
    >>> _ = Path("a.jsonl").open("a").write('{"digest": "d2", "gra')
    >>> with Answers(Path("a.jsonl")) as answers:
    ...     answers.get("d1").grades, answers.get("d2"), answers.requests, answers.tokens
    ((3, 1, 0), None, 1, 430)
    """

    def __init__(self, path: Path | None = None) -> None:
        """Read what is there; raises FileFormatError for another file, InputError, OutputError."""
        self.path, self.requests, self.tokens = path, 0, 0
        self._known: dict[str, Answer] = {}
        self._lock = threading.Lock()
        self._descriptor: int | None = None
        if path is not None:
            self._read(path)

    def _read(self, path: Path) -> None:
        try:
            data = path.read_bytes() if path.exists() else b""
        except OSError as error:
            raise input_error(path, error) from None
        whole = data[: data.rfind(b"\n") + 1]
        for number, line in enumerate(whole.splitlines(), start=1):
            self._take(path, number, line)
        if not whole and not data.startswith(_BEGINS[: len(data)]):
            raise _no_answer(path, 1, data)
        if len(whole) < len(data):
            try:
                os.truncate(path, len(whole))
            except OSError as error:
                raise output_error(path, error) from None

    def _take(self, path: Path, number: int, line: bytes) -> None:
        try:
            record = json.loads(line)
            digest, grades = record["digest"], record.get("grades")
            self.requests += 1
            self.tokens += record["prompt_tokens"] + record["completion_tokens"]
            if grades is not None:
                self._known[digest] = Answer(_of_facets(grades), _of_facets(record["rationales"]))
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise _no_answer(path, number, line) from None

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def get(self, digest: str) -> Answer | None:
        """The answer of a digest, None where there is none."""
        return self._known.get(digest)

    def add(
        self,
        digest: str,
        about: Mapping[str, Any],
        answer: Answer | None,
        *,
        tokens: tuple[int, int],
        problem: str = "",
    ) -> None:
        """Keep an answer, or one (None) that cannot be used for its ``problem``; ``about`` is written beside
        it.

        Raises OutputError where it cannot be written.
        """
        record: dict[str, Any] = {"digest": digest, **about}
        if answer is None:
            record["problem"] = problem
        else:
            record["grades"] = _by_facet(answer.grades)
            record["rationales"] = _by_facet(answer.rationales)
        record["prompt_tokens"], record["completion_tokens"] = tokens
        with self._lock:
            if self.path is not None:
                self._write(
                    self.path, (json.dumps(record, ensure_ascii=False) + "\n").encode(errors="replace")
                )
            if answer is not None:
                self._known[digest] = answer
            if self.path is None and len(self._known) > MOST_UNWRITTEN:
                del self._known[next(iter(self._known))]

    def _write(self, path: Path, line: bytes) -> None:
        try:
            if self._descriptor is None:
                path.parent.mkdir(parents=True, exist_ok=True)
                is_new = not path.exists()
                self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
                if is_new:
                    sync(path.parent)
            while line:
                line = line[os.write(self._descriptor, line) :]
            os.fsync(self._descriptor)
        except OSError as error:
            raise output_error(path, error) from None


def _no_answer(path: Path, number: int, line: bytes) -> FileFormatError:
    return FileFormatError(
        f"{path}, line {number}: expected an answer that qbe label kept, found "
        f"{line[:60].decode(errors='replace')!r}; give another file as `answers`"
    )


def _of_facets(values: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(values[facet.value] for facet in Facet)


def _by_facet(values: tuple[Any, ...]) -> dict[str, Any]:
    return {facet.value: value for facet, value in zip(Facet, values, strict=True)}

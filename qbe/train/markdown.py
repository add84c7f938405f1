"""Markdown for model cards."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def document(parts: Iterable[str]) -> str:
    """Markdown out of its parts: paragraphs are wrapped, tables, headings and lists stay as they are.

    >>> print(document(["# A model", "It has one line."]))
    # A model
    <BLANKLINE>
    It has one line.
    """
    return "\n\n".join(map(_wrapped, parts)) + "\n"


def file_list(digests: Mapping[str, str]) -> str:
    """A list of files with their SHA-256.

    >>> print(file_list({"model.onnx": "9f86d081", "tokenizer.json": "2c26b46b"}))
    - model.onnx: SHA-256 9f86d081
    - tokenizer.json: SHA-256 2c26b46b
    """
    return "\n".join(f"- {name}: SHA-256 {digest}" for name, digest in digests.items())


def trained_on(made_from: Mapping[str, Any], first: str, before: str) -> list[str]:
    """The data of a training and of those that it started from, the latest first, from the notes of what
    each was made from (`qbe.train.artifacts.read_provenance`).

    ``first`` begins the sentence of the latest one, ``before`` those of the others. Of a distillation the
    files are those whose papers were left out.

    >>> notes = {"data": {"b.tsv": "9f86"}, "start": {"data": {"a.tsv": "2c26"}}}
    >>> trained_on(notes, "It was trained", "Before that it was trained")[::2]
    ['It was trained on:', 'Before that it was trained on:']
    >>> trained_on({"data": {}, "teacher": {"encoder": {"name": "large"}}}, "It was trained", "")[0]
    'It was trained on scores of large for papers without labels; papers or queries of these files were left
    out:'
    """
    parts: list[str] = []
    step: Mapping[str, Any] | None = made_from
    while step is not None:
        source = "on"
        if "teacher" in step:
            source = (
                f"on scores of {step['teacher']['encoder']['name']} for papers without labels; papers or "
                "queries of these files were left out"
            )
        parts += [f"{before if parts else first} {source}:", file_list(step["data"])]
        step = step.get("start")
    return parts


def table(header: Sequence[str], rows: Iterable[Sequence[str]], labels: int = 1) -> str:
    """A table whose first ``labels`` columns are aligned to the left, the others to the right.

    >>> print(table(["seed", "F1"], [["0", "81.8"]]))
    | seed | F1 |
    |---|---:|
    | 0 | 81.8 |
    """
    rule = "|" + "---|" * labels + "---:|" * (len(header) - labels)
    cells = (" | ".join(row) for row in rows)
    return "\n".join([f"| {' | '.join(header)} |", rule, *(f"| {row} |" for row in cells)])


def decimals(values: Iterable[float], places: int) -> list[str]:
    """Numbers as cells of a table, with so many places behind the point.

    >>> decimals([0.5, 81.77], 1)
    ['0.5', '81.8']
    """
    return [f"{value:.{places}f}" for value in values]


def _wrapped(part: str) -> str:
    return part if part.startswith(("|", "#", "-")) else textwrap.fill(part, 110, break_on_hyphens=False)

"""Abstracts whose sentence boundaries are known, and how well a splitter finds them."""

from __future__ import annotations

import hashlib
import json
import lzma
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from qbe.errors import CorpusError, UsageError

# The hand-checked boundaries; their README says how they were set.
MARKS = Path(__file__).parent / "data" / "boundaries.jsonl"

Splitter = Callable[[str], Iterable[str]]


class Marked(NamedTuple):
    """A text and where its sentences end, the last one apart.

    A place is the number of characters before it that are no white space, so that splitters may treat
    white space as they like.
    """

    text: str
    ends: frozenset[int]


class Score(NamedTuple):
    """Boundaries found and true, found though false, true but missed."""

    right: int
    wrong: int
    missed: int

    def __str__(self) -> str:
        """Format precision, recall and F1 in per cent."""
        right, wrong, missed = self
        shares = right / (right + wrong), right / (right + missed), 2 * right / (2 * right + wrong + missed)
        return " / ".join(f"{100 * value:.2f}" for value in shares)


def score(split: Splitter, texts: Iterable[Marked]) -> Score:
    """Compare the boundaries that a splitter finds with the marked ones, counted over all texts."""
    found = [(_ends(split(text)), ends) for text, ends in texts]
    counts = ((len(ours & ends), len(ours - ends), len(ends - ours)) for ours, ends in found)
    return Score(*map(sum, zip(*counts, strict=True)))


def data_folder() -> Path:
    """The folder that QBE_DATA names. Raises UsageError where it names none."""
    if not os.environ.get("QBE_DATA"):
        raise UsageError("expected QBE_DATA to name the folder of real data, found it unset; set it")
    return Path(os.environ["QBE_DATA"])


def csabstruct(data: Path, *parts: str) -> list[Marked]:
    """The abstracts of parts of CSAbstruct, joined with single spaces."""
    texts = []
    for part in parts:
        with (data / "csabstruct" / f"{part}.jsonl").open(encoding="utf-8") as lines:
            abstracts = [json.loads(line)["sentences"] for line in lines]
        texts += [Marked(" ".join(sentences), _ends(sentences)) for sentences in abstracts]
    return texts


def checked(data: Path, *parts: str) -> list[Marked]:
    """The hand-checked abstracts of parts, ``dev`` and ``test``; their text comes from arxiv-cs.

    Raises CorpusError where arxiv-cs lacks one of the papers or has it with another abstract.
    """
    records = map(json.loads, MARKS.read_text(encoding="utf-8").splitlines())
    marks = {record["paper_id"]: record for record in records if record["part"] in parts}
    abstracts = _abstracts(data / "arxiv-cs" / "arxiv-cs.jsonl.xz", set(marks))
    texts = []
    for paper_id, record in marks.items():
        text = abstracts.get(paper_id, "")
        if hashlib.sha256(text.encode()).hexdigest() != record["sha256"]:
            raise CorpusError(
                f"expected the abstract of {paper_id} as it was marked, found another; mark anew"
            )
        texts.append(Marked(text, frozenset(_length(text[:end]) for end in record["boundaries"])))
    return texts


def _abstracts(corpus: Path, wanted: set[str]) -> dict[str, str]:
    paper_id = re.compile(r'\{"paper_id": "([^"]+)"')
    abstracts: dict[str, str] = {}
    with lzma.open(corpus, "rt", encoding="utf-8") as lines:
        for line in lines:
            # Only the lines that are wanted are worth parsing: 60 of 176,320.
            if (match := paper_id.match(line)) and match[1] in wanted:
                abstracts[match[1]] = json.loads(line)["abstract"]
                if len(abstracts) == len(wanted):
                    break
    return abstracts


def _ends(sentences: Iterable[str]) -> frozenset[int]:
    """Running totals of the sentences' characters, without the first (none) and the last (all)."""
    totals = [0]
    for sentence in sentences:
        totals.append(totals[-1] + _length(sentence))
    return frozenset(totals) - {0, totals[-1]}


def _length(text: str) -> int:
    return len("".join(text.split()))

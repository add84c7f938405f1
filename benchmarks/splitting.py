"""``python -m benchmarks.splitting``: sentence boundaries found and time taken.

Boundaries: CSAbstruct, whose sentences joined with spaces give the true ones, and the abstracts of arxiv-cs
that were marked by hand (benchmarks/data). Both are read from the folder that QBE_DATA names.
"""

import contextlib
import hashlib
import importlib
import json
import lzma
import os
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks.common import interleaved, machine, parsed, ratio, spread, table
from qbe.cli import common as _cli
from qbe.corpus.sentences import split_sentences
from qbe.errors import CorpusError

MARKS = Path(__file__).parent / "data" / "boundaries.jsonl"  # checked by hand, as their README says

Splitter = Callable[[str], Iterable[str]]


class Marked(NamedTuple):
    """A text and where its sentences end, the last one apart, in characters that are no white space."""

    text: str
    ends: frozenset[int]


class Score(NamedTuple):
    """Boundaries found and true, found though false, true but missed."""

    right: int
    wrong: int
    missed: int

    def __str__(self) -> str:
        right, wrong, missed = self
        shares = right / (right + wrong), right / (right + missed), 2 * right / (2 * right + wrong + missed)
        return " / ".join(f"{100 * value:.2f}" for value in shares)


def score(split: Splitter, texts: Iterable[Marked]) -> Score:
    """Compare the boundaries that a splitter finds with the marked ones, counted over all texts."""
    found = [(_ends(split(text)), ends) for text, ends in texts]
    counts = ((len(ours & ends), len(ours - ends), len(ends - ours)) for ours, ends in found)
    return Score(*map(sum, zip(*counts, strict=True)))


def csabstruct(data: Path, *parts: str) -> list[Marked]:
    """The abstracts of parts of CSAbstruct, joined with single spaces."""
    texts = []
    for part in parts:
        with (data / "csabstruct" / f"{part}.jsonl").open(encoding="utf-8") as lines:
            abstracts = [json.loads(line)["sentences"] for line in lines]
        texts += [Marked(" ".join(sentences), _ends(sentences)) for sentences in abstracts]
    return texts


def checked(data: Path, *parts: str) -> list[Marked]:
    """The hand-checked abstracts of parts, ``dev`` and ``test``; their text comes from arxiv-cs."""
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
    with lzma.open(corpus, "rt", encoding="utf-8") as lines:
        records = map(json.loads, lines)
        return {each["paper_id"]: each["abstract"] for each in records if each["paper_id"] in wanted}


def _ends(sentences: Iterable[str]) -> frozenset[int]:
    totals = [0]
    for sentence in sentences:
        totals.append(totals[-1] + _length(sentence))
    return frozenset(totals) - {0, totals[-1]}


def _length(text: str) -> int:
    return len("".join(text.split()))


def main(argv: list[str]) -> None:
    options = parsed("splitting", __doc__, argv, rounds=3)
    data = Path(os.environ["QBE_DATA"])
    sets = {
        "CSAbstruct dev+test": csabstruct(data, "dev", "test"),
        "checked dev": checked(data, "dev"),
        "checked test": checked(data, "test"),
    }
    splitters: dict[str, Splitter] = {"qbe": split_sentences}
    with contextlib.suppress(ImportError):  # the peer that is as fast, where it is installed
        blingfire = importlib.import_module("blingfire")
        splitters["blingfire"] = lambda text: blingfire.text_to_sentences(text).split("\n")
    print(machine(1, [*splitters][1:]))
    timed = [marked.text for marked in sets["CSAbstruct dev+test"]]
    actions = {name: partial(lambda split: [*map(split, timed)], split) for name, split in splitters.items()}
    times = interleaved(actions, options.rounds)
    counts = [f"{name} ({len(each)}, {sum(len(text.ends) for text in each)})" for name, each in sets.items()]
    print("precision / recall / F1 of boundaries, in per cent (abstracts, boundaries)\n")
    rows = []
    for name, split in splitters.items():
        rate = spread([len(timed) / seconds for seconds in times[name]], "{:,.0f}")
        rows.append((name, *(score(split, each) for each in sets.values()), rate, ratio(times, name, "qbe")))
    print(table(("splitter", *counts, "abstracts/s", "time / qbe"), rows))


if __name__ == "__main__":
    _cli.run("benchmarks.splitting", main)

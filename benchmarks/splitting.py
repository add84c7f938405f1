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

from benchmarks.common import interleaved, machine, parsed, ratio, spread, table
from qbe.cli import common as _cli
from qbe.corpus.sentences import split_sentences
from qbe.errors import CorpusError

MARKS = Path(__file__).parent / "data" / "boundaries.jsonl"  # checked by hand, as their README says

Splitter = Callable[[str], Iterable[str]]

# A text and where its sentences end, the last one apart, in characters that are no white space.
Marked = tuple[str, frozenset[int]]


def score(split: Splitter, texts: Iterable[Marked]) -> tuple[int, int, int]:
    """Count the boundaries that a splitter finds rightly, those it finds wrongly, and those it misses."""
    found = [(_ends(split(text)), ends) for text, ends in texts]
    right = sum(len(ours & ends) for ours, ends in found)
    return right, sum(len(ours) for ours, _ in found) - right, sum(len(ends) for _, ends in found) - right


def _shares(right: int, wrong: int, missed: int) -> str:
    shares = right / (right + wrong), right / (right + missed), 2 * right / (2 * right + wrong + missed)
    return " / ".join(f"{100 * value:.2f}" for value in shares)


def csabstruct(data: Path, *parts: str) -> list[Marked]:
    """The abstracts of parts of CSAbstruct, joined with single spaces."""
    texts = []
    for part in parts:
        with (data / "csabstruct" / f"{part}.jsonl").open(encoding="utf-8") as lines:
            abstracts = [json.loads(line)["sentences"] for line in lines]
        texts += [(" ".join(sentences), _ends(sentences)) for sentences in abstracts]
    return texts


def checked(data: Path, *parts: str) -> list[Marked]:
    """The hand-checked abstracts of parts, ``dev`` and ``test``; their text comes from arxiv-cs."""
    records = map(json.loads, MARKS.read_text(encoding="utf-8").splitlines())
    marks = {record["paper_id"]: record for record in records if record["part"] in parts}
    with lzma.open(data / "arxiv-cs" / "arxiv-cs.jsonl.xz", "rt", encoding="utf-8") as lines:
        papers = map(json.loads, lines)
        abstracts = {each["paper_id"]: each["abstract"] for each in papers if each["paper_id"] in marks}
    texts = []
    for paper_id, record in marks.items():
        text = abstracts.get(paper_id, "")
        if hashlib.sha256(text.encode()).hexdigest() != record["sha256"]:
            raise CorpusError(
                f"expected the abstract of {paper_id} as it was marked, found another; mark anew"
            )
        texts.append((text, frozenset(_length(text[:end]) for end in record["boundaries"])))
    return texts


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
    timed = [text for text, _ in sets["CSAbstruct dev+test"]]
    actions = {
        name: [partial(lambda split: [*map(split, timed)], split)] for name, split in splitters.items()
    }
    times = interleaved(actions, options.rounds)
    counts = [f"{name} ({len(each)}, {sum(len(ends) for _, ends in each)})" for name, each in sets.items()]
    print("precision / recall / F1 of boundaries, in per cent (abstracts, boundaries)\n")
    rows = []
    for name, split in splitters.items():
        rate = spread([len(timed) / seconds for seconds in times[name]], "{:,.0f}")
        found = (_shares(*score(split, each)) for each in sets.values())
        rows.append((name, *found, rate, ratio(times, name, "qbe")))
    print(table(("splitter", *counts, "abstracts/s", "time / qbe"), rows))


if __name__ == "__main__":
    _cli.run("benchmarks.splitting", main)

"""``python -m benchmarks.splitting``: sentence boundaries found and time taken, against other splitters.

Boundaries: CSAbstruct, whose sentences joined with spaces give the true ones, and the abstracts of arxiv-cs
that were marked by hand (benchmarks/data). Both are read from the folder that QBE_DATA names.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import json
import lzma
import os
import re
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from benchmarks.common import interleaved, machine, parsed, ratio, spread, table
from qbe.cli import common as _cli
from qbe.corpus import sentences
from qbe.errors import CorpusError, UsageError

OURS = "qbe"
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
    totals = [0]
    for sentence in sentences:
        totals.append(totals[-1] + _length(sentence))
    return frozenset(totals) - {0, totals[-1]}


def _length(text: str) -> int:
    return len("".join(text.split()))


def main(argv: list[str]) -> None:
    options = parsed("splitting", __doc__, argv, rounds=3)
    data = data_folder()
    sets = {
        "CSAbstruct dev+test": csabstruct(data, "dev", "test"),
        "checked dev": checked(data, "dev"),
        "checked test": checked(data, "test"),
    }
    splitters, absent = _splitters(data)
    print(machine(1, [name.split()[0] for name in splitters]))
    for name, texts in sets.items():
        print(f"{name}: {len(texts)} abstracts, {sum(len(text.ends) for text in texts)} boundaries")
    timed = sets["CSAbstruct dev+test"]
    actions = {name: functools.partial(_split_all, split, timed) for name, split in splitters.items()}
    times = interleaved(actions, options.rounds)
    rows = [
        (
            name,
            *(score(split, texts) for texts in sets.values()),
            spread([len(timed) / seconds for seconds in times[name]], "{:,.0f}"),
            ratio(times, name, OURS),
            _size(name),
        )
        for name, split in splitters.items()
    ]
    rows += [(name, reason, *[""] * (len(sets) + 2)) for name, reason in absent.items()]
    print("\nprecision / recall / F1 in per cent; size on disk without dependencies\n")
    print(table(("splitter", *sets, "abstracts/s", f"time / {OURS}", "MB"), rows))


def _split_all(split: Splitter, texts: list[Marked]) -> None:
    for marked in texts:
        list(split(marked.text))


def _splitters(data: Path) -> tuple[dict[str, Splitter], dict[str, str]]:
    splitters: dict[str, Splitter] = {OURS: sentences.split_sentences}
    absent = {}
    for name, load in PEERS.items():
        try:
            splitters[name] = load(data)
        except ImportError:
            absent[name] = f"not installed: pip install {name.split()[0]}"
    return splitters, absent


def _syntok(_: Path) -> Splitter:
    from syntok import segmenter

    def split(text: str) -> list[str]:
        sentences = (sentence for paragraph in segmenter.analyze(text) for sentence in paragraph)
        return ["".join(token.spacing + token.value for token in sentence) for sentence in sentences]

    return split


def _blingfire(_: Path) -> Splitter:
    import blingfire

    return lambda text: blingfire.text_to_sentences(text).split("\n")


def _punkt(data: Path) -> Splitter:
    from nltk.tokenize.punkt import PunktSentenceTokenizer, PunktTrainer

    trainer = PunktTrainer()
    for abstract in csabstruct(data, "train"):
        trainer.train(abstract.text, finalize=False)
    splitter: Splitter = PunktSentenceTokenizer(trainer.get_params()).tokenize
    return splitter


def _spacy(_: Path) -> Splitter:
    import spacy

    pipeline = spacy.blank("en")
    pipeline.add_pipe("sentencizer")
    return lambda text: [sentence.text for sentence in pipeline(text).sents]


PEERS: dict[str, Callable[[Path], Splitter]] = {
    "pysbd": lambda _: importlib.import_module("pysbd").Segmenter(language="en", clean=False).segment,
    "syntok": _syntok,
    "blingfire": _blingfire,
    "nltk Punkt, trained on train": _punkt,
    "spacy sentencizer": _spacy,
}


def _size(name: str) -> str:
    if name == OURS:
        files = [Path(str(sentences.__file__))]
    else:
        files = [Path(str(file.locate())) for file in metadata.files(name.split()[0]) or ()]
    return f"{sum(file.stat().st_size for file in files if file.exists()) / 1e6:.2f}"


if __name__ == "__main__":
    _cli.run("benchmarks.splitting", main)

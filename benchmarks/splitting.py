"""``python -m benchmarks.splitting``: sentence boundaries found and time taken, against other splitters.

Boundaries: CSAbstruct, whose sentences joined with spaces give the true ones, and the abstracts of arxiv-cs
that were marked by hand (benchmarks/data). Both are read from the folder that QBE_DATA names.
"""

from __future__ import annotations

import argparse
import functools
import importlib
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

from benchmarks.boundaries import Marked, Splitter, checked, csabstruct, data_folder, score
from benchmarks.common import interleaved, machine, positive, ratio, spread, table
from qbe.cli import common as _cli
from qbe.corpus import sentences

OURS = "qbe"


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.splitting", description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=positive, default=3, help="runs of each side (default: %(default)s)")
    options = parser.parse_args(argv)
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
    """Return the splitters that are installed, ours first, and for the others what is missing."""
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
    """Train Punkt (Kiss and Strunk, 2006), which learns from plain text, on CSAbstruct's training part."""
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

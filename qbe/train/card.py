"""The model card of every trained model: one template, in Markdown."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbe.models.cards import DEFAULT_ENCODER
from qbe.types import Facet

README = "README.md"
APACHE = "Apache License, Version 2.0"
LIMITS = "Trained on English abstracts of computer science; not tested elsewhere."
GRADES_LIMITS = (
    LIMITS + " The grades are those of large language models that followed CSFCube's published definitions."
)
_DIGITS = 12


def reader_name(kind: str, encoder: str) -> str:
    """The name of a model of a kind that reads the vectors of an encoder.

    >>> reader_name("grades", "facet-encoder"), reader_name("grades", "facet-encoder-large")
    ('grades', 'grades-large')
    """
    return kind + encoder.removeprefix(DEFAULT_ENCODER)


@dataclass(frozen=True, slots=True)
class Card:
    """What a model's card says.

    ``purpose`` and ``input`` are sentences, ``figures`` the caption and the ``table`` (see `table`) of what
    was measured, ``data`` the SHA-256 of the files that the model was trained from and measured on, by name,
    ``command`` the subcommand of ``qbe train`` that made it, with its options.

    >>> table_ = table(["seed", "F1"], [["0", 81.77]], places=1)
    >>> card = Card("my-tagger", "Labels sentences.", "Abstracts.", "Micro-F1.", table_, {}, "tagger")
    >>> print(card.markdown(1_600_000))
    # my-tagger
    <BLANKLINE>
    Labels sentences.
    <BLANKLINE>
    - Input: Abstracts.
    - Size: 1.6 MB
    - Command: `qbe train tagger --output DIR --work DIR`
    - Limits: Trained on English abstracts of computer science; not tested elsewhere.
    - Licence: Apache License, Version 2.0
    <BLANKLINE>
    ## Figures
    <BLANKLINE>
    Micro-F1.
    <BLANKLINE>
    | seed | F1 |
    |---|---:|
    | 0 | 81.8 |
    <BLANKLINE>
    """

    name: str
    purpose: str
    input: str
    figures: str
    table: str
    data: Mapping[str, str]
    command: str
    options: str = "--output DIR --work DIR"
    limits: str = LIMITS
    licence: str = APACHE

    def markdown(self, size: int) -> str:
        """The card's text; ``size`` is the number of bytes of the model's files."""
        data = ", ".join(f"{name} ({digest[:_DIGITS]})" for name, digest in self.data.items())
        facts = {
            "Input": self.input,
            "Size": f"{size / 1e6:.3g} MB",
            "Command": f"`qbe train {self.command} {self.options}`",
            "Data (SHA-256)": data,
            "Limits": self.limits,
            "Licence": self.licence,
        }
        bullets = "\n".join(_wrapped(f"- {name}: {fact}", "  ") for name, fact in facts.items() if fact)
        parts = [f"# {self.name}", _wrapped(self.purpose), bullets, "## Figures", _wrapped(self.figures)]
        return "\n\n".join([*parts, self.table]) + "\n"

    def write(self, folder: Path) -> None:
        """Write the card to README.md of a model's folder, which holds all its other files."""
        size = sum(file.stat().st_size for file in folder.iterdir() if file.is_file() and file.name != README)
        (folder / README).write_text(self.markdown(size), encoding="utf-8")


def all_data(made_from: Mapping[str, Any]) -> dict[str, str]:
    """The digests of the data of a training and of those that it started from, by file, the latest first.

    ``made_from`` is what `qbe.train.artifacts.read_provenance` reads, or the record in a model's metadata.

    >>> all_data({"data": {"b.tsv": "9f86"}, "start": {"data": {"a.tsv": "2c26"}}})
    {'b.tsv': '9f86', 'a.tsv': '2c26'}
    """
    data: dict[str, str] = {}
    step: Mapping[str, Any] | None = made_from
    while step is not None:
        data = {**data, **step.get("data", {})}
        step = step.get("start")
    return data


def table(header: Sequence[str], rows: Iterable[Sequence[str | float]], places: int = 3) -> str:
    """A Markdown table; numbers get so many decimal places and are aligned to the right.

    Columns of text come first; which ones these are is read from the first row.

    >>> print(table(["model", "folded", "F1"], [["tagger", 85.32, 82.13]], places=1))
    | model | folded | F1 |
    |---|---:|---:|
    | tagger | 85.3 | 82.1 |
    """
    cells = list(rows)
    labels = len(list(itertools.takewhile(lambda cell: isinstance(cell, str), cells[0])))
    lines = [header, *([_cell(cell, places) for cell in row] for row in cells)]
    texts = [f"| {' | '.join(line)} |" for line in lines]
    rule = "|" + "---|" * labels + "---:|" * (len(header) - labels)
    return "\n".join([texts[0], rule, *texts[1:]])


def facet_table(labels: Sequence[str], rows: Iterable[Sequence[str | float]], places: int = 3) -> str:
    """A table of figures by facet, and of their means; a row has its labels and then a figure a facet.

    >>> print(facet_table(["weights"], [["mean", 0.75, 0.5, 0.25]], places=2))
    | weights | background | method | result | mean |
    |---|---:|---:|---:|---:|
    | mean | 0.75 | 0.50 | 0.25 | 0.50 |
    """

    def mean(row: Sequence[str | float]) -> float:
        return sum(cell for cell in row if not isinstance(cell, str)) / len(Facet)

    return table([*labels, *map(str, Facet), "mean"], ([*row, mean(row)] for row in rows), places)


def _cell(value: str | float, places: int) -> str:
    return value if isinstance(value, str) else f"{value:.{places}f}"


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(text, 110, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)

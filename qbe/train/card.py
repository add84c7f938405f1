"""The model card of every trained model: one template, in Markdown."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from qbe.models.cards import DEFAULT_ENCODER
from qbe.types import Facet

README = "README.md"
APACHE = "Apache License, Version 2.0"
LIMITS = "Trained on English abstracts of computer science; not tested elsewhere."
GRADES_LIMITS = (
    LIMITS + " The grades are those of large language models that followed CSFCube's published definitions."
)
BY_FACET = (*map(str, Facet), "mean")
"""Columns of figures by facet."""


def reader_name(kind: str, encoder: str) -> str:
    """The name of a model of a kind that reads the vectors of an encoder.

    >>> reader_name("grades", "facet-encoder"), reader_name("grades", "facet-encoder-large")
    ('grades', 'grades-large')
    """
    return kind + encoder.removeprefix(DEFAULT_ENCODER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """What a model's card says.

    ``purpose``, ``input`` and ``caption`` are sentences. ``figures`` are rows of numbers by label; a label
    of several columns has `` | `` between them. ``columns`` are the names of all columns; a last one named
    ``mean`` is computed. ``command`` is the subcommand of ``qbe train``, with its options.

    >>> card = Card(name="my-tagger", purpose="Labels sentences.", input="Abstracts.", caption="Micro-F1.",
    ...     columns=("seed", "split", "F1"), figures={"0 | dev": [81.77]}, places=1, command="tagger")
    >>> print(card.markdown(1_600_000, {}))
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
    | seed | split | F1 |
    |---|---|---:|
    | 0 | dev | 81.8 |
    <BLANKLINE>
    """

    name: str
    purpose: str
    input: str
    caption: str
    command: str
    columns: Sequence[str] = ()
    figures: Mapping[str, Sequence[float]]
    places: int = 3
    limits: str = LIMITS
    licence: str = APACHE

    def markdown(self, size: int, data: Mapping[str, str]) -> str:
        """The card's text; ``size`` is in bytes, ``data`` the SHA-256 of the files learned from, by name."""
        facts = {
            "Input": self.input,
            "Size": f"{size / 1e6:.3g} MB",
            "Command": f"`qbe train {self.command} --output DIR --work DIR`",
            "Data (SHA-256)": ", ".join(f"{name} ({digest[:12]})" for name, digest in data.items()),
            "Limits": self.limits,
            "Licence": self.licence,
        }
        bullets = "\n".join(_wrapped(f"- {name}: {fact}", "  ") for name, fact in facts.items() if fact)
        parts = [f"# {self.name}", _wrapped(self.purpose), bullets, "## Figures", _wrapped(self.caption)]
        return "\n\n".join([*parts, self._table()]) + "\n"

    def _table(self) -> str:
        rows = []
        for label, numbers in self.figures.items():
            labels = label.split(" | ")
            mean = [sum(numbers) / len(numbers)] if self.columns[-1] == "mean" else []
            rows.append([*labels, *(f"{number:.{self.places}f}" for number in (*numbers, *mean))])
        if not rows:
            return ""
        lines = [f"| {' | '.join(row)} |" for row in (self.columns, *rows)]
        rule = "|" + "---|" * len(labels) + "---:|" * (len(self.columns) - len(labels))
        return "\n".join([lines[0], rule, *lines[1:]])

    def write(self, folder: Path, data: Mapping[str, str]) -> None:
        """Write the card to README.md of a model's folder, which holds all its other files."""
        size = sum(file.stat().st_size for file in folder.iterdir() if file.is_file() and file.name != README)
        (folder / README).write_text(self.markdown(size, data), encoding="utf-8")


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(text, 110, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)

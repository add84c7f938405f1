"""The model card of every trained model: one template, in Markdown."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from qbe.models.cards import DEFAULT_ENCODER
from qbe.types import Facet

README = "README.md"
APACHE = "Apache License, Version 2.0"
LIMITS = "Trained on English abstracts of computer science; not tested elsewhere."
GRADES_LIMITS = (
    LIMITS + " The grades are those of large language models that followed CSFCube's published definitions."
)
OWN_GRADES = ("facet-judgments/", "graded-pairs/")  # folders of this repository, of which the above is true
BY_FACET = (*map(str, Facet), "mean")  # columns of figures by facet

_wrapped = partial(textwrap.fill, width=110, break_on_hyphens=False, break_long_words=False)


def reader_name(kind: str, encoder: str) -> str:
    """The name of a model of a kind that reads the vectors of an encoder, such as ``grades-large``."""
    return kind + encoder.removeprefix(DEFAULT_ENCODER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """What a model's card says; labels of ``figures`` have `` | `` between columns, and a last column
    ``mean`` is computed.
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

    def write(self, folder: Path, data: Mapping[str, str], given: str = "") -> None:
        """Write README.md in a model's folder, which holds all its other files; ``data`` are the SHA-256 of
        the files learned from, by name, ``given`` is the command line, if there is one.
        """
        are_others = any(name.endswith(".tsv") and not name.startswith(OWN_GRADES) for name in data)
        size = sum(file.stat().st_size for file in folder.iterdir() if file.is_file() and file.name != README)
        facts = {
            "Input": self.input,
            "Size": f"{size / 1e6:.3g} MB",
            "Command": f"`qbe train {given or f'{self.command} --output DIR --work DIR'}`",
            "Data (SHA-256)": ", ".join(f"{name} ({digest[:12]})" for name, digest in data.items()),
            "Limits": LIMITS if are_others and self.limits == GRADES_LIMITS else self.limits,
            "Licence": self.licence,
        }
        lines = (
            _wrapped(f"- {name}: {fact}", subsequent_indent="  ") for name, fact in facts.items() if fact
        )
        table: list[str] = []
        for label, numbers in self.figures.items():
            labels = label.split(" | ")
            mean = [sum(numbers) / len(numbers)] if self.columns[-1] == "mean" else []
            row = [*labels, *(f"{number:.{self.places}f}" for number in (*numbers, *mean))]
            if not table:
                table.append(f"| {' | '.join(self.columns)} |")
                table.append("|" + "---|" * len(labels) + "---:|" * (len(self.columns) - len(labels)))
            table.append(f"| {' | '.join(row)} |")
        caption, bullets, figures = _wrapped(self.caption), "\n".join(lines), "\n".join(table)
        parts = [f"# {self.name}", _wrapped(self.purpose), bullets, "## Figures", caption, figures]
        (folder / README).write_text("\n\n".join(parts) + "\n", encoding="utf-8")

"""Published figures on CSFCube, each with its source, to stand beside one's own."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from qbe.evaluate.csfcube import MEASURES
from qbe.evaluate.results import AGGREGATED
from qbe.types import Facet


@dataclass(frozen=True, slots=True)
class Paper:
    """A paper: how to cite it, in full and in short, where it is, and why it has no rows if it has none."""

    citation: str
    short: str
    url: str
    no_rows: str = ""


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """One system's published figures.

    Attributes:
        system: its name in the paper.
        paper: key of ``papers()``.
        source: where the figures stand.
        figures: measure of the CSFCube protocol -> facet or ``aggregated`` -> figure in [0, 1], to four
            digits; None where it is not known to us.
    """

    system: str
    paper: str
    source: str
    figures: Mapping[str, Mapping[str, float | None]]


def published_rows() -> tuple[PublishedRow, ...]:
    """The published rows, in the order of their papers."""
    return tuple(
        PublishedRow(row["system"], row["paper"], row["source"], _complete(row["figures"]))
        for row in _content()["rows"]
    )


def papers() -> dict[str, Paper]:
    """The papers whose figures are given, or left out with the reason, by key."""
    return {key: Paper(**paper) for key, paper in _content()["papers"].items()}


def _complete(per_cent: Mapping[str, Mapping[str, float | None]]) -> dict[str, dict[str, float | None]]:
    """Fractions out of the printed figures, None for every measure and scope that has none."""
    scopes = (*(facet.value for facet in Facet), AGGREGATED)
    return {
        measure: {
            scope: None if (value := per_cent.get(measure, {}).get(scope)) is None else round(value / 100, 4)
            for scope in scopes
        }
        for measure in MEASURES
    }


@functools.cache
def _content() -> dict[str, Any]:
    text = resources.files(__package__).joinpath("published.json").read_text(encoding="utf-8")
    content: dict[str, Any] = json.loads(text)
    return content

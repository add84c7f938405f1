"""Published figures on CSFCube, each with its source, for comparison."""

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
    """A publication.

    Attributes:
        citation: how to cite it.
        short: a short form of the citation.
        url: where it is published.
        no_rows: the reason why no figures of it are given, if none are.
    """

    citation: str
    short: str
    url: str
    no_rows: str = ""


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """The published figures of one system.

    Attributes:
        system: its name in the publication.
        paper: key of `papers`.
        source: the table or page of the figures.
        figures: measure of the CSFCube protocol -> facet or ``aggregated`` -> figure in [0, 1], with four
            digits; None where no figure is published.
    """

    system: str
    paper: str
    source: str
    figures: Mapping[str, Mapping[str, float | None]]


def published_rows() -> tuple[PublishedRow, ...]:
    """Return the published figures, in the order of their publications.

    >>> rows = {row.system: row.figures for row in published_rows()}
    >>> rows["SPECTER"]["NDCG%20"]
    {'background': 0.667, 'method': 0.3741, 'result': 0.5667, 'aggregated': 0.5328}
    """
    return tuple(
        PublishedRow(row["system"], row["paper"], row["source"], _complete(row["figures"]))
        for row in _content()["rows"]
    )


def papers() -> dict[str, Paper]:
    """Return the publications by key, those without figures too, with the reason.

    >>> papers()["aspire"].short
    'ASPIRE 2022'
    """
    return {key: Paper(**paper) for key, paper in _content()["papers"].items()}


def _complete(per_cent: Mapping[str, Mapping[str, float | None]]) -> dict[str, dict[str, float | None]]:
    """Convert per cent to fractions, with None for every measure and scope without a figure."""
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

"""Published figures on CSFCube and of citation recommendation, each with its source, for comparison."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, NamedTuple

from qbe.errors import UsageError
from qbe.evaluate.citations import CITATIONS, LABELS
from qbe.evaluate.csfcube import CSFCUBE, MEASURES
from qbe.evaluate.results import AGGREGATED, ALL
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
        figures: measure of the protocol -> scope -> figure in [0, 1], with at most four digits; None where no
            figure is published.
        collection: the collection of the figures, of a protocol that several have in common.
    """

    system: str
    paper: str
    source: str
    figures: Mapping[str, Mapping[str, float | None]]
    collection: str = ""


class _Shape(NamedTuple):
    """The measures and scopes of the figures of a protocol."""

    measures: tuple[str, ...]
    scopes: tuple[str, ...]


_SHAPES = {
    CSFCUBE: _Shape(tuple(MEASURES), (*(facet.value for facet in Facet), AGGREGATED)),
    CITATIONS: _Shape(LABELS, (ALL,)),
}


def published_rows(protocol: str | None = CSFCUBE) -> tuple[PublishedRow, ...]:
    """Return the figures published under a protocol, in the order of their publications or collections.

    Raises UsageError for a protocol without published figures.

    >>> rows = {row.system: row.figures for row in published_rows()}
    >>> rows["SPECTER"]["NDCG%20"]
    {'background': 0.667, 'method': 0.3741, 'result': 0.5667, 'aggregated': 0.5328}
    """
    section, shape = _section(protocol)
    return tuple(
        PublishedRow(
            row["system"],
            row["paper"],
            row["source"],
            _complete(row["figures"], shape, section["one"]),
            row.get("collection", ""),
        )
        for row in section["rows"]
    )


def papers(protocol: str | None = CSFCUBE) -> dict[str, Paper]:
    """Return the publications of a protocol by key, those without figures too, with the reason.

    Raises what `published_rows` raises.

    >>> papers()["aspire"].short
    'ASPIRE 2022'
    """
    section, _ = _section(protocol)
    with_rows = {row["paper"] for row in section["rows"]}
    reasons: dict[str, str] = section["no_rows"]
    return {
        key: Paper(**paper, no_rows=reasons.get(key, ""))
        for key, paper in _content()["papers"].items()
        if key in with_rows or key in reasons
    }


def _section(protocol: str | None) -> tuple[dict[str, Any], _Shape]:
    if protocol is None or protocol not in _SHAPES:
        raise UsageError(
            f"expected a `protocol` with published figures ({', '.join(_SHAPES)}), found {protocol}; give one"
        )
    return _content()[protocol], _SHAPES[protocol]


def _complete(
    printed: Mapping[str, Mapping[str, float | None]], shape: _Shape, scale: int
) -> dict[str, dict[str, float | None]]:
    """Convert printed numbers to fractions, with None for every measure and scope without a figure."""
    return {
        measure: {
            scope: None if (value := printed.get(measure, {}).get(scope)) is None else round(value / scale, 4)
            for scope in shape.scopes
        }
        for measure in shape.measures
    }


@functools.cache
def _content() -> dict[str, Any]:
    text = resources.files(__package__).joinpath("published.json").read_text(encoding="utf-8")
    content: dict[str, Any] = json.loads(text)
    return content

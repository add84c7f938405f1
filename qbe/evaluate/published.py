"""Published figures on CSFCube and of citation recommendation, each with its source, for comparison."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from qbe.errors import UsageError
from qbe.evaluate.collections import CITATIONS
from qbe.evaluate.csfcube import CSFCUBE


@dataclass(frozen=True, slots=True)
class Paper:
    """A publication; ``no_rows`` is the reason why it has no figures here, if it has none."""

    citation: str
    short: str
    url: str
    no_rows: str = ""


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """The published figures of one system: measure -> scope -> figure in [0, 1], with at most four digits.

    ``paper`` is a key of `papers`, ``source`` the table or page.
    """

    system: str
    paper: str
    source: str
    figures: Mapping[str, Mapping[str, float]]
    collection: str = ""


PROTOCOLS = (CSFCUBE, CITATIONS)
"""Those with published figures."""


def published_rows(protocol: str | None = CSFCUBE) -> tuple[PublishedRow, ...]:
    """Return the figures published under a protocol; raise UsageError where there are none."""
    section = _section(protocol)
    return tuple(
        PublishedRow(
            row["system"],
            row["paper"],
            row["source"],
            {
                measure: {
                    scope: round(value / section["one"], 4)
                    for scope, value in zip(section["scopes"], printed, strict=True)
                    if value is not None
                }
                for measure, printed in row["figures"].items()
            },
            row.get("collection", ""),
        )
        for row in section["rows"]
    )


def papers(protocol: str | None = CSFCUBE) -> dict[str, Paper]:
    """Return the publications of a protocol by key, those without figures too, with the reason."""
    section = _section(protocol)
    with_rows = {row["paper"] for row in section["rows"]}
    reasons: dict[str, str] = section["no_rows"]
    return {
        key: Paper(**paper, no_rows=reasons.get(key, ""))
        for key, paper in _content()["papers"].items()
        if key in with_rows or key in reasons
    }


def _section(protocol: str | None) -> dict[str, Any]:
    if protocol not in PROTOCOLS:
        raise UsageError(
            f"expected a `protocol` with published figures ({', '.join(PROTOCOLS)}), found {protocol}; "
            "give one"
        )
    section: dict[str, Any] = _content()[protocol]
    return section


@functools.cache
def _content() -> dict[str, Any]:
    text = resources.files(__package__).joinpath("published.json").read_text(encoding="utf-8")
    content: dict[str, Any] = json.loads(text)
    return content

"""Published figures on CSFCube and of citation recommendation, each with its source, for comparison."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from importlib import resources
from typing import Any, NamedTuple

from qbe.errors import UsageError
from qbe.evaluate.csfcube import CSFCUBE
from qbe.evaluate.evaluation import CITATIONS


class Paper(NamedTuple):
    """A publication; ``no_rows`` is the reason why it has no figures here, if it has none."""

    citation: str
    short: str
    url: str
    no_rows: str = ""


class PublishedRow(NamedTuple):
    """A system's figures: measure -> scope -> figure in [0, 1]; ``paper`` is a key of `papers`."""

    system: str
    paper: str
    source: str
    figures: Mapping[str, Mapping[str, float]]
    collection: str = ""


@functools.cache
def _content(protocol: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read the publications, and the rows of a protocol."""
    if protocol not in (CSFCUBE, CITATIONS):
        expected = f"a `protocol` with published figures ({CSFCUBE}, {CITATIONS})"
        raise UsageError(f"expected {expected}, found {protocol}; give one")
    content = json.loads(resources.files(__package__).joinpath("published.json").read_text(encoding="utf-8"))
    return content["papers"], content[protocol]


def published_rows(protocol: str | None = CSFCUBE) -> tuple[PublishedRow, ...]:
    """Return the figures published under a protocol; raise UsageError where there are none."""
    _, section = _content(protocol)
    rows = []
    for row in section["rows"]:
        figures = {
            measure: {
                scope: round(value / section["one"], 4)
                for scope, value in zip(section["scopes"], printed, strict=True)
                if value is not None
            }
            for measure, printed in row["figures"].items()
        }
        rows.append(PublishedRow(**row | {"figures": figures}))
    return tuple(rows)


def papers(protocol: str | None = CSFCUBE) -> dict[str, Paper]:
    """Return the publications of a protocol by key, those without figures too, with the reason."""
    publications, section = _content(protocol)
    reasons: dict[str, str] = section["no_rows"]
    named = {row["paper"] for row in section["rows"]} | reasons.keys()
    return {
        key: Paper(**paper, no_rows=reasons.get(key, ""))
        for key, paper in publications.items()
        if key in named
    }

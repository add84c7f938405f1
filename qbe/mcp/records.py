"""Records of the service, in the words of answers."""

from __future__ import annotations

from typing import Any

from qbe.mcp.answers import (
    LONG,
    LONGEST_LINK,
    LONGEST_SENTENCE,
    MOST_AUTHORS,
    SHORT,
    Hit,
    LabelledSentence,
    Why,
    clipped,
)
from qbe.service.records import Record


def described(record: Record) -> dict[str, Any]:
    """The fields of `qbe.mcp.answers.Described`.

    >>> described({"paper_id": "7", "title": "On fish", "year": "2019", "authors": ["Ann Lee"],
    ...            "venue": "", "links": {}})["year"]
    2019
    """
    return {
        "paper_id": record["paper_id"],
        "title": clipped(record["title"], SHORT),
        "year": year_of(record),
        "authors": [clipped(name, SHORT // 4) for name in record["authors"][:MOST_AUTHORS]],
        "author_count": len(record["authors"]),
        "venue": clipped(record["venue"], SHORT) or None,
        "links": {name: link for name, link in record["links"].items() if len(link) <= LONGEST_LINK},
    }


def year_of(record: Record) -> int | None:
    """The year of a paper; None where the corpus has none, or something else in its place.

    >>> year_of({"year": "2019"}), year_of({"year": ""})
    (2019, None)
    """
    year = str(record["year"])
    return int(year) if year.isascii() and year.isdigit() else None


def hit_of(record: Record) -> Hit:
    """A hit of a ranking."""
    return Hit(
        **described(record),
        rank=record["rank"],
        score=round(record["score"], 6),
        grades=record.get("grades"),
        why=_why(record["matches"]),
        abstract=record["abstract"],
    )


def _why(matches: list[Record]) -> Why | None:
    """The closest pair of the first aspect, which is one that is liked."""
    first = [match for match in matches if match.get("aspect", 0) == 0] or matches
    if not first:
        return None
    best = max(first, key=lambda match: float(match["score"]))
    return Why(
        query_sentence=clipped(best["query_sentence"], LONG),
        sentence=clipped(best["sentence"], LONG),
        facet=best["facet"],
        similarity=best["score"],
    )


def sentences_of(records: list[Record]) -> list[LabelledSentence]:
    """The sentences of an abstract."""
    return [
        LabelledSentence(
            position=record["position"],
            facet=record["facet"],
            text=clipped(record["text"], LONGEST_SENTENCE),
        )
        for record in records
    ]

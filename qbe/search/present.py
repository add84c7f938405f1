"""Results for people (a table) and for programs (JSON)."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from qbe.index.index import Index
from qbe.types import Hit, Query

INDENT = 14


def to_json(index: Index, query_id: str, query: Query, hits: Sequence[Hit]) -> str:
    """One query's result as one line of JSON."""
    record: dict[str, Any] = {
        "query_id": query_id,
        "paper_id": query.paper.paper_id,
        "facet": query.facet.value if query.facet else None,
        "hits": [_hit(index, query, rank, hit) for rank, hit in enumerate(hits, start=1)],
    }
    return json.dumps(record, ensure_ascii=False)


def _hit(index: Index, query: Query, rank: int, hit: Hit) -> Mapping[str, Any]:
    paper = index.paper(hit.docid)
    matches = []
    for match in hit.matches:
        sentence = paper.sentences[match.position]
        matches.append(
            {
                "query_position": match.query_position,
                "query_sentence": query.paper.sentences[match.query_position].text,
                "position": match.position,
                "sentence": sentence.text,
                "facet": sentence.facet.value if sentence.facet else None,
                "score": round(match.score, 6),
            }
        )
    found = {"rank": rank, "docid": hit.docid, "score": hit.score, "title": paper.title, "year": paper.year}
    return {**found, "matches": matches}


def to_table(index: Index, query: Query, hits: Sequence[Hit], width: int) -> str:
    """One query's result for a person: rank, score, title, year, and the sentence that matched best."""
    title = query.paper.title or query.paper.sentences[0].text
    aspect = f"for its {query.facet}" if query.facet else "by its abstract"
    if query.positions is not None:
        aspect = "by sentences " + ", ".join(map(str, query.positions))
    lines = textwrap.wrap(f"Papers like “{title}”, {aspect}:", width)
    for rank, hit in enumerate(hits, start=1):
        paper = index.paper(hit.docid)
        year = f" ({paper.year})" if paper.year else ""
        lines.append("")
        lines += _indented(
            f"{rank:4d} {hit.score:8.4f} ", f"{paper.title or hit.docid}{year}  [{hit.docid}]", width
        )
        if hit.matches:
            sentence = paper.sentences[hit.matches[0].position]
            label = f"{sentence.facet}: " if sentence.facet else ""
            lines += _indented("", f"{label}{sentence.text}", width)
    if not hits:
        lines.append("No paper was found.")
    return "\n".join(lines)


def _indented(first: str, text: str, width: int) -> list[str]:
    return textwrap.wrap(
        text, max(width, 2 * INDENT), initial_indent=first.ljust(INDENT), subsequent_indent=" " * INDENT
    )

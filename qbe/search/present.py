"""Results for people (a table) and for programs (JSON)."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from qbe.index.index import Index
from qbe.search.explain import describe, explain_query, facet_probability, stands_in
from qbe.search.selection import is_guess
from qbe.types import Facet, Hit, Match, Paper, Query

INDENT = 14


def to_json(index: Index, query_id: str, query: Query, hits: Sequence[Hit], *, explain: bool = False) -> str:
    """One query's result as one line of JSON.

    ``explain`` adds the query's sentences (see `qbe.search.explain.ExplainedSentence`) and the
    probabilities of matched sentences' facets.
    """
    record: dict[str, Any] = {
        "query_id": query_id,
        "paper_id": query.paper.paper_id,
        "facet": query.facet.value if query.facet else None,
    }
    if explain:
        record["sentences"] = [sentence._asdict() for sentence in explain_query(query)]
    record["hits"] = [_hit(index, query, rank, hit, explain) for rank, hit in enumerate(hits, start=1)]
    return json.dumps(record, ensure_ascii=False)


def _hit(index: Index, query: Query, rank: int, hit: Hit, explain: bool) -> Mapping[str, Any]:
    paper = index.paper(hit.docid)
    matches = []
    for match in hit.matches:
        sentence = paper.sentences[match.position]
        found = {
            "query_position": match.query_position,
            "query_sentence": query.paper.sentences[match.query_position].text,
            "position": match.position,
            "sentence": sentence.text,
            "offsets": list(paper.offsets[match.position]) if paper.offsets else None,
            "facet": sentence.facet.value if sentence.facet else None,
            "score": round(match.score, 6),
        }
        matches.append(found | ({"probability": facet_probability(sentence)} if explain else {}))
    place = {"rank": rank, "docid": hit.docid, "score": hit.score, "title": paper.title, "year": paper.year}
    return {**place, "matches": matches}


def to_table(index: Index, query: Query, hits: Sequence[Hit], width: int, *, explain: bool = False) -> str:
    """One query's result for a person: rank, score, title, year, and the sentence that matched best.

    A facet with a question mark is a best guess. ``explain`` shows the query's sentences and all matches,
    each with its facet and the probability of this.
    """
    title = query.paper.title or query.paper.sentences[0].text
    aspect = f"for its {query.facet}" if query.facet else "by its abstract"
    if query.positions is not None:
        aspect = "by sentences " + ", ".join(map(str, query.positions))
    if is_guess(query):
        aspect += f" (no sentence was labelled {query.facet}; the likeliest stands in)"
    lines = textwrap.wrap(f"Papers like “{title}”, {aspect}:", width)
    if explain:
        lines += ["", *_query_lines(query, width)]
    for rank, hit in enumerate(hits, start=1):
        paper = index.paper(hit.docid)
        year = f" ({paper.year})" if paper.year else ""
        lines.append("")
        lines += _indented(
            f"{rank:4d} {hit.score:8.4f} ", f"{paper.title or hit.docid}{year}  [{hit.docid}]", width
        )
        for match in hit.matches if explain else hit.matches[:1]:
            lines += _match_lines(paper, match, query.facet, width, explain)
    if not hits:
        lines.append("No paper was found.")
    return "\n".join(lines)


def _query_lines(query: Query, width: int) -> list[str]:
    lines = []
    for sentence in explain_query(query):
        label = describe(query.paper, sentence.position, query.facet)
        mark = "*" if sentence.selected else " "
        lines += _indented(f"{mark}{sentence.position}".rjust(4), f"{label}: {sentence.text}", width)
    legend = "Searched with the sentences marked *; ~3 below is the match of sentence 3, with its similarity."
    return [*lines, *textwrap.wrap(legend, width)]


def _match_lines(paper: Paper, match: Match, facet: Facet | None, width: int, explain: bool) -> list[str]:
    sentence = paper.sentences[match.position]
    if explain:
        label, first = describe(paper, match.position, facet), f"~{match.query_position}".rjust(4)
        return _indented(f"{first} {match.score:8.4f} ", f"{label}: {sentence.text}", width)
    label = f"{facet}?" if stands_in(paper, match.position, facet) else str(sentence.facet or "")
    return _indented("", f"{label}: {sentence.text}" if label else sentence.text, width)


def _indented(first: str, text: str, width: int) -> list[str]:
    return textwrap.wrap(
        text, max(width, 2 * INDENT), initial_indent=first.ljust(INDENT), subsequent_indent=" " * INDENT
    )

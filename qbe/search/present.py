"""Results for people (a table) and for programs (JSON)."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from qbe.encode.selection import is_guess
from qbe.index.index import Index
from qbe.query import Query
from qbe.search.explain import describe, explain_query, facet_probability, stands_in
from qbe.types import Facet, Hit, Match, Paper, TransportEntry

INDENT = 14

_TIED = "\N{NO-BREAK SPACE}"


def to_json(index: Index, query_id: str, query: Query, hits: Sequence[Hit], *, explain: bool = False) -> str:
    """One query's result as one line of JSON.

    ``explain`` adds the query's sentences (see `qbe.search.explain.ExplainedSentence`), the probabilities of
    matched sentences' facets, each hit's parts (see `qbe.types.Hit`), the pair of sentences that drove a
    reranker's score, null where there was none, and the reranker's plan, empty where it transports none.
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
    paper = index.paper(hit.paper_id)
    place = {
        "rank": rank,
        "paper_id": hit.paper_id,
        "score": hit.score,
        "title": paper.title,
        "year": paper.year,
    }
    matches = [_match(query, paper, match, explain) for match in hit.matches]
    if not explain:
        return {**place, "matches": matches}
    parts = {name: round(score, 6) for name, score in (hit.parts or {}).items()}
    driven_by = _match(query, paper, hit.driven_by, explain) if hit.driven_by else None
    plan = [{**moved._asdict(), "mass": round(moved.mass, 6)} for moved in hit.plan]
    return {**place, "parts": parts, "driven_by": driven_by, "plan": plan, "matches": matches}


def _match(query: Query, paper: Paper, match: Match, explain: bool) -> Mapping[str, Any]:
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
    return found | ({"probability": facet_probability(sentence)} if explain else {})


def to_table(index: Index, query: Query, hits: Sequence[Hit], width: int, *, explain: bool = False) -> str:
    """One query's result for a person: rank, score, title, year, and the sentence that matched best: the one
    that drove the reranker, where it tells.

    A facet with a question mark is a best guess. ``explain`` shows the query's sentences and all matches,
    each with its facet and the probability of this, and the parts of each score.
    """
    title = query.paper.title or query.paper.sentences[0].text
    aspect = f"for its {query.facet}" if query.facet else "by its abstract"
    if query.positions is not None:
        aspect = "by sentences " + ", ".join(map(str, query.positions))
    if is_guess(query):
        aspect += f" (no sentence was labelled {query.facet}; the likeliest stands in)"
    lines = textwrap.wrap(f"Papers like “{title}”, {aspect}:", width)
    if explain:
        lines += ["", *_query_lines(query, hits, width)]
    for rank, hit in enumerate(hits, start=1):
        paper = index.paper(hit.paper_id)
        year = f" ({paper.year})" if paper.year else ""
        lines.append("")
        lines += _indented(
            f"{rank:4d} {hit.score:8.4f} ", f"{paper.title or hit.paper_id}{year}  [{hit.paper_id}]", width
        )
        if explain:
            lines += _explained_lines(paper, hit, query.facet, width)
        elif best := hit.driven_by or next(iter(hit.matches), None):
            lines += _best_lines(paper, best.position, query.facet, width)
    if not hits:
        lines.append("No paper was found.")
    return "\n".join(lines)


def _query_lines(query: Query, hits: Sequence[Hit], width: int) -> list[str]:
    lines = []
    for sentence in explain_query(query):
        label = describe(query.paper, sentence.position, query.facet)
        mark = "*" if sentence.selected else " "
        lines += _indented(f"{mark}{sentence.position}".rjust(4), f"{label}: {sentence.text}", width)
    legend = "Searched with the sentences marked *; ~3 below is the match of sentence 3, with its similarity."
    if any(hit.driven_by for hit in hits):
        legend += " >3 is the pair of sentences that drove the reranker."
    if any(hit.plan for hit in hits):
        legend += " 3→0 0.20 is the mass that went from sentence 3 to the paper's sentence 0."
    return [*lines, *textwrap.wrap(legend, width)]


def _explained_lines(paper: Paper, hit: Hit, facet: Facet | None, width: int) -> list[str]:
    """The parts of a hit's score, the reranker's plan, the pair that drove it, and all matches."""
    lines = _indented("", _parts_in_words(hit.parts), width) if hit.parts else []
    if hit.plan:
        lines += [line.replace(_TIED, " ") for line in _indented("", _plan_in_words(hit.plan), width)]
    pairs = [(">", hit.driven_by)] if hit.driven_by else []
    for mark, match in (*pairs, *(("~", match) for match in hit.matches)):
        first = f"{mark}{match.query_position}".rjust(4)
        text = f"{describe(paper, match.position, facet)}: {paper.sentences[match.position].text}"
        lines += _indented(f"{first} {match.score:8.4f} ", text, width)
    return lines


def _parts_in_words(parts: Mapping[str, float]) -> str:
    """The parts of a hit's score, such as ``bm25 12.3000, first stage 1.2500, reranker 0.5000``."""
    words = [f"{'first stage' if name == 'first' else name} {score:.4f}" for name, score in parts.items()]
    below = "first" in parts and "reranker" not in parts
    return ", ".join([*words, "not reranked"] if below else words)


def _plan_in_words(plan: Sequence[TransportEntry]) -> str:
    """The masses of a plan that show in two places, such as ``transport 3→0 0.20, 1→4 0.05``, where the
    spaces before masses are such as keep a line from being broken there.
    """
    shown = [f"{moved.query_position}→{moved.position}{_TIED}{moved.mass:.2f}" for moved in plan]
    return "transport " + ", ".join(one for one in shown if not one.endswith("0.00"))


def _best_lines(paper: Paper, position: int, facet: Facet | None, width: int) -> list[str]:
    sentence = paper.sentences[position]
    label = f"{facet}?" if stands_in(paper, position, facet) else str(sentence.facet or "")
    return _indented("", f"{label}: {sentence.text}" if label else sentence.text, width)


def _indented(first: str, text: str, width: int) -> list[str]:
    return textwrap.wrap(
        text, max(width, 2 * INDENT), initial_indent=first.ljust(INDENT), subsequent_indent=" " * INDENT
    )

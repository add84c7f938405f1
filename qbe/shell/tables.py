"""Records of the service as tables for a terminal, as `qbe search` shows hits."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable, Mapping

from qbe.plain import plain
from qbe.service.records import Record

INDENT = 14
MAX_AUTHORS = 3
"""Authors that a table names; of more it names so many, and others."""


def heading_lines(heading: str, width: int) -> list[str]:
    """What was asked for.

    >>> heading_lines("Papers like “On fish”, for its method", 60)
    ['Papers like “On fish”, for its method:']
    """
    return textwrap.wrap(f"{plain(heading)}:", width)


def hit_lines(hit: Record, wanted: Collection[str], width: int) -> list[str]:
    r"""A hit: rank, score, title, year and id, who wrote it, grades, and the closest sentence.

    This is one of a facet that is ``wanted``, if there is such.

    >>> hit = {"rank": 1, "score": 1.5, "title": "On fish", "year": "2020", "paper_id": "s7", "authors": [],
    ...        "venue": "", "links": {}, "matches": [{"facet": "method", "sentence": "We watch fish."}]}
    >>> print("\n".join(hit_lines(hit, ["result"], 60)))
       1   1.5000 On fish (2020)  [s7]
                  (labelled method) We watch fish.
    """
    lines = _wrapped(f"{hit['rank']:4d} {hit['score']:8.4f} ", name_of(hit), width)
    lines += _wrapped("", credits_of(hit), width, whole_words=True)
    if hit.get("grades"):
        lines += _wrapped("", grades_in_words(hit["grades"]), width)
    matches = hit["matches"]
    if matches:
        match = next((each for each in matches if each["facet"] in wanted), matches[0])
        facet = match["facet"] or "other"
        label = f"{facet}:" if facet in wanted or not wanted else f"(labelled {facet})"
        lines += _wrapped("", f"{label} {match['sentence']}", width)
    return lines


def why_lines(hit: Record, facets: Mapping[str, str], most: int, width: int) -> list[str]:
    r"""The closest pairs of sentences of the query and a hit.

    ``facets`` are those of the query's sentences, as far as these have any.

    >>> match = {"query_position": 0, "query_sentence": "We see fish.", "facet": "method", "score": 0.75,
    ...          "position": 2, "sentence": "We watch fish."}
    >>> hit = {"rank": 1, "title": "On fish", "year": "", "paper_id": "s7", "matches": [match]}
    >>> print("\n".join(why_lines(hit, {"We see fish.": "method"}, 5, 60)))
       1          On fish  [s7]
    <BLANKLINE>
      ~0   0.7500 query, method: We see fish.
       2          paper, method: We watch fish.
    """
    lines = _wrapped(f"{hit['rank']:4d}", name_of(hit), width)
    if hit.get("grades"):
        lines += _wrapped("", grades_in_words(hit["grades"]), width)
    for match in hit["matches"][:most]:
        query_text, sentence = match["query_sentence"], match["sentence"]
        margin = f"~{match['query_position']}".rjust(4) + f" {match['score']:8.4f} "
        lines += ["", *_wrapped(margin, f"{_who('query', facets.get(query_text))}: {query_text}", width)]
        margin = f"{match['position']:4d}"
        lines += _wrapped(margin, f"{_who('paper', match['facet'])}: {sentence}", width)
    if not hit["matches"]:
        lines += _wrapped("", "No sentences were compared.", width)
    return lines


def _who(whose: str, facet: str | None) -> str:
    return f"{whose}, {facet}" if facet else whose


def paper_lines(paper: Record, width: int) -> list[str]:
    r"""A paper with its sentences, their positions and facets; those searched with are marked.

    >>> sentence = {"position": 0, "facet": "method", "text": "We watch fish.", "selected": True}
    >>> paper = {"paper_id": "s7", "title": "On fish", "year": "2020", "authors": ["Ann Lee"], "venue": "",
    ...          "links": {}, "sentences": [sentence]}
    >>> print("\n".join(paper_lines(paper, 60)))
                  On fish (2020)  [s7]
                  Ann Lee
      *0          method: We watch fish.
    """
    lines = _wrapped("", name_of(paper), width)
    lines += _wrapped("", credits_of(paper), width, whole_words=True)
    for sentence in paper["sentences"]:
        mark = "*" if sentence["selected"] else " "
        text = f"{sentence['facet'] or 'other'}: {sentence['text']}"
        lines += _wrapped(f"{mark}{sentence['position']}".rjust(4), text, width)
    return lines


def name_of(paper: Record) -> str:
    """Title, year and id of a paper, as far as it has them."""
    year = f" ({paper['year']})" if paper["year"] else ""
    paper_id = f"  [{paper['paper_id']}]" if paper["paper_id"] else ""
    return f"{paper['title'] or 'untitled'}{year}{paper_id}"


def credits_of(paper: Record) -> str:
    """A paper's first authors, venue and a link, as far as they are known.

    >>> credits_of({"authors": ["Ann Lee", "Bo Ek", "Cy Doe", "Di Fu"], "venue": "Fish Letters", "links": {}})
    'Ann Lee, Bo Ek, Cy Doe et al.; Fish Letters'
    """
    authors = ", ".join(paper["authors"][:MAX_AUTHORS])
    others = " et al." if len(paper["authors"]) > MAX_AUTHORS else ""
    link = next(iter(paper["links"].values()), "")
    return "; ".join(filter(None, (authors + others, paper["venue"], link)))


def grades_in_words(grades: Record) -> str:
    """Grades by facet.

    >>> grades_in_words({"background": 2.61, "method": 0.4})
    'background 2.6, method 0.4 of 3'
    """
    return ", ".join(f"{name} {grade:.1f}" for name, grade in grades.items()) + " of 3"


def columns(rows: Iterable[tuple[str, str]], width: int) -> list[str]:
    """Rows of two columns, the second one wrapped.

    >>> columns([("k N", "hits"), ("more", "go on")], 60)
    ['  k N   hits', '  more  go on']
    """
    rows = list(rows)
    first = max(len(left) for left, _ in rows) + 4
    lines = []
    for left, right in rows:
        begin = f"  {left}".ljust(first)
        lines += textwrap.wrap(
            right, max(width, first + INDENT), initial_indent=begin, subsequent_indent=" " * first
        )
    return lines


def _wrapped(first: str, text: str, width: int, *, whole_words: bool = False) -> list[str]:
    """Lines behind a margin, in whose first line ``first`` stands; ``whole_words`` are not broken."""
    return textwrap.wrap(
        plain(text),
        max(width, 2 * INDENT),
        initial_indent=first.ljust(INDENT),
        subsequent_indent=" " * INDENT,
        break_long_words=not whole_words,
        break_on_hyphens=not whole_words,
    )

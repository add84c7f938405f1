"""Results as lists in Markdown (CommonMark)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from qbe.bibliography.latex import with_formulas
from qbe.bibliography.reference import reference_of
from qbe.query import Query
from qbe.search.present import Lookup, credits_of, grades_in_words, heading
from qbe.search.shown import shown
from qbe.types import Hit, Paper

_MEANT = re.compile(r"[\\`*_\[\]<>|&~#$]")
_BEGIN = re.compile(r"(\d*)([-+=.)])")
"""What would begin a list or a heading."""

_IN_LINKS = str.maketrans({"(": "%28", ")": "%29", "\\": "%5C"})


def to_markdown(lookup: Lookup, query: Query, hits: Sequence[Hit]) -> str:
    """One query's result: a heading and a numbered list of titles, each a link where one is known, with year,
    paper id, score, authors and venue, and a sentence that matched (see `qbe.search.shown.shown`).

    Formulas stay as they are in LaTeX; other characters with a meaning are escaped.

    >>> from qbe.types import Facet, Match
    >>> query = Query(index.paper("s036"), Facet.BACKGROUND)
    >>> print(to_markdown(index.paper, query, [Hit("s051", 1.5, (Match(0, 1, 0.75),))]))
    ## Papers like “Two Crops of a Paragraph: ...”, for its background
    <BLANKLINE>
    1. **Masking Politicians' Words: ... in Claim Verification** (2020). s051, 1.5000
       > background: The question here is whether pre-training on unlabelled speeches helps ...
    """
    lines = [f"## {escaped(heading(query))}", ""]
    for rank, hit in enumerate(hits, start=1):
        paper = lookup(hit.paper_id)
        said = [credits_of(reference_of(paper), link=False), f"{paper.paper_id}, {hit.score:.4f}"]
        if hit.grades is not None:
            said.append(grades_in_words(hit.grades))
        number = f"{rank}. "
        lines.append(f"{number}{linked_title(paper)} {escaped('; '.join(filter(None, said)))}")
        if best := shown(query, paper, hit):
            text = best.prefix + paper.sentences[best.match.position].text
            lines.append(f"{' ' * len(number)}> {escaped(text)}")
    return "\n".join(lines if hits else [*lines, "No paper was found."])


def linked_title(paper: Paper) -> str:
    """The title of a paper in bold, a link where one is known, with the year.

    >>> linked_title(Paper("7", "On fish", (), metadata={"year": 2019, "url": "https://example.org/7"}))
    '[**On fish**](https://example.org/7) (2019).'
    """
    reference = reference_of(paper)
    title = f"**{escaped(reference.title or paper.paper_id)}**"
    if reference.link:
        title = f"[{title}]({reference.link.translate(_IN_LINKS)})"
    return f"{title} ({reference.year})." if reference.year else f"{title}."


def escaped(text: str) -> str:
    r"""A text in Markdown, with formulas as they are.

    >>> print(escaped("*Fish* & $x_1$_2"))
    \*Fish\* \& $x_1$\_2
    """
    parts = [part if formula else _MEANT.sub(r"\\\g<0>", part) for part, formula in with_formulas(text)]
    return _BEGIN.sub(r"\1\\\2", "".join(parts), count=1) if _BEGIN.match(text) else "".join(parts)

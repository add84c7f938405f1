"""The words that a query paper shares with the papers that it cites (Nogueira et al., 2020, section 5.2).

Rankings by words find what shares many words with the query. Which of the papers that share few words a
ranking finds, a figure over all of them does not show.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from qbe.evaluate.results import Qrels
from qbe.types import Paper

Pairs = Mapping[str, tuple[tuple[str, str], ...]]
"""Pairs of a query paper and a paper that it cites, by the name of their bin of overlap."""

_BINS = tuple(f"{low / 20:.2f}-{(low + 1) / 20:.2f}" for low in range(20))
"""The lower bound of a bin belongs to it; in the last one 1 does too."""

NO_TEXT = "no text"

_WORD = re.compile(r"[^\W_]+")

_STOP_WORDS = frozenset(
    _WORD.findall(
        "a an and are as at be but by for if in into is it no not of on or such that the their then there "
        "these they this to was will with"
    )
)
"""Those of Lucene's analyzers for English, which BM25 leaves out."""


def words(paper: Paper) -> frozenset[str]:
    """The distinct words of a paper's title and abstract, in lower case, without stop words.

    >>> sorted(words(Paper("1", "The Well-Tempered Index", ())))
    ['index', 'tempered', 'well']
    """
    text = f"{paper.title} {paper.abstract}".lower()
    return frozenset(_WORD.findall(text)) - _STOP_WORDS


def pairs_by_overlap(qrels: Qrels, papers: Mapping[str, Paper]) -> dict[str, tuple[tuple[str, str], ...]]:
    """Pairs of a query paper and a paper that it cites, by the share of the query's words in the cited paper.

    Args:
        qrels: grades by query id, which is the id of its paper, and paper id; 1 and more is cited.
        papers: papers by id, with all query papers. Cited papers that are not there have a bin of their own.

    Returns the pairs of each bin up to the last that has any.

    >>> papers = {name: Paper(name, title, ()) for name, title in (("p", "on old maps"), ("q", "maps"))}
    >>> list(pairs_by_overlap({"p": {"q": 1, "r": 0}}, papers).items())[-1]
    ('0.50-0.55', (('p', 'q'),))
    """
    bins: dict[str, list[tuple[str, str]]] = {name: [] for name in (*_BINS, NO_TEXT)}
    words_of = {paper_id: words(paper) for paper_id, paper in papers.items()}
    for query, grades in qrels.items():
        of_query = words_of[query]
        for cited, grade in grades.items():
            if grade > 0 and cited != query:
                name = _bin(of_query, words_of[cited]) if cited in papers else NO_TEXT
                bins[name].append((query, cited))
    last = max((place for place, name in enumerate(_BINS) if bins[name]), default=-1)
    shown = [*_BINS[: last + 1], *([NO_TEXT] if bins[NO_TEXT] else [])]
    return {name: tuple(bins[name]) for name in shown}


def _bin(of_query: frozenset[str], of_cited: frozenset[str]) -> str:
    if not of_query:
        return _BINS[0]
    return _BINS[min(len(_BINS) * len(of_query & of_cited) // len(of_query), len(_BINS) - 1)]

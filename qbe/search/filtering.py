"""Which papers of an index pass a filter."""

from __future__ import annotations

import json
import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from qbe.errors import UsageError, did_you_mean
from qbe.index.papers import Metadata
from qbe.index.reader import IndexReader
from qbe.index.rows import Mask, Selection
from qbe.query import Query
from qbe.search.filters import OF_QUERY, TECHNIQUE, PaperFilter, year_of
from qbe.types import Facet, Paper, Sentence

T = TypeVar("T")

KEPT = 64
"""Filters whose papers are kept, the last ones used; one a year where queries have years of their own."""

NO_YEAR = 0

SAID_FROM = 0.3
"""From what probability of method and objective together a sentence says how: "we propose a graph network for
traffic" is an objective, and names the technique.
"""


class FilterResult(NamedTuple):
    """The papers that pass a filter: ``selection``, None where all do; how many ``papers`` that are, of how
    many ``total``, and how many more would pass if their year was known, ``unknown_year``.
    """

    selection: Selection | None
    papers: int
    total: int
    unknown_year: int


class FilterCache:
    """The papers of one commit of an index that pass filters.

    Metadata is read from the index's records when the first filter comes, and again for a filter that asks
    for other categories, authors or values; all papers for one that asks for a technique. Years are kept, in
    two bytes a paper, and of each of the last KEPT filters a byte a paper. Several threads may use it.

    >>> with index.reading() as reader:
    ...     passing = FilterCache(reader).of(PaperFilter(years=(2020, None)))
    >>> passing.papers, passing.total, passing.unknown_year
    (86, 128, 0)
    """

    def __init__(self, reader: IndexReader) -> None:
        self._papers = reader.papers
        self._lock = threading.Lock()
        self._years: NDArray[np.int16] | None = None
        self._kept: OrderedDict[str, Mask] = OrderedDict()
        self._passing: OrderedDict[str, FilterResult] = OrderedDict()

    def for_query(self, paper_filter: PaperFilter | None, query: Query) -> FilterResult:
        """What passes the filter for a query, all papers where there is none; raises what `PaperFilter.of`
        and `of` do.
        """
        if paper_filter is None:
            return FilterResult(None, len(self._papers), len(self._papers), 0)
        return self.of(paper_filter.of(query))

    def of(self, paper_filter: PaperFilter) -> FilterResult:
        """What passes; the filter's ``before`` is a year by now (see `PaperFilter.of`). Raises UsageError for
        a filter by the year of a query, for a key of ``where`` that no paper has, and for a technique without
        a name.
        """
        if paper_filter.before == OF_QUERY:
            raise UsageError("expected `years` without query, since there is no query, found it; give a year")
        with self._lock:
            return _remembered(self._passing, _key(paper_filter), lambda: self._computed(paper_filter))

    def _computed(self, paper_filter: PaperFilter) -> FilterResult:
        without_years = PaperFilter(
            categories=paper_filter.categories, authors=paper_filter.authors, where=paper_filter.where
        )
        key = _key(without_years)
        mask = _remembered(self._kept, key, lambda: self._read(without_years))
        missing = 0
        if paper_filter.by_year:
            assert self._years is not None
            missing = int(np.count_nonzero(mask & (self._years == NO_YEAR)))
            mask = mask & self._allowed(paper_filter, self._years)
        selection = Selection(mask)
        total = len(self._papers)
        return FilterResult(None if len(selection) == total else selection, len(selection), total, missing)

    def _read(self, paper_filter: PaperFilter) -> Mask:
        """Which papers (papers,) pass, years apart; the years are read as well, once."""
        rows = len(self._papers.ids)
        keeps, years = paper_filter.test(), None if self._years is not None else array("h")
        mask = np.fromiter(map(keeps, self._metadata(years)), np.bool_, rows)
        if years is not None:
            self._years = np.array(years, np.int16)
        if TECHNIQUE in paper_filter.where:
            mask &= self._naming(paper_filter.where[TECHNIQUE])
        if paper_filter.where and not mask.any():
            self._check_keys(paper_filter.where)
        return mask

    def _naming(self, name: str) -> Mask:
        """Which papers (papers,) name a technique."""
        technique = Technique(name)
        candidates = self._papers.read_containing(technique.parts)
        named = (paper is not None and technique.is_named_by(paper) for paper in candidates)
        return np.fromiter(named, np.bool_, len(self._papers.ids))

    def _check_keys(self, where: Iterable[str]) -> None:
        """Raise UsageError for a key that no paper's metadata has."""
        known = sorted(set().union(*self._papers.read_metadata()))
        for key in where:
            if key != TECHNIQUE and key not in known:
                raise UsageError(
                    f"no paper of the index has {key!r}, a key of `where`; they have "
                    f"{', '.join(known) or 'no metadata'}; {did_you_mean(key, known, 'check it')}"
                )

    def _metadata(self, years: array[int] | None) -> Iterator[Metadata]:
        """The metadata of all papers, whose years are added to ``years``, if given."""
        if years is None:
            return self._papers.read_metadata()
        return map(partial(_with_year, years), self._papers.read_metadata())

    @staticmethod
    def _allowed(paper_filter: PaperFilter, years: NDArray[np.int16]) -> Mask:
        """Which papers (papers,) have a year that passes."""
        known = np.unique(years)
        allowed = [year for year in known.tolist() if year != NO_YEAR and paper_filter.allows(year)]
        return np.isin(years, allowed)


def _with_year(years: array[int], metadata: Metadata) -> Metadata:
    years.append(year_of(metadata) or NO_YEAR)
    return metadata


def _key(paper_filter: PaperFilter) -> str:
    return json.dumps(paper_filter.record(), sort_keys=True)


def _remembered(known: OrderedDict[str, T], key: str, make: Callable[[], T]) -> T:
    """The value of a key, made where there is none; of too many keys the one not used longest goes."""
    if key not in known:
        known[key] = make()
        if len(known) > KEPT:
            known.popitem(last=False)
    known.move_to_end(key)
    return known[key]


class Technique:
    """A name of one or several words, which a paper has next to each other, whatever their number and case.

    >>> from qbe.types import Facet, Sentence
    >>> technique = Technique("conditional random field")
    >>> technique.is_named_by(Paper("1", "Conditional Random Fields for tagging", ()))
    True
    >>> other = Paper("2", "On stone", (Sentence("We cut it by random fields.", Facet.METHOD),), True)
    >>> technique.is_named_by(other), Technique("random-field").is_named_by(other)
    (False, True)
    """

    def __init__(self, name: str) -> None:
        """Raises UsageError for a name without a letter or a digit that could be looked for."""
        self._words = _words(name)
        if not self._words:
            raise UsageError(
                f"expected the name of a technique in `where`, such as technique=attention, found {name!r}"
            )
        self.parts: Sequence[bytes] = [_unchanging(word).encode() for word in self._words]
        """Bytes that stand in every ASCII text, in lower case, that has the name."""

    def is_named_by(self, paper: Paper) -> bool:
        """Whether the title has the name, or a sentence that says how (any one of a paper without labels), or
        what the metadata has under this key.
        """
        said = [sentence.text for sentence in paper.sentences if not paper.labelled or _says_how(sentence)]
        stored = paper.metadata.get(TECHNIQUE, [])
        kept = stored if isinstance(stored, list) else [stored]
        return any(map(self._stands_in, (paper.title, *said, *map(str, kept))))

    def _stands_in(self, text: str) -> bool:
        words, length = _words(text), len(self._words)
        return any(words[place : place + length] == self._words for place in range(len(words) - length + 1))


def _says_how(sentence: Sentence) -> bool:
    if sentence.probabilities is None:
        return sentence.facet is Facet.METHOD
    return sentence.probabilities.method + sentence.probabilities.objective >= SAID_FROM


def _words(text: str) -> list[str]:
    from qbe.models.words import words_of

    return words_of(text.replace("-", " "))


def _unchanging(word: str) -> str:
    """The beginning of a word that its plural has, too: ``studies`` is one of ``study``."""
    return word.removesuffix("y")


def describe(passing: Sequence[FilterResult], hits: int | None) -> str | None:
    """In one line what users should know of the filters of some queries, for each of which ``hits`` papers
    are asked for (None: any number); None where there is nothing.

    >>> describe([FilterResult(None, 3, 128, 5)], hits=10)
    '3 of 128 papers pass the filter, fewer than the 10 hits asked for; 5 papers have no year and do not pass'
    >>> describe([FilterResult(None, 3, 128, 0), FilterResult(None, 90, 128, 0)], hits=10)
    '3 of 128 papers pass the filter of a query, fewer than the 10 hits asked for (so of 1 in 2 queries)'
    """
    parts = []
    few = [each for each in passing if hits is not None and each.papers < hits]
    if few:
        least = min(few, key=lambda each: each.papers)
        several = len(passing) > 1
        parts.append(
            f"{least.papers} of {least.total} papers pass the filter"
            + (" of a query" if several else "")
            + f", fewer than the {hits} hits asked for"
            + (f" (so of {len(few)} in {len(passing)} queries)" if several else "")
        )
    missing = max((each.unknown_year for each in passing), default=0)
    if missing:
        parts.append(f"{missing} papers have no year and do not pass")
    return "; ".join(parts) or None

"""Filters: which papers may be found, by what their metadata says. Standard library only."""

from __future__ import annotations

import dataclasses
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from qbe.errors import UsageError
from qbe.query import Query
from qbe.types import year_given

OF_QUERY: Literal["query"] = "query"
"""In place of a year: that of the query's paper."""

LAST_YEAR = 9999

OF_LIBRARIES = ("tags", "collections")
"""Keys of metadata that people fill in, whose values are compared without regard to upper and lower case."""

TECHNIQUE = "technique"
"""The key of ``where`` that asks for what papers say, too (see `qbe.search.filtering.Technique`)."""

Years = tuple[int | None, int | None]
"""The first and the last year; None: whatever is before or after."""

_YEAR = re.compile(r"\s*(\d{4}(?!\d)|\d{1,3}(?=\s*$))", re.ASCII)
"""A year of four digits, whatever comes behind it, or a number alone: ``12/05/2019`` begins with none."""

_YEARS = re.compile(r"(?P<first>\d{1,4})?(?:(?P<range>-)(?P<last>\d{1,4})?)?")
_NAMES = re.compile(r",|\band\b")
_NAME_PARTS = ("name", "given", "first", "middle", "family", "last")
_LETTERS = str.maketrans(
    {"æ": "ae", "đ": "d", "ð": "d", "ħ": "h", "\u0131": "i", "ł": "l", "ø": "o", "œ": "oe", "þ": "th"}
)
"""Letters that are no letter with an accent for Unicode, but for whoever types a name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperFilter:
    """Which papers may be found; conditions that are given must all hold.

    ``years``: the year lies between the first and the last, both included; either may be None. ``before``:
    the year is this one or an earlier one; ``"query"``: not later than that of the query's paper. A paper
    whose year is not known passes neither. ``categories``: one of the paper's matches one of these, which
    are patterns as of `qbe.corpus.records.Reading` (``cs.*``), or what stands before a dot (``cs``).
    ``authors``: the name of one of the paper's authors has all words of one of these, in any order, upper
    and lower case and accents apart. ``where``: the metadata has each key with the value, which is compared
    as text, that of OF_LIBRARIES without regard to case; of a list one element is enough. The key
    ``technique`` asks for papers that name it there, in their title, or where they say how.

    Raises TypeError for values of another type, UsageError for those that are not possible.

    >>> papers = PaperFilter(years=(2015, 2019), categories=("cs",), authors=("d. knuth",))
    >>> papers.keeps({"categories": ["cs.DS"], "authors": ["Donald D. Knuth"]})  # years apart
    True
    >>> PaperFilter(years=(2019, 2015))
    Traceback (most recent call last):
    ...
    qbe.errors.UsageError: expected `years` from an earlier to a later one, found 2019-2015
    """

    years: Years | None = None
    categories: Sequence[str] = ()
    authors: Sequence[str] = ()
    where: Mapping[str, str] = field(default_factory=dict)
    before: int | Literal["query"] | None = None

    def __post_init__(self) -> None:
        if self.years is not None:
            _check_years(self.years)
            object.__setattr__(self, "years", tuple(self.years))
        for name in ("categories", "authors"):
            object.__setattr__(self, name, _texts(name, getattr(self, name)))
        for author in self.authors:
            if not _words(author):
                raise UsageError(f"expected names as `authors`, found {author!r}")
        _check_where(self.where)
        object.__setattr__(self, "where", dict(self.where))
        if isinstance(self.before, str):
            if self.before != OF_QUERY:
                raise UsageError(f"expected a year or query as `before`, found {self.before!r}")
        elif self.before is not None:
            _check_year("before", self.before)

    @property
    def by_year(self) -> bool:
        """Whether a paper must have a year to pass."""
        return self.years is not None or self.before is not None

    def of(self, query: Query) -> PaperFilter:
        """The same with the year of a query's papers in place of ``"query"``: the latest of those that it
        asks for. Raises UsageError for one without a year.

        >>> paper = index.paper("s036")
        >>> PaperFilter(before="query").of(Query(paper)).before
        2018
        """
        if self.before != OF_QUERY:
            return self
        years = []
        for aspect in query.aspects:
            if aspect.weight > 0:
                year = year_of(aspect.paper.metadata)
                if year is None:
                    raise UsageError(
                        f"expected a year of the query's paper {aspect.paper.paper_id} for `before` query, "
                        "found none; give `before` a year"
                    )
                years.append(year)
        return dataclasses.replace(self, before=max(years))

    def allows(self, year: int) -> bool:
        """Whether a year passes; `before` is a year by now (see `of`)."""
        first, last = self.years or (None, None)
        limits = [limit for limit in (last, self.before) if isinstance(limit, int)]
        return (first is None or first <= year) and all(year <= limit for limit in limits)

    def keeps(self, metadata: Mapping[str, Any]) -> bool:
        """Whether a paper of this metadata passes, its year and what it says apart."""
        return self.test()(metadata)

    def test(self) -> Callable[[Mapping[str, Any]], bool]:
        """`keeps` as a function, for many papers."""
        tests = []
        if self.categories:
            tests.append(_in_categories(self.categories))
        if self.authors:
            tests.append(_by_authors(self.authors))
        tests += [_has_value(key, value) for key, value in self.where.items() if key != TECHNIQUE]
        if len(tests) == 1:
            return tests[0]
        return lambda metadata: all(test(metadata) for test in tests)

    def record(self) -> dict[str, Any]:
        """The conditions that are given, as JSON holds them.

        >>> PaperFilter(years=(2015, None), before="query").record()
        {'years': [2015, None], 'before': 'query'}
        """
        values = {
            "years": None if self.years is None else list(self.years),
            "categories": list(self.categories),
            "authors": list(self.authors),
            "where": dict(self.where),
            "before": self.before,
        }
        return {name: value for name, value in values.items() if value}


def year_of(metadata: Mapping[str, Any]) -> int | None:
    """The year of a paper (see `qbe.types.year_given`) as a number; None where none is given, or a text that
    neither begins with four digits nor is a number of fewer.

    >>> year_of({"date": "2019-05"}), year_of({"date": "5 May 2019"}), year_of({"year": "in print"})
    (2019, None, None)
    """
    return _first_year(year_given(metadata))


@lru_cache(1024)
def _first_year(text: str) -> int | None:
    match = _YEAR.match(text)
    return None if match is None else int(match[1]) or None


def parse_years(text: str) -> tuple[Years | None, Literal["query"] | None]:
    """Years such as ``2015-2019``, ``2015-``, ``-2019`` or ``2018``, and ``query`` where the last one is that
    of the query's paper, as in ``query`` and ``2015-query``; raises UsageError.

    >>> parse_years("2015-2019"), parse_years("2018"), parse_years("2015-query")
    (((2015, 2019), None), ((2018, 2018), None), ((2015, None), 'query'))
    """
    head, _, last = text.strip().rpartition("-")
    of_query = last.strip() == OF_QUERY
    if of_query and not head:
        return None, OF_QUERY
    match = _YEARS.fullmatch(f"{head}-" if of_query else text.strip())
    if match is None or not (match["first"] or match["last"]):
        raise UsageError(f"expected `years` such as 2015-2019, 2015-, -2019, 2018 or query, found {text!r}")
    first, last_year = (int(year) if year else None for year in match.group("first", "last"))
    years = (first, last_year) if match["range"] else (first, first)
    return years, OF_QUERY if of_query else None


def parse_before(text: str) -> int | Literal["query"]:
    """A year, or ``query``; raises UsageError.

    >>> parse_before("2018"), parse_before("query")
    (2018, 'query')
    """
    if text == OF_QUERY:
        return OF_QUERY
    if not (text.isascii() and text.isdecimal()):
        raise UsageError(f"expected a year or query as `before`, found {text!r}")
    return int(text)


def parse_where(texts: Sequence[str]) -> dict[str, str]:
    """Keys and values such as ``venue=SIGIR``; raises UsageError.

    >>> parse_where(["venue=SIGIR", "note=a=b"])
    {'venue': 'SIGIR', 'note': 'a=b'}
    """
    values: dict[str, str] = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not sign or not key:
            raise UsageError(f"expected `where` such as venue=SIGIR, found {text!r}")
        if key in values:
            raise UsageError(f"expected each key of `where` once, found {key} again")
        values[key] = value
    return values


def _in_categories(categories: Sequence[str]) -> Callable[[Mapping[str, Any]], bool]:
    from qbe.corpus.records import Reading  # which only some searches need, as the readers of corpora

    reading = Reading(categories=(*categories, *(f"{category}.*" for category in categories)))
    known: dict[str | tuple[str, ...], bool] = {}  # papers of the same categories are many

    def keeps(metadata: Mapping[str, Any]) -> bool:
        value = metadata.get("categories")
        names = value if isinstance(value, str) else tuple(map(str, value)) if isinstance(value, list) else ()
        if names not in known:
            known[names] = reading.keeps({"categories": names})
        return known[names]

    return keeps


def _by_authors(authors: Sequence[str]) -> Callable[[Mapping[str, Any]], bool]:
    wanted = [frozenset(_words(author)) for author in authors]
    plain = all(word.isascii() for words in wanted for word in words)

    def keeps(metadata: Mapping[str, Any]) -> bool:
        value = metadata.get("authors")
        if plain:  # then most papers are told without taking their names apart
            text = _letters(value if isinstance(value, str) else " ".join(_names(value)))
            if not any(all(word in text for word in words) for words in wanted):
                return False
        names = [set(_words(name)) for name in _names(value)]
        return any(words <= name for words in wanted for name in names)

    return keeps


def _names(authors: Any) -> list[str]:
    """The names of authors as metadata holds them: a list, of texts or objects, or one text."""
    if isinstance(authors, str):
        return authors.split(";") if ";" in authors else _NAMES.split(authors)
    if not isinstance(authors, list):
        return []
    return [
        " ".join(str(each[part]) for part in _NAME_PARTS if each.get(part))
        if isinstance(each, dict)
        else str(each)
        for each in authors
    ]


def _words(name: str) -> list[str]:
    """The words of a name, lower case, without accents; what an apostrophe joins is one word."""
    from qbe.corpus.identity import normalized_title

    return normalized_title(name.casefold().translate(_LETTERS)).split()


def _letters(text: str) -> str:
    """A text of which the words of ASCII letters are those of `_words`, and no others are of interest."""
    if not text.isascii():
        folded = unicodedata.normalize("NFKD", text.casefold().translate(_LETTERS))
        text = folded.encode("ascii", "ignore").decode()
    return text.lower().replace("'", "")


def _has_value(key: str, value: str) -> Callable[[Mapping[str, Any]], bool]:
    folded = value.casefold() if key in OF_LIBRARIES else None

    def keeps(metadata: Mapping[str, Any]) -> bool:
        stored = metadata.get(key)
        return any(map(is_value, stored)) if isinstance(stored, list) else is_value(stored)

    def is_value(item: object) -> bool:
        if folded is not None and isinstance(item, str):
            return folded == item.casefold()
        if isinstance(item, bool):
            return value == str(item).lower()
        return isinstance(item, str | int | float) and value == str(item)

    return keeps


def _check_years(years: object) -> None:
    if not isinstance(years, tuple | list) or len(years) != 2:
        raise TypeError(f"expected `years` as the first and the last, either of them None, found {years!r}")
    first, last = years
    for year in years:
        if year is not None:
            _check_year("years", year)
    if first is None and last is None:
        raise UsageError("expected `years` with a first or a last one, found neither")
    if first is not None and last is not None and first > last:
        raise UsageError(f"expected `years` from an earlier to a later one, found {first}-{last}")


def _check_year(name: str, year: object) -> None:
    if not isinstance(year, int) or isinstance(year, bool):
        raise TypeError(f"expected a year (int) in `{name}`, found {year!r} ({type(year).__name__})")
    if not 1 <= year <= LAST_YEAR:
        raise UsageError(f"expected a year from 1 to {LAST_YEAR} in `{name}`, found {year}")


def _texts(name: str, values: object) -> tuple[str, ...]:
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise TypeError(f"expected a tuple of str as `{name}`, found {values!r:.60}")
    for value in values:
        if not isinstance(value, str):
            raise TypeError(f"expected a tuple of str as `{name}`, found {value!r:.60} in it")
        if not value.strip():
            raise UsageError(f"expected texts as `{name}`, found an empty one")
    return tuple(values)


def _check_where(where: object) -> None:
    if not isinstance(where, Mapping):
        raise TypeError(f"expected a mapping as `where`, such as {{'venue': 'SIGIR'}}, found {where!r:.60}")
    for key, value in where.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"expected str keys and values as `where`, found {key!r}: {value!r:.60}")

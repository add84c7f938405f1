"""Filters: which papers may be found, by their metadata."""

import dataclasses
import re
import threading
import unicodedata
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from qbe.errors import UsageError, check_type, did_you_mean
from qbe.query import Query
from qbe.types import Facet, Paper, year_given

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from qbe.index.reader import IndexReader
    from qbe.index.vectors import Mask, Selection

Metadata = Mapping[str, Any]
Years = tuple[int | None, int | None]  # the first and the last one; None is unbounded

OF_QUERY: Literal["query"] = "query"  # the year of the query's paper
OF_LIBRARIES = ("tags", "collections")  # keys that people fill in: compared without regard to case
TECHNIQUE = "technique"  # the key of ``where`` that is compared with texts, too
LAST_YEAR, NO_YEAR = 9999, 0
KEPT = 64  # filters whose results are cached

# From this probability of method and objective together on a sentence says how: "we propose a graph network".
SAID_FROM = 0.3

_YEAR = re.compile(r"\s*(\d{4}(?!\d)|\d{1,3}(?=\s*$))", re.ASCII)  # four digits first, or a number alone
_YEARS = re.compile(r"(?P<first>\d{1,4})?(?:(?P<range>-)(?P<last>\d{1,4})?)?")
_NAMES = re.compile(r",|\band\b")
_NAME_PARTS = ("name", "given", "first", "middle", "family", "last")
# Letters that Unicode does not decompose, but that people type without accents.
_LETTERS = str.maketrans(
    {"æ": "ae", "đ": "d", "ð": "d", "ħ": "h", "\u0131": "i", "ł": "l", "ø": "o", "œ": "oe", "þ": "th"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperFilter:
    """Conditions that papers must all meet to be found."""

    years: Years | None = None  # papers without a year do not pass, nor do they with ``before``
    categories: Sequence[str] = ()  # one matches a pattern (``cs.*``) or what stands before a dot (``cs``)
    authors: Sequence[str] = ()  # a name has all words of one of these, case and accents apart
    # Each key has this value, or one of a list; ``technique`` is sought in titles and in what says how, too.
    where: Mapping[str, str] = field(default_factory=dict)
    before: int | Literal["query"] | None = None  # this year, that of the query's paper, or an earlier one

    def __post_init__(self) -> None:
        if self.years is not None:
            if not isinstance(self.years, tuple | list) or len(self.years) != 2:
                raise TypeError(f"expected `years` as the first and the last, found {self.years!r}")
            object.__setattr__(self, "years", tuple(self.years))
        first, last = self.years or (None, None)
        before = None if self.before == OF_QUERY else self.before
        for name, year in (("years", first), ("years", last), ("before", before)):
            if year is not None and (type(year) is not int or not 1 <= year <= LAST_YEAR):
                wanted = "a year or query as `before`" if name == "before" else "years in `years`"
                raise UsageError(f"expected {wanted}, from 1 to {LAST_YEAR}, found {year!r}")
        if self.years and first is None and last is None:
            raise UsageError("expected `years` with a first or a last one, found neither")
        if first is not None and last is not None and first > last:
            raise UsageError(f"expected `years` from an earlier to a later one, found {first}-{last}")
        for name in ("categories", "authors"):
            values = getattr(self, name)
            if isinstance(values, str) or not all(isinstance(value, str) for value in values):
                raise TypeError(f"expected a tuple of str as `{name}`, found {values!r:.60}")
            for value in values:
                if not (_name_words(value) if name == "authors" else value.strip()):
                    raise UsageError(f"expected names as `{name}`, found {value!r}")
            object.__setattr__(self, name, tuple(values))
        given = self.where.items() if isinstance(self.where, Mapping) else [(self.where, None)]
        if not all(isinstance(key, str) and isinstance(value, str) for key, value in given):
            raise TypeError(f"expected a mapping of str to str as `where`, found {self.where!r:.60}")
        object.__setattr__(self, "where", dict(self.where))

    def __hash__(self) -> int:
        where = tuple(sorted(self.where.items()))
        return hash((self.years, self.before, self.categories, self.authors, where))

    def of(self, query: Query | None) -> "PaperFilter":
        """Replace ``"query"`` by the latest year of a query's papers; raise UsageError for one without."""
        if self.before != OF_QUERY:
            return self
        if query is None:
            raise UsageError("expected `years` without query, since there is no query, found it; give a year")
        years = {name: year_of(paper.metadata) for name, paper in query.liked.items()}
        if lacking := [paper_id for paper_id, year in years.items() if year is None]:
            raise UsageError(
                f"expected a year of the query's paper {lacking[0]} for `before` query, found none; give "
                "`before` a year"
            )
        return dataclasses.replace(self, before=max(filter(None, years.values())))

    def keeps(self, metadata: Metadata) -> bool:
        """Test the metadata of a paper, years and techniques apart."""
        return all(test(metadata) for test in _tests(self))

    def record(self) -> dict[str, Any]:
        """The conditions as JSON."""
        given = ((each.name, getattr(self, each.name)) for each in dataclasses.fields(self))
        return {name: list(each) if isinstance(each, tuple) else each for name, each in given if each}


def year_of(metadata: Metadata) -> int | None:
    """The year of a paper (see `qbe.types.year_given`) as a number; None for none or another text."""
    match = _YEAR.match(year_given(metadata))
    return int(match[1]) or None if match else None


A_FILTER: Any = (PaperFilter | None, "a qbe.PaperFilter as `filter`", "make one, with years or authors")


def parse_years(text: str) -> tuple[Years | None, Literal["query"] | None]:
    """Parse years such as ``2015-2019``, ``2015-``, ``-2019``, ``2018``, ``query`` or ``2015-query``."""
    head, _, last = text.strip().rpartition("-")
    of_query = last.strip() == OF_QUERY
    if of_query and not head:
        return None, OF_QUERY
    match = _YEARS.fullmatch(f"{head}-" if of_query else text.strip())
    if match is None or not (match["first"] or match["last"]):
        raise UsageError(f"expected `years` such as 2015-2019, 2015-, -2019, 2018 or query, found {text!r}")
    first, last_year = (int(year) if year else None for year in match.group("first", "last"))
    return (first, last_year if match["range"] else first), OF_QUERY if of_query else None


def parse_where(texts: Sequence[str]) -> dict[str, str]:
    """Parse keys and values such as ``venue=SIGIR``; raises UsageError."""
    values: dict[str, str] = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not sign or not key:
            raise UsageError(f"expected `where` such as venue=SIGIR, found {text!r}")
        if key in values:
            raise UsageError(f"expected each key of `where` once, found {key} again")
        values[key] = value
    return values


def _tests(paper_filter: PaperFilter) -> list[Callable[[Metadata], bool]]:
    tests = [_in_categories(paper_filter.categories)] if paper_filter.categories else []
    tests += [_by_authors(paper_filter.authors)] if paper_filter.authors else []
    return tests + [_has_value(key, value) for key, value in paper_filter.where.items() if key != TECHNIQUE]


def _in_categories(categories: Sequence[str]) -> Callable[[Metadata], bool]:
    from qbe.corpus.records import Reading

    reading = Reading(categories=(*categories, *(f"{category}.*" for category in categories)))
    has = cache(lambda names: reading.keeps({"categories": names}))  # many papers have the same ones

    def keeps(metadata: Metadata) -> bool:
        value = metadata.get("categories")
        names = value if isinstance(value, str) else tuple(map(str, value)) if isinstance(value, list) else ()
        return has(names)

    return keeps


def _by_authors(authors: Sequence[str]) -> Callable[[Metadata], bool]:
    wanted = [frozenset(_name_words(author)) for author in authors]
    plain = all(word.isascii() for words in wanted for word in words)

    def keeps(metadata: Metadata) -> bool:
        value = metadata.get("authors")
        if plain:  # a cheap test that most papers fail: the letters of all names, folded as their words are
            text = value if isinstance(value, str) else " ".join(_names(value))
            if not text.isascii():
                folded = unicodedata.normalize("NFKD", text.casefold().translate(_LETTERS))
                text = folded.encode("ascii", "ignore").decode()
            text = text.lower().replace("'", "")
            if not any(all(word in text for word in words) for words in wanted):
                return False
        names = [set(_name_words(name)) for name in _names(value)]
        return any(words <= name for words in wanted for name in names)

    return keeps


def _names(authors: Any) -> list[str]:
    """The names of authors in metadata: a list of texts or objects, or one text."""
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


def _name_words(name: str) -> list[str]:
    from qbe.corpus.identity import normalized_title

    return normalized_title(name.casefold().translate(_LETTERS)).split()


def _has_value(key: str, value: str) -> Callable[[Metadata], bool]:
    folded = value.casefold() if key in OF_LIBRARIES else None

    def is_value(item: object) -> bool:
        if folded is not None and isinstance(item, str):
            return folded == item.casefold()
        text = str(item).lower() if isinstance(item, bool) else str(item)
        return isinstance(item, str | int | float) and value == text

    def keeps(metadata: Metadata) -> bool:
        stored = metadata.get(key)
        return any(map(is_value, stored)) if isinstance(stored, list) else is_value(stored)

    return keeps


class FilterResult(NamedTuple):
    """What passes a filter (``selection``: None for all), how many lack a year, and what no paper meets."""

    selection: "Selection | None"
    papers: int
    total: int
    unknown_year: int
    unmet: str = ""


class FilterCache:
    """The papers of an index that pass filters: years, two bytes a paper, and the last KEPT masks stay."""

    def __init__(self, reader: "IndexReader") -> None:
        self._papers, self._lock = reader.papers, threading.Lock()
        self._years: NDArray[np.int16] | None = None
        own = weakref.proxy(self)  # a cycle would keep the generation until the next garbage collection
        self._selected = lru_cache(KEPT)(partial(FilterCache._select, own))
        self._matching = lru_cache(KEPT)(partial(FilterCache._read, own))

    def of(self, paper_filter: PaperFilter | None, query: Query | None = None) -> FilterResult:
        """Apply a filter, or none, for a query; raise UsageError for a key of ``where`` that no paper has."""
        check_type(paper_filter, *A_FILTER)
        if paper_filter is None:
            return FilterResult(None, len(self._papers), len(self._papers), 0)
        with self._lock:
            return self._selected(paper_filter.of(query))

    def _select(self, paper_filter: PaperFilter) -> FilterResult:
        import numpy as np

        from qbe.index.vectors import Selection

        mask = self._matching(dataclasses.replace(paper_filter, years=None, before=None))
        missing, total = 0, len(self._papers)
        if paper_filter.years is not None or paper_filter.before is not None:
            assert self._years is not None
            missing = int(np.count_nonzero(mask & (self._years == NO_YEAR)))
            first, last = paper_filter.years or (None, None)
            latest = min(each for each in (last, paper_filter.before, LAST_YEAR) if isinstance(each, int))
            mask = mask & (self._years >= (first or NO_YEAR + 1)) & (self._years <= latest)
        selection = Selection(mask)
        passing, unmet = len(selection), ""
        if not passing:
            for name, value in paper_filter.record().items():
                alone = PaperFilter(**{name: value})
                if alone == paper_filter or not self._selected(alone).papers:  # this condition no paper meets
                    parts = map("=".join, value.items()) if isinstance(value, dict) else value
                    parts = [value] if isinstance(value, int) else parts
                    text = ("-" if name == "years" else ", ").join(str(part or "") for part in parts)
                    unmet = f"no paper of the index passes `{name}` {text}"
                    break
        return FilterResult(None if passing == total else selection, passing, total, missing, unmet)

    def _read(self, paper_filter: PaperFilter) -> "Mask":
        """Which papers (papers,) pass, years apart; years are read along with the first filter."""
        import numpy as np

        tests, where, rows = _tests(paper_filter), paper_filter.where, len(self._papers.ids)
        mask, years = np.ones(rows, np.bool_), np.zeros(rows, np.int16)
        for row, metadata in enumerate(self._papers.read_metadata()):
            if self._years is None:
                years[row] = year_of(metadata) or NO_YEAR
            mask[row] = all(test(metadata) for test in tests)
        self._years = years if self._years is None else self._years
        if TECHNIQUE in where:
            technique = Technique(where[TECHNIQUE])
            candidates = self._papers.read_containing(technique.parts)
            named = (paper is not None and technique.is_named_by(paper) for paper in candidates)
            mask &= np.fromiter(named, np.bool_, rows)
        if where and not mask.any():
            known = sorted(set[str]().union(*self._papers.read_metadata()))
            for key in where:
                if key != TECHNIQUE and key not in known:
                    raise UsageError(
                        f"no paper of the index has {key!r}, a key of `where`; they have "
                        f"{', '.join(known) or 'no metadata'}; {did_you_mean(key, known, 'check it')}"
                    )
        return mask


class Technique:
    """The name of a technique: neighbouring words, whatever their grammatical number and case."""

    def __init__(self, name: str) -> None:
        self._words = _words(name)
        if not self._words:
            raise UsageError(
                f"expected the name of a technique in `where`, such as technique=attention, found {name!r}"
            )
        # What stands in every lower-case ASCII text that has the name: "studies" is one of "study".
        self.parts: Sequence[bytes] = [word.removesuffix("y").encode() for word in self._words]

    def is_named_by(self, paper: Paper) -> bool:
        """True if title, metadata, or a sentence that says how (any if none is labelled) has the name."""
        texts = [paper.title]
        for sentence in paper.sentences:
            chances = sentence.probabilities
            says_how = sentence.facet is Facet.METHOD
            if chances is not None:
                says_how = chances.method + chances.objective >= SAID_FROM
            if says_how or not paper.labelled:
                texts.append(sentence.text)
        stored = paper.metadata.get(TECHNIQUE, [])
        texts += map(str, stored if isinstance(stored, list) else [stored])
        length = len(self._words)
        return any(
            words[at : at + length] == self._words
            for words in map(_words, texts)
            for at in range(len(words) - length + 1)
        )


def _words(text: str) -> list[str]:
    from qbe.models.words import words_of

    return words_of(text.replace("-", " "))


def describe(passing: Sequence[FilterResult], hits: int | None) -> str | None:
    """Tell users that filters leave fewer papers than ``hits``, or drop those without a year."""
    parts = sorted({each.unmet for each in passing if each.unmet})
    few = [each for each in passing if hits is not None and each.papers < hits]
    if few and not (parts and len(passing) == 1):
        least, several = min(few, key=lambda each: each.papers), len(passing) > 1
        parts.append(
            f"{least.papers} of {least.total} papers pass the filter{' of a query' if several else ''}, "
            f"fewer than the {hits} hits asked for"
            + (f" (so of {len(few)} in {len(passing)} queries)" if several else "")
        )
    if missing := max((each.unknown_year for each in passing), default=0):
        some = "1 paper has no year and does" if missing == 1 else f"{missing} papers have no year and do"
        parts.append(f"{some} not pass")
    return "; ".join(parts) or None

"""Fields of records in other formats: types as in their schemas, dates, and one cleaning for all readers."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

from qbe.corpus.markup import NO_VALUE, clean_abstract, clean_title
from qbe.corpus.names import alternatives
from qbe.errors import RecordError

ABSTRACT_FROM = "abstract_from"  # in metadata: what stands for an abstract that a document lacks
INTRODUCTION = "the introduction's first paragraph"  # what mostly does
TITLE = "its title"  # what does where nothing else is known
TWICE = "twice"  # in records: what `noted` tells
NOT_READ = "not_read"  # in metadata: the files with parts of title or abstract that could not be read
NOT_THIS_FORMAT = "not a record of this format"  # the reason where fields have other types
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")

_DOI = re.compile(r"10\.\d{4,9}/\S+")
_BETWEEN = re.compile(r"[;\uff1b\u3001\uff0c]")  # names that one field has together
_YEAR = re.compile(r"\d{4}")
_PLAIN = re.compile(r"[\w.,:()/'-]+(?: [\w.,:()/'-]+)*")
_PLAIN_NAMES = re.compile(r"[\w.,:()-]+(?:[ \0][\w.,:()-]+)*")
_DATE = re.compile(alternatives("date"))
_DATE_CHARS = 100
_NAMED_MONTH = re.compile(
    rf"(?:\b(\d{{1,2}})\W{{1,3}})?\b((?:{'|'.join(MONTHS)})[a-z]*)(?:\W{{1,3}}(\d{{1,2}})\b)?", re.IGNORECASE
)


class Fields(NamedTuple):
    """The fields of a JSON object by their paths, in which ``[]`` stands for the items of a list.

    Absent fields and null are left out. Methods raise RecordError for values of other types.
    """

    record: Mapping[str, Any]

    def text(self, *paths: str) -> str:
        """Return the first string at one of the paths that is not blank, or ''."""
        return next((text for path in paths for text in self.all(path) if text.strip()), "")

    def all(self, path: str, kind: type = str) -> list[Any]:
        """Return the strings at a path, or the objects, where ``kind`` is dict."""
        if isinstance(value := self.record.get(path), kind):  # a single step, in a fraction of the time
            return [value]
        values: list[Any] = [self.record]
        for name, is_list, is_last in _steps(path):
            values = [value for each in values if (value := each.get(name)) is not None]
            if not values:
                break
            if is_list:
                if other := [value for value in values if not isinstance(value, list)]:
                    raise wrong_type(name, "a list", other[0])
                values = [item for value in values for item in value if item is not None]
            wanted = kind if is_last else dict
            if other := [value for value in values if not isinstance(value, wanted)]:
                one, many = ("a string", "strings") if wanted is str else ("an object", "objects")
                raise wrong_type(name, many if is_list else one, other[0])
        return values


@cache
def _steps(path: str) -> list[tuple[str, bool, bool]]:
    steps = path.split(".")
    return [(its.removesuffix("[]"), its.endswith("[]"), n == len(steps)) for n, its in enumerate(steps, 1)]


def unfit(expected: str, found: str, advice: str, reason: str, where: str = "", **more: Any) -> RecordError:
    """Return the error for a record that cannot be used; errors are counted by their ``reason``.

    Without ``where`` the place is to be added (`placed`); ``more`` are ``is_fault`` and ``names``.
    """
    message = f"expected {expected}, found {found}; {advice}"
    return RecordError(f"{where}: {message}" if where else message, reason, **more)


def placed(error: RecordError, where: str) -> RecordError:
    """Return an error with the place of its record before it, unless one of the source is there."""
    if str(error).startswith((where, f"{where.rpartition(', ')[0] or where}, ")):
        return error
    return RecordError(f"{where}: {error}", error.reason, is_fault=error.is_fault, names=error.names)


def wrong_type(name: str, expected: str, value: Any) -> RecordError:
    return unfit(f"{expected} as {name}", type(value).__name__, "mend or remove the record", NOT_THIS_FORMAT)


def record(
    paper_id: str | None, title: str, abstract: str, metadata: Mapping[str, Any], *, is_fault: bool = True
) -> dict[str, Any]:
    """Return a record (`qbe.corpus.records`) without markup, placeholders and empty values.

    Raises RecordError without a title; in a database, which has more than papers, this is no fault.
    """
    made = cleaned(metadata)
    if not (title := clean_text(title)):
        advice, names = "add it or remove the record", tuple(filter(None, (paper_id, made.get("doi"))))
        raise unfit("a title", "none", advice, "no title", is_fault=is_fault, names=names)
    texts = {"paper_id": paper_id or None, "title": title, "abstract": clean_abstract(abstract) or None}
    return {**texts, "metadata": made}


def noted(record: dict[str, Any], twice: Collection[str], counts: str = "first") -> dict[str, Any]:
    """Note fields that stand twice in a record with different values, of which the first or last counts."""
    return record | {TWICE: tuple(f"{name!r} (the {counts} counts)" for name in twice)} if twice else record


def cleaned(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata without markup, placeholders and empty values."""
    values = ((name, value, _CLEAN.get(name)) for name, value in metadata.items() if value)
    return present({name: clean(value) if clean else value for name, value, clean in values})


def clean_text(text: str) -> str:
    """Return a title, name or tag without markup; '' for a placeholder such as nan or None."""
    text = text if _PLAIN.fullmatch(text) else clean_title(text)
    return "" if text.casefold() in NO_VALUE else text


def present(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are neither None nor empty."""
    return {name: value for name, value in values.items() if value or value == 0}


def once(names: Iterable[str]) -> list[str]:
    """Return the names without markup that are not empty, each once."""
    return list(filter(None, dict.fromkeys(map(clean_text, names))))


def doi(value: str) -> str:
    """Return a DOI without the URL before it, in lower case, or ''."""
    match = _DOI.search(value)
    return match[0].lower() if match else ""


def year(value: Any) -> int | None:
    """Return the year that a number or a text begins with, or None."""
    match = _YEAR.match(str(value).strip()) if isinstance(value, str | int | float) else None
    return int(match[0]) if match else None


def date(text: str) -> str:
    """Return the date in a text as YYYY-MM-DD, as much as is known; '' without a year from 1400 to 2199."""
    return _date(text[:_DATE_CHARS])


@lru_cache(maxsize=1 << 12)
def _date(text: str) -> str:
    found = _DATE.search(text)
    if found is None:
        return ""
    year, first, second, third, fourth = found.groups()
    parts = [first or third, second or fourth]
    if not parts[0] and (named := _NAMED_MONTH.search(f"{text[: found.start()]} {text[found.end() :]}")):
        parts = [str(MONTHS.index(named[2][:3].lower()) + 1), named[1] or named[3]]
    valid = [year]
    for part, last in zip(parts, (12, 31), strict=True):
        if not part or not 1 <= int(part) <= last:
            break
        valid.append(f"{int(part):02}")
    return "-".join(valid)


def date_of_parts(value: Any) -> str:
    """Return a date of Crossref or CSL-JSON (object, text, or pandoc's list) as `date` does."""
    if isinstance(value, list):
        value = next(iter(value), None)
    if not isinstance(value, Mapping):
        return date(str(value or ""))
    dates = value.get("date-parts")
    begin = dates[0] if isinstance(dates, list) and dates else None
    parts = begin if isinstance(begin, list) else [value.get(name) for name in ("year", "month", "day")]
    joined = "-".join(str(part).strip() for part in parts if isinstance(part, str | int))
    others = (str(value.get(name) or "") for name in ("edtf", "raw", "literal"))
    return next(filter(None, map(date, (joined, *others))), "")


def dated(published: str, in_year: Any = None) -> dict[str, Any]:
    """Return the metadata ``year`` and ``date`` of a date, and of a year that may be told besides."""
    found, of_year = date(published), date(str(in_year or ""))
    return {"year": year(of_year or found), "date": found if len(found) > len("YYYY") else ""}


def _clean_names(names: Sequence[str]) -> list[str]:
    if _PLAIN_NAMES.fullmatch("\0".join(names)):  # as most are, in a third of the time
        return [name for name in names if name.casefold() not in NO_VALUE]
    return [part for each in names for part in map(str.strip, _BETWEEN.split(clean_text(each))) if part]


_CLEAN: dict[str, Callable[[Any], Any]] = {
    "authors": _clean_names,
    "venue": clean_text,
    **dict.fromkeys(("categories", "tags", "collections"), once),
    "doi": doi,
    "url": str.strip,
    "ids": present,
}

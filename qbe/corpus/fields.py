"""Fields of a record of another format, with errors where their types are not those of its schema."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from qbe.errors import RecordError

ABSTRACT_FROM = "abstract_from"  # in metadata: what stands for an abstract that a document lacks
INTRODUCTION = "the introduction's first paragraph"  # what mostly does
NOT_READ = "not_read"  # in metadata: the files with parts of title or abstract that could not be read
NOT_THIS_FORMAT = "not a record of this format"  # the reason where fields have other types
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")

_DOI = re.compile(r"10\.\d{4,9}/\S+")
_YEAR = re.compile(r"\d{4}")
_DATE = re.compile(
    r"(?<!\d)(1[4-9]\d\d|2[01]\d\d)(?:[/-](\d{1,2})(?!\d)(?:[/-](\d{1,2})(?!\d))?|(\d\d)(\d\d)(?!\d)|(?!\d))",
    re.ASCII,
)
_DATE_CHARS = 100
_NAMED_MONTH = re.compile(
    rf"(?:\b(\d{{1,2}})\W{{1,3}})?\b((?:{'|'.join(MONTHS)})[a-z]*)(?:\W{{1,3}}(\d{{1,2}})\b)?", re.IGNORECASE
)


class Fields:
    """Read the fields of a JSON object by their paths, in which ``[]`` stands for the items of a list.

    Absent fields and null are left out. Methods raise RecordError for values of other types.
    """

    def __init__(self, record: Mapping[str, Any], where: str) -> None:
        self._record, self._where = record, where

    def text(self, *paths: str) -> str:
        """Return the first string at one of the paths that is not blank, or ''."""
        return next((text for path in paths for text in self.texts(path) if text.strip()), "")

    def texts(self, path: str) -> list[str]:
        return self._values(path, str, "string")

    def objects(self, path: str) -> list[Mapping[str, Any]]:
        return self._values(path, Mapping, "object")

    def object(self, path: str) -> Mapping[str, Any]:
        """Return the object at a path, or an empty one."""
        return next(iter(self.objects(path)), {})

    def _values(self, path: str, last: type, called: str) -> list[Any]:
        values: list[Any] = [self._record]
        names = path.split(".")
        for depth, step in enumerate(names, start=1):
            kind, expected = (last, called) if depth == len(names) else (Mapping, "object")
            name, is_list = step.removesuffix("[]"), step.endswith("[]")
            values = [value for each in values if (value := each.get(name)) is not None]
            if is_list:
                for value in values:
                    if not isinstance(value, list):
                        raise wrong_type(self._where, name, "a list", value)
                values = [item for value in values for item in value if item is not None]
            for value in values:
                if not isinstance(value, kind):
                    one = f"{'an' if expected == 'object' else 'a'} {expected}"
                    raise wrong_type(self._where, name, f"{expected}s" if is_list else one, value)
        return values


def unfit(where: str, expected: str, found: str, advice: str, reason: str) -> RecordError:
    """Return the error for a record that cannot be used; errors are counted by their ``reason``."""
    return RecordError(f"{where}: expected {expected}, found {found}; {advice}", reason)


def wrong_type(where: str, name: str, expected: str, value: Any) -> RecordError:
    expected, found = f"{expected} as {name}", type(value).__name__
    return unfit(where, expected, found, "mend or remove the record", NOT_THIS_FORMAT)


def no_title(where: str, *names: str, is_fault: bool = False) -> RecordError:
    """Return the error for a record without title: no fault, a database has more than papers."""
    message = f"{where}: expected a title, found none; add it or remove the record"
    return RecordError(message, "no title", is_fault=is_fault, names=tuple(filter(None, names)))


def not_a_paper(where: str, actual: str) -> RecordError:
    """Return the error for non-paper entries (notes, attachments), which are no fault."""
    message = f"{where}: expected a paper, found {actual}; left it out"
    return RecordError(message, "not a paper", is_fault=False)


def record(paper_id: str | None, title: str, abstract: str, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record (`qbe.corpus.records`) without empty values."""
    made = {"paper_id": paper_id or None, "title": title, "abstract": abstract or None}
    return {**made, "metadata": present(metadata)}


def dated(date: str) -> dict[str, Any]:
    """Return the metadata ``year`` and ``date`` of a date as `date` gives it."""
    return {"year": year(date), "date": date if len(date) > len("YYYY") else ""}


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
    if len(text) == 4 and text.isdecimal() and "1400" <= text < "2200":
        return text
    found = _DATE.search(text[:_DATE_CHARS])
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


def present(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are neither None nor empty."""
    return {name: value for name, value in values.items() if value not in (None, "", [], {})}


def once(names: Iterable[str]) -> list[str]:
    """Return the names that are not empty, each once."""
    return list(filter(None, dict.fromkeys(names)))

"""Fields of a record of another format, with errors where their types are not those of its schema."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from qbe.errors import RecordError

NOT_THIS_FORMAT = "not a record of this format"
"""The reason of the error for a record whose fields have other types than the format's."""

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
"""How the English names of the months begin."""

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


def text(record: Mapping[str, Any], name: str, where: str) -> str:
    """A field that is a string, '' where it is absent or null; raises RecordError for other types.

    >>> text({"title": "On fish"}, "title", "works.json, line 1"), text({}, "title", "works.json, line 1")
    ('On fish', '')
    """
    value = record.get(name)
    return "" if value is None else _checked(value, str, "a string", name, where)


def items(record: Mapping[str, Any], name: str, where: str) -> list[Any]:
    """A field that is a list, without null; empty where it is absent. Raises RecordError for other types.

    >>> items({"authors": ["A", None]}, "authors", "works.json, line 1")
    ['A']
    """
    value = record.get(name)
    values = [] if value is None else _checked(value, list, "a list", name, where)
    return [value for value in values if value is not None]


def objects(record: Mapping[str, Any], name: str, where: str) -> list[Mapping[str, Any]]:
    """The same for a list of objects.

    >>> objects({"authors": [{"name": "A"}, None]}, "authors", "works.json, line 1")
    [{'name': 'A'}]
    """
    return [_checked(value, Mapping, "objects", name, where) for value in items(record, name, where)]


def strings(record: Mapping[str, Any], name: str, where: str) -> list[str]:
    """The same for a list of strings.

    >>> strings({"title": ["On fish", None]}, "title", "works.json, line 1")
    ['On fish']
    """
    return [_checked(value, str, "strings", name, where) for value in items(record, name, where)]


def mapping(record: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    """A field that is an object, empty where it is absent or null; raises RecordError for other types.

    >>> mapping({"ids": {"doi": "10.1/2"}}, "ids", "works.json, line 1")
    {'doi': '10.1/2'}
    """
    value = record.get(name)
    return {} if value is None else _checked(value, Mapping, "an object", name, where)


def _checked(value: Any, kind: type, expected: str, name: str, where: str) -> Any:
    if not isinstance(value, kind):
        raise wrong_type(where, name, expected, value)
    return value


def wrong_type(where: str, name: str, expected: str, value: Any) -> RecordError:
    """The error for a field of another type.

    >>> print(wrong_type("works.json, line 1", "title", "a string", 7))
    works.json, line 1: expected a string as title, found int; mend or remove the record
    """
    return RecordError(
        f"{where}: expected {expected} as {name}, found {type(value).__name__}; mend or remove the record",
        NOT_THIS_FORMAT,
    )


def no_title(where: str, *, is_fault: bool = False) -> RecordError:
    """The error for what has no title: in a database it need not be a paper, and so it is no fault.

    >>> no_title("works.json, item 1").reason
    'no title'
    """
    return RecordError(
        f"{where}: expected a title, found none; add it or remove the record", "no title", is_fault=is_fault
    )


def doi(value: str) -> str:
    """A DOI without the address before it, in lower case; '' where the text holds none.

    >>> doi("https://doi.org/10.1145/3292500.ABC"), doi("none")
    ('10.1145/3292500.abc', '')
    """
    match = _DOI.search(value)
    return match[0].lower() if match else ""


def year(value: Any) -> int | None:
    """The year that a number or a text begins with; None where there is none.

    >>> year("2019-05-01"), year(2019.0), year("n.d.")
    (2019, 2019, None)
    """
    match = _YEAR.match(str(value).strip()) if isinstance(value, str | int | float) else None
    return int(match[0]) if match else None


def date(text: str) -> str:
    """The date in a text as YYYY-MM-DD, as much of it as is there; '' without a year from 1400 to 2199.

    >>> date("2019/05//Spring"), date("2019-5-7T12:00:00"), date("7 May 2019"), date("c2017")
    ('2019-05', '2019-05-07', '2019-05-07', '2017')
    """
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
    """A date of Crossref and CSL-JSON as YYYY-MM-DD, as much of it as is there; '' without a year.

    It may be an object with ``date-parts`` or a text such as CSL's ``raw``, a text, or a list (pandoc's) of
    objects with ``year``, ``month`` and ``day``, of which the first counts.

    >>> date_of_parts({"date-parts": [[2019, "5"]]}), date_of_parts({"raw": "May 2019"}), date_of_parts(None)
    ('2019-05', '2019-05', '')
    """
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
    """The values that are there: neither None nor empty.

    >>> present({"year": 2019, "doi": "", "authors": []})
    {'year': 2019}
    """
    return {name: value for name, value in values.items() if value not in (None, "", [], {})}

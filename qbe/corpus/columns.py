"""Columns of a table of papers: which of them holds what, and the record of a row."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from qbe.corpus import fields
from qbe.corpus.authors import credits
from qbe.corpus.decode import decode_text
from qbe.corpus.markup import clean_abstract, clean_title
from qbe.corpus.reading import FIELDS
from qbe.errors import CorpusError

_USUAL = {
    name: columns.split()
    for name, columns in {
        "key": "identifier citationkey citekey bibtexkey bibkey",
        "id": "id paperid recordid corpusid docid docno key",
        "other id": "ut utuniquewosid eid lensid publicationid openalexid pmid pubmedid accessionnumber doi",
        "title": "title articletitle documenttitle papertitle primarytitle",
        "abstract": "abstract abstractnote abstracttext paperabstract summary text",
        "year": "year publicationyear pubyear publishedyear yearpublished",
        "date": "date publicationdate datepublished published coverdate",
        "authors": "authorfullnames authors author authornames authornamesfull creators",
        "venue": "venue journal journaltitle publicationtitle sourcetitle sourcetitleanthologytitle "
        "journalbook publication source",
        "categories": "categories category fieldsofstudy",
        "tags": "tags manualtags automatictags keywords authorkeywords indexkeywords keywordsplus meshterms "
        "ieeeterms subjects",
        "doi": "doi doilink",
        "url": "url link urls articleurl externalurl pdflink",
        "cites": "cites",
        "Web of Science": "AU authors AF authorfullnames TI title SO source AB abstract PY year DI doi UT ut "
        "DE authorkeywords ID keywordsplus",
    }.items()
}
"""Usual names of columns, in small letters and digits, the better ones first: libraries cite by a ``key``,
not every paper has an ``other id``, and those of the Web of Science stand before usual ones.
"""

_KEYS, _NOT_ALWAYS, _WEB_OF_SCIENCE = (_USUAL.pop(name) for name in ("key", "other id", "Web of Science"))
_USUAL["id"] += [*_KEYS, *_NOT_ALWAYS]
_SEVERAL = ("authors", "tags")
"""Fields of which all columns are read: where the first is empty, or together."""

_NAMES = [
    keys.split()
    for keys in (
        *("name", "display_name", "title", "given family"),
        *("first_name last_name", "firstName lastName", "first last"),
    )
]
"""Keys of an object that says what it is called."""

_QUOTED = re.compile(r"""'((?:[^'\\]|\\.?)*+)(?:'|\Z)|"((?:[^"\\]|\\.?)*+)(?:"|\Z)""", re.DOTALL)
_ARXIV = re.compile(r"[a-z-]+\.[A-Za-z-]+|[a-z]+-[a-z]+")
_MOST_COLUMNS, _MOST_CHARS = 20, 40
"""What a message names."""


class Columns(NamedTuple):
    """The position of the column of each field (of `qbe.corpus.reading.FIELDS`) that a table has; of further
    columns for authors and tags as ``authors 2``.

    ``may_lack_id`` says that a paper may have none, ``has_keys`` that ids are keys by which a library cites.
    """

    positions: Mapping[str, int]
    may_lack_id: bool
    has_keys: bool = False


def find_columns(
    header: Sequence[str], named: Mapping[str, str], name: str, may_lack_abstract: bool = False
) -> Columns:
    """The columns of a table, as they are named for its fields, else by their usual names.

    Raises CorpusError for a named column that is not there, and where title or abstract are not found; with
    ``may_lack_abstract`` no column for abstracts is needed.

    >>> find_columns(["Key", "Title", "Abstract Note", "Why"], {"venue": "Why"}, "papers.csv")
    Columns(positions={'id': 0, 'title': 1, 'abstract': 2, 'venue': 3}, may_lack_id=False, has_keys=False)
    >>> find_columns(["nr", "words"], {}, "papers.csv")
    Traceback (most recent call last):
    ...
    qbe.errors.CorpusError: papers.csv: expected columns for title, abstract, found 'nr', 'words'; ...
    """
    is_wos = {"PT", "AU", "TI"} <= set(header)
    other_names = dict(zip(_WEB_OF_SCIENCE[::2], _WEB_OF_SCIENCE[1::2], strict=True)) if is_wos else {}
    names = [other_names.get(column) or _normal(column) for column in header]
    usual = {column: position for position, column in reversed(list(enumerate(names)))}
    positions: dict[str, int] = {}
    for field in FIELDS:
        if field in named:
            if named[field] not in header:
                raise CorpusError(
                    f"{name}: expected a column {_short(named[field])} for {field}, found {_listed(header)}; "
                    "check `columns`"
                )
            positions[field] = header.index(named[field])
        else:
            places = [usual[each] for each in _USUAL[field] if each in usual]
            for number, place in enumerate(places if field in _SEVERAL else places[:1], start=1):
                positions[field if number == 1 else f"{field} {number}"] = place
    needed = ("title",) if may_lack_abstract else ("title", "abstract")
    if missing := [field for field in needed if field not in positions]:
        raise CorpusError(
            f"{name}: expected columns for {', '.join(missing)}, found {_listed(header)}; rename them, "
            "or name yours with `columns`"
        )
    column = names[positions["id"]] if "id" in positions else ""
    return Columns(positions, "id" not in named and column in ("", *_NOT_ALWAYS), column in _KEYS)


def to_record(columns: Columns, row: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The record of a row: a value for each field that has a column.

    Values may be text, and those of typed tables: numbers, dates, bytes, lists, objects with a name. In a
    text of several authors a semicolon separates them; sentences in a list stay apart. Raises RecordError
    where the title or the abstract is no text, and where there is no title.

    >>> columns = find_columns(["Title", "Abstract", "Author"], {}, "papers.csv")
    >>> row = {"title": "On fish", "abstract": "Fish swim.", "authors": "Lee, Ann; Ray, B."}
    >>> record = to_record(columns, row, "papers.csv, line 8")
    >>> record["paper_id"], record["metadata"]
    (None, {'authors': ['Ann Lee', 'B. Ray']})
    """
    cells = {field: _cell(value, where) for field, value in row.items()}
    title = clean_title(_text(cells, "title", where))
    if not title:
        raise fields.no_title(where, is_fault=True)
    paper_id, abstract = _paper_id(columns, cells), cells.get("abstract")
    metadata = {**_metadata(cells), "key": paper_id if columns.has_keys else None}
    made = fields.record(None, title, clean_abstract(_text(cells, "abstract", where)), metadata)
    return {**made, "paper_id": paper_id, **({"abstract": abstract} if isinstance(abstract, list) else {})}


def metadata_of(row: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The metadata of a row (see `to_record`); its title, abstract and id do not count.

    >>> metadata_of({"title": "On fish", "year": "2019"}, "papers.jsonl, line 1")
    {'year': 2019}
    """
    told = {field: value for field, value in row.items() if field not in ("id", "title", "abstract")}
    return fields.present(_metadata({field: _cell(value, where) for field, value in told.items()}))


def _metadata(cells: Mapping[str, Any]) -> dict[str, Any]:
    date = fields.date(str(cells.get("date") or ""))
    return {
        **credits(_authors(_all(cells, "authors"))),
        **fields.dated(date),
        **({"year": fields.year(year)} if (year := fields.date(str(cells.get("year") or ""))) else {}),
        "venue": clean_title(_name(cells.get("venue"))),
        "categories": _categories(cells.get("categories")),
        "doi": fields.doi(_name(cells.get("doi"))),
        "url": _name(cells.get("url")),
        "cites": _cites(cells.get("cites")),
        "tags": list(dict.fromkeys(tag for each in _all(cells, "tags") for tag in _listed_names(each))),
    }


def _normal(column: str) -> str:
    """The name of a column in small letters and digits."""
    return "".join(filter(str.isalnum, column)).lower()


def _listed(header: Sequence[str]) -> str:
    names = [_short(column) for column in header[:_MOST_COLUMNS]]
    return ", ".join([*names, "..."] if len(header) > len(names) else names) or "none"


def _short(column: str) -> str:
    return ascii(column if len(column) <= _MOST_CHARS else f"{column[: _MOST_CHARS - 3]}...")


def _cell(value: Any, where: str) -> Any:
    """A value with text in place of bytes and dates, None for what is not a number, texts stripped."""
    if isinstance(value, str):
        return value.strip()
    match value:
        case bytes():
            return decode_text(value, where).strip()
        case float() if not math.isfinite(value):
            return None
        case float() if value.is_integer():  # whole numbers in a column with missing ones
            return int(value)
        case datetime.date():
            return value.isoformat()[: len("YYYY-MM-DD")]
    return value


def _text(cells: Mapping[str, Any], field: str, where: str) -> str:
    value = cells.get(field)
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return " ".join(value)
    return fields.Fields(cells, where).text(field)


def _paper_id(columns: Columns, cells: Mapping[str, Any]) -> Any:
    value = cells.get("id")
    if columns.may_lack_id and isinstance(value, str):
        if columns.positions.get("id") == columns.positions.get("doi"):
            value = fields.doi(value) or value
        elif "://" in value:
            value = value.rstrip("/").rpartition("/")[2]
        elif (number := value.removesuffix(".0")).isdecimal():
            value = number
    return None if columns.may_lack_id and value == "" else value


def _name(value: Any) -> str:
    """A text, or what an object is called, by a name of its own or the parts of a person's; else ''."""
    if isinstance(value, Mapping):
        for parts in _NAMES:
            texts = [text for each in parts if isinstance(text := value.get(each), str)]
            if name := " ".join(" ".join(texts).split()):
                return name
        return ""
    return value.strip() if isinstance(value, str) else ""


def _all(cells: Mapping[str, Any], field: str) -> list[Any]:
    """What the columns of a field hold, empty ones left out."""
    return [value for name, value in cells.items() if value and name.partition(" ")[0] == field]


def _authors(values: Sequence[Any]) -> str | list[str]:
    """The names of the first of some values, or a text that lists them."""
    value = values[0] if values else ""
    if isinstance(value, str):
        value = _literal(value) or "\n".join(map(clean_title, value.split("\n")))
    return value if isinstance(value, str) else list(map(clean_title, _names(value)))


def _categories(value: Any) -> list[str]:
    words = value.split() if isinstance(value, str) else [""]
    return words if all(map(_ARXIV.fullmatch, words)) else _listed_names(value)


def _listed_names(value: Any) -> list[str]:
    """The names of a list, or of a text in which semicolons, bars or commas stand between them."""
    if not isinstance(value, str):
        return _names(value)
    separator = next((each for each in ";|," if each in value), ";")
    return _names(_literal(value) or value.split(separator))


def _cites(value: Any) -> list[str]:
    if isinstance(value, str):
        value = _literal(value) or re.split(r"[\s;,|]+", value)
    values = value if isinstance(value, list) else []
    return [str(each).strip() for each in values if isinstance(each, str | int) and str(each).strip()]


def _names(value: Any) -> list[str]:
    return [name for name in map(_name, value if isinstance(value, list) else ()) if name]


def _literal(text: str) -> list[str]:
    """The texts of a list that was written as Python or JSON write it; empty for another text."""
    if not (text.startswith("[") and text.endswith("]")):
        return []
    quoted = [single or double for single, double in _QUOTED.findall(text)]
    return quoted or [part.strip(" []") for part in text.split(",")]

"""BibTeX and BibLaTeX, as reference managers, databases and the ACL Anthology export them.

The formats are described in Oren Patashnik's "BibTeXing" and in the manual of the LaTeX package biblatex.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Mapping, MutableSet
from functools import lru_cache
from typing import Any

from qbe.corpus.authors import has_others, person_name, read_name, split_authors
from qbe.corpus.bibtex_syntax import BibtexEntry, Original, read_entries
from qbe.corpus.fields import date, dated, doi, no_title, not_a_paper, present, record
from qbe.corpus.head import Head
from qbe.corpus.markup import clean_abstract, clean_address, clean_bibtex, plain
from qbe.corpus.reading import Entry, Reading, converted
from qbe.errors import RecordError

_NAMES = """
aj Astronomical Journal; actaa Acta Astronomica; araa Annual Review of Astronomy and Astrophysics; apj
Astrophysical Journal; apjl Astrophysical Journal Letters; apjlett Astrophysical Journal Letters; apjs
Astrophysical Journal Supplement Series; apjsupp Astrophysical Journal Supplement Series; ao Applied Optics;
applopt Applied Optics; apss Astrophysics and Space Science; aap Astronomy and Astrophysics; aapr Astronomy
and Astrophysics Review; aaps Astronomy and Astrophysics Supplement Series; azh Astronomicheskii Zhurnal; aas
American Astronomical Society Meeting Abstracts; baas Bulletin of the American Astronomical Society; bac
Bulletin of the Astronomical Institutes of Czechoslovakia; bain Bulletin of the Astronomical Institutes of
the Netherlands; caa Chinese Astronomy and Astrophysics; cjaa Chinese Journal of Astronomy and Astrophysics;
dps AAS/Division for Planetary Sciences Meeting Abstracts; fcp Fundamentals of Cosmic Physics; gca Geochimica
et Cosmochimica Acta; grl Geophysical Research Letters; iaucirc IAU Circulars; icarus Icarus; jaavso Journal
of the American Association of Variable Star Observers; jcap Journal of Cosmology and Astroparticle Physics;
jcp Journal of Chemical Physics; jgr Journal of Geophysical Research; jqsrt Journal of Quantitative
Spectroscopy and Radiative Transfer; jrasc Journal of the Royal Astronomical Society of Canada; maps
Meteoritics and Planetary Science; memras Memoirs of the Royal Astronomical Society; memsai Memorie della
Societa Astronomica Italiana; mnras Monthly Notices of the Royal Astronomical Society; na New Astronomy; nar
New Astronomy Reviews; nat Nature; nphysa Nuclear Physics A; pasa Publications of the Astronomical Society of
Australia; pasj Publications of the Astronomical Society of Japan; pasp Publications of the Astronomical
Society of the Pacific; physrep Physics Reports; physscr Physica Scripta; planss Planetary and Space Science;
pra Physical Review A; prb Physical Review B; prc Physical Review C; prd Physical Review D; pre Physical
Review E; prl Physical Review Letters; procspie Proceedings of SPIE; psj Planetary Science Journal; qjras
Quarterly Journal of the Royal Astronomical Society; rmxaa Revista Mexicana de Astronomia y Astrofisica;
skytel Sky and Telescope; solphys Solar Physics; sovast Soviet Astronomy; ssr Space Science Reviews; zap
Zeitschrift fuer Astrophysik; aplett Astrophysics Letters; apspr Astrophysics and Space Physics Research
"""

JOURNALS: dict[str, str] = {
    macro: name for macro, _, name in (" ".join(each.split()).partition(" ") for each in _NAMES.split(";"))
}
"""The journals by macro, without its backslash."""


_AND = re.compile(r"\s+and(?=\s)", re.IGNORECASE)
_COMMA, _SPACE = re.compile(","), re.compile(r"(?<!\\[uvHckrdb])(?:\s|(?<!\\)~)+")
_EITHER = re.compile(r"[\s,]+")
_DBLP_NUMBER = re.compile(r"\s0\d{3}$")
_MARKED = re.compile(r"[{}\\~&=;]")
_PART = re.compile(r"\s*(family|given|prefix|suffix)\s*=(.*)", re.IGNORECASE | re.DOTALL)


_FIRST_ENTRY = re.compile(
    r"^\s*@(?:string|comment|preamble|article|book|inproceedings|misc|[\w-]+\s*\{[^\s,={}()\"]*\s*[,=}])",
    re.IGNORECASE | re.MULTILINE,
)
_CONTAINER = re.compile(
    r"(?:mv)?(?:book|collection|proceedings|reference)|conference|journal|periodical|xdata"
)
"""Types of entries from which others may inherit that stand after them."""

_NO_PUBLICATION = re.compile(r"xdata|set|control|\w*bstctl")
_DATES, _VENUES = ("year", "date", "month", "day"), ("journal", "journaltitle", "booktitle")
_MOST_ANCESTORS = 8
_MONTH_NUMBER = re.compile(r"\W*(\d{1,2})\W*(?:[-/\u2013]\W*\d{1,2}\W*)?", re.ASCII)
_ARXIV_ID = r"(\d{4}\.\d{4,5}|[a-z-]{1,20}(?:\.[A-Za-z-]{1,20})?/\d{7})(?:v\d+)?"
_ARXIV = re.compile(_ARXIV_ID)
_NAMED_ARXIV = re.compile(rf"(?:arxiv:\s?|arxiv\.org/(?:abs|pdf)/){_ARXIV_ID}", re.IGNORECASE)
_ANTHOLOGY = re.compile(r"\b(?:aclanthology\.org|aclweb\.org/anthology)/([A-Za-z0-9.-]+?)(?:\.pdf)?/?$")


def _credits(text: str) -> dict[str, Any]:
    """The metadata ``authors`` of a list of names, and ``et_al`` (True) where it ends with "others"."""
    names = [name for each in _outside_braces(text, _AND) if (name := each.strip())]
    others = bool(names) and has_others(names[-1])
    if others:
        names[-1:] = split_authors(names[-1])
    return {
        "authors": [author for name in names for author in _people(name) if author],
        "et_al": others or None,
    }


@lru_cache(maxsize=1 << 14)
def _people(name: str) -> tuple[str, ...]:
    """The person or, as a whole in braces, the organization of that name, as `person_name` has it; several
    where people are not separated by "and".
    """
    name = _DBLP_NUMBER.sub("", name)
    parts = name.split(",")
    if _MARKED.search(name):
        name = plain(name)
        if name.startswith("{") and len(_outside_braces(name, _EITHER)) == 1:
            return (clean_bibtex(name),)
        parts = _outside_braces(name, _COMMA)
        named = filter(None, map(_PART.match, parts))
        if values := {part[1].lower(): clean_bibtex(part[2]) for part in named}:
            family = f"{values.get('prefix', '')} {values.get('family', '')}"
            return (person_name(family, values.get("given", ""), values.get("suffix", "")),)
    parts = [part for each in parts if (part := clean_bibtex(each).strip())]
    if len(parts) > 3 or ";" in name or " & " in name:
        return tuple(split_authors(clean_bibtex(name)))
    if len(parts) == 3:
        return (read_name(", ".join(parts)),)
    if len(parts) == 2:
        return (person_name(*parts),)
    if "{" not in name:
        return (read_name(parts[0]),) if parts else ()
    words = [word for each in _outside_braces(name.strip(" ,"), _SPACE) if (word := clean_bibtex(each))]
    begin = next((i for i, word in enumerate(words[1:-1], 1) if word[0].islower()), len(words) - 1)
    return (person_name(" ".join(words[begin:]), " ".join(words[:begin])),) if words else ()


def _outside_braces(text: str, separator: re.Pattern[str]) -> list[str]:
    """The parts of a text between separators that stand in no braces."""
    if "{" not in text:
        return separator.split(text)
    parts, begin, place, depth = list[str](), 0, 0, 0
    for match in separator.finditer(text):
        depth += text.count("{", place, match.start()) - text.count("}", place, match.start())
        place = match.start()
        if depth <= 0:
            parts.append(text[begin:place])
            begin = match.end()
    return [*parts, text[begin:]]


def recognizes(head: Head) -> bool:
    """Whether an entry of BibTeX begins somewhere; without one, whether the suffix says so."""
    if head.text.startswith(("{", "[", "<")):
        return False
    return _FIRST_ENTRY.search(head.text) is not None or head.suffix in (".bib", ".bibtex")


def read(stream: io.BufferedReader, name: str, reading: Reading) -> Iterator[Entry]:
    r"""The entries of a file; those that inherit from a later one (``crossref``, ``xdata``) come last.

    >>> text = b"@string{jml = {Fish Letters}}\n@article{a9, title = {On {F}ish}, journal = jml # { B}}"
    >>> [entry] = read(io.BufferedReader(io.BytesIO(text)), "refs.bib", Reading())
    >>> entry.where, entry.record["title"], entry.record["metadata"]
    ('refs.bib, line 2', 'On Fish', {'key': 'a9', 'venue': 'Fish Letters B'})
    """
    del reading
    parents: dict[str, BibtexEntry] = {}

    def to_record(entry: BibtexEntry, where: str) -> dict[str, Any]:
        if _NO_PUBLICATION.fullmatch(entry.kind):
            raise not_a_paper(where, f"@{entry.kind}")
        return _record(entry.key, _with_inherited(entry, parents, set()), where)

    return converted(_in_order(read_entries(stream, name), parents), to_record)


def _in_order(entries: Iterable[Original], parents: dict[str, BibtexEntry]) -> Iterator[Original]:
    """The entries, those whose parents have not been read at the end; ``parents`` grows meanwhile."""
    missed: set[str] = set()
    waiting: list[Original] = []
    for where, entry in entries:
        if isinstance(entry, RecordError):
            yield where, entry
            continue
        if _CONTAINER.fullmatch(entry.kind) or entry.key.lower() in missed:
            parents.setdefault(entry.key.lower(), entry)
        missing = [parent for parent in _parents(entry) if parent not in parents]
        if missing:
            missed.update(missing)
            waiting.append((where, entry))
        else:
            yield where, entry
    yield from waiting


def _parents(entry: BibtexEntry) -> list[str]:
    """The keys of the entries from which this one inherits."""
    if "crossref" not in entry.fields and "xdata" not in entry.fields:
        return []
    names = f"{entry.fields.get('xdata', '')},{entry.fields.get('crossref', '')}"
    return [key for each in names.lower().split(",") if (key := each.strip())]


def _with_inherited(
    entry: BibtexEntry, parents: Mapping[str, BibtexEntry], seen: MutableSet[str]
) -> Mapping[str, str]:
    """The fields of an entry with what it lacks and its parents have: a date, their titles as its venue; of
    ``@xdata`` all. ``seen`` are the parents that have been looked at.
    """
    fields = {name: value for name, value in entry.fields.items() if value}
    for key in _parents(entry):
        if key not in parents or key in seen or len(seen) == _MOST_ANCESTORS:
            continue
        seen.add(key)
        parent = _with_inherited(parents[key], parents, seen)
        if parents[key].kind != "xdata":
            is_dated = _first(fields, "year", "date")
            dates = {} if is_dated else {name: parent[name] for name in _DATES if name in parent}
            parent = {**dates, "booktitle": _first(fields, *_VENUES) or _first(parent, *_VENUES, "title")}
        fields = {**parent, **fields}
    return fields


def _record(key: str, fields: Mapping[str, str], where: str) -> dict[str, Any]:
    """The record of an entry; raises RecordError where it has no title."""
    title, subtitle = _text(fields, "title"), _text(fields, "subtitle")
    if not title:
        raise no_title(where, key, doi(_address(fields, "doi")), is_fault=True)
    url = next(iter(_address(fields, "url", "adsurl", "ee").split()), "")
    published, arxiv = _date(fields), _arxiv(fields, url)
    acl = _ANTHOLOGY.search(url) if "acl" in url else None
    metadata = {
        "key": key,
        **_credits(fields.get("author", "")),
        **dated(published),
        "venue": _venue(fields),
        "categories": _address(fields, "primaryclass", "eprintclass").split() if arxiv else [],
        "doi": doi(_address(fields, "doi")) or (doi(url) if "doi.org/" in url else ""),
        "url": url,
        "ids": present({"arxiv": arxiv, "acl": acl[1] if acl else "", "pmid": _address(fields, "pmid")}),
        "tags": _listed(fields, "keywords", "author_keywords", "mendeley-tags"),
        "collections": _listed(fields, "groups", "mendeley-groups"),
    }
    abstract = clean_abstract(clean_bibtex(fields.get("abstract", "")))
    return record(key, f"{title}: {subtitle}" if subtitle else title, abstract, metadata)


def _first(fields: Mapping[str, str], *names: str) -> str:
    """The first of these fields that says something, or ''."""
    return next(filter(None, map(fields.get, names)), "")


def _text(fields: Mapping[str, str], *names: str) -> str:
    value = _first(fields, *names)
    return plain(clean_bibtex(value)) if value else ""


def _address(fields: Mapping[str, str], *names: str) -> str:
    value = _first(fields, *names)
    return clean_address(value) if value else ""


def _venue(fields: Mapping[str, str]) -> str:
    """The journal or book; for a macro of ADS the name of the journal."""
    venue = _first(fields, *_VENUES)
    macro = venue.strip("{} \t\r\n") if "\\" in venue else ""
    return JOURNALS.get(macro[1:].lower()) or _text(fields, *_VENUES)


def _listed(fields: Mapping[str, str], *names: str) -> list[str]:
    """The items of lists: between semicolons where there are any, else between commas; each once."""
    items: dict[str, None] = {}
    for name in names:
        if text := _text(fields, name):
            items |= dict.fromkeys(map(str.strip, text.split(";" if ";" in text else ",")))
    return list(filter(None, items))


def _date(fields: Mapping[str, str]) -> str:
    """The date as YYYY-MM-DD, as much of it as is known; '' without a year."""
    return _joined_date(*(fields.get(name, "") for name in ("date", "year", "month", "day")))


@lru_cache(maxsize=1 << 10)
def _joined_date(whole: str, year: str, month: str, day: str) -> str:
    dates = [found for text in (whole, year) if (found := date(text))]
    if not dates or not month or len(dates[0]) > len("YYYY"):
        return max(dates, key=len, default="")
    month = clean_bibtex(month)
    number = _MONTH_NUMBER.fullmatch(month)
    return date(f"{dates[-1][:4]}{f'-{number[1]}-' if number else f' {month} '}{clean_bibtex(day)}")


def _arxiv(fields: Mapping[str, str], url: str) -> str:
    """The number of a preprint of arXiv; '' where the entry names none."""
    is_arxiv = _address(fields, "archiveprefix", "eprinttype").lower() == "arxiv"
    if number := _ARXIV.search(_address(fields, *(("eprint",) if is_arxiv else ()), "arxivid")):
        return number[1]
    for text in (url, *map(fields.get, ("journal", "eprint", "number", "note", "howpublished"))):
        if text and "rxiv" in text.lower() and (number := _NAMED_ARXIV.search(text)):
            return number[1]
    return ""

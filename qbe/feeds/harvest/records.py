"""Records of arXiv's formats, ``arXivRaw`` and ``arXiv``, as records of a corpus.

In ``arXiv`` the authors are taken apart, but the date is that of the newest version; ``arXivRaw`` has the
dates of all versions, of which the first is the paper's. The formats are described at
info.arxiv.org/help/oa, and by arXiv's own server (github.com/arXiv/oaipmh).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from qbe.corpus.json_formats import from_arxiv as to_record
from qbe.corpus.records import parse_paper
from qbe.corpus.xml_formats import Element, text_as_it_is, text_of
from qbe.errors import RecordError
from qbe.feeds.harvest import FORMATS

_PREFIX = "oai:arXiv.org:"
_IN_PARENTHESES = re.compile(r"\s*\([^()]*\)")
_TEXTS = ("id", "title", "abstract", "categories", "journal-ref", "doi")


class HarvestedRecord(NamedTuple):
    """A record: the ``paper_id`` of its header, and the record of the corpus, None where the paper was
    deleted, or what is wrong with it.
    """

    paper_id: str
    record: Mapping[str, Any] | RecordError | None


def harvested(element: Element, where: str) -> HarvestedRecord:
    """The record of an element ``record`` of OAI-PMH.

    >>> from lxml.etree import fromstring
    >>> header = "<identifier>oai:arXiv.org:0704.0001</identifier><datestamp>2026-11-02</datestamp>"
    >>> text = f"<record><header status='deleted'>{header}</header></record>"
    >>> harvested(fromstring(text), "page, record 1")
    HarvestedRecord(paper_id='0704.0001', record=None)
    """
    header = element.find("{*}header")
    paper_id = "" if header is None else text_of(header.find("{*}identifier")).removeprefix(_PREFIX)
    if header is not None and header.get("status") == "deleted":
        return HarvestedRecord(paper_id, None)
    try:
        found = next(iter(element.iterfind("{*}metadata/*")), None)
        if found is None or _name(found) not in FORMATS:
            what = "nothing" if found is None else _name(found)
            raise RecordError(
                f"{where}: expected metadata in {' or '.join(FORMATS)}, found {what}; check `form`",
                "no metadata",
            )
        record = _record(found, where)
        parse_paper(record, where, lambda text: [text])
    except RecordError as error:
        return HarvestedRecord(paper_id, error)
    return HarvestedRecord(record["paper_id"], record)


def _name(element: Element) -> str:
    return str(element.tag).rpartition("}")[2]


def _record(element: Element, where: str) -> dict[str, Any]:
    """The record of a paper: that of arXiv's snapshot, with its licence and the number of its versions."""
    source: dict[str, Any] = {name: text_as_it_is(element.find(f"{{*}}{name}")) for name in _TEXTS}
    authors = element.find("{*}authors")
    source["authors_parsed"] = [
        [text_of(author.find(f"{{*}}{part}")) for part in ("keyname", "forenames", "suffix")]
        for author in element.iterfind("{*}authors/{*}author")
    ]
    if not source["authors_parsed"]:
        source["authors"] = _without_parentheses(text_of(authors))
    source["update_date"] = text_of(element.find("{*}created"))
    versions = [{"created": text_of(each.find("{*}date"))} for each in element.iterfind("{*}version")]
    record = to_record(source | {"versions": versions}, where)
    licence = text_of(element.find("{*}license"))
    record["metadata"] |= {
        name: value for name, value in (("license", licence), ("versions", len(versions))) if value
    }
    return record


def _without_parentheses(authors: str) -> str:
    """Authors without what arXiv has in parentheses behind their names, such as affiliations.

    >>> _without_parentheses("Ann Lee (1), Bo Ek (2) ((1) School of Fish, (2) Institute (Pond))")
    'Ann Lee, Bo Ek'
    """
    while (shorter := _IN_PARENTHESES.sub("", authors)) != authors:
        authors = shorter
    return authors.strip()

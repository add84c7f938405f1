"""The ACL Anthology's XML files (``data/xml/*.xml`` of its repository): one collection of volumes a file.

The schema is ``data/xml/schema.rnc`` of the repository ``acl-org/acl-anthology``; ids are those of its
``build_id``.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from typing import Any

from qbe.corpus.fields import NOT_THIS_FORMAT, date, dated, doi, no_title, record
from qbe.corpus.head import Head
from qbe.corpus.markup import clean_abstract, clean_title
from qbe.corpus.reading import Entry, Reading, converted
from qbe.corpus.xmlstream import Element, elements, root_tag, text_of
from qbe.errors import RecordError

_TAGS = frozenset(("paper",))
_PAGE = "https://aclanthology.org/"


def recognizes(head: Head) -> bool:
    """Whether this is a collection of volumes (other formats have collections of other things)."""
    return root_tag(head) == "collection" and "<volume" in head.text and "<collection id=" in head.text


def read(stream: io.BufferedReader, name: str, reading: Reading) -> Iterator[Entry]:
    """The papers of a collection's volumes, without their front matter.

    >>> paper = "<paper id='3'><title>On <fixed-case>F</fixed-case>ish</title></paper>"
    >>> text = f"<collection id='2020.acl'><volume id='main'>{paper}</volume></collection>"
    >>> [entry] = read(io.BufferedReader(io.BytesIO(text.encode())), "2020.acl.xml", Reading())
    >>> entry.where, entry.record["paper_id"], entry.record["title"]
    ('2020.acl.xml, record 1', '2020.acl-main.3', 'On Fish')
    """
    del reading
    volume: Element = None
    about: dict[str, Any] = {}

    def to_paper(paper: Element, where: str) -> dict[str, Any]:
        nonlocal volume, about
        parent = paper.getparent()
        if parent is not volume:  # a volume's meta stands before its first paper, and is forgotten then
            volume, about = parent, _about(parent)
        around = [each.get("id", "") for each in paper.iterancestors()] or [""]
        paper_id = anthology_id(around[-1], around[0], paper.get("id", ""), where)
        return _record(paper, paper_id, about, where)

    return converted(elements(stream, name, _TAGS), to_paper)


def anthology_id(collection: str, volume: str, paper: str, where: str) -> str:
    """The id of a paper, from those of its collection, its volume within that, and its own within this.

    Raises RecordError for ids that are missing, or are no numbers where numbers are due.

    >>> anthology_id("2020.acl", "main", "1", "-"), anthology_id("P18", "1", "1", "-")
    ('2020.acl-main.1', 'P18-1001')
    >>> anthology_id("W18", "3", "12", "-"), anthology_id("D19", "5", "7", "-")
    ('W18-0312', 'D19-0507')
    """
    ids = collection.strip(), volume.strip(), paper.strip()
    collection, volume, paper = ids
    if all(ids) and collection[0].isdigit():  # from 2020 on
        return f"{collection}-{volume}.{paper}"
    if not all(ids) or not all(each.isascii() and each.isdigit() and len(each) <= 4 for each in ids[1:]):
        raise RecordError(
            f"{where}: expected ids of collection, volume and paper such as P18, 1 and 1, found "
            f"{', '.join(ascii(each[:40]) for each in ids)}; mend or remove the record",
            NOT_THIS_FORMAT,
        )
    of_workshop = collection[0] == "W" or collection == "C69" or (collection == "D19" and int(volume) >= 5)
    digits = (2, 2) if of_workshop else (1, 3)
    return f"{collection}-{int(volume):0{digits[0]}}{int(paper):0{digits[1]}}"


def _record(paper: Element, paper_id: str, about: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The record of a paper, whose formulas get their dollars, with metadata of its volume."""
    for formula in paper.iter("tex-math"):
        formula.text = f"${formula.text or ''}"
        formula.tail = f"${formula.tail or ''}"
    for end in paper.iter("par"):
        end.tail = f" {end.tail or ''}"
    title = clean_title(text_of(paper.find("title")))
    if not title:
        raise no_title(where, is_fault=True)
    authors = (
        f"{text_of(author.find('first'))} {text_of(author.find('last'))}".strip()
        for author in paper.findall("author")
    )
    metadata = {
        "authors": [author for author in authors if author],
        **about,
        "doi": doi(text_of(paper.find("doi"))),
        "url": f"{_PAGE}{paper_id}/",
    }
    return record(paper_id, title, clean_abstract(text_of(paper.find("abstract"))), metadata)


def _about(volume: Element) -> dict[str, Any]:
    """What a volume says of its papers: year, month and venue."""
    meta = None if volume is None else volume.find("meta")
    if meta is None or volume.tag != "volume":
        return {}
    published = date(f"{text_of(meta.find('year'))} {text_of(meta.find('month'))}")
    return {**dated(published[: len("YYYY-MM")]), "venue": clean_title(text_of(meta.find("booktitle")))}

"""What watches found, as text: a table, lines of JSON, Markdown, or an Atom feed (RFC 4287)."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple
from xml.etree import ElementTree

from qbe.corpus.authors import ET_AL
from qbe.feeds.watch.watches import Found, Watch, Watches
from qbe.search.writers import described, escaped, line
from qbe.serve.service.records import export_parts
from qbe.types import Paper
from qbe.util.text import plain

ATOM = "http://www.w3.org/2005/Atom"
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NOTHING = "nothing new"


class Item(NamedTuple):
    """A paper that a watch found."""

    watch: Watch
    found: Found
    paper: Paper


def items_of(
    watches: Watches, lookup: Callable[[str], Paper | None], since: str | None, name: str | None = None
) -> list[Item]:
    """What was found and not yet reported, and what was found ``since`` a time ('' for ever, None: nothing
    else), by watch, the newest first and of one run the best; papers that are gone are left out. ``name``
    is that of the only watch that counts.
    """
    items = []
    for watch in watches.watches.values():
        if name in (None, watch.name):
            wanted = [
                each
                for each in watch.found
                if not each.reported or (since is not None and each.found >= since)
            ]
            newest = sorted(wanted, key=lambda each: each.found, reverse=True)  # stable: the best stay first
            pairs = [(each, lookup(each.paper_id)) for each in newest]
            items += [Item(watch, each, paper) for each, paper in pairs if paper is not None]
    return items


def report(items: Sequence[Item], form: str, feed: str) -> str:
    """The items in a format, one of `qbe.feeds.watch.FORMATS`; ``feed`` is the id of the feed."""
    if form == "atom":
        return _atom(items, feed)
    if form == "json":
        return "".join(f"{json.dumps(record_of(item), ensure_ascii=False)}\n" for item in items)
    return "".join(_sections(items, form)) or f"{_NOTHING}\n"


def record_of(item: Item) -> dict[str, Any]:
    """An item as JSON values: ``watch``, ``grade``, ``found``, and the paper as search results have it."""
    return {
        "watch": item.watch.name,
        "paper_id": item.paper.paper_id,
        "grade": item.found.grade,
        "found": item.found.found,
        **described(item.paper),
    }


def _sections(items: Sequence[Item], form: str) -> Iterator[str]:
    """A heading for each watch, and its papers below."""
    width = max((len(item.paper.paper_id) for item in items), default=0)
    watch = None
    for item in items:
        if item.watch is not watch:
            first, watch = watch is None, item.watch
            many = sum(each.watch is watch for each in items)
            heading = f"{plain(watch.name)}: {many} {'paper' if many == 1 else 'papers'}"
            if form == "markdown":
                heading = f"## {escaped(heading)}\n"
            yield f"{'' if first else chr(10)}{heading}\n"
        if form == "markdown":
            (text,) = export_parts([item.paper], "markdown")
            yield f"{text.rstrip()}, grade {item.found.grade:.2f}\n"
        else:
            yield f"  {item.found.grade:.2f}  {line(item.paper, width)}\n"


def _atom(items: Sequence[Item], feed: str) -> str:
    """The feed; an entry's id is made of the feed's, the watch and the paper, and never changes."""
    ElementTree.register_namespace("", ATOM)
    root = ElementTree.Element(f"{{{ATOM}}}feed")
    _child(root, "title", "New papers, by qbe watch")
    _child(root, "id", feed)
    _child(root, "updated", max((item.found.found for item in items), default="1970-01-01T00:00:00Z"))
    _child(_child(root, "author"), "name", "qbe watch")
    for item in sorted(items, key=lambda item: item.found.found, reverse=True):
        about = described(item.paper)
        entry = _child(root, "entry")
        _child(entry, "title", plain(about["title"]) or item.paper.paper_id)
        _child(entry, "id", uuid.uuid5(uuid.UUID(feed), f"{item.watch.name}\0{item.paper.paper_id}").urn)
        _child(entry, "updated", item.found.found)
        for author in about["authors"]:
            if author != ET_AL:
                _child(_child(entry, "author"), "name", plain(author))
        for address in list(about["links"].values())[:1]:
            _child(entry, "link").set("href", _xml(address))
        _child(entry, "category").set("term", _xml(item.watch.name))
        _child(
            entry, "summary", f"{item.watch.name}, grade {item.found.grade:.2f}. {plain(about['abstract'])}"
        )
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


def _child(parent: ElementTree.Element, name: str, text: str | None = None) -> ElementTree.Element:
    child = ElementTree.SubElement(parent, f"{{{ATOM}}}{name}")
    if text is not None:
        child.text = _xml(text)
    return child


def _xml(text: str) -> str:
    r"""A text of the characters that XML 1.0 has.

    >>> _xml("fish\x00\ufffe")
    'fish'
    """
    return _NO_XML.sub("", text)

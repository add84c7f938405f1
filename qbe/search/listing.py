"""Papers of an index by their words, and as text."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from qbe.corpus.bibliography import author_names, entries
from qbe.corpus.identity import MERGED_IDS, normalized_title
from qbe.types import Paper

IDS = ("doi", "key")
"""Metadata that may name a paper, beside the values of ``ids``."""


def having(papers: Iterable[Paper], words: Sequence[str]) -> Iterator[Paper]:
    """Papers whose title, authors or ids have all words, each perhaps only begun, case and accents apart.

    >>> [paper.paper_id for paper in having(index, ["two crops", "PARA"])]
    ['s036']
    """
    patterns = [f" {normalized_title(word)}" for word in words]
    for paper in papers:
        metadata = paper.metadata
        ids = metadata.get("ids")
        names = [*map(metadata.get, IDS), *(ids.values() if isinstance(ids, dict) else ())]
        names.extend(metadata.get(MERGED_IDS) or ())
        texts = [paper.paper_id, paper.title, *author_names(metadata.get("authors")), *map(str, names)]
        text = " ".join(f" {normalized_title(each)}" for each in texts)
        if all(pattern in text for pattern in patterns):
            yield paper


def tags_of(paper: Paper) -> dict[str, list[str]]:
    """The tags and collections of a paper in its owner's library.

    >>> tags_of(Paper("1", "On fish", (), metadata={"tags": ["rivers"]}))
    {'tags': ['rivers'], 'collections': []}
    """
    lists = {name: paper.metadata.get(name) for name in ("tags", "collections")}
    return {name: list(map(str, value)) if isinstance(value, list) else [] for name, value in lists.items()}


def texts(
    papers: Iterable[Paper], form: str, as_text: Callable[[Paper], str], as_record: Callable[[Paper], Any]
) -> Iterator[str]:
    r"""The text of each paper in a format: ``table``, ``json`` (a line each), ``bibtex`` or ``ris``.

    >>> list(texts([Paper("1", "On fish", ())], "json", lambda paper: paper.title, tags_of))
    ['{"tags": [], "collections": []}\n']
    """
    if form == "table":
        yield from (f"{as_text(paper)}\n" for paper in papers)
    elif form == "json":
        yield from (f"{json.dumps(as_record(paper), ensure_ascii=False)}\n" for paper in papers)
    else:
        yield from (f"{entry}\n" for entry in entries(papers, form))

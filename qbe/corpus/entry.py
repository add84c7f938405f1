"""What a reader yields: one entry for each record of a source, also for one that cannot be used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from qbe.errors import RecordError


class Entry(NamedTuple):
    """A record of a source, or what is wrong with it.

    ``where`` is its place (file and line, or file and number), with which every message about it begins.
    ``record`` has the fields of `qbe.corpus.record`, with ``abstract`` None where there is none.

    >>> Entry("papers.csv, line 2", {"paper_id": "1", "title": "On fish", "abstract": "Fish swim."}).where
    'papers.csv, line 2'
    """

    where: str
    record: Mapping[str, Any] | RecordError

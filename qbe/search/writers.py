"""Results as text: a TREC run, lines of JSON, or tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from qbe.query import Query
from qbe.search.present import Lookup, to_record, to_table
from qbe.trec import format_run
from qbe.types import Hit, Run


class Result(NamedTuple):
    """A query, its id in the run, and its hits."""

    query_id: str
    query: Query
    hits: Sequence[Hit]


class ResultWriter(Protocol):
    """Turns results into text; texts of consecutive blocks, joined, are the text of all."""

    @property
    def needs_matches(self) -> bool:
        """Whether hits must carry their matches."""

    def text(self, results: Sequence[Result], *, first: bool) -> str:
        """The text of a block; ``first`` is True for the block at the beginning."""


class TrecWriter:
    """A TREC run.

    >>> result = Result("s036", Query(index.paper("s036")), [Hit("s051", 1.5), Hit("s001", 1.25)])
    >>> print(TrecWriter("qbe-bm25").text([result], first=True))
    s036 Q0 s051 1 1.5 qbe-bm25
    s036 Q0 s001 2 1.25 qbe-bm25
    """

    needs_matches = False

    def __init__(self, tag: str) -> None:
        self._tag = tag

    def text(self, results: Sequence[Result], *, first: bool) -> str:  # noqa: ARG002
        """Lines of ``query_id Q0 paper_id rank score tag``."""
        return format_run(Run(self._tag, {query_id: tuple(hits) for query_id, _, hits in results}))


class JsonWriter:
    """One JSON object a query and line (see `qbe.search.present.to_record`).

    >>> result = Result("s036", Query(index.paper("s036")), [])
    >>> print(JsonWriter(index.paper, explain=False).text([result], first=True))
    {"query_id": "s036", "paper_id": "s036", "facet": null, "hits": []}
    """

    needs_matches = True

    def __init__(self, lookup: Lookup, *, explain: bool) -> None:
        self._lookup, self._explain = lookup, explain

    def text(self, results: Sequence[Result], *, first: bool) -> str:  # noqa: ARG002
        """Lines of JSON."""
        records = (to_record(self._lookup, *result, explain=self._explain) for result in results)
        return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


class TableWriter:
    """Tables for people, with empty lines in between (see `qbe.search.present.to_table`).

    >>> result = Result("s036", Query(index.paper("s036")), [])
    >>> print(TableWriter(index.paper, 100, explain=False).text([result], first=True))
    Papers like “Two Crops of a Paragraph: Self-Supervised Vectors for Suggesting Citations”, by its
    abstract:
    No paper was found.
    """

    needs_matches = True

    def __init__(self, lookup: Lookup, width: int, *, explain: bool) -> None:
        """``width`` is the number of columns."""
        self._lookup, self._width, self._explain = lookup, width, explain

    def text(self, results: Sequence[Result], *, first: bool) -> str:
        """Tables."""
        tables = (
            to_table(self._lookup, query, hits, self._width, explain=self._explain)
            for _, query, hits in results
        )
        return ("" if first else "\n") + "\n\n".join(tables) + "\n"


def open_writer(form: str, tag: str, lookup: Lookup, width: int, *, explain: bool) -> ResultWriter:
    """The writer of a format, ``trec``, ``json`` or ``table``.

    >>> open_writer("json", "qbe", index.paper, 100, explain=False).needs_matches
    True
    """
    if form == "trec":
        return TrecWriter(tag)
    return (
        JsonWriter(lookup, explain=explain) if form == "json" else TableWriter(lookup, width, explain=explain)
    )

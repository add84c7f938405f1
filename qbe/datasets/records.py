"""Records of a corpus in the forms that data sets write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qbe.corpus.records import dump_record, paper_to_record
from qbe.types import Paper


def unsplit(abstract: str) -> list[str]:
    """The whole abstract: the index splits it into sentences.

    >>> unsplit("We route. It helps.")
    ['We route. It helps.']
    """
    return [abstract]


def raw_line(paper: Paper) -> bytes:
    """A paper as a line of JSON with its abstract as one string."""
    return dump_record({**paper_to_record(paper), "abstract": paper.abstract})


def raw_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record with its sentences joined by single spaces, and without ``pred_labels``.

    >>> raw_record({"paper_id": "1", "abstract": ["A.", "B."], "pred_labels": ["other", "method"]})
    {'paper_id': '1', 'abstract': 'A. B.'}
    """
    kept = {field: value for field, value in record.items() if field != "pred_labels"}
    abstract = record["abstract"]
    return {**kept, "abstract": abstract if isinstance(abstract, str) else " ".join(abstract)}

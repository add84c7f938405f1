"""Papers as records of JSON values."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from qbe.search.explain import facet_probability
from qbe.search.present import described
from qbe.types import Paper

Record = dict[str, Any]


def paper_record(paper: Paper, *, inside: bool, selected: Collection[int] = ()) -> Record:
    """A paper with its sentences; its id is None unless it is ``inside`` the index. ``selected`` are the
    positions of sentences that a search started from.

    >>> record = paper_record(index.paper("s036"), inside=True)
    >>> record["paper_id"], record["year"], len(record["sentences"])
    ('s036', '2018', 5)
    """
    return {
        "paper_id": paper.paper_id if inside else None,
        **described(paper),
        "sentences": sentence_records(paper, selected),
    }


def sentence_records(paper: Paper, selected: Collection[int] = ()) -> list[Record]:
    """The sentences of a paper, with their facets and how probable these are (None: given, not predicted).

    >>> sentence_records(index.paper("s036"), [2])[2]["facet"]
    'method'
    """
    return [
        {
            "position": position,
            "text": sentence.text,
            "facet": sentence.facet.value if sentence.facet else None,
            "probability": facet_probability(sentence),
            "selected": position in selected,
        }
        for position, sentence in enumerate(paper.sentences)
    ]

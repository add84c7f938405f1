"""Papers as records of JSON values, and as the content of files."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from qbe.corpus.bibliography import FORMATS as BIBLIOGRAPHIES
from qbe.corpus.bibliography import entries, reference_of
from qbe.search.explain import facet_probability
from qbe.search.writers import credits_of, described, linked_title, to_csv
from qbe.types import Paper

Record = dict[str, Any]

COLUMNS = ("paper_id", "title", "authors", "year", "venue", "doi", "url", "abstract")
"""The header of CSV; ``authors`` are separated by semicolons."""


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
    """The sentences of a paper, with their facets and how probable these are (None: given, not predicted);
    for ``label`` see `qbe.types.Sentence.label`.

    >>> sentence_records(index.paper("s036"), [2])[2]["facet"]
    'method'
    """
    return [
        {
            "position": position,
            "text": sentence.text,
            "facet": sentence.facet.value if sentence.facet else None,
            "label": sentence.label,
            "probability": facet_probability(sentence),
            "selected": position in selected,
        }
        for position, sentence in enumerate(paper.sentences)
    ]


def as_json(record: Mapping[str, Any]) -> str:
    """A record as JSON in one line; raises ValueError for what JSON has no number for.

    >>> as_json({"title": "Über"})
    '{"title":"Über"}'
    """
    return json.dumps(record, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def export_parts(papers: Iterable[Paper], form: str) -> list[str]:
    """Papers in ``bibtex``, ``ris``, ``csv``, ``markdown`` or ``json`` (a line a paper), a part a paper:
    the parts joined are the file.

    >>> print(*export_parts([index.paper("s036")], "markdown"))
    - **Two Crops of a Paragraph: ... for Suggesting Citations** (2018). s036
    <BLANKLINE>
    """
    if form in BIBLIOGRAPHIES:
        first, *rest = entries(list(papers), form)
        return [first, *(f"\n{entry}" for entry in rest)]
    if form == "csv":
        first, *rest = [to_csv([_row(paper)]) for paper in papers]
        return [to_csv([COLUMNS]) + first, *rest]
    if form == "markdown":
        return [f"- {_item(paper)}\n" for paper in papers]
    records = (paper_record(paper, inside=True) for paper in papers)
    return [f"{json.dumps(record, ensure_ascii=False, allow_nan=False)}\n" for record in records]


def _row(paper: Paper) -> Sequence[object]:
    reference = reference_of(paper)
    about = reference.year, reference.venue, reference.doi, reference.page
    return [paper.paper_id, reference.title, "; ".join(reference.authors), *about, paper.abstract]


def _item(paper: Paper) -> str:
    parts = filter(None, (credits_of(reference_of(paper), link=False), paper.paper_id))
    return f"{linked_title(paper)} {'; '.join(parts)}"

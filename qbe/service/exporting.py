"""Papers as files to take home."""

from __future__ import annotations

import json
from collections.abc import Sequence

from qbe.bibliography.reference import reference_of
from qbe.bibliography.writing import FORMATS as BIBLIOGRAPHIES
from qbe.bibliography.writing import entries
from qbe.search.csv_rows import to_csv
from qbe.search.markdown import linked_title
from qbe.search.present import credits_of
from qbe.service.records import paper_record
from qbe.types import Paper

COLUMNS = ("paper_id", "title", "authors", "year", "venue", "doi", "url", "abstract")
"""The header of CSV; ``authors`` are separated by semicolons."""


def exported(papers: Sequence[Paper], form: str) -> str:
    """Papers in ``bibtex``, ``ris``, ``csv``, ``markdown`` or ``json`` (a line a paper).

    >>> print(exported([index.paper("s036")], "markdown"))
    - **Two Crops of a Paragraph: ... for Suggesting Citations** (2018). s036
    <BLANKLINE>
    """
    if form in BIBLIOGRAPHIES:
        return "\n".join(entries(papers, form))
    if form == "csv":
        return _csv(papers)
    if form == "markdown":
        return "".join(f"- {_item(paper)}\n" for paper in papers)
    return "".join(
        f"{json.dumps(paper_record(paper, inside=True), ensure_ascii=False, allow_nan=False)}\n"
        for paper in papers
    )


def _csv(papers: Sequence[Paper]) -> str:
    rows: list[Sequence[object]] = [COLUMNS]
    for paper in papers:
        reference = reference_of(paper)
        about = reference.year, reference.venue, reference.doi, reference.page
        authors = "; ".join(reference.authors)
        rows.append([paper.paper_id, reference.title, authors, *about, paper.abstract])
    return to_csv(rows)


def _item(paper: Paper) -> str:
    said = "; ".join(filter(None, (credits_of(reference_of(paper), link=False), paper.paper_id)))
    return f"{linked_title(paper)} {said}"

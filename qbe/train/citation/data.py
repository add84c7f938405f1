"""Who cites whom, to train on, and the measures of citation recommendation."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.cite.links import Evidence
from qbe.cite.scoring import CiteQuery
from qbe.errors import CorpusError
from qbe.index.reader import IndexReader
from qbe.models.encode.pooling import PaperVectors
from qbe.query import Aspect
from qbe.runs import read_qrels
from qbe.search.first_stages import EncodedAspect

Ints = NDArray[np.int64]
NO_ROWS: Ints = np.zeros(0, np.int64)


def read_split(reader: IndexReader, qrels: Path) -> dict[int, Ints]:
    """For each query of a split, by row, the rows of the papers that it cites, ascending; out of qrels, whose
    query ids are paper ids.

    Raises CorpusError where the index lacks a paper of them.
    """
    cited: dict[int, Ints] = {}
    for query_id, judged in read_qrels(qrels).items():
        rows = []
        for paper_id in (query_id, *(each for each, grade in judged.items() if grade > 0)):
            row = reader.papers.find(paper_id)
            if row is None:
                raise CorpusError(
                    f"{qrels}: expected papers of the index, found {paper_id}, which it lacks; build it from "
                    "papers.jsonl of the same collection"
                )
            rows.append(row)
        cited[rows[0]] = np.array(sorted(rows[1:]), np.int64)
    return cited


def query_at(reader: IndexReader, evidence: Evidence, row: int, seeds: Ints = NO_ROWS) -> CiteQuery:
    """The paper at a row as a query, with its stored vectors."""
    paper = reader.papers[row]
    vectors: PaperVectors | None = reader.stored_vectors(paper) if reader.manifest.dense else None
    year = evidence.years[row]
    encoded = EncodedAspect.of(Aspect(paper), vectors)
    return CiteQuery(encoded, None if np.isnan(year) else int(year), row, seeds, frozenset())


CUT = 20


class CitationFigures(NamedTuple):
    """F1 of the first 20, mean reciprocal rank, and recall of the candidates, each the mean over queries."""

    f1: float
    mrr: float
    recall: float


class RankedList(NamedTuple):
    """Which papers of a ranking are ``cited`` (papers,) bool, best first, of how many in ``total``."""

    cited: NDArray[np.bool_]
    total: int


def citation_figures(lists: Iterable[RankedList]) -> CitationFigures:
    """The means over queries.

    >>> citation_figures([RankedList(np.array([False, True]), 4)])  # P@20 1/20, R@20 1/4
    CitationFigures(f1=0.0833..., mrr=0.5, recall=0.25)
    """
    rows = []
    for cited, total in lists:
        hits = int(cited[:CUT].sum())
        first = int(cited.argmax()) + 1 if cited.any() else 0
        rows.append((2 * hits / (CUT + total), 1 / first if first else 0.0, cited.sum() / total))
    f1, mrr, recall = np.mean(rows, axis=0).tolist()
    return CitationFigures(f1, mrr, recall)

"""Who cites whom, to train on: queries, the papers that they cite, and what an index holds of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from qbe.cite.links import Evidence
from qbe.cite.scoring import CiteQuery
from qbe.encode.aspect import EncodedAspect
from qbe.encode.encoder import PaperVectors
from qbe.errors import CorpusError
from qbe.index.reader import IndexReader
from qbe.query import Aspect
from qbe.trec import read_qrels

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
    vectors: PaperVectors | None = reader.stored_vectors(paper)
    year = evidence.years[row]
    encoded = EncodedAspect.of(Aspect(paper), vectors)
    return CiteQuery(encoded, None if np.isnan(year) else int(year), row, seeds, frozenset())

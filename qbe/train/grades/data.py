"""Graded pairs as features and grades, measured over an index of their papers."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.encode.aspect import EncodedAspect
from qbe.errors import CorpusError
from qbe.grade.model import RERANKED, columns
from qbe.graded_pairs import GradedLists, GradedPair
from qbe.index.reader import IndexReader
from qbe.query import Aspect
from qbe.search.grading import GradeFeatures, GradeRequest
from qbe.train.artifacts import load_arrays, save_arrays
from qbe.types import Facet

log = logging.getLogger(__name__)

BLOCK = 10
"""Lists that are measured at a time."""


class GradedFeatures(NamedTuple):
    """Candidates of several lists: their ``features`` (pairs, F), those of RERANKED, and ``grades``
    (pairs, 3).
    """

    features: NDArray[np.float64]
    grades: NDArray[np.float64]


def joined(parts: Sequence[GradedFeatures]) -> GradedFeatures:
    """Several as one."""
    return GradedFeatures(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def sampled(lists: GradedLists, count: int, seed: int) -> dict[str, Sequence[GradedPair]]:
    """So many of the lists, drawn at random; all if there are no more.

    >>> sorted(sampled({"a": [], "b": []}, 5, 0))
    ['a', 'b']
    """
    order = np.random.default_rng(seed).permutation(sorted(lists))[:count]
    return {query: lists[query] for query in order.tolist()}


def load_or_measure(
    reader: IndexReader, source: GradeFeatures, lists: GradedLists, file: Path
) -> GradedFeatures:
    """The features of lists, out of ``file`` if it is there, else computed and kept there. Papers that the
    index lacks are left out, and so are lists without a paper to compare. Raises CorpusError where all are,
    and ModelError where the file cannot be read.
    """
    if not file.exists():
        parts = []
        queries = [query for query in lists if reader.papers.find(query) is not None]
        for first in range(0, len(queries), BLOCK):
            block = {query: lists[query] for query in queries[first : first + BLOCK]}
            parts += _measured(reader, source, block)
            log.info("%s: %d of %d lists", file.stem, min(first + BLOCK, len(queries)), len(queries))
        if not parts:
            raise CorpusError(
                f"{file.stem}: expected graded pairs of papers of the index, found none; build it from their "
                "papers"
            )
        save_arrays(file, joined(parts)._asdict())
    return GradedFeatures(**load_arrays(file, "the features of graded pairs", *GradedFeatures._fields))


def _measured(
    reader: IndexReader, source: GradeFeatures, lists: Mapping[str, Sequence[GradedPair]]
) -> list[GradedFeatures]:
    requests, grades = [], []
    for query, pairs in lists.items():
        paper = reader.paper(query)
        vectors = reader.stored_vectors(paper)
        facets = {
            facet: EncodedAspect.of(Aspect(paper, facet), vectors)
            for facet in Facet
            if paper.facet_positions(facet)[0]
        }
        by_row = {reader.papers.find(pair.paper_id): pair.grades for pair in pairs if pair.paper_id != query}
        known = {row: each for row, each in by_row.items() if row is not None}
        if known and facets:
            rows = np.array(sorted(known), np.int64)
            requests.append(GradeRequest(facets, rows))
            grades.append(np.array([known[row] for row in rows.tolist()], np.float64))
    return [
        GradedFeatures(columns(features, RERANKED, len(of_list)), of_list)
        for (features, _), of_list in zip(source.batch(requests), grades, strict=True)
    ]

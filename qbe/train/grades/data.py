"""Graded pairs as features and grades, measured over an index of their papers."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.encode.aspect import EncodedAspect
from qbe.grade.model import RERANKED, columns
from qbe.graded_pairs import GradedLists, GradedPair
from qbe.index.reader import IndexReader
from qbe.query import Aspect
from qbe.search.grading import GradeFeatures, GradeRequest
from qbe.train.artifacts import load_arrays, save_arrays
from qbe.train.pairs import held_by, papers_of, within
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
    """The features of lists, out of ``file`` if it is there, else computed and kept there. Raises CorpusError
    where the index lacks the papers of all, and ModelError where the file cannot be read.
    """
    if not file.exists():
        held = list(within(lists, held_by(reader, papers_of(lists))).items())
        parts: list[GradedFeatures] = []
        for first in range(0, len(held), BLOCK):
            parts += _measured(reader, source, dict(held[first : first + BLOCK]))
            log.info("%s: %d of %d lists", file.stem, min(first + BLOCK, len(held)), len(held))
        save_arrays(file, joined(parts)._asdict())
    return GradedFeatures(**load_arrays(file, "the features of graded pairs", *GradedFeatures._fields))


def _measured(reader: IndexReader, source: GradeFeatures, lists: GradedLists) -> list[GradedFeatures]:
    requests, grades = [], []
    for query, pairs in lists.items():
        paper = reader.paper(query)
        vectors = reader.stored_vectors(paper)
        facets = {
            facet: EncodedAspect.of(Aspect(paper, facet), vectors)
            for facet in Facet
            if paper.facet_positions(facet)[0]
        }
        by_row = {reader.papers.row(pair.paper_id): pair.grades for pair in pairs if pair.paper_id != query}
        if by_row and facets:
            rows = np.array(sorted(by_row), np.int64)
            requests.append(GradeRequest(facets, rows))
            grades.append(np.array([by_row[row] for row in rows.tolist()], np.float64))
    return [
        GradedFeatures(columns(features, RERANKED, len(of_list)), of_list)
        for (features, _), of_list in zip(source.batch(requests), grades, strict=True)
    ]

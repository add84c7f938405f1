"""Graded lists over the stored vectors of an index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from qbe.graded_pairs import GradedLists, GradedPair
from qbe.index.dense.scoring import kept_or_all
from qbe.index.reader import IndexReader
from qbe.index.segments.views import rows_of
from qbe.train.graded_pairs import papers_of, within
from qbe.train.projections.network import FACETS, GradedList
from qbe.train.stored_vectors import StoredVectors


class StoredLists(NamedTuple):
    """The vectors of all papers of some lists, their sentences of each facet ``marked`` (3, sentences), and
    each set of lists by the papers' places.
    """

    vectors: StoredVectors
    marked: Tensor
    sets: Sequence[Sequence[GradedList]]


def read_lists(reader: IndexReader, sets: Sequence[GradedLists]) -> StoredLists:
    """Sets of lists with the vectors that an index has of their papers.

    Candidates that the index lacks are left out, and lists whose query it lacks; raises CorpusError where
    nothing is left of a set.
    """
    ids = sorted(paper_id for paper_id in papers_of(*sets) if reader.papers.find(paper_id) is not None)
    place = {paper_id: number for number, paper_id in enumerate(ids)}
    rows = rows_of(reader.papers, ids)
    block = reader.vector_store.gather(rows)
    marked = np.stack([kept_or_all(reader.facet_mask(facet)[block.rows], block.starts) for facet in FACETS])
    vectors = StoredVectors.of_block(block, reader.vector_store.whole(rows))
    by_place = [[_by_place(*each, place) for each in within(lists, place).items()] for lists in sets]
    return StoredLists(vectors, torch.tensor(marked), by_place)


def _by_place(query: str, pairs: Sequence[GradedPair], place: Mapping[str, int]) -> GradedList:
    candidates = torch.tensor([place[pair.paper_id] for pair in pairs])
    grades = torch.tensor([pair.grades for pair in pairs], dtype=torch.float32)
    return GradedList(torch.tensor(place[query]), candidates, grades)

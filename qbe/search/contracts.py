"""What searches offer, whatever they are made of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

from qbe.query import Query
from qbe.types import Hit, Pools


class FirstStage(Protocol):
    """What every first stage offers."""

    def batch_search(
        self, queries: Sequence[Query], hits: int, pools: Pools, *, explain: bool = False
    ) -> list[list[Hit]]:
        """For each query the best ``hits`` papers out of the whole index or of its pool, best first; no other
        query has a part in them.

        ``explain`` adds to each the scores of the stage's components.
        """


class AnySearcher(ABC):
    """What searches offer, whatever they are made of: a first stage alone, or reranked."""

    def search(
        self,
        query: Query,
        hits: int = 10,
        pool: Sequence[str] | None = None,
        *,
        matches: bool = True,
        explain: bool = False,
    ) -> list[Hit]:
        """The best hits, best first, ties by id.

        With a pool its papers are ranked (up to ``hits`` of them), else the whole index. ``matches``
        adds the pairs of closest sentences to each hit, where the index has vectors; ``explain`` adds its
        parts.

        Raises UsageError for fewer than 1 hit or positions out of range, FacetNotFoundError for a
        facet the query paper lacks, PaperNotFoundError for a pool that names papers not in the index.
        """
        return self.batch_search([query], hits, [pool], matches=matches, explain=explain)[0]

    @abstractmethod
    def batch_search(
        self,
        queries: Sequence[Query],
        hits: int = 10,
        pools: Pools | None = None,
        *,
        matches: bool = True,
        explain: bool = False,
    ) -> list[list[Hit]]:
        """What `search` finds for each query and its pool."""

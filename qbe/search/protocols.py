"""What searches offer, whatever they are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from qbe.types import Hit, Pools, Query


class FirstStage(Protocol):
    """What every first stage offers."""

    def search_many(
        self, queries: Sequence[Query], hits: int, pools: Pools, *, explain: bool = False
    ) -> list[list[Hit]]:
        """For each query the best ``hits`` papers out of the whole index or of its pool, best first; no other
        query has a part in them.

        ``explain`` adds to each the scores of the stage's components.
        """


class AnySearcher(Protocol):
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
        """The best hits of one query, best first."""

    def search_many(
        self,
        queries: Sequence[Query],
        hits: int = 10,
        pools: Pools | None = None,
        *,
        matches: bool = True,
        explain: bool = False,
    ) -> list[list[Hit]]:
        """What `search` finds for each query and its pool."""

"""Searching an index from Python."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from qbe.errors import UsageError
from qbe.index.index import Index
from qbe.query import PLAIN, Query, Topic, Variety
from qbe.search.explain import ExplainedSentence, explain_query
from qbe.search.filters import PaperFilter
from qbe.search.rank import Progress, RerankerOpener
from qbe.search.request import BLOCK, SearchRequest
from qbe.search.session import SearchSession
from qbe.search.stages import Stages, default_stages
from qbe.types import Facet, Hit, Pools
from qbe.util.files import StrPath
from qbe.util.work import Closing

if TYPE_CHECKING:
    from qbe.evaluate.run import Run


class Explanation(NamedTuple):
    """A query's result with its reasons: the sentences of each aspect, hits with matches."""

    query: Query
    sentences: Sequence[Sequence[ExplainedSentence]]
    hits: Sequence[Hit]


class Pipeline(Closing):
    """Searches an index: ``Pipeline(index, stages)``, or ``Pipeline(index, first_stage, reranker)``.

    ``stages`` are as in ``qbe.Fused() >> qbe.Projections()`` (default: `qbe.search.stages.default_stages`). A
    ``reranker`` may also be an object with ``batch_score``, or a function ``(aspect, papers) -> scores``.
    ``labels`` of the query's sentences are ``given`` (predicted where a paper brings none), or ``predicted``.
    Models and threads stay open until it is closed, which leaves the index open. Several threads may search.

    >>> from qbe import Facet, Fused, Query
    >>> with Pipeline(index, Fused()) as pipeline:
    ...     [hit.paper_id for hit in pipeline.search(Query(index.paper("s036"), Facet.METHOD), k=1)]
    ['s051']
    """

    def __init__(
        self,
        index: Index,
        stages: Any = None,
        reranker: Any = None,
        *,
        labels: str = "given",
        open_reranker: RerankerOpener | None = None,
    ) -> None:
        """``open_reranker`` opens cross-encoders in another place, such as a cluster."""
        if isinstance(stages, Stages) and reranker is not None:
            raise UsageError("expected a first stage with a `reranker`, found stages that have one; give one")
        if reranker is not None:
            stages = Stages(default_stages(index).first_stage if stages is None else stages, reranker)
        self.session = SearchSession(index, stages, open_reranker=open_reranker)
        self.index, self.stages, self._labels = index, self.session.stages, labels

    def close(self) -> None:
        self.session.close()

    def search(
        self,
        query: Query,
        k: int = 10,
        pool: Sequence[str] | None = None,
        *,
        filter: PaperFilter | None = None,
        matches: bool = True,
        explain: bool = False,
        variety: Variety = PLAIN,
    ) -> list[Hit]:
        """Search for the best ``k`` hits, never the query's own papers, of a ``pool`` of ids or the whole
        index.
        """
        request = SearchRequest(query, k, pool, filter, self._labels, matches, explain, variety=variety)
        return self.session.batch([request])[0].hits

    def batch_search(
        self,
        queries: Sequence[Query],
        k: int = 10,
        pools: Pools | None = None,
        *,
        filter: PaperFilter | None = None,
        matches: bool = True,
        explain: bool = False,
        variety: Variety = PLAIN,
        progress: Progress | None = None,
    ) -> list[list[Hit]]:
        """Search for several queries, each in its pool, in less time than one by one."""
        if isinstance(queries, Query) or not isinstance(queries, Collection):
            kind = type(queries).__name__
            raise TypeError(f"expected a sequence of qbe.Query, found a {kind}; make a list, or call search")
        if pools is not None and len(pools) != len(queries):
            raise UsageError(f"expected a pool for each of {len(queries)} queries, found {len(pools)} pools")
        requests = [
            SearchRequest(query, k, pool, filter, self._labels, matches, explain, variety=variety)
            for query, pool in zip(queries, pools or [None] * len(queries), strict=True)
        ]
        return [ranking.hits for ranking in self.session.batch(requests, progress)]

    def explain(
        self,
        query: Query,
        k: int = 10,
        pool: Sequence[str] | None = None,
        *,
        filter: PaperFilter | None = None,
    ) -> Explanation:
        """Search, with the reasons of each hit."""
        ranking = self.session.search(SearchRequest(query, k, pool, filter, self._labels, explain=True))
        sentences = [explain_query(aspect) for aspect in ranking.query.aspects]
        return Explanation(ranking.query, sentences, ranking.hits)

    def grade(self, query: Query, hits: Sequence[Hit]) -> list[Hit]:
        """Add grades to hits of a query (see `SearchSession.grade`)."""
        return self.session.grade(query, hits)

    def run(
        self,
        topics: StrPath | Sequence[Topic],
        k: int = 1000,
        pools: Mapping[str, Sequence[str]] | None = None,
    ) -> Run:
        """Search for topics, or those of a file; ``pools`` are ids by query id (`qbe.runs.read_pools`)."""
        from qbe.evaluate.run import Run
        from qbe.runs import read_topics
        from qbe.search.queries import queries_of

        listed = read_topics(topics) if isinstance(topics, str | os.PathLike) else list(topics)
        counts = Counter(topic.query_id for topic in listed)
        if len(counts) < len(listed):
            repeated = counts.most_common(1)[0][0]
            raise UsageError(f"expected each query_id once, found {repeated} twice; give topics other ids")
        if pools is not None and not isinstance(pools, Mapping):
            raise TypeError(
                f"expected `pools` as a mapping (see qbe.runs.read_pools), found a {type(pools).__name__}"
            )
        if lacking := next((each for each in counts if pools is not None and each not in pools), None):
            raise UsageError(f"expected a pool for each query, found none for {lacking}; add it to `pools`")
        rankings: dict[str, Sequence[Hit]] = {}
        for first in range(0, len(listed), BLOCK):
            block = listed[first : first + BLOCK]
            of_block = None if pools is None else [pools[topic.query_id] for topic in block]
            hits = self.batch_search(queries_of(self.index, block), k, of_block, matches=False)
            rankings |= {topic.query_id: tuple(found) for topic, found in zip(block, hits, strict=True)}
        return Run(self.stages.run_tag, rankings)

    def as_transformer(self, k: int = 1000, facet: Facet | None = None) -> Any:
        """The pipeline as a transformer of PyTerrier (see `qbe.search.pyterrier.as_transformer`)."""
        from qbe.search.pyterrier import as_transformer

        return as_transformer(self, k, facet)

"""A search over one index: its stages opened once, then any number of queries."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

from qbe.closing import Closing
from qbe.encode.aspect import EncodedAspect
from qbe.errors import UsageError
from qbe.index.index import Index
from qbe.index.reader import IndexReader
from qbe.parallel import Workers
from qbe.query import Query, TopicAspect
from qbe.rerank.reranker import Progress, Reranker
from qbe.search.config import CROSS_ENCODED, SearchConfig, check_filter
from qbe.search.contracts import FirstStage
from qbe.search.explain import ExplainedSentence, explain_query
from qbe.search.exploring import ExploreRequest, ExploreStage
from qbe.search.filters import PaperFilter
from qbe.search.matches import add_matches
from qbe.search.passing import Passing, PassingPapers
from qbe.search.ranking import RankingRequest, rank
from qbe.search.reranking import SecondStage
from qbe.search.stages import open_explore_stage, open_first_stage, open_rerank_stage
from qbe.search.vectors import PreparedQuery, by_every_facet, encode_queries, prepare_queries
from qbe.types import Facet, Hit, Pools


class Explanation(NamedTuple):
    """A query's result with its reasons: the ``query``, its papers labelled; the sentences of each of its
    aspects with their facets; and ``hits`` with component scores, matches and transport plans.

    >>> from qbe import Facet, Query
    >>> with Pipeline.open(index, SearchConfig(first_stage="dense", rerank="none")) as pipeline:
    ...     explanation = pipeline.explain(Query(index.paper("s036"), Facet.METHOD), k=1)
    >>> sorted(explanation.hits[0].component_scores)
    ['dense']
    """

    query: Query
    sentences: Sequence[Sequence[ExplainedSentence]]
    hits: Sequence[Hit]


class _Opened(NamedTuple):
    """The first stage over one commit of the index, what ranks queries of several facets by grades (None
    where nothing does), and which of its papers pass filters.
    """

    reader: IndexReader
    first_stage: FirstStage
    explore_stage: ExploreStage | None
    passing: PassingPapers


class Pipeline(Closing):
    """Searches an index with the stages of a `SearchConfig`.

    Models and threads stay open until the pipeline is closed. A search after ``index.refresh()`` is one over
    the newest commit. Several threads may search at a time. Usable as a context manager; closing
    it leaves the index open.

    >>> from qbe import Facet, Query
    >>> with Pipeline.open(index, SearchConfig(rerank="none")) as pipeline:
    ...     [hit.paper_id for hit in pipeline.search(Query(index.paper("s036"), Facet.METHOD), k=1)]
    ['s051']
    """

    def __init__(self, index: Index, config: SearchConfig, rerank_stage: SecondStage | None) -> None:
        """`Pipeline.open` is the way to make one."""
        self.index, self.config = index, config
        self._rerank_stage = rerank_stage
        self._workers = Workers(index.threads)
        self._opening = threading.Lock()
        self._opened: _Opened | None = None

    @classmethod
    def open(
        cls, index: Index, config: SearchConfig | None = None, reranker: Reranker | None = None
    ) -> Pipeline:
        """Open the stages of a configuration (by default fused, then the facet rerankers) over an index.

        A ``reranker`` that is open already takes the place of the cross-encoder that the configuration names,
        such as one that several pipelines share (`qbe.search.stages.shared_reranker`).

        Raises TypeError for values of another type, UsageError for parameters that do not fit the index,
        IndexFormatError where the index was built without what a stage needs, ModelError for a reranker that
        cannot be loaded, JavaError where BM25 finds no Java.
        """
        config = SearchConfig() if config is None else config
        check_index(index)
        if not isinstance(config, SearchConfig):
            raise TypeError(f"expected a qbe.SearchConfig, found {type(config).__name__}")
        _check_reranker(reranker, config)
        pipeline = cls(index, config, None)
        try:
            # Before the first stage, so that a reranker that cannot be had is refused before Java starts.
            pipeline._rerank_stage = open_rerank_stage(config, index, pipeline._workers, reranker)
            with index.reading() as reader:
                pipeline._over(reader)
        except BaseException:
            pipeline.close()
            raise
        return pipeline

    def close(self) -> None:
        """End the threads of the pipeline; the index stays open."""
        self._workers.close()

    def search(
        self,
        query: Query | PreparedQuery,
        k: int = 10,
        pool: Sequence[str] | None = None,
        *,
        filter: PaperFilter | None = None,
        matches: bool = True,
        explain: bool = False,
    ) -> list[Hit]:
        """The best ``k`` hits, best first, ties by id; the query's own papers are never among them.

        With a ``pool`` of paper ids these are ranked (up to ``k`` of them), else the whole index; of either
        only the papers that pass the ``filter``, if there is one (None: that of the configuration).
        ``matches`` adds the pairs of closest sentences to each hit, where the index has vectors; ``explain``
        adds the scores of its components. Raises TypeError for values of another type, UsageError for ``k``
        below 1, positions out of range and a filter by the year of a query's paper that has none,
        FacetNotFoundError for a facet that the query's paper lacks, PaperNotFoundError for a pool with papers
        that the index lacks.
        """
        return self.batch_search([query], k, [pool], filter=filter, matches=matches, explain=explain)[0]

    def batch_search(
        self,
        queries: Sequence[Query | PreparedQuery],
        k: int = 10,
        pools: Pools | None = None,
        *,
        filter: PaperFilter | None = None,
        matches: bool = True,
        explain: bool = False,
        progress: Progress | None = None,
    ) -> list[list[Hit]]:
        """For each query and its pool exactly what `search` gives, in less time: FAISS is asked for all
        queries at once, and the reranker gets the candidates of all queries as one stream.

        All results are held in memory: give some dozens of queries at a time. ``progress`` is called with
        the number of candidates just reranked. Raises what `search` does, and UsageError for another number
        of pools than queries.
        """
        check_k(k)
        if isinstance(queries, Query | PreparedQuery):
            raise TypeError("expected a sequence of qbe.Query, found one; call search, or put it into a list")
        checked = _checked_pools(len(queries), pools)
        check_filter(filter)
        return self.index.read(
            lambda reader: self._batch_search(
                reader,
                queries,
                k,
                checked,
                filter=filter,
                matches=matches,
                explain=explain,
                progress=progress,
            )
        )

    def _batch_search(
        self,
        reader: IndexReader,
        queries: Sequence[Query | PreparedQuery],
        k: int,
        pools: Pools,
        *,
        filter: PaperFilter | None,
        matches: bool,
        explain: bool,
        progress: Progress | None,
    ) -> list[list[Hit]]:
        opened, second = self._over(reader), self._rerank_stage
        prepared = self.prepare(queries, explain=explain)
        vectors = opened.first_stage.needs_vectors or (second is not None and second.needs_vectors)
        prepared = self._encoded(reader, prepared, needed=vectors)
        among = [self._passing(opened.passing, query.query, filter).selection for query in prepared]
        requests = [
            RankingRequest(query.query, query.aspects, pool, selection)
            for query, pool, selection in zip(prepared, pools, among, strict=True)
        ]
        hits = self._ranked(opened, prepared, requests, k, explain=explain, progress=progress)
        if not matches or reader.manifest.dense is None:
            return hits
        prepared = self._encoded(reader, prepared, needed=any(hits))
        return add_matches(reader, self._workers, [query.aspects for query in prepared], hits)

    def explain(
        self,
        query: Query | PreparedQuery,
        k: int = 10,
        pool: Sequence[str] | None = None,
        *,
        filter: PaperFilter | None = None,
    ) -> Explanation:
        """The hits of `search` with their reasons; raises what `search` does."""
        (prepared,) = self.prepare([query], explain=True)
        hits = self.search(prepared, k, pool, filter=filter, explain=True)
        sentences = [explain_query(aspect) for aspect in prepared.query.aspects]
        return Explanation(prepared.query, sentences, hits)

    def prepare(
        self, queries: Sequence[Query | PreparedQuery], *, explain: bool = False
    ) -> list[PreparedQuery]:
        """Queries whose papers have the facet labels that their aspects need, or all if they are to be
        explained (see `SearchConfig.facets`); what a query needs once is computed once. Queries that are
        prepared stay as they are. Raises what `search` does.
        """
        return prepare_queries(self.index, queries, self._workers, facets=self.config.facets, explain=explain)

    def passing(self, query: Query | PreparedQuery, filter: PaperFilter | None = None) -> Passing:
        """How many papers of the index pass the filter for a query (None: that of the configuration), and how
        many are left out because they have no year; raises what `search` does.
        """
        check_filter(filter)
        plain = query.query if isinstance(query, PreparedQuery) else query
        return self.index.read(lambda reader: self._passing(self._over(reader).passing, plain, filter))

    def _ranked(
        self,
        opened: _Opened,
        prepared: Sequence[PreparedQuery],
        requests: Sequence[RankingRequest],
        k: int,
        *,
        explain: bool,
        progress: Progress | None,
    ) -> list[list[Hit]]:
        """The best ``k`` hits of each query: those of several facets by grades, others by their stages."""
        reader, stage, explore, _ = opened
        ranked: list[list[Hit]] = [[] for _ in requests]
        by_grades = [place for place, query in enumerate(prepared) if explore and query.query.is_by_facets]
        others = [place for place in range(len(requests)) if place not in set(by_grades)]
        if explore and by_grades:
            explored = [
                ExploreRequest(requests[place], self._by_facet(reader, prepared[place]))
                for place in by_grades
            ]
            hits = explore.batch_search(explored, k, explain=explain, progress=progress)
            for place, query_hits in zip(by_grades, hits, strict=True):
                ranked[place] = query_hits
        if others:
            second, rest = self._rerank_stage, [requests[place] for place in others]
            depth = k if second is None else max(k, second.depth)
            hits = rank(stage, reader, rest, depth, explain=explain)
            if second is not None:
                hits = second.rerank(reader, rest, hits, explain=explain, progress=progress)
            for place, query_hits in zip(others, hits, strict=True):
                ranked[place] = query_hits[:k]
        return ranked

    def _by_facet(self, reader: IndexReader, query: PreparedQuery) -> list[dict[Facet, EncodedAspect]]:
        """Each of the query's papers by every facet that it has sentences of."""
        (every,) = self._encoded(reader, [by_every_facet(query)], needed=True)
        papers: dict[str, dict[Facet, EncodedAspect]] = {}
        for encoded in every.aspects:
            assert encoded.aspect.facet is not None
            papers.setdefault(encoded.aspect.paper.paper_id, {})[encoded.aspect.facet] = encoded
        return [papers[paper.paper_id] for paper in query.query.papers]

    def _passing(self, passing: PassingPapers, query: Query, filter: PaperFilter | None) -> Passing:
        return passing.for_query(self.config.filter if filter is None else filter, query)

    def grade(self, query: Query | PreparedQuery, hits: Sequence[Hit]) -> list[Hit]:
        """Hits of a query with their grades (`qbe.types.Hit`), however they were found.

        Raises what `search` does, and UsageError where the grade model does not read the vectors of the index
        or the reranker.
        """
        plain = query.query if isinstance(query, PreparedQuery) else query

        def grade(reader: IndexReader) -> list[Hit]:
            explore = self._grading(reader)
            (prepared,) = self.prepare([plain], explain=True)
            facets = self._by_facet(reader, prepared)
            return explore.grade(
                ExploreRequest(RankingRequest(prepared.query, prepared.aspects, None), facets), hits
            )

        return self.index.read(grade)

    def require_grades(self) -> None:
        """Raise UsageError where the grade model does not read the vectors of the index or the reranker."""
        with self.index.reading() as reader:
            self._grading(reader)

    def _grading(self, reader: IndexReader) -> ExploreStage:
        explore = self._over(reader).explore_stage
        if explore is None:
            raise UsageError(
                "expected vectors of the default encoder, and its rerankers or none, for grades, found "
                "others; choose `first_stage` dense or fused, and `combine` grades, over such an index"
            )
        return explore

    def rerank_pairs(self, aspects: Sequence[TopicAspect], papers: int) -> int:
        """How many pairs the reranker will score for a query of these aspects, out of so many papers to rank,
        at the most; 0 without a reranker.
        """
        if self._rerank_stage is None:
            return 0
        facets = [aspect.facet for aspect in aspects]
        with self.index.reading() as reader:
            explore = self._over(reader).explore_stage
        if explore is not None and len(facets) > 1 and None not in facets:
            return explore.pair_count(len({aspect.paper_id for aspect in aspects}), papers)
        return self._rerank_stage.pair_count(facets, papers)

    def _encoded(
        self, reader: IndexReader, prepared: Sequence[PreparedQuery], *, needed: bool
    ) -> list[PreparedQuery]:
        return encode_queries(self.index, reader, prepared, self._workers) if needed else list(prepared)

    def _over(self, reader: IndexReader) -> _Opened:
        """What searches a commit of the index; opened anew when the index has moved on."""
        with self._opening:
            if self._opened is None or self._opened.reader is not reader:
                stage = open_first_stage(self.config, reader, self._workers)
                explore = open_explore_stage(self.config, reader, stage, self._rerank_stage, self._workers)
                self._opened = _Opened(reader, stage, explore, PassingPapers(reader))
            return self._opened


def check_index(index: object) -> None:
    """Raise TypeError for what is no `Index`."""
    if not isinstance(index, Index):
        raise TypeError(
            f"expected a qbe.Index, found {type(index).__name__}; open one with qbe.open_index(folder)"
        )


def _check_reranker(reranker: object, config: SearchConfig) -> None:
    """Raise TypeError for what is no open reranker, UsageError where the configuration reads none."""
    if reranker is None:
        return
    if not callable(getattr(reranker, "batch_score", None)):
        raise TypeError(
            f"expected an open reranker as `reranker`, found {reranker!r:.60} ({type(reranker).__name__}); "
            "give a name in the configuration"
        )
    if config.rerank not in CROSS_ENCODED:
        raise UsageError(
            f"`reranker` is not read with `rerank` {config.rerank}; drop it or choose "
            f"{' or '.join(CROSS_ENCODED)}"
        )


def check_k(k: object) -> None:
    """Raise TypeError for what is no number of hits, UsageError for one below 1."""
    if not isinstance(k, int) or isinstance(k, bool):
        raise TypeError(f"expected an int as `k`, found {k!r} ({type(k).__name__})")
    if k < 1:
        raise UsageError(f"expected `k` of at least 1, found {k}")


def _checked_pools(queries: int, pools: Pools | None) -> Pools:
    """A pool for each query, None where there are no pools; raises UsageError for another number of them,
    TypeError for a pool that is no list of ids.
    """
    if pools is None:
        return [None] * queries
    if len(pools) != queries:
        raise UsageError(f"expected a pool for each of {queries} queries, found {len(pools)} pools")
    for pool in pools:
        if isinstance(pool, str):
            raise TypeError(f"expected a pool as a list of paper ids, found the str {pool!r:.60}")
        for paper_id in pool or ():
            if not isinstance(paper_id, str):
                raise TypeError(
                    f"expected a pool of paper ids (str), found {paper_id!r:.60} ({type(paper_id).__name__})"
                )
    return pools

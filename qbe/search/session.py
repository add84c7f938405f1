"""A search as every front end runs it: the query prepared once, the first stage once, then what reranks."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from qbe.errors import UsageError
from qbe.index.index import Index
from qbe.index.reader import IndexReader
from qbe.query import Aspect, Query, TopicAspect, Variety
from qbe.search.contracts import FirstStage
from qbe.search.filtering import FilterCache, FilterResult, describe
from qbe.search.filters import PaperFilter
from qbe.search.grading import ExploreRequest, ExploreStage, likely
from qbe.search.matches import add_matches
from qbe.search.opening import (
    RerankerOpener,
    no_grades,
    open_explore_stage,
    open_first_stage,
    open_rerank_stage,
    regraded_count,
    regrader_opener,
)
from qbe.search.questions import is_question
from qbe.search.ranking import RankingRequest, RerankStage, rank
from qbe.search.request import PreparedQuery, SearchRequest, encode_queries, graded_papers, prepare_queries
from qbe.search.rerank.reranker import Progress
from qbe.search.stages import RERANK_DEPTH, Grades, LanguageModel, Stages, default_stages
from qbe.types import Hit
from qbe.util.parallel import Closing, Workers, one_blas_thread

if TYPE_CHECKING:
    from qbe.search.rerank.graded import GradedQuery

FIRST, RERANKED = "first-stage", "reranked"
"""Stages that a ranking may have gone through."""

S = TypeVar("S")
T = TypeVar("T")


class Ranking(NamedTuple):
    """Hits of a query, best first: ``stage`` is FIRST or RERANKED; ``query`` as it was prepared, its papers
    labelled as needed; ``selected`` says which papers pass the filter; ``is_final`` whether no other ranking
    follows; ``notes`` are for people, and ``counts`` those of them that count hits.
    """

    stage: str
    query: Query
    hits: list[Hit]
    selected: FilterResult
    is_final: bool
    notes: tuple[str, ...] = ()
    counts: tuple[str, ...] = ()


class _Opened(NamedTuple):
    """What searches one commit of the index; ``explore`` grades papers, and ranks queries of several facets
    by their grades unless a language model does.
    """

    reader: IndexReader
    first_stage: FirstStage
    explore: ExploreStage | None
    explore_ranks: bool
    filters: FilterCache


class Task(NamedTuple):
    """A query on its way through the stages: what it is ranked by, how many papers are to be ranked
    (``depth``), and the ``hits`` of the first stage, once there are some.

    ``graded_by``, of a query that grades rank or whose hits are graded, are its papers; ``again`` says that
    it went through the second stage, so that its best hits are graded as that grades them.
    """

    opened: _Opened
    request: SearchRequest
    prepared: PreparedQuery
    ranking: RankingRequest
    selected: FilterResult
    graded_by: Sequence[GradedQuery] | None
    depth: int
    variety: Variety
    hits: Sequence[Hit] = ()
    again: bool = False

    @property
    def explores(self) -> bool:
        """Whether grades rank the query."""
        return self.opened.explore_ranks and self.prepared.query.is_by_facets


Batch = Callable[[Sequence[Task]], Sequence[list[Hit]]]
"""Carries out a stage for several tasks; the result of one does not depend on the others."""

Executor = Callable[[str, Batch, Task], list[Hit]]
"""Carries out a stage (FIRST or RERANKED) for a task, perhaps together with tasks that wait for the same."""


class SearchSession(Closing):
    """Searches an index by `Stages`, for the command line, the page, HTTP, MCP and Python.

    Models and threads stay open until it is closed, which leaves the index open. A search after
    ``index.refresh()`` is one over the newest commit. Several threads may use it.

    >>> from qbe import Facet
    >>> request = SearchRequest(Query(index.paper("s036"), Facet.METHOD), k=1)
    >>> with SearchSession(index) as session:
    ...     [(ranking.stage, ranking.hits[0].paper_id) for ranking in session.run(request)]
    [('first-stage', 's051'), ('reranked', 's051')]
    """

    def __init__(
        self,
        index: Index,
        stages: Stages | None = None,
        executor: Executor | None = None,
        *,
        open_reranker: RerankerOpener | None = None,
        chosen: bool | None = None,
    ) -> None:
        """Open the ``stages`` (default: `qbe.search.stages.default_stages`) over an index; ``executor``
        carries them out, and ``open_reranker`` opens cross-encoders in another place. ``chosen`` says whether
        a user asked for the reranker (default: whether stages are given).

        Raises TypeError for values of another type, UsageError for parameters that do not fit the index,
        IndexFormatError where the index was built without what a stage needs, ModelError for a reranker that
        cannot be loaded, JavaError where BM25 finds no Java.
        """
        check_index(index)
        self.index = index
        self.stages = default_stages(index) if stages is None else _checked(stages)
        self._chosen = stages is not None if chosen is None else chosen
        self._execute = executor
        self._workers = Workers(index.threads)
        self._opening = threading.Lock()
        self._opened: _Opened | None = None
        self._open_reranker = open_reranker
        self._second: RerankStage | None = None
        self._open_regrader = regrader_opener(self.stages.reranker, self._workers)
        self._regraded = regraded_count(self.stages.reranker)
        try:
            with index.reading() as reader:
                # Side by side: Java opens the postings while Python reads what reranks.
                parts: list[Callable[[], object]] = [self._open_second, partial(self._over, reader)]
                for _ in self._workers.map(lambda open_part: open_part(), parts):
                    pass
        except BaseException:
            self.close()
            raise

    def _open_second(self) -> None:
        reranker = self.stages.reranker
        self._second = open_rerank_stage(
            reranker, self.index, self._workers, self._open_regrader, self._open_reranker
        )

    def with_first_stage(self, first_stage: Any, executor: Executor | None = None) -> SearchSession:
        """A session with another first stage, and with the models and threads of this one, which are closed
        with either; raises what opening one does.

        >>> from qbe.search.stages import Dense
        >>> with SearchSession(index) as session:
        ...     session.with_first_stage(Dense()).stages.first_stage.name
        'dense'
        """
        other = copy.copy(self)
        other.stages, other._execute = replace(self.stages, first_stage=first_stage), executor
        other._opening, other._opened = threading.Lock(), None
        self.index.read(other._over)
        return other

    def close(self) -> None:
        """End the threads; the index stays open."""
        self._workers.close()

    def run(self, request: SearchRequest, *, rerank: bool = True) -> Iterator[Ranking]:
        """The first stage's ranking, then, where something reranks the query, the reranked one; without
        ``rerank`` the first alone.

        The query's own papers are never among the hits, and ties are broken by id. Raises UsageError for
        positions out of range and a filter by the year of a query's paper that has none, FacetNotFoundError
        for a facet that the query's paper lacks, PaperNotFoundError for a pool with papers that the index
        lacks, ModelError for scores that are not finite.
        """
        reranks = rerank and self.reranks(request.query)

        def first_stage(reader: IndexReader) -> tuple[Task, Ranking]:
            (task,) = self._first(reader, [request], self._execute)
            return task, self._finished(task, FIRST, is_final=not reranks, rerank=rerank)

        first, ranking = self._computed(first_stage)
        yield ranking
        if reranks:
            yield self._computed(lambda reader: self._run_second(reader, request, first))

    def search(self, request: SearchRequest, *, rerank: bool = True) -> Ranking:
        """The last ranking of `run`; the first stage's ranking is not finished for showing."""
        return self.batch([request], rerank=rerank, execute=self._execute)[0]

    def batch(
        self,
        requests: Sequence[SearchRequest],
        progress: Progress | None = None,
        *,
        rerank: bool = True,
        execute: Executor | None = None,
    ) -> list[Ranking]:
        """For each request the last ranking of `run`, in less time: FAISS is asked for all queries at once,
        and the reranker gets the candidates of all queries as one stream.

        All results are held in memory: give some dozens of requests at a time. ``progress`` is called with
        the number of candidates just reranked.
        """

        def batch(reader: IndexReader) -> list[Ranking]:
            tasks = self._first(reader, requests, execute)
            again = [place for place, task in enumerate(tasks) if rerank and self.reranks(task.request.query)]
            reranked = self._carried_out(RERANKED, [tasks[place] for place in again], execute, progress)
            for place, hits in zip(again, reranked, strict=True):
                tasks[place] = tasks[place]._replace(hits=hits, again=True)
            stages = [RERANKED if place in set(again) else FIRST for place in range(len(tasks))]
            return self._all_finished(tasks, stages, rerank=rerank)

        return self._computed(batch)

    def reranks(self, query: Query) -> bool:
        """Whether the hits of a query are reranked: where the reranker takes one of the aspects, and grades
        do not rank the query, or the best of them are graded again.
        """
        aspects = [TopicAspect(each.paper.paper_id, each.facet, each.positions) for each in query.aspects]
        return self.rerank_pairs(aspects, 1) > 0

    def takes(self, aspects: Iterable[Aspect | TopicAspect]) -> bool:
        """Whether there is a reranker that takes one of a query's aspects (see `qbe.search.rerank.reranker`)."""
        return self._second is not None and any(self._second.reranks(aspect.facet) for aspect in aspects)

    def leaves_out(self, aspects: Iterable[Aspect | TopicAspect], load: Callable[[], Query]) -> bool:
        """Whether users should know that a query of these aspects, which ``load`` gives, is not reranked:
        that of a question only where they asked for the reranker.
        """
        return not self.takes(aspects) and (self._chosen or not is_question(load()))

    def rerank_pairs(self, aspects: Sequence[TopicAspect], papers: int) -> int:
        """How many pairs the reranker will score for a query of these aspects, out of so many papers to rank,
        at most; 0 without a reranker.
        """
        if self._second is None:
            return 0
        facets = [aspect.facet for aspect in aspects]
        opened = self.index.read(self._over)
        if opened.explore_ranks and len(facets) > 1 and None not in facets:
            return min(self._regraded, papers) * len({aspect.paper_id for aspect in aspects})
        return self._second.pair_count(facets, papers)

    def selected(self, query: Query, filter: PaperFilter | None) -> FilterResult:
        """How many papers of the index pass a filter for a query, and how many are dropped for lack of a
        year; raises what `run` does.
        """
        return self.index.read(lambda reader: self._over(reader).filters.for_query(filter, query))

    @property
    def can_grade(self) -> bool:
        """Whether the index's encoder has a grade model."""
        return self.index.read(lambda reader: self._over(reader).explore) is not None

    @property
    def regrades(self) -> bool:
        """Whether the best papers of a query are graded again, where there is a grade model."""
        return self._regraded > 0

    def grade(self, query: Query, hits: Sequence[Hit]) -> list[Hit]:
        """Hits of a query with their grades (`qbe.types.Hit`), however they were found; raises what `run`
        does, TypeError for anything but hits, and UsageError where the index's encoder has no grade model.
        """
        for hit in hits:
            if not isinstance(hit, Hit):
                raise TypeError(f"expected qbe.Hit objects to grade, found {type(hit).__name__}")

        def grade(reader: IndexReader) -> list[Hit]:
            opened = self._over(reader)
            explore = opened.explore
            if explore is None:
                raise no_grades()
            (task,) = self._tasks(opened, [SearchRequest(query, matches=False, grades=True)])
            return explore.grade([(_explored(task)._replace(again=True), hits)])[0]

        return self._computed(grade)

    def _computed(self, function: Callable[[IndexReader], T]) -> T:
        """What a function of the current reader gives, in qbe's own threads alone."""
        with one_blas_thread():
            return self.index.read(function)

    def _first(
        self, reader: IndexReader, requests: Sequence[SearchRequest], execute: Executor | None
    ) -> list[Task]:
        """Tasks with the hits of the first stage."""
        tasks = self._tasks(self._over(reader), requests)
        ranked = self._carried_out(FIRST, tasks, execute, None)
        return [task._replace(hits=hits) for task, hits in zip(tasks, ranked, strict=True)]

    def _run_second(self, reader: IndexReader, request: SearchRequest, first: Task) -> Ranking:
        """The reranked ranking; where the index has moved on since the first one, over its newest commit."""
        if first.opened is not self._over(reader):
            (first,) = self._first(reader, [request], self._execute)
        (hits,) = self._carried_out(RERANKED, [first], self._execute, None)
        return self._finished(first._replace(hits=hits, again=True), RERANKED, is_final=True)

    def _carried_out(
        self, stage: str, tasks: Sequence[Task], execute: Executor | None, progress: Progress | None
    ) -> Sequence[list[Hit]]:
        """The hits of a stage: by the executor where there is one, else of all tasks together."""
        batch: Batch = self.first_stage if stage == FIRST else lambda some: self.rerank(some, progress)
        if execute is None:
            return batch(tasks)
        return [execute(stage, batch, task) for task in tasks]

    def first_stage(self, tasks: Sequence[Task]) -> list[list[Hit]]:
        """The first stage for tasks, whatever their depth, filter or pool: for each the best ``depth``
        papers, or all candidates of a query that grades rank.
        """

        def ranked(some: Sequence[Task]) -> list[list[Hit]]:
            opened, depth, explain = some[0].opened, some[0].depth, some[0].request.explain
            if some[0].explores:
                assert opened.explore is not None
                return opened.explore.rank([_explored(task) for task in some], depth, explain=explain)
            rankings = [task.ranking for task in some]
            return rank(opened.first_stage, opened.reader, rankings, depth, explain=explain)

        return _in_groups(
            tasks, lambda task: (id(task.opened), task.depth, task.request.explain, task.explores), ranked
        )

    def rerank(self, tasks: Sequence[Task], progress: Progress | None = None) -> list[list[Hit]]:
        """The second stage for tasks that have the hits of the first one."""

        def reranked(some: Sequence[Task]) -> list[list[Hit]]:
            opened, explain, hits = some[0].opened, some[0].request.explain, [task.hits for task in some]
            if some[0].explores:
                return self._again(some, progress)
            assert self._second is not None
            rankings = [task.ranking for task in some]
            ranked = self._second.rerank(opened.reader, rankings, hits, explain=explain, progress=progress)
            return [_without_unwanted_grades(task, each) for task, each in zip(some, ranked, strict=True)]

        return _in_groups(
            tasks, lambda task: (id(task.opened), task.request.explain, task.explores), reranked
        )

    def _again(self, tasks: Sequence[Task], progress: Progress | None) -> list[list[Hit]]:
        """The hits of tasks that grades rank, the best of them graded again."""
        ranked = []
        for task in tasks:
            explore, explain = task.opened.explore, task.request.explain
            assert explore is not None
            ranked += explore.rank([_explored(task)._replace(again=True)], task.depth, explain=explain)
            if progress:
                progress(min(self._regraded, len(ranked[-1])) * len(task.graded_by or ()))
        return ranked

    def _tasks(self, opened: _Opened, requests: Sequence[SearchRequest]) -> list[Task]:
        """Tasks of requests: their queries labelled and encoded, once, as far as anything needs it."""
        prepared = self.prepared(requests)
        varieties = [self._variety(opened, request) for request in requests]
        has_vectors = opened.reader.manifest.dense is not None
        second = self._second
        stages = getattr(opened.first_stage, "needs_vectors", False) or (
            second is not None and second.needs_vectors
        )
        graded = [
            opened.explore is not None and (each.query.is_by_facets or request.grades or bool(variety.bounds))
            for request, each, variety in zip(requests, prepared, varieties, strict=True)
        ]
        needed = [
            stages or (has_vectors and (request.matches or by_grades))
            for request, by_grades in zip(requests, graded, strict=True)
        ]
        encoding = [each for each, need in zip(prepared, needed, strict=True) if need]
        encoded = iter(encode_queries(self.index, opened.reader, encoding, self._workers))
        tasks = []
        for request, each, need, by_grades, variety in zip(
            requests, prepared, needed, graded, varieties, strict=True
        ):
            query = next(encoded) if need else each
            selected = opened.filters.for_query(request.filter, query.query)
            ranking = RankingRequest(query.query, query.aspects, request.pool, selected.selection)
            graded_by = graded_papers(query) if by_grades else None
            # The same for few hits as for many, and with a reranker as without one.
            depth = max(request.k, RERANK_DEPTH if second is None else second.depth)
            tasks.append(Task(opened, request, query, ranking, selected, graded_by, depth, variety))
        return tasks

    def _variety(self, opened: _Opened, request: SearchRequest) -> Variety:
        """How the list of a request is put together; raises UsageError where that needs other stages."""
        variety, reranker = request.variety, self.stages.reranker
        if variety.diversity is None:
            variety = replace(variety, diversity=reranker.diversity if isinstance(reranker, Grades) else 0.0)
        if opened.explore is None and (variety.mix or variety.bounds or variety.diversity):
            raise no_grades()
        if variety.mix and not opened.explore_ranks:
            raise UsageError(
                f"expected a mix with another `rerank` than {self.stages.reranker.name}; drop one"
            )
        return variety

    def prepared(self, requests: Sequence[SearchRequest]) -> list[PreparedQuery]:
        """The queries of requests, their papers labelled as they need."""

        def prepare(some: Sequence[SearchRequest]) -> list[PreparedQuery]:
            label_all = _labels_all(some[0])
            queries = [request.query for request in some]
            return prepare_queries(
                self.index, queries, self._workers, labels=some[0].labels, label_all=label_all
            )

        return _in_groups(requests, lambda request: (request.labels, _labels_all(request)), prepare)

    def _finished(self, task: Task, stage: str, *, is_final: bool, rerank: bool = True) -> Ranking:
        (ranking,) = self._all_finished([task], [stage], rerank=rerank)
        return ranking._replace(is_final=is_final)

    def _all_finished(self, tasks: Sequence[Task], stages: Sequence[str], *, rerank: bool) -> list[Ranking]:
        """Rankings of the best ``k`` hits, with matches and grades where these are asked for; ``rerank`` says
        whether reranking was.
        """

        def matched(some: Sequence[Task]) -> list[list[Hit]]:
            reader, hits = some[0].opened.reader, [list(task.hits[: task.request.k]) for task in some]
            if not some[0].request.matches or reader.manifest.dense is None:
                return hits
            return add_matches(reader, self._workers, [task.prepared.aspects for task in some], hits)

        tasks = [task._replace(hits=_varied(task)) for task in tasks]
        hits = _in_groups(tasks, lambda task: (id(task.opened), task.request.matches), matched)
        hits = _graded(tasks, hits)
        counted = [tuple(_counts(task)) for task in tasks]
        return [
            Ranking(
                stage,
                task.prepared.query,
                query_hits,
                task.selected,
                True,
                tuple(self._notes(task, stage, counts, rerank=rerank)),
                counts,
            )
            for task, stage, query_hits, counts in zip(tasks, stages, hits, counted, strict=True)
        ]

    def _notes(self, task: Task, stage: str, counts: Sequence[str], *, rerank: bool) -> Iterator[str]:
        if note := describe([task.selected], None):
            yield note
        yield from counts
        query = task.request.query
        if rerank and self._second is not None and self.leaves_out(query.aspects, lambda: query):
            yield not_reranked(self.stages)
        if stage == RERANKED and isinstance(self.stages.reranker, LanguageModel):
            best = task.hits[: self.stages.reranker.depth]
            if missing := [hit.paper_id for hit in best if hit.grades is None]:
                yield f"{self.stages.reranker.model} gave no grades for {', '.join(missing)}"

    def _over(self, reader: IndexReader) -> _Opened:
        """What searches a commit of the index; opened again when the index has moved on."""
        with self._opening:
            if self._opened is None or self._opened.reader is not reader:
                stage = open_first_stage(self.stages.first_stage, reader, self._workers)
                explore = open_explore_stage(self.index, reader, stage, self._workers, self._open_regrader)
                ranks = explore is not None and not isinstance(self.stages.reranker, LanguageModel)
                self._opened = _Opened(reader, stage, explore, ranks, FilterCache(reader))
            return self._opened


def not_reranked(stages: Stages) -> str:
    """What to say of a query that the reranker does not take.

    >>> from qbe.search.stages import Fused, Projections
    >>> not_reranked(Fused() >> Projections())
    'not reranked, since projections take queries with a facet'
    """
    name = "joint grades" if stages.reranker.name == "cross-encoder" else stages.reranker.name
    return f"not reranked, since {name} take queries with a facet"


def check_index(index: object) -> None:
    """Raise TypeError for what is no `Index`."""
    if not isinstance(index, Index):
        raise TypeError(
            f"expected a qbe.Index, found {type(index).__name__}; open one with qbe.open_index(folder)"
        )


def _checked(stages: object) -> Stages:
    if not isinstance(stages, Stages):
        return Stages(stages)  # a first stage alone
    return stages


def _in_groups(
    items: Sequence[S], key: Callable[[S], object], function: Callable[[Sequence[S]], Sequence[T]]
) -> list[T]:
    """What a function gives for items, called for those of one key together; in the order of the items."""
    places: dict[object, list[int]] = {}
    for place, item in enumerate(items):
        places.setdefault(key(item), []).append(place)
    results: dict[int, T] = {}
    for group in places.values():
        results.update(zip(group, function([items[place] for place in group]), strict=True))
    return [results[place] for place in range(len(items))]


def _explored(task: Task) -> ExploreRequest:
    assert task.graded_by is not None
    return ExploreRequest(task.ranking, task.graded_by, task.variety, task.again)


def _varied(task: Task) -> list[Hit]:
    """The hits of a task as their list is to be; those that grades rank are so already."""
    explore, variety = task.opened.explore, task.variety
    if explore is None or task.explores:
        return list(task.hits)
    hits = task.hits
    if variety.bounds:
        (graded,) = _filled([task], [[hit for hit in hits if hit.grades is None]], [hits])
        hits = [hit for hit in graded if variety.admits(hit.grades or {})]
    return explore.diversified(hits, variety.diversity or 0.0)


def _counts(task: Task) -> Iterator[str]:
    """What to say of the numbers of hits of a task."""
    if task.explores:
        note = likely(task.prepared.query, task.variety, task.hits, task.request.k)
        yield from () if note is None else (note,)
    if task.variety.bounds:
        yield f"papers with such grades: {len(task.hits) or 'none'}"


def _labels_all(request: SearchRequest) -> bool:
    """Whether all sentences of the query's papers need labels."""
    return request.explain or request.grades or bool(request.variety.bounds)


def _without_unwanted_grades(task: Task, hits: list[Hit]) -> list[Hit]:
    """Reranked hits without the grades that they were ranked by, unless these are the query's and wanted; a
    language model's stay.
    """
    is_wanted = task.request.grades or bool(task.variety.bounds)
    if not task.opened.explore_ranks or (is_wanted and task.prepared.query.is_single):
        return hits
    return [hit._replace(grades=None) for hit in hits]


def _graded(tasks: Sequence[Task], hits: Sequence[list[Hit]]) -> list[list[Hit]]:
    """The hits of tasks; where grades are asked for, with grades in all facets, those of them that nothing
    graded yet.
    """
    return _filled(tasks, [_ungraded(task, each) for task, each in zip(tasks, hits, strict=True)], hits)


def _filled(
    tasks: Sequence[Task], ungraded: Sequence[Sequence[Hit]], hits: Sequence[Sequence[Hit]]
) -> list[list[Hit]]:
    """The hits of tasks, with grades in place of those of them that are ``ungraded``. Of a query that the
    reranker graded, these are below the best, which alone it graded again.
    """
    explore = tasks[0].opened.explore if tasks else None  # all are of one commit
    if explore is None:
        return [list(each) for each in hits]
    asked = [
        (_explored(task)._replace(again=task.again and len(some) == len(each)), some)
        for task, some, each in zip(tasks, ungraded, hits, strict=True)
        if some
    ]
    graded = iter([hit for each in explore.grade(asked) for hit in each])
    return [
        [next(graded) if some and hit.grades is None else hit for hit in each]
        for each, some in zip(hits, ungraded, strict=True)
    ]


def _ungraded(task: Task, hits: Sequence[Hit]) -> list[Hit]:
    """The hits that grades are asked for and lacking of; none where a language model gave some."""
    missing = [hit for hit in hits if hit.grades is None]
    is_partly = len(missing) < len(hits) and not task.opened.explore_ranks
    return missing if task.request.grades and not is_partly else []

"""A search as every front end runs it: the query prepared once, the first stage once, then reranking."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from qbe.errors import FacetNotFoundError, UsageError
from qbe.index.index import Index, IndexReader
from qbe.models.pooling import EncodedAspect, PaperVectors
from qbe.query import Aspect, Query, TopicAspect, Variety
from qbe.search.explain import add_matches
from qbe.search.explore import ExploreRequest, ExploreStage, likely, open_explore_stage
from qbe.search.filters import FilterCache, FilterResult, PaperFilter, describe
from qbe.search.first_stages import FirstStage, open_first_stage
from qbe.search.grading import GradedQuery, Regrader, no_grades
from qbe.search.opening import RerankerOpener, open_rerank_stage
from qbe.search.questions import is_question
from qbe.search.rank import Progress, RankingRequest, RerankStage, rank
from qbe.search.request import SearchRequest
from qbe.search.stages import RERANK_DEPTH, Grades, LanguageModel, Stages, default_stages
from qbe.types import Facet, Hit, Paper
from qbe.util.work import Closing, Workers, one_blas_thread

FIRST, RERANKED = "first-stage", "reranked"  # stages that a ranking may have gone through


class Ranking(NamedTuple):
    """Hits of a query, best first, after a ``stage``; ``counts`` are the notes that count hits."""

    stage: str
    query: Query
    hits: list[Hit]
    selected: FilterResult
    is_final: bool
    notes: tuple[str, ...] = ()
    counts: tuple[str, ...] = ()


class Opened(NamedTuple):
    """What searches an index as of one reader; ``explore_ranks``: grades rank queries of several facets."""

    reader: IndexReader
    first_stage: FirstStage
    explore: ExploreStage | None
    explore_ranks: bool
    filters: FilterCache


class Task(NamedTuple):
    """A request on its way through the stages; ``again``: it went through the second one."""

    opened: Opened
    request: SearchRequest
    ranking: RankingRequest
    selected: FilterResult
    explored: ExploreRequest | None  # where grades rank it or are asked for
    depth: int
    variety: Variety
    hits: Sequence[Hit] = ()
    again: bool = False

    @property
    def explores(self) -> bool:
        """True if grades rank the query."""
        return self.opened.explore_ranks and self.ranking.query.is_by_facets


# Carries out a stage for several tasks, whose results do not depend on each other; an executor does so for
# one task, perhaps together with others of the same stage.
Batch = Callable[[Sequence[Task]], Sequence[list[Hit]]]
Executor = Callable[[str, Batch, Task], list[Hit]]


class SearchSession(Closing):
    """Searches an index by `Stages`, for the command line, the page, HTTP, MCP and Python.

    Models and threads stay open until it is closed, which leaves the index open. Several threads may use it.

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
        """Open the ``stages`` (default: `qbe.search.stages.default_stages`) over an index.

        ``executor`` carries out stages, ``open_reranker`` opens cross-encoders elsewhere, and ``chosen`` says
        whether a user asked for the reranker (default: whether stages are given).
        """
        check_index(index)
        self.index = index
        if stages is None:
            self.stages = default_stages(index)
        else:
            self.stages = stages if isinstance(stages, Stages) else Stages(stages)
        self._chosen = stages is not None if chosen is None else chosen
        self._execute = executor
        self._workers = Workers(index.threads)
        self._opening = threading.Lock()
        self._opened: Opened | None = None
        reranker = self.stages.reranker
        self._regraded = (reranker.joint or 0) if isinstance(reranker, Grades) else 0
        self._regrader = None
        if self._regraded:
            from qbe.search.rerankers import JointGrader

            self._regrader = Regrader(JointGrader(workers=self._workers), self._regraded)
        parts = reranker, index, self._workers, self._regrader, open_reranker
        try:
            with index.reading() as reader:
                # Side by side: Java opens the postings while Python reads what reranks.
                opening: list[Callable[[], Any]] = [
                    partial(open_rerank_stage, *parts),
                    partial(self._over, reader),
                ]
                second, _ = self._workers.map(lambda open_part: open_part(), opening)
                self._second: RerankStage | None = second
        except BaseException:
            self.close()
            raise

    def with_first_stage(self, first_stage: Any, executor: Executor | None = None) -> SearchSession:
        """Open another first stage over the same models and threads, which are closed with either session."""
        other = copy.copy(self)
        other.stages, other._execute = replace(self.stages, first_stage=first_stage), executor
        other._opening, other._opened = threading.Lock(), None
        with self.index.reading() as reader:
            other._over(reader)
        return other

    def close(self) -> None:
        self._workers.close()

    def run(self, request: SearchRequest, *, rerank: bool = True) -> Iterator[Ranking]:
        """Yield the first stage's ranking, then, where something reranks the query, the reranked one."""
        reranks = rerank and self.reranks(request.query)
        with one_blas_thread(), self.index.reading() as reader:
            tasks = self._first(reader, [request], self._execute)
            (ranking,) = self._finished(tasks, rerank=rerank)
        yield ranking._replace(is_final=not reranks)
        if not reranks:
            return
        with one_blas_thread(), self.index.reading() as reader:
            if tasks[0].opened is not self._over(reader):  # the index has moved on
                tasks = self._first(reader, [request], self._execute)
            (ranking,) = self._finished(self._stage(RERANKED, tasks, self._execute), rerank=True)
        yield ranking

    def search(self, request: SearchRequest, *, rerank: bool = True) -> Ranking:
        """Return the last ranking of `run`."""
        return self.batch([request], rerank=rerank, execute=self._execute)[0]

    def batch(
        self,
        requests: Sequence[SearchRequest],
        progress: Progress | None = None,
        *,
        rerank: bool = True,
        execute: Executor | None = None,
    ) -> list[Ranking]:
        """Return the last ranking of `run` for each request, in less time."""
        with one_blas_thread(), self.index.reading() as reader:
            tasks = self._first(reader, requests, execute)
            again = [place for place, task in enumerate(tasks) if rerank and self.reranks(task.request.query)]
            reranked = self._stage(RERANKED, [tasks[place] for place in again], execute, progress)
            for place, task in zip(again, reranked, strict=True):
                tasks[place] = task
            return self._finished(tasks, rerank=rerank)

    def reranks(self, query: Query) -> bool:
        """True if the reranker takes one of a query's aspects, or grades the best hits again."""
        aspects = [TopicAspect(each.paper.paper_id, each.facet, each.positions) for each in query.aspects]
        return self.rerank_pairs(aspects, 1) > 0

    def takes(self, aspects: Iterable[Aspect | TopicAspect]) -> bool:
        """True if there is a reranker that takes one of a query's aspects."""
        return self._second is not None and any(self._second.reranks(aspect.facet) for aspect in aspects)

    def leaves_out(self, aspects: Iterable[Aspect | TopicAspect], load: Callable[[], Query]) -> bool:
        """True if users should be told that a query is not reranked; a question only if asked."""
        return not self.takes(aspects) and (self._chosen or not is_question(load()))

    def rerank_pairs(self, aspects: Sequence[TopicAspect], papers: int) -> int:
        """Return the most pairs that the reranker will score for a query of these aspects."""
        if self._second is None:
            return 0
        facets = [aspect.facet for aspect in aspects]
        if len(facets) > 1 and None not in facets:
            with self.index.reading() as reader:
                if self._over(reader).explore_ranks:
                    return min(self._regraded, papers) * len({aspect.paper_id for aspect in aspects})
        return min(self._second.depth, papers) * sum(map(self._second.reranks, facets))

    def selected(self, query: Query, filter: PaperFilter | None) -> FilterResult:
        """Apply a filter for a query; raises what `run` does."""
        with self.index.reading() as reader:
            return self._over(reader).filters.for_query(filter, query)

    @property
    def can_grade(self) -> bool:
        """True if the index's encoder has a grade model."""
        with self.index.reading() as reader:
            return self._over(reader).explore is not None

    @property
    def regrades(self) -> bool:
        """True if the best papers of a query are graded again, where there is a grade model."""
        return self._regraded > 0

    def grade(self, query: Query, hits: Sequence[Hit]) -> list[Hit]:
        """Add grades to hits of a query, however they were found; raises UsageError without a grade model."""
        for hit in hits:
            if not isinstance(hit, Hit):
                raise TypeError(f"expected qbe.Hit objects to grade, found {type(hit).__name__}")
        with one_blas_thread(), self.index.reading() as reader:
            opened = self._over(reader)
            if opened.explore is None:
                raise no_grades()
            (task,) = self._tasks(opened, [SearchRequest(query, matches=False, grades=True)])
            assert task.explored is not None
            return opened.explore.grade([(task.explored._replace(again=True), hits)])[0]

    def prepared(self, requests: Sequence[SearchRequest]) -> list[tuple[Query, dict[int, PaperVectors]]]:
        """Label papers as requests need; return queries, with the vectors that labelling made by id()."""
        papers = {
            (id(aspect.paper), request.labels): aspect.paper
            for request in requests
            for aspect in request.query.aspects
            if request.labels_all or aspect.facet is not None
        }
        label = self.index.label_and_encode
        results = self._workers.map(lambda key: label(papers[key], key[1]), list(papers))
        labelled = dict(zip(papers, results, strict=True))
        prepared = []
        for request in requests:
            aspects: list[Aspect] = []
            vectors: dict[int, PaperVectors] = {}
            for aspect in request.query.aspects:
                result = labelled.get((id(aspect.paper), request.labels))
                if result is not None and (request.labels_all or aspect.facet is not None):
                    aspect = replace(aspect, paper=result.paper)
                if result is not None and result.vectors is not None:
                    vectors[id(aspect.paper)] = result.vectors
                aspects.append(aspect)
                aspect.selected_positions()
            prepared.append((Query.of(*aspects), vectors))
        return prepared

    def _first(
        self, reader: IndexReader, requests: Sequence[SearchRequest], execute: Executor | None
    ) -> list[Task]:
        return self._stage(FIRST, self._tasks(self._over(reader), requests), execute)

    def _stage(
        self, stage: str, tasks: Sequence[Task], execute: Executor | None, progress: Progress | None = None
    ) -> list[Task]:
        """Tasks with the hits of a stage: by the executor if there is one, else of all of them together."""
        batch: Batch = self.first_stage if stage == FIRST else partial(self.rerank, progress=progress)
        ranked = batch(tasks) if execute is None else [execute(stage, batch, task) for task in tasks]
        again = stage == RERANKED
        return [task._replace(hits=hits, again=again) for task, hits in zip(tasks, ranked, strict=True)]

    def _tasks(self, opened: Opened, requests: Sequence[SearchRequest]) -> list[Task]:
        prepared, second = self.prepared(requests), self._second
        varieties = [self._variety(opened, request) for request in requests]
        has_vectors = opened.reader.manifest.dense is not None
        stages_need = any(getattr(stage, "needs_vectors", False) for stage in (opened.first_stage, second))
        graded: list[bool] = []
        papers: dict[int, tuple[Paper, PaperVectors | None]] = {}
        for request, (query, vectors), variety in zip(requests, prepared, varieties, strict=True):
            is_graded = query.is_by_facets or request.grades or bool(variety.bounds)
            graded.append(opened.explore is not None and is_graded)
            if stages_need or (has_vectors and (request.matches or graded[-1])):
                for aspect in query.aspects:
                    papers[id(aspect.paper)] = aspect.paper, vectors.get(id(aspect.paper))

        def encode(work: tuple[Paper, PaperVectors | None]) -> PaperVectors:
            paper, made = work
            return opened.reader.stored_vectors(paper) or made or self.index.encoder.encode_paper(paper)

        encoded = dict(zip(papers, self._workers.map(encode, list(papers.values())), strict=True))
        # The same for few hits as for many, and with a reranker as without one.
        depth = RERANK_DEPTH if second is None else second.depth
        tasks = []
        ready = zip(requests, prepared, varieties, graded, strict=True)
        for request, (query, _), variety, is_graded in ready:
            aspects = [EncodedAspect.of(each, encoded.get(id(each.paper))) for each in query.aspects]
            selected = opened.filters.for_query(request.filter, query)
            ranking = RankingRequest(query, aspects, request.pool, selected.selection)
            papers_of = _graded_queries(query, encoded) if is_graded else ()
            explored = ExploreRequest(ranking, papers_of, variety) if is_graded else None
            tasks.append(Task(opened, request, ranking, selected, explored, max(request.k, depth), variety))
        return tasks

    def _variety(self, opened: Opened, request: SearchRequest) -> Variety:
        """How the list of a request is put together; raises UsageError where that needs other stages."""
        variety, reranker = request.variety, self.stages.reranker
        if variety.diversity is None:
            variety = replace(variety, diversity=reranker.diversity if isinstance(reranker, Grades) else 0.0)
        if opened.explore is None and (variety.mix or variety.bounds or variety.diversity):
            raise no_grades()
        if variety.mix and not opened.explore_ranks:
            raise UsageError(f"expected a mix with another `rerank` than {reranker.name}; drop one")
        return variety

    def first_stage(self, tasks: Sequence[Task]) -> list[list[Hit]]:
        """Rank the best ``depth`` papers for each task, or all candidates where grades rank the query."""
        ranked: dict[int, list[Hit]] = {}
        for some in _groups(tasks, lambda task: (id(task.opened), task.depth, task.request.explain)):
            opened, depth, explain = some[0].opened, some[0].depth, some[0].request.explain
            if some[0].explores:
                assert opened.explore is not None
                explored = [task.explored for task in some if task.explored]
                found = opened.explore.rank(explored, depth, explain=explain)
            else:
                rankings = [task.ranking for task in some]
                found = rank(opened.first_stage, opened.reader, rankings, depth, explain=explain)
            ranked |= zip(map(id, some), found, strict=True)
        return [ranked[id(task)] for task in tasks]

    def rerank(self, tasks: Sequence[Task], progress: Progress | None = None) -> list[list[Hit]]:
        """Rerank the hits of tasks, or grade the best ones again where grades rank the query."""
        ranked: dict[int, list[Hit]] = {}
        for some in _groups(tasks, lambda task: (id(task.opened), task.request.explain)):
            opened, explain = some[0].opened, some[0].request.explain
            if some[0].explores:
                assert opened.explore is not None
                for task in some:
                    assert task.explored is not None
                    again = task.explored._replace(again=True)
                    (hits,) = opened.explore.rank([again], task.depth, explain=explain)
                    ranked[id(task)] = hits
                    if progress:
                        progress(min(self._regraded, len(hits)) * len(again.papers))
                continue
            assert self._second is not None
            rankings, candidates = [task.ranking for task in some], [task.hits for task in some]
            found = self._second.rerank(
                opened.reader, rankings, candidates, explain=explain, progress=progress
            )
            for task, hits in zip(some, found, strict=True):
                # Grades that papers were ranked by are shown only where they are the query's and asked for.
                wanted = (task.request.grades or task.variety.bounds) and task.ranking.query.is_single
                drop = opened.explore_ranks and not wanted
                ranked[id(task)] = [hit._replace(grades=None) for hit in hits] if drop else hits
        return [ranked[id(task)] for task in tasks]

    def _finished(self, tasks: Sequence[Task], *, rerank: bool) -> list[Ranking]:
        tasks = [task._replace(hits=_varied(task)) for task in tasks]
        hits = [list(task.hits[: task.request.k]) for task in tasks]
        if tasks and tasks[0].opened.reader.manifest.dense is not None:
            places = [place for place, task in enumerate(tasks) if task.request.matches]
            aspects = [tasks[place].ranking.aspects for place in places]
            reader, some = tasks[0].opened.reader, [hits[place] for place in places]
            for place, each in zip(places, add_matches(reader, self._workers, aspects, some), strict=True):
                hits[place] = each
        ungraded: list[list[Hit]] = []
        for task, each in zip(tasks, hits, strict=True):
            missing = [hit for hit in each if hit.grades is None]
            is_partly = len(missing) < len(each) and not task.opened.explore_ranks  # by a language model
            ungraded.append(missing if task.request.grades and not is_partly else [])
        rankings = []
        for task, each in zip(tasks, _with_grades(tasks, hits, ungraded), strict=True):
            query, counts = task.request.query, list[str]()
            if task.explores:
                counts += filter(None, [likely(task.ranking.query, task.variety, task.hits, task.request.k)])
            if task.variety.bounds:
                counts.append(f"papers with such grades: {len(task.hits) or 'none'}")
            notes = [*filter(None, [describe([task.selected], None)]), *counts]
            is_left_out = not self.takes(query.aspects) and (self._chosen or not is_question(query))
            if rerank and self._second is not None and is_left_out:
                notes.append(not_reranked(self.stages))
            if task.again and isinstance(self.stages.reranker, LanguageModel):
                best = task.hits[: self.stages.reranker.depth]
                if lacking := [hit.paper_id for hit in best if hit.grades is None]:
                    notes.append(f"{self.stages.reranker.model} gave no grades for {', '.join(lacking)}")
            stage = RERANKED if task.again else FIRST
            said = tuple(notes), tuple(counts)
            rankings.append(Ranking(stage, task.ranking.query, each, task.selected, True, *said))
        return rankings

    def _over(self, reader: IndexReader) -> Opened:
        with self._opening:
            if self._opened is None or self._opened.reader is not reader:
                stage = open_first_stage(self.stages.first_stage, reader, self._workers)
                explore = open_explore_stage(self.index, reader, stage, self._workers, self._regrader)
                ranks = explore is not None and not isinstance(self.stages.reranker, LanguageModel)
                self._opened = Opened(reader, stage, explore, ranks, FilterCache(reader))
            return self._opened


def not_reranked(stages: Stages) -> str:
    name = "joint grades" if stages.reranker.name == "cross-encoder" else stages.reranker.name
    return f"not reranked, since {name} take queries with a facet"


def check_index(index: object) -> None:
    """Raise TypeError for anything but an `Index`."""
    if not isinstance(index, Index):
        raise TypeError(
            f"expected a qbe.Index, found {type(index).__name__}; open one with qbe.open_index(folder)"
        )


def _groups(tasks: Sequence[Task], key: Callable[[Task], Hashable]) -> Iterable[list[Task]]:
    """Tasks with equal keys that grades rank, or none of them."""
    groups: dict[Hashable, list[Task]] = {}
    for task in tasks:
        groups.setdefault((task.explores, key(task)), []).append(task)
    return groups.values()


def _graded_queries(query: Query, encoded: Mapping[int, PaperVectors]) -> list[GradedQuery]:
    """Each paper of a query with its vectors; raises FacetNotFoundError for one without any facet."""
    papers = {aspect.paper.paper_id: aspect.paper for aspect in reversed(query.aspects)}
    for paper in papers.values():
        if not any(paper.facet_positions(facet)[0] for facet in Facet):
            raise FacetNotFoundError(
                f"expected paper {paper.paper_id} to have sentences of a facet to be graded by, found none; "
                "have them predicted (`labels` predicted)"
            )
    return [GradedQuery(paper, encoded[id(paper)]) for paper in reversed(papers.values())]


def _varied(task: Task) -> list[Hit]:
    """The hits of a task within the bounds of its grades, varied, as those that grades rank are already."""
    explore, variety, hits = task.opened.explore, task.variety, list(task.hits)
    if explore is None or task.explores:
        return hits
    if variety.bounds:
        (hits,) = _with_grades([task], [hits], [[hit for hit in hits if hit.grades is None]])
        hits = [hit for hit in hits if variety.admits(hit.grades or {})]
    return explore.diversified(hits, variety.diversity or 0.0)


def _with_grades(
    tasks: Sequence[Task], hits: Sequence[list[Hit]], ungraded: Sequence[Sequence[Hit]]
) -> list[list[Hit]]:
    """Grade the ``ungraded`` ones of hits: those of a query that was reranked in part are below its best."""
    explore = tasks[0].opened.explore if tasks else None  # all are of one reader
    if explore is None:
        return list(hits)
    asked = [
        (task.explored._replace(again=task.again and len(some) == len(each)), some)
        for task, some, each in zip(tasks, ungraded, hits, strict=True)
        if some and task.explored
    ]
    graded = iter([hit for each in explore.grade(asked) for hit in each])
    return [
        [next(graded) if some and hit.grades is None else hit for hit in each]
        for each, some in zip(hits, ungraded, strict=True)
    ]

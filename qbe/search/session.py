"""A search as every front end runs it: the query prepared once, the first stage once, then reranking."""

import copy
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

from qbe.errors import FacetNotFoundError, UsageError, check_type
from qbe.index.index import Index
from qbe.index.reader import IndexReader
from qbe.models.encoding import EncodedAspect, PaperVectors
from qbe.query import Aspect, Query, TopicAspect, Variety
from qbe.search import grading
from qbe.search.explore import GRADING, ExploreStage, likely, open_explore_stage
from qbe.search.filters import FilterCache, FilterResult, PaperFilter, describe
from qbe.search.first_stages import FirstStage, open_first_stage
from qbe.search.present import add_matches
from qbe.search.queries import is_question
from qbe.search.rank import SMALL_POOL, GradedQuery, Progress, RankingRequest, RerankStage, rank
from qbe.search.request import SearchRequest
from qbe.search.rerankers import JointGrader, open_rerank_stage
from qbe.search.stages import RERANK_DEPTH, Fused, Grades, LanguageModel, Stages, default_stages
from qbe.types import Hit, Paper
from qbe.util.work import Closing, Workers, one_blas_thread

FIRST, GRADED, RERANKED = "first-stage", "graded", "reranked"  # stages that a ranking may have gone through


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
    depth: int
    explores: bool  # grades rank it
    hits: Sequence[Hit] = ()
    again: bool = False


class SearchSession(Closing):
    """Searches an index by `Stages`, for the command line, the page, HTTP, MCP and Python.

    Models and threads stay open until it is closed, which leaves the index open. Several threads may use it.
    """

    def __init__(self, index: Index, stages: Stages | None = None, *, chosen: bool | None = None) -> None:
        """Open the default ``stages`` or others; ``chosen`` says whether a user asked for the reranker."""
        check_index(index)
        self.index = index
        self._chosen = stages is not None if chosen is None else chosen
        if not isinstance(stages, Stages):
            stages = default_stages(index) if stages is None else Stages(stages)
        self.stages, reranker = stages, stages.reranker
        self._workers, self._opening = Workers(index.threads), threading.Lock()
        self._opened: Opened | None = None
        self.regrades, self._regrader = (isinstance(reranker, Grades) and reranker.joint) or 0, None
        if self.regrades:
            self._regrader = grading.Regrader(JointGrader(workers=self._workers), self.regrades)
        parts = (reranker, index, self._workers, self._regrader)
        try:
            # Side by side: Java opens the postings while Python reads what reranks.
            opening: list[Callable[[], Any]] = [partial(open_rerank_stage, *parts), self._over_index]
            second, _ = self._workers.map(lambda part: part(), opening)
            self._second: RerankStage | None = second
            self._graded: RerankStage | None = None  # without what grades the best again, which takes longer
            if second is not None and isinstance(second.reranker, grading.GradedReranker) and self.regrades:
                plain = replace(second.reranker, regrader=None)
                self._graded = RerankStage(plain, reranker.depth, reranker.weight)
        except BaseException:
            self.close()
            raise

    def with_first_stage(self, first_stage: Any) -> "SearchSession":
        """Open another first stage over the same models and threads, which are closed with either session."""
        other = copy.copy(self)
        other.stages = replace(self.stages, first_stage=first_stage)
        other._opening, other._opened = threading.Lock(), None
        other._over_index()
        return other

    def close(self) -> None:
        self._workers.close()

    def run(self, request: SearchRequest, *, rerank: bool = True) -> Iterator[Ranking]:
        """Yield the first stage's ranking, then, where something reranks the query, the reranked one.

        Before it comes the ranking by grades, where a cross-encoder grades the best again.
        """
        reranks = rerank and self.reranks(request.query)
        with one_blas_thread():
            tasks = self._stage(FIRST, self._tasks([request]))
            (ranking,) = self._finished(tasks, rerank=rerank)
        yield ranking._replace(is_final=not reranks)
        if not reranks:
            return
        with one_blas_thread():
            if tasks[0].opened is not self._over_index():  # the index has moved on
                tasks = self._stage(FIRST, self._tasks([request]))
        for stage in (GRADED, RERANKED) if self._graded and not tasks[0].explores else (RERANKED,):
            with one_blas_thread():
                (ranking,) = self._finished(self._stage(stage, tasks), rerank=True)
            yield ranking._replace(stage=stage, is_final=stage == RERANKED)

    def search(self, request: SearchRequest, *, rerank: bool = True) -> Ranking:
        """Return the last ranking of `run`."""
        return self.batch([request], rerank=rerank)[0]

    def batch(
        self, requests: Sequence[SearchRequest], progress: Progress | None = None, *, rerank: bool = True
    ) -> list[Ranking]:
        """Return the last ranking of `run` for each request, in less time; equal neighbours as one."""
        several = [(request, len(list(equal))) for request, equal in groupby(requests)]
        with one_blas_thread():
            tasks = self._stage(FIRST, self._tasks([request for request, _ in several]), progress)
            again = [place for place, task in enumerate(tasks) if rerank and self.reranks(task.request.query)]
            reranked = self._stage(RERANKED, [tasks[place] for place in again], progress)
            for place, task in zip(again, reranked, strict=True):
                tasks[place] = task
            rankings = self._finished(tasks, rerank=rerank)
        return [each for each, (_, count) in zip(rankings, several, strict=True) for _ in range(count)]

    def reranks(self, query: Query) -> bool:
        """True if the reranker takes one of a query's aspects, or grades the best hits again."""
        second, aspects = self._second, query.aspects
        if second is None or (query.is_by_facets and self._over_index().explore_ranks):
            return second is not None and self.regrades > 0
        if second.needs_labels and any(not each.facet for each in aspects) and is_question(query):
            return False  # what a question names has no facets to be graded by
        return any(map(second.reranks, aspects))

    def rerank_pairs(self, aspects: Sequence[TopicAspect], papers: int) -> int:
        """Return the most pairs that will be scored; grades by several facets count as GRADING."""
        by_facets = len(aspects) > 1 and all(aspect.facet for aspect in aspects)
        if by_facets and self._over_index().explore_ranks:
            again = 0 if self._second is None else min(self.regrades, papers)
            return (GRADING + again) * len({aspect.paper_id for aspect in aspects})
        if self._second is None:
            return 0
        few = len(aspects) > 1 and papers < SMALL_POOL  # ranked among those that a search finds
        most = self._second.depth if few else min(self._second.depth, papers)
        return most * sum(map(self._second.reranks, aspects))

    def selected(self, query: Query, filter: PaperFilter | None) -> FilterResult:
        """Apply a filter for a query; raises what `run` does."""
        return self._over_index().filters.of(filter, query)

    @property
    def can_grade(self) -> bool:
        """True if the index's encoder has a grade model."""
        return self._over_index().explore is not None

    def grade(self, query: Query, hits: Sequence[Hit]) -> list[Hit]:
        """Add grades to hits of a query, however they were found; raises UsageError without a grade model."""
        if not self.can_grade:
            raise grading.no_grades()
        with one_blas_thread():
            (task,) = self._tasks([SearchRequest(query, matches=False, grades=True)])
            assert task.opened.explore is not None
            by = task.ranking.graded_by or _graded_queries(task.ranking.query, {})
            return task.opened.explore.grade(task.ranking._replace(graded_by=by), hits, again=True)

    def _needs_labels(self, request: SearchRequest, aspect: Aspect) -> bool:
        wants_all = request.explain or request.grades or bool(request.variety.bounds)
        second = self._second
        is_graded = second is not None and second.needs_labels and second.reranks(aspect)
        return wants_all or aspect.facet is not None or is_graded

    def prepared(self, requests: Sequence[SearchRequest]) -> tuple[list[Query], dict[int, PaperVectors]]:
        """Label papers as requests need; return queries, and by id() the vectors that labelling made."""
        papers = {
            (id(aspect.paper), request.labels): aspect.paper
            for request in requests
            for aspect in request.query.aspects
            if self._needs_labels(request, aspect)
        }
        results = self._workers.map(
            lambda key: self.index.label_and_encode(papers[key], key[1]), list(papers)
        )
        labelled = dict(zip(papers, results, strict=True))
        queries, vectors = list[Query](), dict[int, PaperVectors]()
        for request in requests:
            aspects = list[Aspect]()
            for aspect in request.query.aspects:
                paper, made = labelled.get((id(aspect.paper), request.labels), (aspect.paper, None))
                if self._needs_labels(request, aspect):
                    aspect = replace(aspect, paper=paper)
                if made is not None:
                    vectors[id(aspect.paper)] = made
                aspects.append(aspect)
                aspect.selected_positions()
            queries.append(Query.of(*aspects))
        return queries, vectors

    def _tasks(self, requests: Sequence[SearchRequest]) -> list[Task]:
        opened, second = self._over_index(), self._second
        (queries, made), ready = self.prepared(requests), []
        has_vectors = opened.reader.manifest.dense is not None
        stages_need = any(getattr(stage, "needs_vectors", False) for stage in (opened.first_stage, second))
        papers: dict[int, Paper] = {}
        for request, query in zip(requests, queries, strict=True):
            variety = self._variety(opened, request)
            wants = query.is_by_facets or bool(variety.bounds)
            wants = wants or (request.grades and all(map(grading.facet_places, query.papers)))
            is_graded = opened.explore is not None and wants
            if stages_need or (has_vectors and (request.matches or is_graded)):
                papers |= {id(aspect.paper): aspect.paper for aspect in query.aspects}
            ready.append((request, query, variety, is_graded))

        def encode(paper: Paper) -> PaperVectors:
            known = opened.reader.stored_vectors(paper) or made.get(id(paper))
            return known or self.index.encoder.encode_paper(paper)

        encoded = dict(zip(papers, self._workers.map(encode, list(papers.values())), strict=True))
        # The same for few hits as for many, and with a reranker as without one.
        depth = RERANK_DEPTH if second is None else second.depth
        tasks = []
        for request, query, variety, is_graded in ready:
            aspects = [EncodedAspect.of(each, encoded.get(id(each.paper))) for each in query.aspects]
            selected = opened.filters.of(request.filter, query)
            by = _graded_queries(query, encoded) if is_graded else ()
            ranking = RankingRequest(query, aspects, request.pool, selected.selection, by, variety)
            explores = opened.explore_ranks and query.is_by_facets
            tasks.append(Task(opened, request, ranking, selected, max(request.k, depth), explores))
        return tasks

    def _variety(self, opened: Opened, request: SearchRequest) -> Variety:
        """How the list of a request is put together; raises UsageError where that needs other stages."""
        variety, reranker = request.variety, self.stages.reranker
        if variety.diversity is None:
            variety = replace(variety, diversity=reranker.diversity if isinstance(reranker, Grades) else 0.0)
        if opened.explore is None and (variety.mix or variety.bounds or variety.diversity):
            raise grading.no_grades()
        if variety.mix and not opened.explore_ranks:
            raise UsageError(f"expected a mix with another `rerank` than {reranker.name}; drop one")
        return variety

    def _stage(self, stage: str, tasks: Sequence[Task], progress: Progress | None = None) -> list[Task]:
        """Tasks with a stage's hits: FIRST ranks (where grades do, all candidates), others rerank these."""
        again, second = stage != FIRST, self._graded if stage == GRADED else self._second
        groups: dict[Hashable, list[Task]] = {}
        for task in tasks:
            key = task.explores, id(task.opened), task.depth, task.request.explain
            groups.setdefault(key, []).append(task)
        ranked: dict[int, list[Hit]] = {}
        for some in groups.values():
            opened, explain, depth = some[0].opened, some[0].request.explain, some[0].depth
            rankings = [task.ranking for task in some]
            if opened.explore is not None and some[0].explores:
                hits = list[list[Hit]]()
                for part in [[each] for each in rankings] if again else [rankings]:
                    hits += opened.explore.rank(part, depth, explain=explain, again=again, progress=progress)
            elif not again:
                hits = rank(opened.first_stage, opened.reader, rankings, depth, explain=explain)
                if second is None or not second.needs_labels:  # others would only take time
                    hits = [_in_pool(task, each) for task, each in zip(some, hits, strict=True)]
            else:
                assert second is not None
                found = [task.hits for task in some]
                hits = second.rerank(opened.reader, rankings, found, explain=explain, progress=progress)
                # Grades that papers were ranked by are shown only where they are the query's and asked for.
                for place, (task, each) in enumerate(zip(some, hits, strict=True)):
                    wanted = task.request.grades or task.ranking.variety.bounds
                    if opened.explore_ranks and not (wanted and task.ranking.query.is_single):
                        hits[place] = [hit._replace(grades=None) for hit in each]
            ranked |= zip(map(id, some), hits, strict=True)
        return [task._replace(hits=ranked[id(task)], again=again) for task in tasks]

    def _finished(self, tasks: Sequence[Task], *, rerank: bool) -> list[Ranking]:
        tasks = [task._replace(hits=_in_pool(task, _varied(task))) for task in tasks]
        hits = [list(task.hits[: task.request.k]) for task in tasks]
        places = [place for place, task in enumerate(tasks) if task.request.matches]
        if places and (reader := tasks[0].opened.reader).manifest.dense is not None:  # all are of one reader
            aspects = [tasks[place].ranking.aspects for place in places]
            matched = add_matches(reader, self._workers, aspects, [hits[place] for place in places])
            for place, each in zip(places, matched, strict=True):
                hits[place] = each
        rankings = []
        for task, each in zip(tasks, hits, strict=True):
            is_partly = any(hit.grades is not None for hit in each) and not task.opened.explore_ranks
            if task.request.grades and task.ranking.graded_by and not is_partly:  # not by a language model
                each = _with_grades(task, each)
            query, variety, counts = task.request.query, task.ranking.variety, list[str]()
            if task.explores:
                counts += filter(None, [likely(task.ranking.query, variety, task.hits, task.request.k)])
            is_last = task.again or not (rerank and self.reranks(query))
            if is_question(query):
                if is_last and task.request.matches and task.request.grades and self._regrader:
                    lookup, joint = task.opened.reader.paper, self._regrader.grader
                    first = each[: grading.FIRST_HITS]
                    if isinstance(self.stages.first_stage, Fused) and not (task.again or task.explores):
                        first += task.hits[len(first) : grading.FIRST_HITS + 1]
                    counts += filter(None, [grading.unanswered(query, first, lookup, joint)])
            elif is_last and query.is_single and task.request.grades and task.opened.explore_ranks:
                counts += filter(None, [grading.nothing_fits(each, query.aspects[0].facet)])
            if variety.bounds:
                counts.append(f"papers with such grades: {len(task.hits) or 'none'}")
            notes = [*filter(None, [describe([task.selected], None)]), *counts]
            is_left_out = not task.explores and not self.reranks(query)
            is_left_out = is_left_out and (self._chosen or not is_question(query))
            if rerank and self._second is not None and is_left_out:
                notes.append(not_reranked(self.stages))
            if task.again and isinstance(self.stages.reranker, LanguageModel):
                best = task.hits[: self.stages.reranker.depth]
                if lacking := [hit.paper_id for hit in best if hit.grades is None]:
                    notes.append(f"{self.stages.reranker.model} gave no grades for {', '.join(lacking)}")
            stage, said = RERANKED if task.again else FIRST, (tuple(notes), tuple(counts))
            rankings.append(Ranking(stage, task.ranking.query, each, task.selected, True, *said))
        return rankings

    def _over_index(self) -> Opened:
        reader = self.index.reader
        with self._opening:
            if self._opened is None or self._opened.reader is not reader:
                stage = open_first_stage(self.stages.first_stage, reader, self._workers)
                explore = open_explore_stage(self.index, reader, stage, self._workers, self._regrader)
                ranks = explore is not None and not isinstance(self.stages.reranker, LanguageModel)
                self._opened = Opened(reader, stage, explore, ranks, FilterCache(reader))
            return self._opened


def not_reranked(stages: Stages) -> str:
    name = "joint grades" if stages.reranker.name == "cross-encoder" else stages.reranker.name
    taken = "a facet or a whole abstract" if isinstance(stages.reranker, Grades) else "queries with a facet"
    return f"not reranked, since {name} take {taken}"


def check_index(index: object) -> None:
    """Raise TypeError for anything but an `Index`."""
    check_type(index, Index, "a qbe.Index", "open one with qbe.open_index(folder)")


def _graded_queries(query: Query, encoded: Mapping[int, PaperVectors]) -> list[GradedQuery]:
    """Each paper of a query with its vectors; raises FacetNotFoundError for one without any facet."""
    papers = {aspect.paper.paper_id: aspect.paper for aspect in reversed(query.aspects)}
    for paper in papers.values():
        if not grading.facet_places(paper):
            raise FacetNotFoundError(
                f"expected paper {paper.paper_id} to have sentences of a facet to be graded by, found none; "
                "have them predicted (`labels` predicted)"
            )
    return [GradedQuery(paper, encoded[id(paper)]) for paper in reversed(papers.values())]


def _varied(task: Task) -> list[Hit]:
    """The hits of a task within the bounds of its grades, varied, as those that grades rank are already."""
    explore, variety, hits = task.opened.explore, task.ranking.variety, list(task.hits)
    if explore is None or task.explores:
        return hits
    if variety.bounds:
        hits = [hit for hit in _with_grades(task, hits) if variety.admits(hit.grades or {})]
    return explore.diversified(hits, variety.diversity or 0.0)


def _in_pool(task: Task, hits: list[Hit]) -> list[Hit]:
    """Return the hits of the pool, which may be ranked among others (`qbe.search.rank.rank`)."""
    pool = set(task.request.pool or ())
    return [hit for hit in hits if task.request.pool is None or hit.paper_id in pool]


def _with_grades(task: Task, hits: list[Hit]) -> list[Hit]:
    """Grade the hits that have no grades: those of a query that was reranked in part are below its best."""
    missing, explore = [hit for hit in hits if hit.grades is None], task.opened.explore
    if not missing or explore is None:
        return hits
    again = task.again and len(missing) == len(hits)
    graded = iter(explore.grade(task.ranking, missing, again=again))
    return [next(graded) if hit.grades is None else hit for hit in hits]

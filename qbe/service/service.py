"""Searches, labels, comparisons and recommendations over one open index, as records of JSON values."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from qbe.cite.model import default_model, read_model
from qbe.cite.recommender import CiteRequest, Recommender
from qbe.closing import Closing
from qbe.errors import PaperNotFoundError, QbeError, UsageError
from qbe.index.index import Index
from qbe.query import Query, TopicAspect
from qbe.search.filtering import describe
from qbe.search.pipeline import Pipeline
from qbe.search.preparing import PreparedQuery
from qbe.search.present import heading, to_record
from qbe.search.queries import Counted, pasted_paper, query_by
from qbe.search.request import SearchRequest as Search
from qbe.search.session import check_index
from qbe.search.stages import BM25, CrossEncoder, Dense, Fused, Stages, default_stages, parse_reranker
from qbe.service.exporting import exported
from qbe.service.lanes import CitationLane, Lane
from qbe.service.records import paper_record, sentence_records
from qbe.service.requests import (
    DEEPEST,
    Comparison,
    Export,
    PastedText,
    RecommendationRequest,
    SearchRequest,
    Source,
)
from qbe.service.titles import TitleSearch
from qbe.types import Facet, Hit, Paper, Sentence

Record = dict[str, Any]
T = TypeVar("T")

FIRST, RERANKED = "first-stage", "reranked"
"""Stages that a ranking may have gone through."""


class Limits(NamedTuple):
    """Seconds: a search of the first stage, or a reranked one, that would have to wait longer is refused, and
    one that takes longer than ``search`` is given up.
    """

    first_stage: float = 0.3
    reranked: float = 20.0
    search: float = 60.0


class TooSlowError(QbeError):
    """A search took longer than its limit."""


class SearchService(Closing):
    """Answers requests over an index, whose newest commit it follows when `refresh` is called.

    Pipelines are opened when they are first needed, or by `warm`. Several threads may use it. Closing it
    leaves the index open.

    >>> with SearchService(index) as service:
    ...     answer = service.search(SearchRequest(paper_ids=["s036"], facet="method", k=1, rerank=False))
    >>> answer["stage"], answer["hits"][0]["paper_id"]
    ('first-stage', 's051')
    """

    def __init__(self, index: Index, limits: Limits = Limits(), rerank: str | None = None) -> None:  # noqa: B008
        """``rerank`` is a reranker as the command line has it, by default that of the index.

        Raises TypeError for what is no index, IndexFormatError for one without vectors, UsageError for
        another reranking or one that the index does not allow.
        """
        check_index(index)
        with index.reading() as reader:
            reader.require_vectors()
            self._has_postings = reader.manifest.lucene is not None
        self.index, self._limits = index, limits
        stages = default_stages(index)
        self._reranker = stages.reranker if rerank is None else parse_reranker(rerank)
        self._titles = TitleSearch(index)
        self._lock = threading.Lock()
        self._lanes: dict[tuple[str, bool], Lane] = {}
        self._citations: CitationLane | None = None
        if rerank is not None:
            self._lane(self.first_stages[-1], reranked=True)  # fails here, not at the first search

    def close(self) -> None:
        """End all threads; searches that wait are refused."""
        with self._lock:
            lanes, self._lanes = list(self._lanes.values()), {}
            citations, self._citations = self._citations, None
        for lane in lanes:
            lane.close()
            lane.pipeline.close()
        if citations is not None:
            citations.close()
            citations.recommender.close()

    def warm(self) -> None:
        """Open what the first searches need, with one search of a paper of the index."""
        self._titles.complete("", 1)
        if not len(self.index):
            return
        with self.index.reading() as reader:
            paper_id = next(iter(reader)).paper_id
        for rerank in (False, True):
            self.search(SearchRequest(paper_ids=[paper_id], k=1, rerank=rerank))

    def refresh(self) -> bool:
        """Move to the newest commit of the index; returns whether there was a newer one."""
        return self.index.refresh()

    @property
    def first_stages(self) -> tuple[str, ...]:
        """The first stages that the index allows, the default last."""
        return ("bm25", "dense", "fused") if self._has_postings else ("dense",)

    @property
    def reranks_at_once(self) -> bool:
        """Whether reranking takes less than seconds: no cross-encoder reads all candidates anew."""
        return not isinstance(self._reranker, CrossEncoder)

    @property
    def waiting(self) -> dict[str, int]:
        """How many searches wait or are under way, by stage."""
        with self._lock:
            lanes = dict(self._lanes)
        counts = dict.fromkeys((FIRST, RERANKED), 0)
        for (_, reranked), lane in lanes.items():
            counts[RERANKED if reranked else FIRST] += lane.waiting
        return counts

    def about(self) -> Record:
        """The index: its number of ``papers``, ``generation``, ``encoder``, ``first_stages``, and whether it
        can grade (``grades``) and recommend citations (``citations``).
        """
        with self.index.reading() as reader:
            dense = reader.manifest.dense
            return {
                "papers": len(reader),
                "generation": reader.generation,
                "encoder": None if dense is None else dense["encoder"]["name"],
                "first_stages": list(self.first_stages),
                "grades": self._can_grade(),
                "citations": not self._lacking_for_citations,
            }

    def search(self, request: SearchRequest) -> Record:
        """The hits of a search with the query's sentences, and how it went.

        ``aspects`` of the query name its papers by their place in ``papers``, and matches name aspects by
        theirs where there are several. ``stage`` says what ranked them; ``has_more`` and ``next_start`` are
        for paging; ``notes`` are for people. Hits are those of `qbe.search.present.to_record`.

        Raises what `qbe.search.queries.query_by` and `Pipeline.search` do, PaperNotFoundError for ids that
        the index lacks, CorpusError for a pasted text that is no abstract, OverloadedError where too many
        searches wait, TooSlowError.
        """
        return self._consistent(lambda: self._search(request))

    def _search(self, request: SearchRequest) -> Record:
        begin = time.perf_counter()
        query = self._query(request, request.counted)
        first_stage = request.first_stage or self.first_stages[-1]
        lane = self._lane(first_stage, request.rerank)
        (prepared,) = lane.pipeline.session.prepared([Search(query, explain=True)])
        notes = list(self.index.notes)
        end, left_out = request.start + request.k, set(request.exclude)
        hits = self._result(lane.submit(prepared.query, end + len(left_out) + 1, request.paper_filter))
        hits = [hit for hit in hits if hit.paper_id not in left_out]
        page = self._graded(prepared, hits[request.start : end])
        passing = lane.pipeline.session.selected(query, request.paper_filter)
        notes = [describe([passing], None) or "", *dict.fromkeys([*notes, *self.index.notes])]
        is_reranked = lane.pipeline.session.rerank_pairs(_topic_aspects(query), 1) > 0
        return {
            "query": self._query_record(prepared),
            "stage": RERANKED if is_reranked else FIRST,
            "first_stage": first_stage,
            "passing": passing.papers,
            "papers": passing.total,
            "notes": [note for note in notes if note],
            **self._page_record(prepared.query, page, request.start, has_more=len(hits) > end),
            "seconds": round(time.perf_counter() - begin, 4),
        }

    def reranks(self, request: SearchRequest) -> bool:
        """Whether a search reranks the hits of the first stage; raises what `search` does of a query."""
        if not request.rerank:
            return False
        query = self._query(request, request.counted)
        pipeline = self._lane(request.first_stage or self.first_stages[-1], reranked=True).pipeline
        return pipeline.session.rerank_pairs(_topic_aspects(query), 1) > 0

    def recommend(self, request: RecommendationRequest) -> Record:
        """Papers of the index that a paper should cite, best first, in the form of `search`.

        Ids of ``cited`` and ``exclude`` that the index lacks are left out, and a note says how many. Raises
        UsageError for an index without postings or with vectors that the citation model does not read,
        PaperNotFoundError for a paper that the index lacks, CorpusError for a text that is no abstract,
        OverloadedError where too many requests wait, TooSlowError.
        """
        return self._consistent(lambda: self._recommend(request))

    def _recommend(self, request: RecommendationRequest) -> Record:
        begin = time.perf_counter()
        lane = self._citation_lane()
        (paper,) = self._papers(request)
        left_out = [*request.exclude, *request.cited]
        end = request.start + request.k
        excluded = [paper_id for paper_id in left_out if paper_id in self.index]
        cited = [paper_id for paper_id in request.cited if paper_id in self.index]
        cite_request = CiteRequest(paper, cited, excluded)
        hits = self._result(lane.submit(cite_request, end + 1, request.paper_filter))
        missing = len(left_out) - len(excluded)
        are = "1 paper is" if missing == 1 else f"{missing} papers are"
        query = Query(paper)
        return {
            "query": {"heading": f"Papers for “{paper.title or paper.abstract}” to cite"},
            "notes": [f"{are} not in the index and left out"] if missing else [],
            **self._page_record(query, hits[request.start : end], request.start, has_more=len(hits) > end),
            "seconds": round(time.perf_counter() - begin, 4),
        }

    def paper(self, paper_id: str) -> Record:
        """A paper of the index with its sentences and their facets; raises PaperNotFoundError."""
        return paper_record(self.index.paper(paper_id), inside=True)

    def label(self, request: PastedText) -> Record:
        """The sentences of a pasted abstract with their facets; raises CorpusError."""
        paper = self.index.label_facets(pasted_paper(request.text, request.title))
        return {"title": paper.title, "sentences": sentence_records(paper)}

    def compare(self, request: Comparison) -> Record:
        """How alike two papers are in each facet: the grade from 0 to 3, where there is one, and the closest
        pair of sentences of the facet. Raises PaperNotFoundError, CorpusError.
        """
        return self._consistent(lambda: self._compare(request))

    def _compare(self, request: Comparison) -> Record:
        source = Source(
            paper_ids=[] if request.paper_id is None else [request.paper_id],
            text=request.text,
            title=request.title,
        )
        (paper,) = self._papers(source)
        paper, other = self.index.label_facets(paper), self.index.paper(request.other_id)
        pipeline = self._lane(self.first_stages[-1], reranked=True).pipeline
        if self._can_grade():
            (graded,) = pipeline.grade(Query(paper), [Hit(other.paper_id, 0.0)])
            grades = dict(graded.grades or {})
        else:
            grades = {}
        facets = {facet.value: self._facet_record(paper, other, facet, grades) for facet in Facet}
        return {
            "paper": paper_record(paper, inside=paper.paper_id in self.index),
            "other": paper_record(other, inside=True),
            "facets": facets,
        }

    def complete(self, text: str, count: int) -> Record:
        """Papers whose titles have the words of a text, the last perhaps only begun, or whose id it is."""
        return {"papers": [title._asdict() for title in self._titles.complete(text, count)]}

    def export(self, request: Export) -> str:
        """Papers as a file of BibTeX, RIS, CSV, Markdown or JSON lines; raises PaperNotFoundError."""
        papers = [self.index.paper(paper_id) for paper_id in dict.fromkeys(request.paper_ids)]
        return exported(papers, request.format)

    def _consistent(self, answer: Callable[[], T]) -> T:
        """An answer; computed again where the index moved on meanwhile, so that a paper was gone."""
        while True:
            with self.index.reading() as reader:
                digest = reader.manifest.digest
            try:
                return answer()
            except PaperNotFoundError:
                with self.index.reading() as reader:
                    if reader.manifest.digest == digest:
                        raise

    def _result(self, answer: Future[list[Hit]]) -> list[Hit]:
        """The hits of a search once it is done; raises TooSlowError for one that is given up."""
        try:
            return answer.result(self._limits.search)
        except FutureTimeoutError:
            answer.cancel()
            raise TooSlowError(
                f"the search took longer than {self._limits.search:g} s and was given up; ask for fewer hits"
            ) from None

    def _query(self, request: SearchRequest, counted: Counted) -> Query:
        unlike = [self.index.paper(paper_id) for paper_id in dict.fromkeys(request.not_paper_ids)]
        papers = self._papers(request)
        if request.labels:
            papers = [_relabelled(self.index.label_facets(paper), request.corrected) for paper in papers]
        return query_by(papers, unlike, counted)

    def _papers(self, source: Source) -> list[Paper]:
        if source.text is not None:
            return [pasted_paper(source.text, source.title)]
        return [self.index.paper(paper_id) for paper_id in dict.fromkeys(source.paper_ids)]

    def _lane(self, first_stage: str, reranked: bool) -> Lane:
        if first_stage not in self.first_stages:
            raise UsageError(
                f"expected a first stage of {', '.join(self.first_stages)} over this index, found "
                f"{first_stage}"
            )
        with self._lock:
            lane = self._lanes.get((first_stage, reranked))
            if lane is None:
                stages = Stages(_FIRST_STAGES[first_stage](), self._reranker if reranked else None)
                patience = self._limits.reranked if reranked else self._limits.first_stage
                lane = Lane(Pipeline(self.index, stages), patience)
                self._lanes[first_stage, reranked] = lane
            return lane

    def _citation_lane(self) -> CitationLane:
        """Where requests for citations wait, opened when it is first needed; raises UsageError for an index
        whose papers cannot be recommended.
        """
        if lacking := self._lacking_for_citations:
            raise UsageError(f"expected an index with {lacking} to recommend citations, found one without")
        with self._lock:
            if self._citations is None:
                recommender = Recommender.open(self.index)
                self._citations = CitationLane(recommender, self._limits.reranked)
            return self._citations

    @cached_property
    def _lacking_for_citations(self) -> str:
        """What the index would need for recommendations, '' where it has it; no commit changes that."""
        if not self._has_postings:
            return "postings"
        model = read_model(default_model())
        with self.index.reading() as reader:
            dense = reader.manifest.dense
        assert dense is not None  # an index without vectors is refused at the beginning
        return "" if model.reads(dense["encoder"]) else f"vectors of {model.encoder['name']}"

    def _can_grade(self) -> bool:
        try:
            self._lane(self.first_stages[-1], reranked=False).pipeline.session.require_grades()
        except UsageError:
            return False
        return True

    def _graded(self, query: PreparedQuery, hits: Sequence[Hit]) -> list[Hit]:
        """Hits with grades in all facets, by stored vectors alone where a search did not grade them."""
        if not hits or any(hit.grades is not None for hit in hits) or not self._can_grade():
            return list(hits)
        return self._lane(self.first_stages[-1], reranked=False).pipeline.grade(query.query, hits)

    def _query_record(self, prepared: PreparedQuery) -> Record:
        query = prepared.query
        selected: dict[str, set[int]] = {}
        for aspect in query.aspects:
            chosen = selected.setdefault(aspect.paper.paper_id, set())
            if aspect.weight > 0:
                chosen.update(aspect.selected_positions())
        papers = [
            paper_record(paper, inside=paper.paper_id in self.index, selected=selected[paper.paper_id])
            for paper in query.papers
        ]
        aspects = [
            {
                "paper": query.papers.index(aspect.paper),
                "facet": aspect.facet.value if aspect.facet else None,
                "positions": list(aspect.selected_positions()),
                "weight": aspect.weight,
            }
            for aspect in query.aspects
        ]
        return {
            "query_id": query.query_id,
            "heading": heading(query),
            "papers": papers,
            "aspects": aspects,
        }

    def _page_record(self, query: Query, hits: Sequence[Hit], start: int, *, has_more: bool) -> Record:
        record = to_record(self.index.paper, query.query_id, query, hits)
        for hit in record["hits"]:
            hit["rank"] += start
        end = start + len(hits)
        has_more = has_more and end < DEEPEST
        return {"hits": record["hits"], "has_more": has_more, "next_start": end if has_more else None}

    def _facet_record(self, paper: Paper, other: Paper, facet: Facet, grades: dict[str, float]) -> Record:
        record: Record = {"grade": grades.get(facet.value), "pair": None}
        positions, _ = paper.facet_positions(facet)
        if positions:
            pipeline = self._lane(self.first_stages[-1], reranked=False).pipeline
            hits = pipeline.search(Query(paper, facet), 1, [other.paper_id])
            matches = [match for hit in hits for match in hit.matches]
            if matches:
                best = max(matches, key=lambda match: match.score)
                record["pair"] = {
                    "sentence": paper.sentences[best.query_position].text,
                    "position": best.query_position,
                    "other_sentence": other.sentences[best.position].text,
                    "other_position": best.position,
                    "score": round(best.score, 6),
                }
        return record


_FIRST_STAGES = {"bm25": BM25, "dense": Dense, "fused": Fused}


def _relabelled(paper: Paper, facets: Mapping[int, Facet | None]) -> Paper:
    """A paper with the right facets of some sentences; raises UsageError for positions that it lacks."""
    if not all(0 <= position < len(paper.sentences) for position in facets):
        last = len(paper.sentences) - 1
        raise UsageError(f"expected positions from 0 to {last} in `labels`, found {max(facets)}")
    sentences = [
        Sentence(sentence.text, facets[position]) if position in facets else sentence
        for position, sentence in enumerate(paper.sentences)
    ]
    return replace(paper, sentences=tuple(sentences), labelled=True)


def _topic_aspects(query: Query) -> list[TopicAspect]:
    return [TopicAspect(aspect.paper.paper_id, aspect.facet, aspect.positions) for aspect in query.aspects]

"""Searches, labels, recommendations and exports over one open index, as JSON; parameters as schemas."""

import contextlib
import functools
import inspect
import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, make_dataclass, replace
from itertools import islice
from pathlib import PurePath
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError

from qbe.cite.recommender import CiteRequest, Recommender, default_model, read_model
from qbe.errors import QbeError, UsageError, did_you_mean
from qbe.index.index import Index
from qbe.query import Aspect, Query
from qbe.search import request
from qbe.search.paper_file import pasted_paper, sent_paper
from qbe.search.present import heading, language_note
from qbe.search.queries import ASKED
from qbe.search.request import CitationForm, SearchForm, SearchRequest, SourceForm
from qbe.search.session import Ranking, SearchSession, check_index
from qbe.search.stages import FIRST_STAGES, Stages, default_stages, parse_reranker
from qbe.search.writers import Record, Result, paper_record, sentence_records, to_record
from qbe.serve.turns import OverloadedError, Turns
from qbe.types import Facet, Hit, Paper
from qbe.util.work import Closing, undisturbed

# Characters of a text, papers and hits of a request that takes about as long as most others.
LONG_TEXT, FEW_PAPERS, FEW_HITS = 5000, 5, 200
MAX_FIELD = 60  # characters of an unknown field's name in a message

_ABSTRACT = "an abstract, a few sentences that could stand in one, or a question"
Abstract = Annotated[str, Field(description=_ABSTRACT, max_length=request.MAX_TEXT)]
Title = Annotated[
    str, Field(description="the title of text, if not its first line", max_length=request.MAX_TITLE)
]
PaperId = Annotated[
    str, Field(description="a paper of the index, by paper_id or another name", max_length=300)
]
PaperIds = Annotated[
    list[str],
    Field(min_length=1, max_length=request.MAX_SEEN, description="ids of papers of the index, in order"),
]
Format = Annotated[
    Literal["bibtex", "ris", "csv", "markdown", "json"], Field(description="json: a line a paper")
]


class Form:
    """The fields of a dataclass as clients write them, and as a JSON schema.

    Null and an empty text are the same as none given, a list may be the text of a JSON list or a single
    value, and a number may stand for a text. ``has_parameters``: a function takes them one by one.
    """

    def __init__(self, kind: Any, *, has_parameters: bool = False) -> None:
        hints = get_type_hints(kind)
        self.kinds = {each.name: hints[each.name] for each in fields(kind)}
        self.has_parameters = has_parameters
        self.lists = {
            name
            for name, each in self.kinds.items()
            if any(get_origin(inner) is list for inner in (each, *get_args(each)))
        }
        self.annotated: Any = Annotated[kind, BeforeValidator(self._normalized)]
        self.adapter: TypeAdapter[Any] = TypeAdapter(self.annotated)  # type: ignore[arg-type]
        schema = self.adapter.json_schema(ref_template="#/components/schemas/{model}")
        self.schema = {"properties": {}, **schema, "additionalProperties": False}

    def _normalized(self, values: Any) -> dict[str, Any]:
        if not isinstance(values, Mapping):
            raise ValueError("expected a JSON object, found another value")
        given = {}
        for name, value in values.items():
            if name not in self.kinds:
                hint = did_you_mean(str(name), self.kinds)
                expected = "a field of the request" if hint else f"one of the fields {', '.join(self.kinds)}"
                found = f"expected {expected}, found {str(name)[:MAX_FIELD]!r}"
                raise ValueError(f"{found}; {hint}" if hint else found)
            if value is None or value in ("", [""]):
                continue
            kind = self.kinds[name]
            some = value if isinstance(value, list) else [value]
            if name in self.lists:
                if len(some) == 1 and isinstance(some[0], str) and some[0].startswith("["):
                    with contextlib.suppress(ValueError, RecursionError):
                        some = json.loads(some[0])
                value = some
            if kind is not bool and any(isinstance(each, bool) for each in some):  # numbers to pydantic
                raise ValueError(f"expected a number or text as {name}, found true or false")
            if any(isinstance(each, str) and "\0" in each for each in some):
                raise ValueError(f"{name}: expected text, found a NUL character")
            if kind in (str, str | None, list[str]):
                texts = [str(each) if isinstance(each, (int, float)) else each for each in some]
                value = texts if isinstance(value, list) else texts[0]
            given[name] = value
        return given


@functools.cache
def form_of(function: Callable[..., Any]) -> Form:
    """The form of a function's parameters but the first, or of the dataclass that is its only other one."""
    hints = get_type_hints(function, include_extras=True)
    _, *parameters = inspect.signature(function).parameters.values()
    if len(parameters) == 1 and is_dataclass(hints[parameters[0].name]):
        return Form(hints[parameters[0].name])
    hints |= {name: Form(kind).annotated for name, kind in hints.items() if is_dataclass(kind)}
    named = [
        (each.name, hints[each.name], *([] if each.default is each.empty else [each.default]))
        for each in parameters
    ]
    return Form(make_dataclass(function.__name__, named, kw_only=True), has_parameters=True)


def bound(function: Callable[..., Any], first: Any, values: Any) -> functools.partial[Any]:
    """A call of a function with its first argument and what a client sent as the others.

    Raises UsageError of one line, without what was sent.
    """
    form = form_of(function)
    try:
        given = form.adapter.validate_python(values)
    except ValidationError as error:
        problem, *others = error.errors(include_url=False)
        where = ".".join(map(str, problem["loc"]))
        message = problem["msg"].removeprefix("Value error, ")
        message = f"{where}: {message[:1].lower()}{message[1:]}".removeprefix(": ")
        raise UsageError(message + (f" (and {len(others)} more problems)" if others else "")) from None
    if form.has_parameters:
        return functools.partial(function, first, **vars(given))
    return functools.partial(function, first, given)


def is_long(call: functools.partial[Any]) -> bool:
    """True if a call may take seconds: it has a long text, more than a few papers, or asks for many hits."""
    given = call.keywords | (vars(call.args[1]) if call.args[1:] else {})
    papers = sum(len(given.get(name) or ()) for name in ("paper_ids", "not_paper_ids"))
    hits = given.get("start", 0) + given.get("k", 0) + len(given.get("exclude") or ())
    return len(given.get("text") or "") > LONG_TEXT or papers > FEW_PAPERS or hits > FEW_HITS


log = logging.getLogger("qbe.serve")

Name = Annotated[str, Field(max_length=300)]
Few = Annotated[int, Field(ge=1, le=50)]

READING_SECONDS = 5.0  # how long an uploaded file waits until those before it are read


class SearchService(Closing):
    """Answers requests over an index, whose newest generation it follows when that is refreshed.

    Models are opened when first needed, or by `warm`. Several threads may use it. It leaves the index open.
    """

    def __init__(self, index: Index, stages: Stages | None = None, rerank: str | None = None) -> None:
        """Raises IndexFormatError for an index without vectors, UsageError for stages that it lacks."""
        check_index(index)
        reader = index.reader
        reader.require_vectors()
        self._has_postings = reader.manifest.lucene is not None
        if rerank is not None:
            stages = replace(default_stages(index), reranker=parse_reranker(rerank))
        self.index = index
        self.stages, self._chosen = default_stages(index) if stages is None else stages, stages is not None
        self._lock, self._reading, self.turns = threading.Lock(), threading.Lock(), Turns()
        self._sessions: dict[str | None, SearchSession] = {}
        self._citations: Recommender | None = None
        if stages is not None:
            self._session(None)  # what cannot be opened fails here, not at the first search

    def close(self) -> None:
        """End all threads; requests that wait are refused."""
        self.turns.close()
        with self._lock:
            opened = [*self._sessions.values(), self._citations]
            self._sessions, self._citations = {}, None
        for each in filter(None, opened):
            each.close()

    async def answer(self, call: functools.partial[Any], refresh: Callable[[], object] | None = None) -> Any:
        """Answer a call when it is the turn of its client (`Turns.answer`), after a ``refresh``."""

        def work() -> Any:
            if refresh is not None:
                refresh()
            return call()

        return await self.turns.answer(work, is_long=is_long(call))

    def warm(self) -> None:
        """Open what the first searches need."""
        try:
            self.complete("", 1)  # reads titles
            if len(self.index):
                paper_id = next(iter(self.index)).paper_id
                self.search(SearchForm(paper_ids=[paper_id], k=1))
        except QbeError as error:
            log.error("%s: %s", type(error).__name__, error)

    def about(self) -> Record:
        """What the index is, and what can be asked of it."""
        reader = self.index.reader
        dense, first = reader.manifest.dense, next(iter(reader), None)
        return {
            "papers": len(reader),
            "example": first and {"paper_id": first.paper_id, "title": first.title},
            "generation": reader.generation,
            "encoder": None if dense is None else dense["encoder"]["name"],
            "first_stages": list(FIRST_STAGES) if self._has_postings else ["dense"],
            "grades": self._session(None).can_grade,
            "citations": not self._lacking_for_citations,
        }

    def search(self, form: SearchForm) -> Record:
        """The final hits of a search, as `stream` has them; raises what that does."""
        begin, asked = time.perf_counter(), form.request(self.index)
        ranking = self._session(form.first_stage).search(asked, rerank=form.rerank)
        return self._search_record(ranking, form, begin)

    def stream(self, form: SearchForm) -> Iterator[Record]:
        """The hits of the first stage at once, then the reranked ones, if there are any.

        Each record has the query with its sentences (``aspects`` name its papers by their place in
        ``papers``), ``stage`` (first-stage; graded, where the reranker takes longer than that; reranked),
        ``is_final``, ``has_more`` and ``next_start`` for paging, ``notes`` for people, and hits as
        of `qbe.search.writers.to_record`. Raises what `SearchForm.request` and `SearchSession.run` do.
        """
        begin, asked = time.perf_counter(), form.request(self.index)
        for ranking in self._session(form.first_stage).run(asked, rerank=form.rerank):
            yield self._search_record(ranking, form, begin)

    def recommend(self, form: CitationForm) -> Record:
        """Papers of the index that a paper should cite, best first, in the form of `search`.

        Ids of ``cited`` and ``exclude`` that the index lacks are left out, and a note says how many. Raises
        UsageError for an index without postings or with vectors that the citation model does not read.
        """
        begin = time.perf_counter()
        if lacking := self._lacking_for_citations:
            raise UsageError(f"expected an index with {lacking} to recommend citations, found one without")
        with self._lock, undisturbed():
            if self._citations is None:  # opened when it is first needed
                self._citations = Recommender.open(self.index)
            recommender = self._citations
        (paper,) = form.papers(self.index)
        given = [*form.exclude, *form.cited]
        excluded = [paper_id for paper_id in given if paper_id in self.index]
        cited = [paper_id for paper_id in form.cited if paper_id in self.index]
        asked, k = CiteRequest(paper, cited, excluded), form.start + form.k + 1
        (hits,) = recommender.batch_recommend([asked], k, filter=form.paper_filter)
        return {
            "query": {"heading": f"Papers for “{paper.title or paper.abstract}” to cite"},
            "language_note": language_note(Query(paper)),
            "notes": [*self._unknown(given), *self._cut([paper])],
            **self._page(Query(paper), hits, form, begin)[1],
        }

    def paper(self, paper_id: PaperId) -> Record:
        """A paper of the index, by id or DOI, with its sentences and their facets."""
        return paper_record(self.index.reader.find(paper_id, titles=False), inside=True)

    def read_file(self, data: bytes, name: Name = "file") -> Record:
        """Title and abstract of a paper that is sent as a file: PDF, LaTeX, BibTeX, JSON, text.

        There is a ``note``, '' where there is nothing to say. One is read at a time, in a process of its own.
        """
        if not self._reading.acquire(timeout=READING_SECONDS):
            raise OverloadedError
        try:
            return sent_paper(data, PurePath(name).name or "file")
        finally:
            self._reading.release()

    def label(self, text: Abstract, title: Title = "") -> Record:
        """The sentences of a pasted abstract with their facets."""
        paper = self.index.label_facets(pasted_paper(text, title))
        return {"title": paper.title, "sentences": sentence_records(paper)}

    def compare(
        self,
        *,
        other_id: PaperId,
        paper_id: PaperId | None = None,
        text: Abstract | None = None,
        title: Title = "",
    ) -> Record:
        """Compare a paper of the index, or a pasted abstract, with another paper of the index: a grade from 0
        to 3 for each facet, where there is one, and the closest sentences.
        """
        if (paper_id is None) == (text is None):
            raise UsageError("expected paper_id or text, found " + ("neither" if text is None else "both"))
        found = self.index.find(paper_id) if paper_id else pasted_paper(str(text), title)
        paper, other = self.index.label_facets(found), self.index.find(other_id)
        facets = [facet for facet in Facet if paper.facet_positions(facet)[0]]
        query = Query.of(*(Aspect(paper, facet) for facet in facets)) if facets else Query(paper)
        # One paper is ranked, for its grades and the closest sentences of each facet.
        session, asked = self._session(None), SearchRequest(query, 1, [other.paper_id], grades=True)
        hits = session.search(asked, rerank=False).hits
        if session.regrades:
            hits = session.grade(query, hits)
        grades = dict(hits[0].grades or {}) if hits else {}
        pairs: dict[Facet, Record] = {}
        for match in [match for hit in hits for match in hit.matches if facets]:
            pair = {
                "sentence": paper.sentences[match.query_position].text,
                "position": match.query_position,
                "other_sentence": other.sentences[match.position].text,
                "other_position": match.position,
                "score": round(match.score, 6),
            }
            pairs.setdefault(facets[match.aspect], pair)  # the first is the best
        return {
            "paper": paper_record(paper, inside=paper.paper_id in self.index),
            "other": paper_record(other, inside=True),
            "facets": {
                facet.value: {"grade": grades.get(facet.value), "pair": pairs.get(facet)} for facet in Facet
            },
        }

    def complete(self, text: Name = "", k: Few = 10) -> Record:
        """Papers whose titles have these words, the last one perhaps only begun, or whose id it is."""
        reader = self.index.reader
        ids = dict.fromkeys([text.strip()] if text.strip() in reader else [])
        ids |= dict.fromkeys(islice(reader.names.complete(text), k))
        papers = [reader.paper(paper_id) for paper_id in islice(ids, k)]
        return {"papers": [{"paper_id": paper.paper_id, "title": paper.title} for paper in papers]}

    def _session(self, first_stage: str | None) -> SearchSession:
        """What searches by a first stage (None: that of the service); all sessions share what reranks."""
        if first_stage not in (None, "dense") and not self._has_postings:
            raise UsageError(f"expected a first stage of dense over this index, found {first_stage}")
        opened = self._sessions
        with self._lock, undisturbed():
            if None not in opened:
                opened[None] = SearchSession(self.index, self.stages, chosen=self._chosen)
            if first_stage not in opened:
                opened[first_stage] = opened[None].with_first_stage(FIRST_STAGES[str(first_stage)]())
            return opened[first_stage]

    @functools.cached_property
    def _lacking_for_citations(self) -> str:
        """What the index would need for recommendations, '' where it has it; no update changes that."""
        if not self._has_postings:
            return "postings"
        dense = self.index.manifest.dense
        assert dense is not None  # an index without vectors is refused at the beginning
        model = read_model(default_model(dense["encoder"]))
        return "" if model.reads(dense["encoder"]) else f"vectors of {model.encoder['name']}"

    def _search_record(self, ranking: Ranking, form: SearchForm, begin: float) -> Record:
        query = ranking.query
        selected: dict[str, set[int]] = {paper.paper_id: set() for paper in query.papers}
        aspects = []
        for aspect in query.aspects:
            positions = list(aspect.selected_positions())
            if aspect.weight > 0:
                selected[aspect.paper.paper_id].update(positions)
            facet = aspect.facet.value if aspect.facet else None
            place = query.papers.index(aspect.paper)
            aspects.append({"paper": place, "facet": facet, "positions": positions, "weight": aspect.weight})
        hits, page = self._page(query, ranking.hits, form, begin)
        papers = [
            paper_record(paper, inside=paper.paper_id in self.index, selected=selected[paper.paper_id])
            for paper in query.papers
        ]
        return {
            "query": {
                "query_id": query.query_id,
                "heading": heading(query, hits),
                "question": query.papers[0].metadata.get(ASKED),
                "papers": papers,
                "aspects": aspects,
            },
            "stage": ranking.stage,
            "is_final": ranking.is_final,
            "first_stage": form.first_stage or self.stages.first_stage.name,
            "passing": ranking.selected.papers,
            "papers": ranking.selected.total,
            "language_note": language_note(query),
            "notes": [*ranking.notes, *self._unknown(form.exclude), *self._cut(query.papers)],
            **page,
        }

    def _cut(self, papers: Iterable[Paper]) -> list[str]:
        outside = [paper for paper in papers if paper.paper_id not in self.index]
        return [f"the query: {told}" for paper in outside for told in self.index.encoder.cut(paper)]

    def _unknown(self, paper_ids: Sequence[str]) -> list[str]:
        missing = sum(paper_id not in self.index for paper_id in paper_ids)
        are = "1 paper is" if missing == 1 else f"{missing} papers are"
        return [f"{are} not in the index and left out"] if missing else []

    def _page(
        self, query: Query, ranked: Sequence[Hit], form: SourceForm, begin: float
    ) -> tuple[Sequence[Hit], Record]:
        """The hits of a page of a ranking, and the record of it, which says where the next one starts."""
        excluded, end = set(form.exclude), form.start + form.k
        kept = [hit for hit in ranked if hit.paper_id not in excluded]
        has_more = len(kept) > end and end < request.MAX_DEPTH
        reader = self.index.reader  # an update may have removed papers since they were ranked
        hits = [hit for hit in kept[form.start : end] if hit.paper_id in reader]
        record = to_record(reader.paper, Result(query.query_id, query, hits), first_rank=form.start + 1)
        return hits, {
            "hits": record["hits"],
            "has_more": has_more,
            "next_start": end if has_more else None,
            "seconds": round(time.perf_counter() - begin, 4),
        }

"""A search, checked: as a session takes it, and as a user states it over HTTP, to agents and in watches."""

# ruff: noqa: RUF009  (functions that make fields)

import dataclasses
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from qbe.errors import UsageError, check_count, check_type
from qbe.index.index import Index
from qbe.query import PLAIN, SHAPES, Query, Variety, parse_wish
from qbe.search.filters import A_FILTER, PaperFilter, parse_where
from qbe.search.paper_file import pasted_paper
from qbe.search.queries import AspectSpec, distinct_papers, query_by
from qbe.types import AIM, Facet, Paper

BLOCK = 16  # queries of a run that are searched together
LABEL_SOURCES = ("given", "predicted")  # facets of a query's sentences: its own labels, or the tagger's
LABELS = ("background", AIM, "method", "result", "other")  # of sentences (`qbe.types.Sentence.label`)
MAX_PAPERS, MAX_SEEN = 50, 1000  # papers in one field of a form, and papers to leave out
MAX_TEXT, MAX_TITLE = 20_000, 1_000  # characters of a pasted abstract, and of its title
MAX_DEPTH, MAX_HITS = 1000, 100  # the last place that can be asked for, and how many places at a time

FacetName = Literal["background", "method", "result"]
AskedFacet = Literal["problem", "method", "findings", "background", "result"]
Shape = Literal["same-problem-other-method", "same-method-other-problem", "competitors"]


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A search for the best ``k`` papers of the index, or of a ``pool`` of ids, that pass the ``filter``."""

    query: Query
    k: int = 10
    pool: Sequence[str] | None = None
    filter: PaperFilter | None = None
    labels: str = "given"  # of the query's sentences, predicted where a paper brings none; or "predicted"
    matches: bool = True  # adds the pairs of closest sentences to each hit
    explain: bool = False  # adds the scores of its components
    grades: bool = False  # adds its grade in each facet
    variety: Variety = PLAIN  # how the list is put together

    def __post_init__(self) -> None:
        check_type(self.query, Query, "a qbe.Query", "make one with qbe.Query(paper)")
        check_count("k", self.k)
        check_type(self.filter, *A_FILTER)
        pool: Any = () if self.pool is None else self.pool
        is_list = isinstance(pool, Collection) and not isinstance(pool, str)
        if not is_list or not all(isinstance(paper_id, str) for paper_id in pool):
            raise TypeError(f"expected a pool as a list of paper ids (str), found {self.pool!r:.60}")
        if self.labels not in LABEL_SOURCES:
            raise UsageError(f"expected `labels` of {', '.join(LABEL_SOURCES)}, found {self.labels!r}")
        facets = {aspect.facet for aspect in self.query.aspects}
        if self.variety.mix and not (self.query.is_by_facets and self.variety.weights.keys() <= facets):
            raise UsageError(
                "expected a query of the facets of a `mix`, found another; make it with "
                "qbe.Query.by_facets(paper, variety.weights)"
            )


def _field(default: Any, description: str, max_length: int | None = None, **limits: Any) -> Any:
    """A field, ``list`` for several values; its metadata are arguments of ``pydantic.Field``."""
    limits |= {} if max_length is None else {"max_length": max_length}
    made: Any = {"default_factory": list} if default is list else {"default": default}
    return field(**made, metadata={"description": description} | limits)


@dataclass(frozen=True, kw_only=True)
class SourceForm:
    """The papers that a search starts from, which places of the ranking are wanted, and what may be there."""

    k: int = _field(20, "how many hits, at most", ge=1, le=MAX_HITS)
    start: int = _field(0, "how many hits to skip: next_start of the page before", ge=0, lt=MAX_DEPTH)
    exclude: list[str] = _field(list, "papers to leave out", MAX_SEEN)
    year_from: int | None = _field(None, "the first year of hits", ge=1, le=9999)
    year_to: int | None = _field(None, "the last year of hits", ge=1, le=9999)
    categories: list[str] = _field(list, "any of these, or below them (cs, cs.CL)", MAX_PAPERS)
    authors: list[str] = _field(list, "any of these, by all words of a name", MAX_PAPERS)
    where: list[str] = _field(
        list, "metadata, such as venue=SIGIR; technique=NAME: what papers say they use", MAX_PAPERS
    )
    paper_ids: list[str] = _field(
        list,
        "ids of papers of the index, or DOIs, arXiv ids, ACL ids, titles",
        MAX_PAPERS,
        examples=[["2505.20979"]],
    )
    text: str | None = _field(
        None, "an abstract, a few sentences that could stand in one, or a question", MAX_TEXT
    )
    title: str = _field("", "the title that goes with text, which may also begin with it", MAX_TITLE)

    def __post_init__(self) -> None:
        if bool(self.paper_ids) == (self.text is not None):
            raise UsageError("expected paper_ids or text, found " + ("both" if self.paper_ids else "neither"))
        if self.text is not None and not self.text.strip():
            raise UsageError("expected an abstract as text, found white space")
        if self.title and self.text is None:
            raise UsageError("expected title with text only, found it with paper_ids; leave title out")
        if (end := self.start + self.k) > MAX_DEPTH:
            raise UsageError(f"expected start and k of at most {MAX_DEPTH} together, found {end}")
        _ = self.paper_filter

    @property
    def paper_filter(self) -> PaperFilter | None:
        years, where = (self.year_from, self.year_to), parse_where(self.where)
        kept = None if years == (None, None) else years
        made = PaperFilter(years=kept, categories=self.categories, authors=self.authors, where=where)
        return None if made == PaperFilter() else made

    def papers(self, index: Index, *, titles: bool = True) -> list[Paper]:
        if self.text is None:
            return distinct_papers(index, self.paper_ids, titles=titles)
        return [pasted_paper(self.text, self.title)]


@dataclass(frozen=True, kw_only=True)
class SearchForm(SourceForm):
    """A search; one of ``facet``, ``sentences``, ``explore``, ``like`` with ``unlike`` says what counts."""

    not_paper_ids: list[str] = _field(list, "papers that hits should not be like", MAX_PAPERS)
    facet: AskedFacet | None = _field(
        None, "what hits should have in common with the papers; by default the whole abstract"
    )
    sentences: list[int] | None = _field(
        None, "positions of sentences to search by, from 0", 200, min_length=1
    )
    labels: list[str] = _field(
        list, "corrected labels of sentences, by position from 0, such as 2:method, 0:aim or 3:other", 200
    )
    like: list[str] = _field(
        list,
        "in place of facet: facets in common, such as method or method:0.5, or background>=2 (a grade of "
        "at least 2); or names of explore, a list mixed of them, each with its share as in competitors:2",
        3,
    )
    unlike: list[str] = _field(
        list,
        "with like: facets that should differ, such as background, or method<=1 (a grade of at most 1)",
        3,
    )
    explore: Shape | None = _field(None, "in place of facet: a named combination of like and unlike")
    first_stage: Literal["bm25", "dense", "fused"] | None = _field(
        None, "how candidates are found (default: what the index allows, fused first)"
    )
    rerank: bool = _field(True, "whether the best hits are reranked")
    diversity: float | None = _field(
        None,
        "how much papers are put lower that resemble those above them, 0 to 1; around 0.3 for a varied list",
        ge=0,
        le=1,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        given = {
            "facet": self.facet is not None,
            "sentences": self.sentences is not None,
            "explore": self.explore is not None,
            "like and unlike": bool(self.like or self.unlike),
        }
        named = [name for name, is_given in given.items() if is_given]
        if len(named) > 1:
            raise UsageError(f"expected at most one of {', '.join(given)}, found {' and '.join(named)}")
        for name, value in (("sentences", self.sentences), ("labels", self.labels)):
            if value and len(self.paper_ids) > 1:
                raise UsageError(f"expected one paper for {name}, found {len(self.paper_ids)}")
        _ = self.aspects, self.corrected_labels

    @property
    def corrected_labels(self) -> dict[int, str]:
        labels, also = {}, {"problem": "background", "findings": "result"}
        for label in self.labels:
            position, _, name = label.partition(":")
            if not position.isdecimal() or name not in (*LABELS, *also):
                raise UsageError(
                    f"expected `labels` such as 2:method, of {', '.join((*LABELS, *also))}, found {label!r}"
                )
            labels[int(position)] = also.get(name, name)
        return labels

    @property
    def aspects(self) -> AspectSpec:
        """Which part of the papers forms the query, as `qbe.search.queries.query_by` takes it."""
        if self.explore is not None:
            return SHAPES[self.explore]
        if not (self.like or self.unlike):
            return Facet(self.facet) if self.facet else self.sentences
        weights, _ = parse_wish(self.like, self.unlike)
        if not any(weight > 0 for weight in weights.values()):
            raise UsageError("expected a facet in `like`, found none; a search starts from what is alike")
        return weights if len(weights) > 1 else next(iter(weights))

    @property
    def variety(self) -> Variety:
        variety = parse_wish(self.like, self.unlike)[1] if self.like or self.unlike else PLAIN
        return variety if self.diversity is None else replace(variety, diversity=self.diversity)

    def record(self) -> dict[str, Any]:
        """The fields that differ from their defaults."""
        values = ((each, getattr(self, each.name)) for each in dataclasses.fields(self))
        return {each.name: value for each, value in values if value not in ([], each.default)}

    def request(self, index: Index, *, titles: bool = True) -> SearchRequest:
        """Make the request: hits before the page, those left out, and one more to tell if it continues."""
        unlike = distinct_papers(index, self.not_paper_ids, titles=titles)
        papers = self.papers(index, titles=titles)
        if labels := self.corrected_labels:
            paper = index.label_facets(papers[0])
            if not all(position < len(paper.sentences) for position in labels):
                last = len(paper.sentences) - 1
                raise UsageError(f"expected positions from 0 to {last} in `labels`, found {max(labels)}")
            sentences = [
                sentence.labelled(labels[position]) if position in labels else sentence
                for position, sentence in enumerate(paper.sentences)
            ]
            papers = [replace(paper, sentences=tuple(sentences), labelled=True)]
        return SearchRequest(
            query_by(papers, unlike, self.aspects),
            k=self.start + self.k + len(set(self.exclude)) + 1,
            filter=self.paper_filter,
            explain=True,
            grades=True,
            variety=self.variety,
        )


@dataclass(frozen=True, kw_only=True)
class CitationForm(SourceForm):
    """A paper that is being written, to recommend citations for: a pasted abstract, or one of the index."""

    cited: list[str] = _field(list, "ids of papers that it cites already: not recommended again", MAX_SEEN)

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.paper_ids) > 1:
            raise UsageError(f"expected one paper that is being written, found {len(self.paper_ids)}")

"""What a program may ask for: models that check each value and describe themselves as JSON schemas."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, Self, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic.fields import FieldInfo

from qbe.errors import UsageError, did_you_mean
from qbe.index.index import Index
from qbe.query import PLAIN, SHAPES, Variety, Wish, parse_wish
from qbe.search.filters import PaperFilter, parse_where
from qbe.search.queries import AspectSpec, pasted_paper, query_by
from qbe.search.request import SearchRequest
from qbe.types import AIM, Facet, Paper

MOST_PAPERS, MOST_SEEN = 50, 1000
"""Papers that a request may name in one field, and those that it may leave out."""

MOST_TEXT, MOST_TITLE = 20_000, 1_000
"""Characters of a pasted abstract, and of its title."""

LABELS = ("background", AIM, "method", "result", "other")
"""What a sentence may be (`qbe.types.Sentence.label`)."""

MOST_NAME = 60
"""Characters of the name of an unknown field that a message has."""

DEEPEST, MOST_HITS = 1000, 100
"""The last place of a ranking that can be asked for, and how many places at a time."""


def _is_text(value: str) -> str:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError("expected text, found half of a pair of surrogates") from None
    if "\0" in value:
        raise ValueError("expected text, found a NUL character")
    return value


def _text(**limits: Any) -> Any:
    return Field(coerce_numbers_to_str=True, **limits)


LONGEST_ID = 300
PaperId = Annotated[str, _text(min_length=1, max_length=LONGEST_ID), AfterValidator(_is_text)]
FacetName = Literal["background", "method", "result"]
Shape = Literal["same-problem-other-method", "same-method-other-problem", "competitors"]
assert set(get_args(Shape)) == set(SHAPES)

Abstract = Annotated[
    str,
    _text(
        max_length=MOST_TEXT,
        description="an abstract, a few sentences that could stand in one, or a question",
    ),
    AfterValidator(_is_text),
]
Title = Annotated[
    str, _text(max_length=MOST_TITLE, description="the title that goes with text"), AfterValidator(_is_text)
]
K = Annotated[int, Field(ge=1, le=MOST_HITS, description="how many hits, at most")]
Format = Literal["bibtex", "ris", "csv", "markdown", "json"]

ALIASES: Mapping[str, Sequence[str]] = {
    "text": ("abstract", "content", "input", "prompt", "q", "query"),
    "paper_ids": ("doc_id", "document_id", "id", "ids", "paper", "paper_id", "papers"),
    "paper_id": ("doc_id", "document_id", "id", "paper", "paper_ids"),
    "k": ("count", "hits", "limit", "max_results", "n", "num_results", "size", "top", "top_k"),
    "start": ("from", "offset", "skip"),
}
"""What clients call a field, by its name."""


def _unknown_field(name: str, names: Collection[str]) -> str:
    meant = [field for field in names if name.lower() in ALIASES.get(field, ())]
    hint = f"did you mean {meant[0]}?" if meant else did_you_mean(name, names)
    expected = "a field of the request" if hint else f"one of the fields {', '.join(names)}"
    return f"expected {expected}, found {name[:MOST_NAME]!r}" + (hint and f"; {hint}")


def _listed(value: Any) -> Any:
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):  # of an address's parameter
        return _listed(value[0])
    if not isinstance(value, str):
        return value if isinstance(value, list) else [value]
    if value.startswith("["):
        with contextlib.suppress(ValueError, RecursionError):
            return json.loads(value)
    return [value]


def is_list(field: FieldInfo) -> bool:
    """Whether a field takes several values."""
    return any(get_origin(each) is list for each in (field.annotation, *get_args(field.annotation)))


class Body(BaseModel):
    """The fields of a request as clients mean them: null and an empty text are the same as none given, and a
    list may be the text of a JSON list, or a single value.

    >>> SearchBody.model_validate({"paper_ids": '["s036"]', "like": "method", "facet": ""}).like
    ['method']
    """

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _normalized(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            raise ValueError("expected a JSON object, found another value")
        fields = cls.model_fields
        for name in values:
            if name not in fields:
                raise ValueError(_unknown_field(str(name), fields))
        given = {
            name: _listed(value) if is_list(fields[name]) else value
            for name, value in values.items()
            if value is not None and value not in ("", [""])
        }
        for name, value in given.items():  # numbers to pydantic
            some = value if isinstance(value, list) else [value]
            kind = fields[name].annotation
            is_model = isinstance(kind, type) and issubclass(kind, BaseModel)
            if kind is not bool and not is_model and any(isinstance(each, bool) for each in some):
                raise ValueError(f"expected a number or text as {name}, found true or false")
        return given


def distinct_papers(index: Index, names: Sequence[str]) -> list[Paper]:
    """The papers of names, each once; raises PaperNotFoundError."""
    papers = (index.find(name) for name in dict.fromkeys(names))
    return list({paper.paper_id: paper for paper in papers}.values())


class Source(Body):
    """The papers that a search starts from: some of the index by id, or a pasted abstract."""

    paper_ids: list[PaperId] = Field(
        default=[],
        max_length=MOST_PAPERS,
        description="ids of papers of the index, or DOIs, arXiv ids, ACL ids, titles",
        examples=[["s036"]],
    )
    text: Abstract | None = None
    title: Title = ""

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if bool(self.paper_ids) == (self.text is not None):
            raise ValueError("expected paper_ids or text, found " + ("both" if self.paper_ids else "neither"))
        if self.text is not None and not self.text.strip():
            raise ValueError("expected an abstract as text, found white space")
        if self.title and self.text is None:
            raise ValueError("expected title with text only, found it with paper_ids; leave title out")
        return self

    def papers(self, index: Index) -> list[Paper]:
        """The papers; raises PaperNotFoundError, CorpusError for a text that is no abstract."""
        if self.text is not None:
            return [pasted_paper(self.text, self.title)]
        return distinct_papers(index, self.paper_ids)


class Page(Body):
    """Which places of a ranking, and which papers may be in it."""

    k: K = 20
    start: int = Field(
        default=0, ge=0, lt=DEEPEST, description="how many hits to skip: next_start of the page before"
    )
    exclude: list[PaperId] = Field(default=[], max_length=MOST_SEEN, description="papers to leave out")
    year_from: int | None = Field(default=None, ge=1, le=9999, description="the first year of hits")
    year_to: int | None = Field(default=None, ge=1, le=9999, description="the last year of hits")
    categories: list[PaperId] = Field(
        default=[], max_length=MOST_PAPERS, description="any of these, or below them (cs, cs.CL)"
    )
    authors: list[PaperId] = Field(
        default=[], max_length=MOST_PAPERS, description="any of these, by all words of a name"
    )
    where: list[PaperId] = Field(
        default=[],
        max_length=MOST_PAPERS,
        description="metadata, such as venue=SIGIR; technique=NAME: what papers say they use",
    )

    @model_validator(mode="after")
    def _is_within(self) -> Self:
        if self.start + self.k > DEEPEST:
            raise ValueError(
                f"expected start and k of at most {DEEPEST} together, found {self.start + self.k}"
            )
        try:
            _ = self.paper_filter
        except UsageError as error:
            raise ValueError(str(error)) from None
        return self

    @property
    def paper_filter(self) -> PaperFilter | None:
        """The filter, None where all papers pass; raises UsageError."""
        years = None if self.year_from is None and self.year_to is None else (self.year_from, self.year_to)
        if years is None and not (self.categories or self.authors or self.where):
            return None
        return PaperFilter(
            years=years,
            categories=tuple(self.categories),
            authors=tuple(self.authors),
            where=parse_where(self.where),
        )


class SearchBody(Source, Page):
    """A search: what it starts from, which part of it forms the query, and which papers may be found.

    At most one of ``facet``, ``sentences``, ``explore`` and ``like`` with ``unlike`` says which part; with
    none it is the whole abstract.

    >>> SearchBody(paper_ids=["s036"], like=["background"], unlike=["method:0.5"]).aspects
    {<Facet.BACKGROUND: 'background'>: 1.0, <Facet.METHOD: 'method'>: -0.5}
    >>> SearchBody(paper_ids=["s036"], facet="method").compile(index).query.query_id
    's036_method'
    """

    not_paper_ids: list[PaperId] = Field(
        default=[], max_length=MOST_PAPERS, description="papers that hits should not be like"
    )
    facet: FacetName | None = Field(
        default=None,
        description="what hits should have in common with the papers; by default the whole abstract",
    )
    sentences: list[Annotated[int, Field(ge=0, le=10_000)]] | None = Field(
        default=None, min_length=1, max_length=200, description="positions of sentences to search by, from 0"
    )
    labels: list[PaperId] = Field(
        default=[],
        max_length=200,
        description="corrected labels of sentences, by position from 0, such as 2:method, 0:aim or 3:other",
    )
    like: list[PaperId] = Field(
        default=[],
        max_length=3,
        description="in place of facet: facets in common, such as method or method:0.5, or background>=2 (a "
        "grade of at least 2); or names of explore, a list mixed of them, each with its share as in "
        "competitors:2",
    )
    unlike: list[PaperId] = Field(
        default=[],
        max_length=3,
        description="with like: facets that should differ, such as background, or method<=1 (a grade of at "
        "most 1)",
    )
    explore: Shape | None = Field(
        default=None, description="in place of facet: a named combination of like and unlike"
    )
    first_stage: Literal["bm25", "dense", "fused"] | None = Field(
        default=None, description="how candidates are found (default: what the index allows, fused first)"
    )
    rerank: bool = Field(default=True, description="whether the best hits are reranked")
    diversity: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="how much papers are put lower that resemble those above them, 0 to 1; around 0.3 for a "
        "varied list",
    )

    @model_validator(mode="after")
    def _has_one_form(self) -> Self:
        given = {
            "facet": self.facet is not None,
            "sentences": self.sentences is not None,
            "explore": self.explore is not None,
            "like and unlike": bool(self.like or self.unlike),
        }
        named = [name for name, is_given in given.items() if is_given]
        if len(named) > 1:
            raise ValueError(f"expected at most one of {', '.join(given)}, found {' and '.join(named)}")
        for name, value in (("sentences", self.sentences), ("labels", self.labels)):
            if value and len(self.paper_ids) > 1:
                raise ValueError(f"expected one paper for {name}, found {len(self.paper_ids)}")
        try:
            _ = self.aspects, self.corrected_labels
        except UsageError as error:
            raise ValueError(str(error)) from None
        return self

    @property
    def corrected_labels(self) -> dict[int, str]:
        """The right labels of sentences by position; raises UsageError."""
        pairs = [label.partition(":") for label in self.labels]
        if not all(position.isdecimal() and name in LABELS for position, _, name in pairs):
            expected = f"`labels` such as 2:method, of {', '.join(LABELS)}"
            raise UsageError(f"expected {expected}, found {self.labels[0]!r}")
        return {int(position): name for position, _, name in pairs}

    @property
    def aspects(self) -> AspectSpec:
        """Which part of the papers forms the query, see `qbe.search.queries.query_by`; raises UsageError."""
        if self.explore is not None:
            return SHAPES[self.explore]
        if self._wish is None:
            return Facet(self.facet) if self.facet else self.sentences
        weights = self._wish.weights
        if not any(weight > 0 for weight in weights.values()):
            raise UsageError("expected a facet in `like`, found none; a search starts from what is alike")
        (only, *others) = weights
        return weights if others else only

    @property
    def _wish(self) -> Wish | None:
        return parse_wish(self.like, self.unlike) if self.like or self.unlike else None

    @property
    def variety(self) -> Variety:
        """How the list is put together; raises UsageError."""
        variety = PLAIN if self._wish is None else self._wish.variety
        return replace(variety, diversity=self.diversity) if "diversity" in self.model_fields_set else variety

    def compile(self, index: Index) -> SearchRequest:
        """The request to a `qbe.search.session.SearchSession`: with the hits before the page, those that are
        left out, and one more, which tells whether the ranking goes on.

        Raises what `qbe.search.queries.query_by` does, PaperNotFoundError for ids that the index lacks,
        CorpusError for a pasted text that is no abstract.
        """
        unlike = distinct_papers(index, self.not_paper_ids)
        papers = self.papers(index)
        if self.labels:
            papers = [_relabelled(index.label_facets(paper), self.corrected_labels) for paper in papers]
        return SearchRequest(
            query_by(papers, unlike, self.aspects),
            k=self.start + self.k + len(set(self.exclude)) + 1,
            filter=self.paper_filter,
            explain=True,
            variety=self.variety,
        )


def _relabelled(paper: Paper, labels: Mapping[int, str]) -> Paper:
    """A paper with the right labels of some sentences; raises UsageError for positions that it lacks."""
    if not all(position < len(paper.sentences) for position in labels):
        last = len(paper.sentences) - 1
        raise UsageError(f"expected positions from 0 to {last} in `labels`, found {max(labels)}")
    sentences = [
        sentence.labelled(labels[position]) if position in labels else sentence
        for position, sentence in enumerate(paper.sentences)
    ]
    return replace(paper, sentences=tuple(sentences), labelled=True)


class RecommendationBody(Source, Page):
    """A paper that is being written, to recommend citations for: a pasted abstract, or one of the index."""

    cited: list[PaperId] = Field(
        default=[],
        max_length=MOST_SEEN,
        description="ids of papers that it cites already: not recommended again",
    )

    @model_validator(mode="after")
    def _is_of_one(self) -> Self:
        if len(self.paper_ids) > 1:
            raise ValueError(f"expected one paper that is being written, found {len(self.paper_ids)}")
        return self


class PastedText(Body):
    """A pasted abstract."""

    text: Abstract = Field(min_length=1)
    title: Title = ""


class Comparison(Body):
    """A paper of the index, or a pasted abstract, and a paper of the index to compare it with."""

    paper_id: PaperId | None = Field(default=None, description="a paper of the index")
    text: Abstract | None = None
    title: Title = ""
    other_id: PaperId = Field(description="the paper of the index to compare it with")

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if (self.paper_id is None) == (self.text is None):
            raise ValueError(
                "expected paper_id or text, found " + ("neither" if self.text is None else "both")
            )
        return self


class Export(Body):
    """Papers to export."""

    paper_ids: list[PaperId] = Field(
        min_length=1, max_length=MOST_SEEN, description="ids of papers of the index, in order"
    )
    format: Format = Field(default="bibtex", description="json: a line a paper")


def problem_in_words(problems: Sequence[Any]) -> str:
    """The first of the problems that pydantic found in a request, in one line, without what was sent.

    >>> from pydantic import ValidationError
    >>> try:
    ...     SearchBody(paper_ids=["s036"], k=0)
    ... except ValidationError as error:
    ...     problem_in_words(error.errors())
    'k: input should be greater than or equal to 1'
    """
    first = problems[0]
    if first["type"] == "json_invalid":
        return "expected a body of JSON, found what cannot be read as such"
    if first["type"] == "missing" and first["loc"] == ("body",):
        return "expected a JSON object, found an empty body"
    parts = first["loc"][1:] if first["loc"][:1] in (("body",), ("query",), ("path",)) else first["loc"]
    where = ".".join(map(str, parts))
    message = first["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    more = f" (and {len(problems) - 1} more problems)" if len(problems) > 1 else ""
    return f"{where}: {message}{more}" if where else f"{message}{more}"

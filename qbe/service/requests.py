"""What a program may ask for: models that check each value and describe themselves as JSON schemas."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, Self, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic.fields import FieldInfo

from qbe.errors import UsageError, did_you_mean
from qbe.search.filters import PaperFilter, parse_where
from qbe.search.parsing import parse_facets
from qbe.search.queries import Counted
from qbe.shapes import COMPETITORS, SAME_METHOD_OTHER_PROBLEM, SAME_PROBLEM_OTHER_METHOD, SHAPES
from qbe.types import Facet

MOST_PAPERS = 50
"""Papers that a request may name in one field."""

MOST_SEEN = 1000
"""Papers that a request may leave out."""

MOST_TEXT, MOST_TITLE = 20_000, 1_000
"""Characters of a pasted abstract, and of its title."""

OTHER = "other"
"""What a sentence is about that has none of the facets."""

MOST_NAME = 60
"""Characters of a field's name that is none, in what is said of it."""

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


Text = Annotated[str, AfterValidator(_is_text)]
Abstract = Annotated[str, Field(max_length=MOST_TEXT), AfterValidator(_is_text)]
Title = Annotated[str, Field(max_length=MOST_TITLE), AfterValidator(_is_text)]
PaperId = Annotated[str, Field(min_length=1, max_length=300), AfterValidator(_is_text)]
FacetName = Literal["background", "method", "result"]
Shape = Literal["same-problem-other-method", "same-method-other-problem", "competitors"]
assert set(SHAPES) == {SAME_PROBLEM_OTHER_METHOD, SAME_METHOD_OTHER_PROBLEM, COMPETITORS}


ALIASES: Mapping[str, Sequence[str]] = {
    "text": ("abstract", "content", "input", "prompt", "q", "query"),
    "paper_ids": ("doc_id", "document_id", "id", "ids", "paper", "paper_id", "papers"),
    "paper_id": ("doc_id", "document_id", "id", "paper", "paper_ids"),
    "k": ("count", "hits", "limit", "max_results", "n", "num_results", "size", "top", "top_k"),
    "start": ("from", "offset", "skip"),
}
"""What clients call a field, by its name."""


class Given(BaseModel):
    """Fields as clients give them: null and an empty text are the same as none given, a list may be the text
    of a JSON list or a single value, and a number a text.

    >>> SearchRequest.model_validate({"paper_ids": '["s036"]', "like": "method", "k": "5", "facet": ""}).k
    5
    """

    model_config = ConfigDict(extra="forbid", coerce_numbers_to_str=True)

    @model_validator(mode="before")
    @classmethod
    def _as_meant(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            raise ValueError("expected a JSON object, found another value")
        for name in values:
            if name not in cls.model_fields:
                raise ValueError(_unknown_field(str(name), cls.model_fields))
        return {
            name: _listed(value) if get_origin(_type_of(cls.model_fields[name])) is list else value
            for name, value in values.items()
            if value not in (None, "", [""])
        }


def _unknown_field(name: str, known: Iterable[str]) -> str:
    meant = [field for field in known if name.lower() in ALIASES.get(field, ())]
    hint = f"did you mean {meant[0]}?" if meant else did_you_mean(name, known)
    expected = "a field of the request" if hint else f"one of the fields {', '.join(known)}"
    return f"expected {expected}, found {name[:MOST_NAME]!r}" + (hint and f"; {hint}")


def _type_of(field: FieldInfo) -> Any:
    """The type of a field, without None."""
    return next((each for each in get_args(field.annotation) if get_origin(each) is list), field.annotation)


def _listed(value: Any) -> Any:
    if (
        isinstance(value, list) and len(value) == 1 and isinstance(value[0], str)
    ):  # of a parameter of an address
        return _listed(value[0])
    if not isinstance(value, str):
        return value if isinstance(value, list) else [value]
    if value.startswith("["):
        with contextlib.suppress(ValueError, RecursionError):
            return json.loads(value)
    return [value]


class Source(Given):
    """The papers that a search starts from: some of the index by id, or a pasted abstract."""

    paper_ids: list[PaperId] = Field(
        default_factory=list, max_length=MOST_PAPERS, description="papers of the index", examples=[["s036"]]
    )
    text: Abstract | None = Field(default=None, description="a pasted abstract, in place of paper_ids")
    title: Title = Field(default="", description="the title of the pasted abstract")

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if bool(self.paper_ids) == (self.text is not None):
            raise ValueError("expected paper_ids or text, found " + ("both" if self.paper_ids else "neither"))
        if self.text is not None and not self.text.strip():
            raise ValueError("expected an abstract as text, found white space")
        return self


class Filters(Given):
    """Which papers may be found."""

    year_from: int | None = Field(default=None, ge=1, le=9999, description="the first year")
    year_to: int | None = Field(default=None, ge=1, le=9999, description="the last year")
    categories: list[PaperId] = Field(
        default_factory=list, max_length=MOST_PAPERS, description="any of these, or below them (cs, cs.CL)"
    )
    authors: list[PaperId] = Field(
        default_factory=list, max_length=MOST_PAPERS, description="any of these authors"
    )
    where: list[PaperId] = Field(
        default_factory=list, max_length=MOST_PAPERS, description="metadata, such as venue=SIGIR"
    )

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


class Page(Given):
    """Which places of a ranking."""

    k: int = Field(default=20, ge=1, le=MOST_HITS, description="how many hits")
    start: int = Field(default=0, ge=0, lt=DEEPEST, description="how many hits to skip")

    @model_validator(mode="after")
    def _is_within(self) -> Self:
        if self.start + self.k > DEEPEST:
            raise ValueError(
                f"expected start and k of at most {DEEPEST} together, found {self.start + self.k}"
            )
        return self


class SearchRequest(Source, Filters, Page):
    """A search: what it starts from, what of it counts, and which papers may be found.

    At most one of ``facet``, ``sentences``, ``explore`` and ``like`` with ``unlike`` says what counts; with
    none the whole abstract does.

    >>> SearchRequest(paper_ids=["s036"], like=["background"], unlike=["method:0.5"]).counted
    {<Facet.BACKGROUND: 'background'>: 1.0, <Facet.METHOD: 'method'>: -0.5}
    """

    not_paper_ids: list[PaperId] = Field(
        default_factory=list, max_length=MOST_PAPERS, description="papers that hits should not be like"
    )
    exclude: list[PaperId] = Field(
        default_factory=list, max_length=MOST_SEEN, description="papers that are not to be among the hits"
    )
    facet: FacetName | None = Field(
        default=None, description="what hits should have in common with the papers"
    )
    sentences: list[Annotated[int, Field(ge=0, le=10_000)]] | None = Field(
        default=None, min_length=1, max_length=200, description="positions of sentences that count, from 0"
    )
    labels: list[PaperId] = Field(
        default_factory=list,
        max_length=200,
        description="corrected facets of sentences, by position from 0, such as 2:method or 0:other",
    )
    like: list[PaperId] = Field(
        default_factory=list,
        max_length=3,
        description="facets to have in common, such as method or method:0.5",
    )
    unlike: list[PaperId] = Field(
        default_factory=list, max_length=3, description="facets that should differ, such as background:0.5"
    )
    explore: Shape | None = Field(default=None, description="a named combination of like and unlike")
    first_stage: Literal["bm25", "dense", "fused"] | None = Field(
        default=None,
        description="how candidates are found (default: fused, or dense where the index has vectors only)",
    )
    rerank: bool = Field(
        default=True, description="whether the best hits are read again by the reranker (slower)"
    )

    @model_validator(mode="after")
    def _counts_one_thing(self) -> Self:
        given = {
            "facet": self.facet is not None,
            "sentences": self.sentences is not None,
            "explore": self.explore is not None,
            "like and unlike": bool(self.like or self.unlike),
        }
        named = [name for name, is_given in given.items() if is_given]
        if len(named) > 1:
            raise ValueError(f"expected at most one of {', '.join(given)}, found {' and '.join(named)}")
        if self.sentences is not None and len(self.paper_ids) > 1:
            raise ValueError(f"expected one paper to count sentences of, found {len(self.paper_ids)}")
        if self.labels and len(self.paper_ids) > 1:
            raise ValueError(f"expected one paper to correct labels of, found {len(self.paper_ids)}")
        try:
            _ = self.counted, self.paper_filter, self.corrected
        except UsageError as error:
            raise ValueError(str(error)) from None
        return self

    @property
    def corrected(self) -> dict[int, Facet | None]:
        """The right facets of sentences by position, None for other; raises UsageError."""
        pairs = [label.partition(":") for label in self.labels]
        try:
            return {int(position): None if name == OTHER else Facet(name) for position, _, name in pairs}
        except ValueError:
            expected = "`labels` such as 2:method, 0:background, 1:result or 3:other"
            raise UsageError(f"expected {expected}, found {self.labels[0]!r}") from None

    @property
    def counted(self) -> Counted:
        """What counts, as `qbe.search.queries.query_by` takes it; raises UsageError."""
        if self.explore is not None:
            return SHAPES[self.explore]
        if self.like or self.unlike:
            weights = parse_facets(self.like, self.unlike)
            if not any(weight > 0 for weight in weights.values()):
                raise UsageError("expected a facet in `like`, found none; a search starts from what is alike")
            (only, *others) = weights
            return weights if others else only
        return Facet(self.facet) if self.facet else self.sentences


class RecommendationRequest(Source, Filters, Page):
    """A paper that is being written, to recommend citations for: a pasted abstract, or one of the index."""

    cited: list[PaperId] = Field(
        default_factory=list, max_length=MOST_SEEN, description="papers of the index that it cites already"
    )
    exclude: list[PaperId] = Field(
        default_factory=list, max_length=MOST_SEEN, description="papers that are not to be among the hits"
    )

    @model_validator(mode="after")
    def _is_of_one(self) -> Self:
        if len(self.paper_ids) > 1:
            raise ValueError(f"expected one paper that is being written, found {len(self.paper_ids)}")
        return self


class PastedText(Given):
    """A pasted abstract."""

    text: Abstract = Field(min_length=1, description="an abstract")
    title: Title = Field(default="")


class Comparison(Given):
    """A paper of the index, or a pasted abstract, and a paper of the index to compare it with."""

    paper_id: PaperId | None = Field(default=None, description="a paper of the index")
    text: Abstract | None = Field(default=None, description="a pasted abstract instead")
    title: Title = Field(default="")
    other_id: PaperId = Field(description="the paper of the index to compare it with")

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if (self.paper_id is None) == (self.text is None):
            raise ValueError(
                "expected paper_id or text, found " + ("neither" if self.text is None else "both")
            )
        return self


class Export(Given):
    """Papers to take home."""

    paper_ids: list[PaperId] = Field(min_length=1, max_length=MOST_SEEN)
    format: Literal["bibtex", "ris", "csv", "markdown", "json"] = "bibtex"


def problem_in_words(problems: Sequence[Any]) -> str:
    """The first of the problems that pydantic found in a request, in one line, without what was sent.

    >>> from pydantic import ValidationError
    >>> try:
    ...     SearchRequest(paper_ids=["s036"], k=0)
    ... except ValidationError as error:
    ...     problem_in_words(error.errors())
    'k: input should be greater than or equal to 1'
    """
    first = problems[0]
    if first["type"] == "json_invalid":
        return "expected a body of JSON, found what cannot be read as such"
    parts = first["loc"][1:] if first["loc"][:1] in (("body",), ("query",), ("path",)) else first["loc"]
    where = ".".join(map(str, parts))
    message = first["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    more = f" (and {len(problems) - 1} more problems)" if len(problems) > 1 else ""
    return f"{where}: {message}{more}" if where else f"{message}{more}"


def as_json(record: Mapping[str, Any]) -> str:
    """A record as JSON in one line; raises ValueError for what JSON has no number for.

    >>> as_json({"title": "Über"})
    '{"title":"Über"}'
    """
    return json.dumps(record, ensure_ascii=False, allow_nan=False, separators=(",", ":"))

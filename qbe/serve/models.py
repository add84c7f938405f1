"""Request models shared by HTTP and MCP, made of the dataclasses of `qbe.search.request`."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self, get_args, get_origin, get_type_hints

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model, model_validator
from pydantic.fields import FieldInfo

from qbe.errors import did_you_mean
from qbe.feeds.watches import MAX_WATCH_NAME
from qbe.search.request import MAX_HITS, MAX_SEEN, MAX_TEXT, MAX_TITLE, CitationForm, SearchForm

MAX_FIELD = 60  # characters of an unknown field's name in a message


def _is_text(value: str) -> str:
    if "\0" in value:
        raise ValueError("expected text, found a NUL character")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("expected text, found half of a pair of surrogates") from None
    return value


def _text(**limits: Any) -> Any:
    return Field(coerce_numbers_to_str=True, **limits)


PaperId = Annotated[str, _text(min_length=1, max_length=300), AfterValidator(_is_text)]
_ABSTRACT = "an abstract, a few sentences that could stand in one, or a question"
Abstract = Annotated[str, _text(max_length=MAX_TEXT, description=_ABSTRACT), AfterValidator(_is_text)]
_TITLE = "the title that goes with text"
Title = Annotated[str, _text(max_length=MAX_TITLE, description=_TITLE), AfterValidator(_is_text)]
K = Annotated[int, Field(ge=1, le=MAX_HITS, description="how many hits, at most")]
Format = Literal["bibtex", "ris", "csv", "markdown", "json"]

_KINDS: dict[Any, Any] = {
    list[str]: list[PaperId],
    str | None: Abstract | None,
    str: Title,
    list[int] | None: list[Annotated[int, Field(ge=0, le=10_000)]] | None,
    float | None: float,
}
"""Types of fields of a form as requests have them."""


class Body(BaseModel):
    """The fields of a request as clients mean them: null and an empty text are the same as none given, and a
    list may be the text of a JSON list, or a single value.
    """

    model_config = ConfigDict(extra="forbid")
    form_type: ClassVar[type]

    def form(self) -> Any:
        """The dataclass of the request; raises UsageError for fields that do not go together."""
        values = {name: getattr(self, name) for name in type(self).model_fields}
        if "diversity" not in self.model_fields_set:  # then the reranker says how varied a list is
            values.pop("diversity", None)
        return self.form_type(**values)

    @model_validator(mode="before")
    @classmethod
    def _normalized(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            raise ValueError("expected a JSON object, found another value")
        fields, given = cls.model_fields, {}
        for name, value in values.items():
            if name not in fields:
                hint = did_you_mean(str(name), fields)
                expected = "a field of the request" if hint else f"one of the fields {', '.join(fields)}"
                found = f"expected {expected}, found {str(name)[:MAX_FIELD]!r}"
                raise ValueError(f"{found}; {hint}" if hint else found)
            if value is None or value in ("", [""]):
                continue
            given[name] = value = _listed(value) if is_list(fields[name]) else value
            some = value if isinstance(value, list) else [value]
            kind = fields[name].annotation
            is_model = isinstance(kind, type) and issubclass(kind, BaseModel)
            # They are numbers to pydantic.
            if kind is not bool and not is_model and any(isinstance(each, bool) for each in some):
                raise ValueError(f"expected a number or text as {name}, found true or false")
        return given


def _listed(value: Any) -> Any:
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):  # of a query parameter
        value = value[0]
    if not isinstance(value, str):
        return value if isinstance(value, list) else [value]
    if value.startswith("["):
        with contextlib.suppress(ValueError, RecursionError):
            return json.loads(value)
    return [value]


def is_list(field: FieldInfo) -> bool:
    """Whether a field takes several values."""
    return any(get_origin(each) is list for each in (field.annotation, *get_args(field.annotation)))


def model_of(form: type) -> Any:
    """A model with the fields of a dataclass."""
    hints, fields = get_type_hints(form), {}
    for each in dataclasses.fields(form):
        kind = _KINDS.get(hints[each.name], hints[each.name])
        default = each.default if each.default_factory is dataclasses.MISSING else []
        fields[each.name] = kind, Field(default=0.0 if kind is float else default, **each.metadata)
    model = create_model(form.__name__, __base__=Body, **fields)  # type: ignore[call-overload]
    model.form_type = form
    return model


class SearchBody(model_of(SearchForm)):  # type: ignore[misc]
    """A search: what it starts from, which part of it forms the query, and which papers may be found.

    At most one of ``facet``, ``sentences``, ``explore`` and ``like`` with ``unlike`` says which part; with
    none it is the whole abstract.
    """


class RecommendationBody(model_of(CitationForm)):  # type: ignore[misc]
    """A paper that is being written, to recommend citations for: a pasted abstract, or one of the index."""


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
            found = "neither" if self.text is None else "both"
            raise ValueError(f"expected paper_id or text, found {found}")
        return self


class Export(Body):
    """Papers to export."""

    paper_ids: list[PaperId] = Field(
        min_length=1, max_length=MAX_SEEN, description="ids of papers of the index, in order"
    )
    format: Format = Field(default="bibtex", description="json: a line a paper")


class WatchName(Body):
    """A search that is kept."""

    name: str = Field(min_length=1, max_length=MAX_WATCH_NAME, description="what it is called")


class WatchBody(WatchName):
    """A search to keep under a name."""

    search: SearchBody = Field(description="as of /api/search; its page and exclude do not count")
    grade: float | None = Field(
        default=None, ge=0, le=3, description="papers of at least this grade are new (default: 1, or 0.5)"
    )


def problem_in_words(problems: Sequence[Any]) -> str:
    """The first of the problems that pydantic found in a request, in one line, without what was sent."""
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

"""Functions that are called by HTTP and by agents: their parameters as clients mean them, and as schemas."""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, make_dataclass
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError

from qbe.errors import UsageError, did_you_mean
from qbe.search.request import MAX_SEEN, MAX_TEXT, MAX_TITLE

# Characters of a text, papers and hits of a request that takes about as long as most others.
LONG_TEXT, FEW_PAPERS, FEW_HITS = 5000, 5, 200
MAX_FIELD = 60  # characters of an unknown field's name in a message

_ABSTRACT = "an abstract, a few sentences that could stand in one, or a question"
Abstract = Annotated[str, Field(description=_ABSTRACT, max_length=MAX_TEXT)]
Title = Annotated[str, Field(description="the title of text, if not its first line", max_length=MAX_TITLE)]
PaperId = Annotated[
    str, Field(description="a paper of the index, by paper_id or another name", max_length=300)
]
PaperIds = Annotated[
    list[str], Field(min_length=1, max_length=MAX_SEEN, description="ids of papers of the index, in order")
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

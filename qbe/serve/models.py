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

MAX_FIELD = 60  # characters of an unknown field's name in a message


_ABSTRACT = "an abstract, a few sentences that could stand in one, or a question"
Abstract = Annotated[str, Field(description=_ABSTRACT, max_length=MAX_TEXT)]
Title = Annotated[str, Field(description="the title that goes with text", max_length=MAX_TITLE)]
PaperId = Annotated[
    str, Field(description="a paper of the index, by paper_id or another name", max_length=300)
]
PaperIds = Annotated[
    list[str], Field(min_length=1, max_length=MAX_SEEN, description="ids of papers of the index, in order")
]
Format = Annotated[
    Literal["bibtex", "ris", "csv", "markdown", "json"], Field(description="json: a line a paper")
]


@functools.cache
def form_of(function: Callable[..., Any]) -> Any:
    """Return the dataclass of a function's parameters but the first, or which is its only other parameter."""
    hints = get_type_hints(function, include_extras=True)
    _, *parameters = inspect.signature(function).parameters.values()
    if len(parameters) == 1 and is_dataclass(hints[parameters[0].name]):
        return hints[parameters[0].name]
    hints |= {name: _field(kind) for name, kind in hints.items() if is_dataclass(kind)}
    named = [
        (each.name, hints[each.name], *([] if each.default is each.empty else [each.default]))
        for each in parameters
    ]
    return make_dataclass(function.__name__, named, kw_only=True, namespace={"of_function": True})


def call(function: Callable[..., Any], first: Any, values: Any) -> Any:
    """Call a function with its first argument and what a client sent as the others.

    Raises UsageError of one line, without what was sent.
    """
    form = form_of(function)
    try:
        given = _adapter(form).validate_python(values)
    except ValidationError as error:
        problem, *others = error.errors(include_url=False)
        where = ".".join(map(str, problem["loc"]))
        message = problem["msg"].removeprefix("Value error, ")
        message = f"{where}: {message[:1].lower()}{message[1:]}".removeprefix(": ")
        raise UsageError(message + (f" (and {len(others)} more problems)" if others else "")) from None
    return function(first, **vars(given)) if hasattr(form, "of_function") else function(first, given)


def schema_of(form: type) -> dict[str, Any]:
    """Return the JSON schema of a form, which allows no other fields."""
    schema = _adapter(form).json_schema(ref_template="#/components/schemas/{model}")
    return {"properties": {}, **schema, "additionalProperties": False}


def _field(form: Any) -> Any:
    return Annotated[form, BeforeValidator(functools.partial(_normalized, form))]


@functools.cache
def _adapter(form: type) -> TypeAdapter[Any]:
    return TypeAdapter(_field(form))


@functools.cache
def _kinds(form: type) -> dict[str, Any]:
    hints = get_type_hints(form)
    return {each.name: hints[each.name] for each in fields(form)}


def is_list(form: type, name: str) -> bool:
    """Return True for a field of several values."""
    kind = _kinds(form).get(name)
    return any(get_origin(each) is list for each in (kind, *get_args(kind)))


def _normalized(form: type, values: Any) -> dict[str, Any]:
    """Fields as clients write them: null and an empty text are the same as none given, a list may be the text
    of a JSON list or a single value, and a number may stand for a text.
    """
    if not isinstance(values, Mapping):
        raise ValueError("expected a JSON object, found another value")
    kinds, given = _kinds(form), {}
    for name, value in values.items():
        if name not in kinds:
            hint = did_you_mean(str(name), kinds)
            expected = "a field of the request" if hint else f"one of the fields {', '.join(kinds)}"
            found = f"expected {expected}, found {str(name)[:MAX_FIELD]!r}"
            raise ValueError(f"{found}; {hint}" if hint else found)
        if value is None or value in ("", [""]):
            continue
        kind = kinds[name]
        some = value if isinstance(value, list) else [value]
        if is_list(form, name):
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

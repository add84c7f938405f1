"""Shapes of exploration: which facets a paper is to have in common with the query's, and which not."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from qbe.errors import UsageError, did_you_mean
from qbe.query import check_weight
from qbe.types import Facet

SAME_PROBLEM_OTHER_METHOD = "same-problem-other-method"
SAME_METHOD_OTHER_PROBLEM = "same-method-other-problem"
COMPETITORS = "competitors"

SIMILAR_FROM, OTHER_TO = 1.5, 1.0
"""Grades: a paper is similar in a facet from the one on, and another one up to the other."""

HIGHEST = 3.0
"""The highest grade."""

SHAPES: Mapping[str, Mapping[Facet, float]] = {
    SAME_PROBLEM_OTHER_METHOD: {Facet.BACKGROUND: 1.0, Facet.METHOD: -1.0},
    SAME_METHOD_OTHER_PROBLEM: {Facet.METHOD: 1.0, Facet.BACKGROUND: -1.0},
    COMPETITORS: {Facet.BACKGROUND: 1.0, Facet.METHOD: 1.0},
}
"""Weights of facets by the name of a shape, as `qbe.query.Query.by_facets` takes them: other approaches to
the same problem, other uses of the same technique, and papers that do the same in the same way.
"""


@dataclass(frozen=True, slots=True)
class Variety:
    """How a list is put together of graded papers.

    ``mix`` are SHAPES with their shares of the list: each place goes to the shape that has the fewest places
    for its share. ``bounds`` are the lowest and the highest grade of hits by facet, each from 0 to 3.
    ``diversity``, from 0 to 1, is how much a paper is put lower that resembles those above it in background,
    method and result (None: as `qbe.search.stages.Grades` says). Raises UsageError for other values.

    >>> variety = Variety({COMPETITORS: 2, SAME_PROBLEM_OTHER_METHOD: 1}, diversity=0.25)
    >>> variety.weights
    {<Facet.BACKGROUND: 'background'>: 1.0, <Facet.METHOD: 'method'>: 1.0}
    """

    mix: Mapping[str, float] = field(default_factory=dict)
    bounds: Mapping[Facet, tuple[float, float]] = field(default_factory=dict)
    diversity: float | None = None

    def __post_init__(self) -> None:
        for name, share in self.mix.items():
            if name not in SHAPES:
                raise UsageError(f"expected `mix` of {', '.join(SHAPES)}, found {name!r:.60}")
            check_weight(share)
            if share < 0:
                raise UsageError(f"expected shares above 0 in `mix`, found {share:g} of {name}")
        for facet, (lowest, highest) in self.bounds.items():
            if not (isinstance(facet, Facet) and 0 <= lowest <= highest <= HIGHEST):
                raise UsageError(
                    f"expected grades from 0 to {HIGHEST:g} by facet in `bounds`, the lowest first, found "
                    f"{lowest:g} and {highest:g} for {facet}"
                )
        if self.diversity is not None and not 0 <= self.diversity <= 1:
            raise UsageError(f"expected `diversity` from 0 to 1, found {self.diversity:g}")

    @property
    def weights(self) -> dict[Facet, float]:
        """Of a mix: weights of the facets that its candidates are found by, as `Query.by_facets` takes them;
        positive where one of its shapes likes the facet.
        """
        weights: dict[Facet, float] = {}
        for name in self.mix:
            for facet, weight in SHAPES[name].items():
                weights[facet] = max(weight, weights.get(facet, weight))
        return {facet: weights[facet] for facet in Facet if facet in weights}

    def admits(self, grades: Mapping[str, float]) -> bool:
        """Whether a paper of these grades, by the names of facets, may be in the list.

        >>> Variety(bounds={Facet.METHOD: (0, 1)}).admits({"background": 2.5, "method": 1.5})
        False
        """
        return all(
            lowest <= grades.get(facet.value, 0.0) <= highest
            for facet, (lowest, highest) in self.bounds.items()
        )


PLAIN = Variety()
"""A list in the order of its ranking."""


class Wish(NamedTuple):
    """What hits are to be like: ``weights`` of facets, as `qbe.query.Query.by_facets` takes them, and how
    their list is put together.
    """

    weights: dict[Facet, float]
    variety: Variety = PLAIN


def parse_wish(liked: Sequence[str], disliked: Sequence[str]) -> Wish:
    """A wish out of what is liked and what is disliked, as users write them.

    Each is a facet with a weight after a colon, by default 1, and perhaps a grade: ``background>=2`` (liked,
    at least 2), ``method<=1`` (disliked, in either list, at most 1). In place of all of them one of SHAPES
    may be liked, or several, a mix of them: each with its share after a colon, by default 1.

    Raises UsageError for what is none of these, for a facet or shape that is there twice, and for weights,
    shares and grades out of range.

    >>> parse_wish(["background"], ["method:0.5"]).weights
    {<Facet.BACKGROUND: 'background'>: 1.0, <Facet.METHOD: 'method'>: -0.5}
    >>> parse_wish(["background>=2", "method<=1"], []).variety.bounds[Facet.METHOD]
    (0.0, 1.0)
    >>> parse_wish(["competitors:2", "same-method-other-problem"], []).variety.mix
    {'competitors': 2.0, 'same-method-other-problem': 1.0}
    """
    if liked and not disliked and any(_name(part) in SHAPES for part in liked):
        if len(liked) == 1 and liked[0] in SHAPES:
            return Wish(dict(SHAPES[liked[0]]))
        variety = Variety(_mix(liked))
        return Wish(variety.weights, variety)
    weights: dict[Facet, float] = {}
    bounds: dict[Facet, tuple[float, float]] = {}
    for part, is_liked in (*((each, True) for each in liked), *((each, False) for each in disliked)):
        facet, weight, bound = _facet(part, is_liked)
        if (known := weights.get(facet)) is not None:
            if known * weight > 0:
                raise _not_facets(part)
            raise UsageError(
                f"expected facets to like and others not to, found {facet} among both; check `like` and "
                "`unlike`"
            )
        weights[facet] = weight
        if bound is not None:
            bounds[facet] = bound
    return Wish(weights, Variety(bounds=bounds))


_FACET = re.compile(r"(\w+)(?::([^<>=]*))?(?:(>=|<=)(.*))?", re.DOTALL)


def _facet(part: str, is_liked: bool) -> tuple[Facet, float, tuple[float, float] | None]:
    """A facet with its weight, negative where it is disliked, and the grades that it may have."""
    match = _FACET.fullmatch(part)
    try:
        if match is None:
            raise ValueError
        name, number, sign, grade = match.groups()
        facet, weight = Facet(name), 1.0 if number is None else float(number)
        bound = None
        if sign == "<=":
            is_liked, bound = False, (0.0, float(grade))
        elif sign:
            bound = (float(grade), HIGHEST)
        if not 0 < weight < inf or (sign == ">=" and not is_liked):
            raise ValueError
    except ValueError:
        raise _not_facets(part) from None
    check_weight(weight)
    return facet, weight if is_liked else -weight, bound


def _not_facets(part: str) -> UsageError:
    return UsageError(
        "expected facets such as background, method:0.5, background>=2 or method<=1, each once and with a "
        f"weight above 0, or {', '.join(SHAPES)} without facets, found {part!r}; "
        + _hint(part, (*map(str, Facet), *SHAPES), "check `like` and `unlike`")
    )


def _name(part: str) -> str:
    return part.partition(":")[0]


def _hint(part: str, known: Sequence[str], otherwise: str) -> str:
    name = re.split("[:<>=]", part, maxsplit=1)[0]
    return otherwise if name in known else did_you_mean(name, known, otherwise)


def _mix(parts: Sequence[str]) -> dict[str, float]:
    shares: dict[str, float] = {}
    for part in parts:
        name, colon, number = part.partition(":")
        try:
            share = float(number) if colon else 1.0
        except ValueError:
            share = 0.0
        if not 0 < share < inf or name in shares or name not in SHAPES:
            raise UsageError(
                f"expected shapes of {', '.join(SHAPES)}, each once and with a share above 0, found "
                f"{part!r}; " + _hint(part, (*SHAPES,), "check `like`")
            )
        shares[name] = share
    return shares


def parse_positions(text: str) -> tuple[int, ...]:
    """Sentence positions such as ``0,3``, counted from 0; raises UsageError.

    >>> parse_positions("0,3")
    (0, 3)
    """
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(
            f"expected sentence positions such as 0,3, found {text!r}; check `sentences`"
        ) from None

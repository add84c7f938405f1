"""Shapes of exploration: which facets a paper is to have in common with the query's, and which not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from qbe.errors import UsageError
from qbe.query import check_weight
from qbe.types import Facet

SAME_PROBLEM_OTHER_METHOD = "same-problem-other-method"
SAME_METHOD_OTHER_PROBLEM = "same-method-other-problem"
COMPETITORS = "competitors"

SIMILAR_FROM, OTHER_TO = 1.5, 1.0
"""Grades: a paper is similar in a facet from the one on, and another one up to the other."""

SHAPES: Mapping[str, Mapping[Facet, float]] = {
    SAME_PROBLEM_OTHER_METHOD: {Facet.BACKGROUND: 1.0, Facet.METHOD: -1.0},
    SAME_METHOD_OTHER_PROBLEM: {Facet.METHOD: 1.0, Facet.BACKGROUND: -1.0},
    COMPETITORS: {Facet.BACKGROUND: 1.0, Facet.METHOD: 1.0},
}
"""Weights of facets by the name of a shape, as `qbe.query.Query.by_facets` takes them: other approaches to
the same problem, other uses of the same technique, and papers that do the same in the same way.
"""


def parse_facets(liked: Sequence[str], disliked: Sequence[str]) -> dict[Facet, float]:
    """Weights of facets out of those that are liked and those that are disliked, each a name with a weight
    after a colon, by default 1; or one of `qbe.shapes.SHAPES` alone.

    Raises UsageError for what is no facet or weight, and for a facet that is there twice.

    >>> parse_facets(["background"], ["method:0.5"])
    {<Facet.BACKGROUND: 'background'>: 1.0, <Facet.METHOD: 'method'>: -0.5}
    """
    if len(liked) == 1 and liked[0] in SHAPES and not disliked:
        return dict(SHAPES[liked[0]])
    weights, against = _parse(liked), _parse(disliked)
    twice = weights.keys() & against.keys()
    if twice:
        raise UsageError(
            f"expected facets to like and others not to, found {min(map(str, twice))} among both; check "
            "`like` and `unlike`"
        )
    return weights | {facet: -weight for facet, weight in against.items()}


def _parse(parts: Sequence[str]) -> dict[Facet, float]:
    weights: dict[Facet, float] = {}
    for part in parts:
        name, _, number = part.partition(":")
        try:
            facet, weight = Facet(name), float(number) if number else 1.0
            if not 0 < weight < inf or facet in weights:
                raise ValueError
        except ValueError:
            raise UsageError(
                "expected facets such as background or method:0.5, each once and with a weight above 0, "
                f"found {part!r}; check `like` and `unlike`"
            ) from None
        check_weight(weight)
        weights[facet] = weight
    return weights


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

"""Shapes of exploration: which facets a paper is to have in common with the query's, and which not."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from qbe.types import Facet

SAME_PROBLEM_OTHER_METHOD = "same-problem-other-method"
SAME_METHOD_OTHER_PROBLEM = "same-method-other-problem"
COMPETITORS = "competitors"

AGAINST_OTHERS, AGAINST_PROBLEM = 0.75, 1.0
"""How much a disliked facet counts against a method or a result that is liked, and against the problem alone;
chosen on graded pairs for training (see the card of the grade model).
"""


def unlike_weight(liked: Collection[Facet]) -> float:
    """How much a disliked facet counts against those that are liked, where no weight is given.

    >>> unlike_weight([Facet.BACKGROUND]), unlike_weight([Facet.METHOD])
    (1.0, 0.75)
    """
    return AGAINST_PROBLEM if set(liked) == {Facet.BACKGROUND} else AGAINST_OTHERS


SHAPES: Mapping[str, Mapping[Facet, float]] = {
    SAME_PROBLEM_OTHER_METHOD: {Facet.BACKGROUND: 1.0, Facet.METHOD: -AGAINST_PROBLEM},
    SAME_METHOD_OTHER_PROBLEM: {Facet.METHOD: 1.0, Facet.BACKGROUND: -AGAINST_OTHERS},
    COMPETITORS: {Facet.BACKGROUND: 1.0, Facet.METHOD: 1.0},
}
"""Weights of facets by the name of a shape, as `qbe.query.Query.by_facets` takes them: other approaches to
the same problem, other uses of the same technique, and papers that do the same in the same way.
"""

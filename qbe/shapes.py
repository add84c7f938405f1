"""Shapes of exploration: which facets a paper is to have in common with the query's, and which not."""

from __future__ import annotations

from collections.abc import Mapping

from qbe.types import Facet

SAME_PROBLEM_OTHER_METHOD = "same-problem-other-method"
SAME_METHOD_OTHER_PROBLEM = "same-method-other-problem"
COMPETITORS = "competitors"

UNLIKE_WEIGHT = 0.75
"""How much a disliked facet counts against a liked one, chosen on graded pairs: see the card of the grade
model.
"""

SHAPES: Mapping[str, Mapping[Facet, float]] = {
    SAME_PROBLEM_OTHER_METHOD: {Facet.BACKGROUND: 1.0, Facet.METHOD: -UNLIKE_WEIGHT},
    SAME_METHOD_OTHER_PROBLEM: {Facet.METHOD: 1.0, Facet.BACKGROUND: -UNLIKE_WEIGHT},
    COMPETITORS: {Facet.BACKGROUND: 1.0, Facet.METHOD: 1.0},
}
"""Weights of facets by the name of a shape, as `qbe.query.Query.by_facets` takes them: other approaches to
the same problem, other uses of the same technique, and papers that do the same in the same way.
"""

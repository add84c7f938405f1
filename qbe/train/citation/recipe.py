"""What the training of the citation model is configured with. Loads nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ProjectionSchedule:
    """How the projection is fitted.

    Each step takes ``queries`` papers. Candidates are all papers that one of them cites, the ``nearest``
    others of each by the first stage, and ``random`` ones of its best ``depth``. ``anchor`` is the weight of
    the squared distance of the matrices to the identity. After ``patience`` epochs that are no better on dev
    the best epoch's matrices are taken.
    """

    epochs: int = 10
    patience: int = 2
    queries: int = 24
    nearest: int = 20
    random: int = 10
    depth: int = 1000
    learning_rate: float = 3e-4
    weight_rate: float = 2e-2
    anchor: float = 1e-3


@dataclass(frozen=True, slots=True)
class HeadSchedule:
    """How the heads are fitted: ``epochs`` at most over the lists, one a step."""

    epochs: int = 12
    patience: int = 3
    hidden: int = 16
    learning_rate: float = 3e-3
    weight_decay: float = 1e-2


@dataclass(frozen=True, slots=True)
class Recipe:
    """The schedules, and how many candidates the first stage brings.

    The heads learn from the last ``held_back`` years of the training queries by the features of a projection
    that was fitted without these years: features of queries that it was fitted to would promise too much.
    Those that know papers which the query cites learn from ``draws`` lists of each query, one with half of
    its bibliography known and the others with a share drawn from ``shares``, at a learning rate as many times
    smaller.
    """

    projection: ProjectionSchedule = field(default_factory=ProjectionSchedule)
    heads: HeadSchedule = field(default_factory=HeadSchedule)
    depth: int = 1000
    held_back: int = 6
    draws: int = 3
    shares: tuple[float, float] = (0.2, 0.7)

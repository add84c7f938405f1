"""Queries: weighted aspects of papers, topics that name them, and the shapes of exploration."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from qbe.errors import FacetNotFoundError, UsageError, check_type, did_you_mean
from qbe.types import Facet, Paper

_ABSTRACT, _SENTENCES = "abstract", "sentences"
FACET_NAMES = ("problem", "method", "findings", "background", "result")  # as people call them, and CSFCube

MAX_WEIGHT = 1e6  # the largest weight, and 1 / MAX_WEIGHT the smallest: sums of scores stay finite
SIMILAR_FROM, OTHER_TO = 1.5, 1.0  # a paper is similar in a facet from a grade of 1.5, and different up to 1
HIGHEST = 3.0  # grade

SAME_PROBLEM_OTHER_METHOD = "same-problem-other-method"
SAME_METHOD_OTHER_PROBLEM = "same-method-other-problem"
COMPETITORS = "competitors"
SHAPES: Mapping[str, Mapping[Facet, float]] = {
    SAME_PROBLEM_OTHER_METHOD: {Facet.BACKGROUND: 1.0, Facet.METHOD: -1.0},
    SAME_METHOD_OTHER_PROBLEM: {Facet.METHOD: 1.0, Facet.BACKGROUND: -1.0},
    COMPETITORS: {Facet.BACKGROUND: 1.0, Facet.METHOD: 1.0},
}
"""Weights of facets by shape of exploration: other approaches, other uses, the same in the same way."""


@dataclass(frozen=True, slots=True)
class Aspect:
    """The part of a paper that is the query: a facet, sentence positions (from 0), or the whole abstract."""

    paper: Paper
    facet: Facet | None = None  # or its name
    positions: tuple[int, ...] | None = None
    weight: float = 1.0  # negative for papers that are *not* like this

    def __post_init__(self) -> None:
        check_type(self.paper, Paper, "a qbe.Paper", "look one up with index.paper(id)")
        if not self.paper.sentences:
            raise UsageError(
                f"expected a paper with sentences, found {self.paper.paper_id} without; add some"
            )
        if isinstance(self.facet, str):
            object.__setattr__(self, "facet", facet_named(self.facet))
        elif self.facet is not None and not isinstance(self.facet, Facet):
            raise TypeError(f"expected a facet such as Facet.METHOD or 'method', found {_kind(self.facet)}")
        if self.positions is not None:
            given: object = self.positions
            if not isinstance(given, Sequence) or isinstance(given, str) or {*map(type, given)} - {int}:
                raise TypeError(f"expected sentence positions such as (0, 3), found {_kind(given)}")
            object.__setattr__(self, "positions", tuple(given))
            if self.facet is not None:
                raise UsageError("expected a facet or sentence positions, found both; give one of them")
        check_weight(self.weight)

    @property
    def name(self) -> str:
        """``background``, ``method``, ``result``, ``abstract``, or ``sentences-`` and the positions."""
        if self.facet is not None:
            return self.facet.value
        if self.positions is not None:
            return "-".join([_SENTENCES, *map(str, self.positions)])
        return _ABSTRACT

    def selected_positions(self) -> tuple[int, ...]:
        """Return its sentences' positions; the likeliest where a tagger found none of the facet."""
        paper, count = self.paper, len(self.paper.sentences)
        if self.positions is not None:
            outside = [position for position in self.positions if not 0 <= position < count]
            if outside or not self.positions:
                raise UsageError(
                    f"expected sentence positions from 0 to {count - 1} (paper {paper.paper_id} has {count} "
                    f"sentences), found {', '.join(map(str, outside)) or 'none'}"
                )
            return tuple(dict.fromkeys(self.positions))
        if self.facet is None:
            return paper.positions(None)
        positions, _ = paper.facet_positions(self.facet)
        if positions:
            return positions
        found = "no facet labels; have them predicted (Index.label_facets), search with its whole abstract"
        found += " (no facet)"
        if paper.labelled:
            present = ", ".join(str(other) for other in Facet if paper.positions(other)) or "other"
            found = f"only {present}; choose another facet"
        raise FacetNotFoundError(
            f"expected paper {paper.paper_id} to have sentences labelled {self.facet}, found {found}, or "
            "pick sentences by position"
        )

    @property
    def is_guess(self) -> bool:
        """True if no sentence was labelled with the facet, so that the likeliest stands in."""
        return self.facet is not None and self.paper.facet_positions(self.facet)[1]


@dataclass(frozen=True, slots=True, init=False)
class Query:
    """One or several weighted aspects, of one paper or of several.

    ``Query(paper, Facet.METHOD)``, ``Query(paper, positions=(1, 2))`` and ``Query(paper)`` have one aspect of
    weight 1. ``Query.of(...)`` takes aspects. Weights are relative to each other; at least one is positive.

    >>> from qbe.types import Paper, Sentence
    >>> paper = Paper("p1", "A title", (Sentence("We route.", Facet.METHOD),))
    >>> Query(paper, Facet.METHOD).query_id
    'p1_method'
    >>> Query.of(Aspect(paper), Aspect(paper, Facet.METHOD, weight=-0.5)).query_id
    '1*p1_abstract&-0.5*p1_method'
    """

    aspects: tuple[Aspect, ...]

    def __init__(
        self, paper: Paper, facet: Facet | str | None = None, positions: Sequence[int] | None = None
    ) -> None:
        aspect = Aspect(paper, facet, positions)  # type: ignore[arg-type]  # it converts them
        object.__setattr__(self, "aspects", (aspect,))

    @classmethod
    def of(cls, *aspects: Aspect) -> "Query":
        for aspect in aspects:
            check_type(aspect, Aspect, "qbe.Aspect objects", "make them with qbe.Aspect(paper, facet)")
        if not any(aspect.weight > 0 for aspect in aspects):
            raise UsageError(
                "expected at least one aspect with a positive weight, found none; a search starts from what "
                "the papers are to have in common"
            )
        query = cls.__new__(cls)
        object.__setattr__(query, "aspects", tuple(aspects))
        return query

    @classmethod
    def by_facets(cls, paper: Paper, weights: Mapping[Facet, float]) -> "Query":
        """Ask for papers like a paper in the facets of positive weight (such as SHAPES), unlike in others."""
        return cls.of(*(Aspect(paper, facet, weight=weight) for facet, weight in weights.items()))

    @property
    def papers(self) -> tuple[Paper, ...]:
        return tuple({aspect.paper.paper_id: aspect.paper for aspect in self.aspects}.values())

    @property
    def liked(self) -> dict[str, Paper]:
        """The papers with an aspect of positive weight, by id."""
        return {each.paper.paper_id: each.paper for each in self.aspects if each.weight > 0}

    @property
    def is_single(self) -> bool:
        """True for one aspect: its weight does not count, and scores are those of the stages."""
        return len(self.aspects) == 1

    @property
    def is_by_facets(self) -> bool:
        """True for several aspects, each of them a facet: then grades rank."""
        return not self.is_single and all(aspect.facet is not None for aspect in self.aspects)

    @property
    def query_id(self) -> str:
        """The unique id of the query in runs: ``{paper_id}_{facet}``, ``{paper_id}_sentences-1-2``, or the
        paper's id for its whole abstract (with ``_abstract`` where that is ambiguous); ``&`` joins aspects.
        """
        ids = [each.paper.paper_id.replace("%", "%25").replace("&", "%26") for each in self.aspects]
        names = [each.name for each in self.aspects]
        if not self.is_single:
            weights = (format_weight(each.weight) for each in self.aspects)
            parts = zip(weights, ids, names, strict=True)
            return "&".join(f"{weight}*{paper_id}_{name}" for weight, paper_id, name in parts)
        ending = ids[0].rpartition("_")[2] if "_" in ids[0] else ""
        is_like_an_aspect = ending in (*map(str, Facet), _ABSTRACT) or ending.startswith(f"{_SENTENCES}-")
        return ids[0] if names[0] == _ABSTRACT and not is_like_an_aspect else f"{ids[0]}_{names[0]}"


class TopicAspect(NamedTuple):
    """An aspect in a topics file: a paper of the index by its id, and what of it counts (see `Aspect`)."""

    paper_id: str
    facet: Facet | None = None
    positions: tuple[int, ...] | None = None
    weight: float = 1.0


class Topic(NamedTuple):
    """One line of a topics file: a paper and a facet (None: its whole abstract), or aspects."""

    query_id: str
    paper_id: str
    facet: Facet | None = None
    aspects: tuple[TopicAspect, ...] = ()
    text: str = ""  # the abstract of a paper that is not of the index
    title: str = ""

    def resolved_aspects(self) -> tuple[TopicAspect, ...]:
        return self.aspects or (TopicAspect(self.paper_id, self.facet),)


def split_query_id(query_id: str) -> tuple[str, Facet | None]:
    """Split a query id ``{paper_id}_{facet}``; the facet is None where the id ends otherwise."""
    paper_id, _, suffix = query_id.rpartition("_")
    facet = next((facet for facet in Facet if facet.value == suffix), None)
    return (paper_id, facet) if facet else (query_id, None)


def check_weight(weight: float) -> None:
    """Raise UsageError for a weight of 0, or one too small or large to compute scores with."""
    if not 1 / MAX_WEIGHT <= abs(weight) <= MAX_WEIGHT:
        raise UsageError(
            f"expected a weight between {1 / MAX_WEIGHT:g} and {MAX_WEIGHT:g}, with or without a minus, "
            f"found {weight:g}"
        )


def format_weight(weight: float) -> str:
    return repr(float(weight)).removesuffix(".0")


def _kind(value: object) -> str:
    return f"{value!r:.60} ({type(value).__name__})"


@dataclass(frozen=True, slots=True)
class Variety:
    """How a list is put together of graded papers; raises UsageError."""

    # The shares of SHAPES in the list; each place goes to the shape with the fewest for its share.
    mix: Mapping[str, float] = field(default_factory=dict)
    bounds: Mapping[Facet, tuple[float, float]] = field(default_factory=dict)  # lowest and highest grades
    # From 0 to 1, how much lower a paper ranks that resembles those above it; None: that of the stage.
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
        """Weights by which a mix finds candidates; positive where one of its shapes likes the facet."""
        weights: dict[Facet, float] = {}
        for name in self.mix:
            for facet, weight in SHAPES[name].items():
                weights[facet] = max(weight, weights.get(facet, weight))
        return {facet: weights[facet] for facet in Facet if facet in weights}

    def admits(self, grades: Mapping[str, float]) -> bool:
        """Return True if a paper of these grades, by facet name, may be in the list."""
        bounds = self.bounds.items()
        return all(low <= grades.get(facet.value, 0.0) <= high for facet, (low, high) in bounds)


PLAIN = Variety()


def parse_wish(liked: Sequence[str], disliked: Sequence[str]) -> tuple[dict[Facet, float], Variety]:
    """Parse liked and disliked facets as users write them, into weights as `Query.by_facets` takes them.

    Each is a facet with a weight after a colon, by default 1, and perhaps a grade: ``background>=2`` (liked,
    at least 2), ``method<=1`` (disliked, at most 1). In their place one of SHAPES may be liked, or a mix of
    several, each with its share after a colon. Raises UsageError for anything else.
    """
    if liked and not disliked and any(part.partition(":")[0] in SHAPES for part in liked):
        if len(liked) == 1 and liked[0] in SHAPES:
            return dict(SHAPES[liked[0]]), PLAIN
        variety = Variety(_mix(liked))
        return variety.weights, variety
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
    return weights, Variety(bounds=bounds)


def facet_named(name: str) -> Facet:
    """Return the facet of a name; raise UsageError for another one."""
    try:
        return Facet(name)
    except ValueError:
        hint = did_you_mean(name, FACET_NAMES, "check `facet`")
        raise UsageError(f"expected a facet of {', '.join(FACET_NAMES)}, found {name!r}; {hint}") from None


_FACET = re.compile(r"(\w+)(?::([^<>=]*))?(?:(>=|<=)(.*))?", re.DOTALL)


def _facet(part: str, is_liked: bool) -> tuple[Facet, float, tuple[float, float] | None]:
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
    name = re.split("[:<>=]", part)[0]
    known = [*FACET_NAMES, *SHAPES]
    hint = did_you_mean(name, [] if name in known else known, "check `like` and `unlike`")
    return UsageError(
        f"expected facets of {', '.join(FACET_NAMES)}, each once, perhaps with a weight above 0 or a grade: "
        f"method:0.5, background>=2 or method<=1, or {', '.join(SHAPES)} without facets, found "
        f"{part[:60]!r}; {hint}"
    )


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
                f"{part!r}; check `like`"
            )
        shares[name] = share
    return shares


def parse_positions(text: str) -> tuple[int, ...]:
    """Parse sentence positions such as ``0,3``, counted from 0."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(
            f"expected sentence positions such as 0,3, found {text!r}; check `sentences`"
        ) from None

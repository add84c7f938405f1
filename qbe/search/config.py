"""All parameters that the results of a search depend on, checked in one place for every caller."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from qbe.errors import UsageError, check_positive
from qbe.query import MAX_WEIGHT
from qbe.search.filters import PaperFilter

FIRST_STAGES = ("bm25", "dense", "fused")
BM25_QUERIES = ("title+facet", "facet", "abstract", "title", "keyterms")
MATCHES = ("mean-max", "single-match")
FUSIONS = ("weighted", "rrf")
COMPONENTS = ("bm25", "sentences", "facet", "whole")
"""What the fused first stage scores a candidate by."""
LABEL_SOURCES = ("given", "predicted")
"""Where the facets of a query's sentences come from: its own labels, or the tagger."""
GRADES, Z_SCORES = "grades", "z-scores"
COMBINATIONS = (GRADES, Z_SCORES)
"""How several aspects that are all facets are combined."""
BY_FACET, CROSS_ENCODER, PROJECTIONS, NO_RERANKING = "by-facet", "cross-encoder", "projections", "none"
CASCADE = "cascade"
CROSS_ENCODED = (BY_FACET, CROSS_ENCODER, CASCADE)
"""What reads candidates anew, by cross-encoders."""
LEARNED_RERANKINGS = (BY_FACET, CROSS_ENCODER, PROJECTIONS, CASCADE)
"""What reranks by a trained model."""
MATCHINGS = ("transport", "attention", "single-match", "mean-max")
RERANKINGS = (BY_FACET, NO_RERANKING, CROSS_ENCODER, PROJECTIONS, CASCADE, *MATCHINGS)
FACET_RERANKINGS = (BY_FACET, PROJECTIONS, CASCADE)
"""What reranks for aspects that are a facet alone."""
PRECISIONS = ("int8", "fp32")

EQUAL_WEIGHTS: Mapping[str, float] = dict.fromkeys(COMPONENTS, 1.0)
"""Weights of the fused first stage: all alike, so that no data chose them."""

FUSED_DEPTH = 300
"""How many papers each side brings to the fusion; chosen on graded pairs (`benchmarks.fused_depth`)."""

RERANK_DEPTH = 100
"""How many papers of the first stage are reranked."""

CASCADE_DEPTH = 20
"""How many papers the cross-encoders read again after the projections."""

RERANK_WEIGHT = 0.5
"""The reranker's share of the score, the rest being the first stage's; chosen on graded pairs."""

MATCHING_WEIGHT = 1.0
"""The share of the score that a matching of sentence vectors has: it ranks by itself, as in ASPIRE."""

SEPARATE = 0.35
"""How much what a candidate shares with the query's background counts against it, where a cross-encoder
reranks fused; chosen on graded pairs.
"""

STAGES_OF_PARAMETER: Mapping[str, tuple[str, ...]] = {
    "bm25_query": ("bm25", "fused"),
    "match": ("dense", "fused"),
    "nprobe": ("dense", "fused"),
    "fusion": ("fused",),
    "weights": ("fused",),
    "depth": ("fused",),
    "separate": ("fused",),
    "rerank_depth": (*LEARNED_RERANKINGS, *MATCHINGS),
    "rerank_weight": (*LEARNED_RERANKINGS, *MATCHINGS),
    "cascade_depth": (CASCADE,),
    "rerank_budget": CROSS_ENCODED,
    "reranker": LEARNED_RERANKINGS,
    "rerank_precision": CROSS_ENCODED,
    "query_tokens": CROSS_ENCODED,
    "candidate_tokens": CROSS_ENCODED,
    "temperature": ("transport",),
    "regularization": ("transport",),
}
"""Which first stages (`first_stage`) or second stages (`rerank`) read a parameter."""

_CHOICES: Mapping[str, tuple[str, ...]] = {
    "first_stage": FIRST_STAGES,
    "bm25_query": BM25_QUERIES,
    "match": MATCHES,
    "fusion": FUSIONS,
    "facets": LABEL_SOURCES,
    "combine": COMBINATIONS,
    "rerank": RERANKINGS,
    "rerank_precision": PRECISIONS,
}
_ALWAYS = ("first_stage", "facets", "rerank")
"""Choices that have no None: what is not to be reranked says so."""
_COUNTS = ("depth", "nprobe", "rerank_depth", "cascade_depth", "query_tokens", "candidate_tokens")
_POSITIVE = ("temperature", "regularization", "rerank_budget")
_SHARES = ("rerank_weight", "separate")


class FirstStageSettings(NamedTuple):
    """A first stage and its parameters, defaults filled in; ``nprobe`` None: as the index was built."""

    name: str
    bm25_query: str
    match: str
    fusion: str
    weights: Mapping[str, float]
    depth: int
    nprobe: int | None
    separate: float


class RerankSettings(NamedTuple):
    """A second stage and its parameters, defaults filled in; None: the default of the reranker itself.

    ``depth`` and ``cascade_depth`` are papers a query; ``weight`` and ``separate`` shares from 0 to 1;
    ``query_tokens`` and ``candidate_tokens`` tokens, special ones counted; ``budget`` seconds a query (None:
    as long as it takes).
    """

    name: str
    depth: int
    weight: float
    reranker: str | None
    precision: str | None
    query_tokens: int | None
    candidate_tokens: int | None
    temperature: float | None
    regularization: float | None
    separate: float
    cascade_depth: int
    budget: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchConfig:
    """All parameters of a search; one that is None has its default.

    First stage: ``first_stage`` is ``bm25``, ``dense`` or ``fused`` (default). ``bm25_query`` is the text of
    the BM25 query: ``title+facet`` (default), ``facet``, ``abstract``, ``title`` or ``keyterms``. ``match``
    scores a paper by the mean of each query sentence's best match (``mean-max``, default) or by the best pair
    (``single-match``). ``fusion`` is ``weighted`` (default) or ``rrf``, ``weights`` those of its components
    (bm25, sentences, facet, whole; default all 1), ``depth`` (default 300) how many papers each side brings
    to the fusion, ``nprobe`` how many lists of an approximate index are read. ``separate`` is for queries by
    method and by result: how much a paper's likeness to the query's background counts against it, in the
    fused scores and in those of a cross-encoder or projections, from 0 to 1 (the facet alone; default 0.35
    where one of these reranks, else 0; see `qbe.search.separation`).

    ``facets`` says whose labels of the query's sentences count: those ``given`` (default; predicted where a
    paper brings none), or ``predicted`` ones. ``combine`` is for queries of several facets: ranked by the
    ``grades`` of candidates in each (`qbe.grade`; default where the grade model reads the index's vectors and
    the chosen reranker), or by the sum of ``z-scores``, as all other queries of several aspects are.

    Second stage: ``rerank`` is ``by-facet`` (default: facet rerankers for aspects that are a facet; other
    queries keep the order of the first stage), ``cross-encoder`` (all queries), ``projections`` (for facets
    too: stored vectors, projected for the facet; some forty times as fast), ``cascade`` (the projections,
    then the facet rerankers for the best ``cascade_depth``: by default 20, with a budget ``rerank_depth``),
    ``none``, or a matching of sentence vectors (``transport``, ``attention``, ``single-match``, ``mean-max``;
    Mysore et al., 2022).
    ``reranker`` names a model or folder (default ``facet-rerankers``; for projections those of the index's
    encoder, or a folder that `qbe train facet-projections` wrote), ``rerank_precision`` its precision,
    ``rerank_depth`` (default 100) how many papers are reranked, ``rerank_weight`` the reranker's share of the
    score (default 0.5; 1 for a matching), ``rerank_budget`` the seconds that reranking a query may take (the
    cross-encoder then scores as many papers as it can in this time, so that results depend on the machine;
    default: as long as it takes), ``query_tokens`` and ``candidate_tokens`` its budgets;
    ``temperature`` and ``regularization`` belong to transport.

    ``filter`` says which papers may be found at all, by any stage.

    Raises TypeError for a parameter of another type, UsageError for a value out of range and for a parameter
    that the chosen stages do not read.

    >>> SearchConfig(first_stage="dense", rerank="none").run_tag
    'qbe-dense'
    >>> SearchConfig(first_stage="bm25", fusion="rrf")
    Traceback (most recent call last):
    ...
    qbe.errors.UsageError: `fusion` is not read with `first_stage` bm25; drop it or choose fused
    """

    first_stage: str = "fused"
    bm25_query: str | None = None
    match: str | None = None
    fusion: str | None = None
    weights: Mapping[str, float] | None = None
    depth: int | None = None
    nprobe: int | None = None
    separate: float | None = None
    facets: str = "given"
    combine: str | None = None
    rerank: str = BY_FACET
    reranker: str | None = None
    rerank_precision: str | None = None
    rerank_depth: int | None = None
    rerank_weight: float | None = None
    cascade_depth: int | None = None
    rerank_budget: float | None = None
    query_tokens: int | None = None
    candidate_tokens: int | None = None
    temperature: float | None = None
    regularization: float | None = None
    filter: PaperFilter | None = None

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if (value is not None or name in _ALWAYS) and value not in choices:
                raise UsageError(f"expected `{name}` of {', '.join(choices)}, found {value!r}")
        for name in _COUNTS:
            _check_count(name, getattr(self, name))
        for name in (*_POSITIVE, *_SHARES):
            _check_number(name, getattr(self, name), positive=name in _POSITIVE)
        if self.weights is not None:
            _check_weights(self.weights)
        check_filter(self.filter)
        for name, stages in STAGES_OF_PARAMETER.items():
            if getattr(self, name) is not None:
                self._check_read(name, stages)

    def _check_read(self, name: str, stages: tuple[str, ...]) -> None:
        choice = "rerank" if stages[-1] in RERANKINGS else "first_stage"
        chosen = getattr(self, choice)
        if chosen not in stages:
            raise UsageError(
                f"`{name}` is not read with `{choice}` {chosen}; drop it or choose {' or '.join(stages)}"
            )

    @property
    def first_stage_settings(self) -> FirstStageSettings:
        """The first stage with its parameters, defaults filled in."""
        return FirstStageSettings(
            self.first_stage,
            self.bm25_query or BM25_QUERIES[0],
            self.match or MATCHES[0],
            self.fusion or FUSIONS[0],
            EQUAL_WEIGHTS if self.weights is None else self.weights,
            FUSED_DEPTH if self.depth is None else self.depth,
            self.nprobe,
            self._separate,
        )

    @property
    def rerank_settings(self) -> RerankSettings | None:
        """The second stage with its parameters, defaults filled in; None where nothing is reranked."""
        if self.rerank == NO_RERANKING:
            return None
        weight = MATCHING_WEIGHT if self.rerank in MATCHINGS else RERANK_WEIGHT
        depth = RERANK_DEPTH if self.rerank_depth is None else self.rerank_depth
        cascade_depth = CASCADE_DEPTH if self.rerank_budget is None else depth
        return RerankSettings(
            self.rerank,
            depth,
            weight if self.rerank_weight is None else self.rerank_weight,
            self.reranker,
            self.rerank_precision,
            self.query_tokens,
            self.candidate_tokens,
            self.temperature,
            self.regularization,
            0.0 if self.rerank in MATCHINGS else self._separate,
            cascade_depth if self.cascade_depth is None else self.cascade_depth,
            self.rerank_budget,
        )

    @property
    def _separate(self) -> float:
        if self.separate is not None:
            return self.separate
        chosen = self.first_stage in STAGES_OF_PARAMETER["separate"] and self.rerank in LEARNED_RERANKINGS
        return SEPARATE if chosen else 0.0

    @property
    def run_tag(self) -> str:
        """The tag of runs: ``qbe-`` and the first stage, then ``+rerank`` or ``+`` and the matching."""
        second = "rerank" if self.rerank in (BY_FACET, CROSS_ENCODER) else self.rerank
        return f"qbe-{self.first_stage}" + ("" if self.rerank == NO_RERANKING else f"+{second}")

    def for_whole_abstracts(self) -> SearchConfig:
        """What this comes to where no query has a facet: what FACET_RERANKINGS names reranks nothing then.

        Raises UsageError where a parameter of the reranker was given, which would not be read.
        """
        return self if self.rerank not in FACET_RERANKINGS else dataclasses.replace(self, rerank=NO_RERANKING)

    def record(self) -> dict[str, Any]:
        """All parameters, defaults filled in, as JSON holds them: what distinguishes it from another."""
        second = self.rerank_settings
        record = {
            "first_stage": {**self.first_stage_settings._asdict(), "weights": dict(self._weights())},
            "facets": self.facets,
            "rerank": None if second is None else second._asdict(),
        }
        stated = {} if self.combine is None else {"combine": self.combine}
        filtered = {} if self.filter is None else {"filter": self.filter.record()}
        return {**record, **stated, **filtered}

    def _weights(self) -> Mapping[str, float]:
        return self.first_stage_settings.weights


def check_filter(value: object) -> None:
    """Raise TypeError for what is neither a `PaperFilter` nor None.

    >>> check_filter("cs.CL")
    Traceback (most recent call last):
    ...
    TypeError: expected a qbe.PaperFilter as `filter`, found 'cs.CL' (str)
    """
    if value is not None and not isinstance(value, PaperFilter):
        raise TypeError(
            f"expected a qbe.PaperFilter as `filter`, found {value!r:.60} ({type(value).__name__})"
        )


def _check_count(name: str, value: object) -> None:
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"expected an int as `{name}`, found {value!r} ({type(value).__name__})")
    if value < 1:
        raise UsageError(f"expected `{name}` of at least 1, found {value}")


def _check_number(name: str, value: object, *, positive: bool) -> None:
    if value is None:
        return
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"expected a number as `{name}`, found {value!r} ({type(value).__name__})")
    if positive:
        check_positive(name, value)
    if not positive and not 0 <= value <= 1:
        raise UsageError(f"expected `{name}` from 0 to 1, found {value:g}")


def _check_weights(weights: object) -> None:
    if not isinstance(weights, Mapping):
        raise TypeError(f"expected a mapping as `weights`, such as {{'bm25': 1}}, found {weights!r}")
    numbers = all(isinstance(weight, int | float) for weight in weights.values())
    sound = numbers and all(0 <= weight <= MAX_WEIGHT for weight in weights.values())
    if set(weights) - set(COMPONENTS) or not sound or not any(weights.values()):
        raise UsageError(
            f"expected `weights` from 0 to {MAX_WEIGHT:g}, not all 0, of {', '.join(COMPONENTS)}, found "
            f"{dict(weights)}"
        )

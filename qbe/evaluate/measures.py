"""Measures by name: those of CSFCube's scorer, as functions, and those of ir-measures.

The functions follow the scorer of CSFCube's release (Mysore et al., 2021; ``eval_scripts``), which computed
the published figures and differs from trec_eval. They take ``ranked``, the grades (from 0 to 3) of the
retrieved papers in rank order, and ``pool``, those of the whole pool.
"""

import functools
import math
import re
from array import array
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from statistics import fmean
from subprocess import CalledProcessError
from typing import TYPE_CHECKING, Any, NamedTuple

from qbe.errors import UsageError, check_package
from qbe.query import split_query_id
from qbe.runs import Qrels

if TYPE_CHECKING:
    import ir_measures

DEFAULT_MEASURES = ("nDCG", "AP", "P@20", "R@20", "RR")

RELEVANT = 2  # the lowest grade that counts as relevant for the binary measures
CUTOFF = 20
NDCG_PERCENT, MAP = "NDCG%20", "MAP"

Grades = Sequence[int]


def discount(rank: int) -> float:
    """Return the divisor of a gain at a rank: 1, 1, log2(3), ... (Järvelin and Kekäläinen, 2002)."""
    return max(1.0, math.log2(rank))


def ndcg(
    ranked: Sequence[float], pool: Collection[float], cutoff: int, divisor: Callable[[int], float]
) -> float:
    """Compute nDCG, in [0, 1]; 0 where the ideal gain is 0. The gain of a negative grade is 0."""

    def dcg(grades: Sequence[float]) -> float:
        return sum(max(grade, 0) / divisor(rank) for rank, grade in enumerate(grades[:cutoff], start=1))

    ideal = dcg(sorted(pool, reverse=True))
    return dcg(ranked) / ideal if ideal else 0.0


def ndcg_percent(ranked: Sequence[float], pool: Collection[float]) -> float:
    """Compute NDCG%20: nDCG at a fifth of the pool, rounded down."""
    return ndcg(ranked, pool, int(0.20 * len(pool)), discount)


def average_precision(ranked: Grades, pool: Collection[int]) -> float:
    """Compute average precision over the pool's relevant papers; 0 where there are none."""
    retrieved, total = 0, 0.0
    for rank, grade in enumerate(ranked, start=1):
        if grade >= RELEVANT:
            retrieved += 1
            total += retrieved / rank
    relevant = _relevant(pool)
    return total / relevant if relevant else 0.0


def precision_at_last(ranked: Grades, pool: Collection[int]) -> float:
    """Compute the release's R-Precision: precision at the rank of the last relevant paper."""
    last = max((rank for rank, grade in enumerate(ranked, start=1) if grade >= RELEVANT), default=0)
    relevant = _relevant(pool)
    return relevant / last if last and _relevant(ranked) == relevant else 0.0


def precision(ranked: Grades, _pool: Collection[int]) -> float:
    """Compute precision at rank 20; divided by 20 even where fewer papers are ranked."""
    return _relevant(ranked[:CUTOFF]) / CUTOFF


def recall(ranked: Grades, pool: Collection[int]) -> float:
    """Compute recall at rank 20; 0 where the pool has no relevant paper."""
    relevant = _relevant(pool)
    return _relevant(ranked[:CUTOFF]) / relevant if relevant else 0.0


def _relevant(grades: Collection[int]) -> int:
    return sum(grade >= RELEVANT for grade in grades)


class ProtocolMeasure(NamedTuple):
    """A measure of the protocol: its ``name`` in ir-measures."""

    name: str
    definition: str
    function: Callable[[Grades, Collection[int]], float]


_BINARY = f"a grade of {RELEVANT} or 3 is relevant"
_AT_FIFTH = (
    "normalized discounted cumulated gain at a fifth of the pool, int(0.20 * documents): linear gains, "
    "discounts 1, 1, 1/log2(3), 1/log2(4), ..."
)
_AT_LAST = f"precision at the rank of the last relevant document (not at R); {_BINARY}"
_OVER_POOL = f"mean average precision over the pool; {_BINARY}"
MEASURES: Mapping[str, ProtocolMeasure] = {  # by their names in publications
    NDCG_PERCENT: ProtocolMeasure("CSFCube_nDCG", _AT_FIFTH, ndcg_percent),
    MAP: ProtocolMeasure("CSFCube_AP", _OVER_POOL, average_precision),
    "R-Precision": ProtocolMeasure("CSFCube_Rprec", _AT_LAST, precision_at_last),
    "Precision@20": ProtocolMeasure("CSFCube_P20", f"precision at rank 20; {_BINARY}", precision),
    "Recall@20": ProtocolMeasure("CSFCube_R20", f"recall at rank 20; {_BINARY}", recall),
}


def judged_ranking(
    query_id: str, grades: Mapping[str, int], scores: Mapping[str, float]
) -> tuple[list[int], list[int]]:
    """Return the grades of a query's retrieved papers in rank order, and those of its pool."""
    pool = pool_of(query_id, grades)
    return [pool[paper_id] for paper_id in trec_order(scores) if paper_id in pool], list(pool.values())


def pool_of(query_id: str, grades: Mapping[str, int]) -> dict[str, int]:
    """Return the grades of a query's judged papers but its own: CSFCube judges 8781666 for itself."""
    query_paper, _ = split_query_id(query_id)
    return {paper_id: grade for paper_id, grade in grades.items() if paper_id != query_paper}


def trec_order(scores: Mapping[str, float]) -> list[str]:
    """Return paper ids in trec_eval's order: by score in single precision, ties by id, both descending."""
    single = array("f", scores.values())
    return [paper_id for _, paper_id in sorted(zip(single, scores, strict=True), reverse=True)]


# Names in publications that ir-measures cannot parse; it has its own MAP, Precision@20 and Recall@20.
_ALIASES = {label: MEASURES[label].name for label in (NDCG_PERCENT, "R-Precision")}


@functools.cache
def _ir_measures() -> Any:
    """Import ir-measures, and register the protocol's measures with it (``CSFCube_nDCG``, ...)."""
    ir_measures = check_package("ir_measures")

    def score(measure: ProtocolMeasure, qrels: Any, run: Any) -> float:  # pandas.DataFrame of one query each
        grades = dict(zip(qrels["doc_id"], qrels["relevance"], strict=True))
        scores = dict(zip(run["doc_id"], run["score"], strict=True))
        return measure.function(*judged_ranking(str(run["query_id"].iloc[0]), grades, scores))

    for measure in MEASURES.values():
        defined = ir_measures.define_byquery(functools.partial(score, measure), measure.name, False)
        ir_measures.measures.registry[measure.name] = defined
    return ir_measures


def parse_measures(names: Iterable[str]) -> "dict[str, ir_measures.Measure]":
    """Parse names of ir-measures and of the CSFCube protocol into measures by canonical name, each once."""
    ir_measures = _ir_measures()
    parsed: dict[str, Any] = {}
    for name in names:
        try:
            measure = ir_measures.parse_measure(_ALIASES.get(name, name))
            why = "" if ir_measures.DefaultPipeline.supports(measure) else "no provider of it is installed"
        except AssertionError:
            why = "a parameter such as @20 is missing or not allowed"
        except NameError as error:
            why = str(error)
        except (ValueError, TypeError, KeyError):
            is_list = "," in re.sub(r"\([^()]*\)", "", name)
            why = "separate measures by spaces" if is_list else "it has another form"
        else:
            # Beyond these, evaluators in C fail, or abort the process.
            if not all(1 <= measure.params.get(parameter, 1) < 2**31 for parameter in ("cutoff", "rel")):
                why = f"its cutoff and level must be from 1 to {2**31 - 1}"
        if why:
            registry = ir_measures.measures.registry
            known = {each.lower(): each for each in reversed([*registry, *_ALIASES])}
            base = re.split("[@(]", name, maxsplit=1)[0]
            near = [] if base in registry or "," in base else get_close_matches(base.lower(), known, 1)
            hint = f"did you mean {known[near[0]]}{name[len(base) :]}?" if near else _HINT
            raise UsageError(f"expected a measure that can be computed, found {name!r} ({why}); {hint}")
        parsed[str(measure)] = measure
    return parsed


_HINT = (
    "give one that ir-measures knows (nDCG, nDCG@10, AP, AP(rel=2), P@20, R@20, RR, ...: "
    f"https://ir-measur.es) or one of the CSFCube protocol ({', '.join(m.name for m in MEASURES.values())})"
)


def per_query_values(
    measures: "Mapping[str, ir_measures.Measure]", qrels: Qrels, scores: Mapping[str, Mapping[str, float]]
) -> dict[str, dict[str, float]]:
    """Compute measure name -> query id -> value, for every query of the qrels."""
    if not measures:
        return {}
    import ir_measures

    # Where all grades of a query are below -1, trec_eval writes outside its memory.
    judged = {q: {**g} if any(v > -2 for v in g.values()) else dict.fromkeys(g, -1) for q, g in qrels.items()}
    # ir-measures' providers break ties in different ways: all of them get ranks.
    ranked = {query: trec_order(scores[query]) for query in judged if scores.get(query)}
    run = {query: {each: -rank for rank, each in enumerate(ids)} for query, ids in ranked.items()}
    values: dict[str, dict[str, float]] = {
        name: dict.fromkeys(judged, float(measure.DEFAULT)) for name, measure in measures.items()
    }
    if run:
        try:
            for metric in ir_measures.iter_calc(list(measures.values()), judged, run):
                values[str(metric.measure)][metric.query_id] = float(metric.value)
        except (ValueError, TypeError, RuntimeError, ZeroDivisionError, CalledProcessError) as error:
            why = "gdeval takes numbers as ids of queries" if isinstance(error, CalledProcessError) else error
            raise UsageError(
                f"expected measures that fit these judgements, found that ir-measures cannot compute all of "
                f"{', '.join(measures)} ({why}); leave one out"
            ) from error
    return values


def figure(measures: "Mapping[str, ir_measures.Measure]", name: str, values: Iterable[float]) -> float:
    """Aggregate the values of queries as ir-measures does (a sum for counts such as NumRet), else average."""
    if name not in measures:
        return fmean(values)
    aggregator = measures[name].aggregator()
    for value in values:
        aggregator.add(value)
    return float(aggregator.result())


def definition(name: str) -> str:
    """Define a measure, given by its canonical name or the protocol's label, in one line."""
    for label, measure in MEASURES.items():
        if name in (label, measure.name):
            return measure.definition
    parsed = parse_measures([name])[name]
    return f"{getattr(parsed, 'PRETTY_NAME', None) or parsed.NAME}, as ir-measures computes {name}"

"""Measures by name: those of ir-measures, where the measures of the CSFCube protocol are registered too."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from statistics import fmean
from subprocess import CalledProcessError
from typing import TYPE_CHECKING, Any

from qbe.errors import UsageError, check_package
from qbe.evaluate.csfcube import MEASURES, NDCG_PERCENT, ProtocolMeasure, judged_ranking
from qbe.evaluate.results import Qrels

if TYPE_CHECKING:
    import ir_measures

DEFAULT_MEASURES = ("nDCG", "AP", "P@20", "R@20", "RR")

_ALIASES = {
    # Names in publications that ir-measures cannot parse; it has its own MAP, Precision@20 and Recall@20.
    label: MEASURES[label].name
    for label in (NDCG_PERCENT, "R-Precision")
}


@functools.cache
def register_protocol_measures() -> None:
    """Register the protocol's measures with ir-measures (``CSFCube_nDCG``, ``CSFCube_AP``, ...).

    Afterwards ``ir_measures.parse_measure`` and its other functions accept them like its own measures.

    >>> import ir_measures
    >>> register_protocol_measures()
    >>> ir_measures.parse_measure("CSFCube_AP").NAME
    'CSFCube_AP'
    """
    check_package("ir_measures")
    import ir_measures

    for measure in MEASURES.values():
        defined = ir_measures.define_byquery(
            _by_query(measure),
            measure.name,
            support_cutoff=False,
            pretty_name=f"{measure.label} (CSFCube)",
            short_desc=measure.definition,
        )
        ir_measures.measures.registry[measure.name] = defined


def _by_query(measure: ProtocolMeasure) -> Callable[[Any, Any], float]:
    def score(qrels: Any, run: Any) -> float:  # pandas.DataFrame of one query each
        grades = dict(zip(qrels["doc_id"], qrels["relevance"], strict=True))
        scores = dict(zip(run["doc_id"], run["score"], strict=True))
        return measure.function(*judged_ranking(str(run["query_id"].iloc[0]), grades, scores))

    return score


def parse_measures(names: Iterable[str]) -> dict[str, ir_measures.Measure]:
    """Parse names of measures: measures by canonical name, in the order of the names, without repetitions.

    Names are those of ir-measures (``nDCG@10``, ``AP(rel=2)``, ``RR``) and of the CSFCube protocol
    (``NDCG%20``, ``R-Precision``, ``CSFCube_AP``, ``CSFCube_P20``, ...). Raises UsageError for a name
    that neither knows, a bad parameter (cutoffs and ``rel`` are 1 at least), or a measure whose provider is
    not installed, MissingDependencyError without ir-measures.

    >>> list(parse_measures(["nDCG@10", "AP(rel=2)", "NDCG%20"]))
    ['nDCG@10', 'AP(rel=2)', 'CSFCube_nDCG']
    """
    register_protocol_measures()
    import ir_measures

    pipeline: Any = ir_measures.DefaultPipeline
    parsed: dict[str, Any] = {}
    for name in names:
        try:
            measure = ir_measures.parse_measure(_ALIASES.get(name, name))
            supported = pipeline.supports(measure)
        except AssertionError as error:
            raise UsageError(
                f"expected a measure with its parameters (such as @20), found {name!r}, where one is missing "
                f"or not allowed; {_HINT}"
            ) from error
        except (ValueError, NameError, TypeError, KeyError) as error:
            raise UsageError(f"expected the name of a measure, found {name!r} ({error}); {_HINT}") from error
        # Beyond these, evaluators in C fail, or abort the process.
        if not all(1 <= measure.params.get(parameter, 1) < 2**31 for parameter in ("cutoff", "rel")):
            raise UsageError(
                f"expected a measure with a cutoff (such as @20) and a level (such as rel=2) from 1 to "
                f"{2**31 - 1}, found {name!r}; {_HINT}"
            )
        if not supported:
            raise UsageError(
                f"expected a measure that can be computed here, found {name!r}, for which no provider of "
                f"ir-measures is installed; {_HINT}"
            )
        parsed[str(measure)] = measure
    return parsed


_HINT = (
    "give one that ir-measures knows (nDCG, nDCG@10, AP, AP(rel=2), P@20, R@20, RR, ...: "
    f"https://ir-measur.es) or one of the CSFCube protocol ({', '.join(m.name for m in MEASURES.values())})"
)


def per_query_values(
    measures: Mapping[str, ir_measures.Measure], qrels: Qrels, scores: Mapping[str, Mapping[str, float]]
) -> dict[str, dict[str, float]]:
    """Compute measure name -> query id -> value, for every query of the qrels.

    Args:
        measures: as `parse_measures` returns them.
        qrels: the queries; one without scores gets the measure's value for an empty ranking.
        scores: query id -> paper id -> score; queries outside the qrels are ignored.

    Raises UsageError for a measure whose provider fails, as gdeval's ERR does on query ids with letters.

    >>> per_query_values(parse_measures(["RR"]), {"1": {"a": 0, "b": 1}}, {"1": {"a": 9.5, "b": 7.5}})
    {'RR': {'1': 0.5}}
    """
    if not measures:
        return {}
    import ir_measures

    judged = {query_id: dict(grades) for query_id, grades in qrels.items()}
    run = {query_id: dict(scores[query_id]) for query_id in judged if scores.get(query_id)}
    values: dict[str, dict[str, float]] = {
        name: dict.fromkeys(judged, float(measure.DEFAULT)) for name, measure in measures.items()
    }
    if run:
        try:
            for metric in ir_measures.iter_calc(list(measures.values()), judged, run):
                values[str(metric.measure)][metric.query_id] = float(metric.value)
        except (ValueError, RuntimeError, CalledProcessError) as error:
            raise UsageError(
                f"expected measures that fit these judgements, found that ir-measures cannot compute all of "
                f"{', '.join(measures)} ({error}); leave one out"
            ) from error
    return values


def figure(measures: Mapping[str, ir_measures.Measure], name: str, values: Iterable[float]) -> float:
    """Return the figure of several queries: of a measure of ir-measures as that aggregates (the sum for
    counts such as NumRet), else their mean.

    >>> figure(parse_measures(["NumRet"]), "NumRet", [3.0, 2.0]), figure({}, "NDCG%20", [0.5, 1.0])
    (5.0, 0.75)
    """
    if name not in measures:
        return fmean(values)
    aggregator = measures[name].aggregator()
    for value in values:
        aggregator.add(value)
    return float(aggregator.result())


def definition(name: str) -> str:
    """Return a one-line definition of a measure, given by its canonical name or the protocol's label.

    Raises UsageError for an unknown name.

    >>> definition("MAP")
    'mean average precision over the pool; a grade of 2 or 3 is relevant'
    >>> definition("P@5")
    'Precision at k, as ir-measures computes P@5'
    """
    if name in MEASURES:
        return MEASURES[name].definition
    measure = parse_measures([name])[name]
    for of_protocol in MEASURES.values():
        if of_protocol.name == name:
            return of_protocol.definition
    pretty = getattr(measure, "PRETTY_NAME", None) or measure.NAME
    return f"{pretty}, as ir-measures computes {name}"

"""Differences of systems: paired tests, corrected for multiple comparisons, and what rests on few queries."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from qbe.errors import UsageError, check_package
from qbe.evaluate.evaluation import Evaluation

EXACT_UP_TO = 20  # non-zero differences of which all 2**n sign patterns are counted; of more, random ones
SAMPLES, RESAMPLES, SEED = 100_000, 10_000, 20210607


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of one system with a baseline by one measure, on the queries of one scope."""

    system: str
    baseline: str
    measure: str
    scope: str
    queries: int
    difference: float  # mean over the queries of system minus baseline
    randomization_p: float  # two-sided, as each p
    t_test_p: float
    randomization_p_holm: float  # corrected over all comparisons of the measure
    t_test_p_holm: float
    interval: tuple[float, float]  # of the difference: 95 %, by the bootstrap
    wins: int
    ties: int
    losses: int
    influential: str | None  # the query without which the difference changes most
    without_influential: float | None  # the difference without it


def compare(
    systems: Mapping[str, Evaluation],
    baselines: Mapping[str, Evaluation],
    measures: Sequence[str] | None = None,
) -> tuple[Comparison, ...]:
    """Compare every system with every baseline, by measure and scope, over queries (not folds).

    Holm's correction is over all comparisons of one measure; two systems on the same queries count once.
    Scopes without a figure of one of the two are left out.
    """
    if measures is None:
        measures = list(next(iter(baselines.values())).per_query) if baselines else []
    comparisons: list[Comparison] = []
    for measure in measures:
        family = [
            (name, baseline_name, scope, by_query)
            for baseline_name, baseline in baselines.items()
            for name, system in systems.items()
            if name != baseline_name
            for scope, by_query in _differences(system, baseline, measure)
        ]
        # Two systems on the same queries are one test, whichever is the baseline and whatever the scope.
        tests = [(frozenset((name, other)), frozenset(by_query)) for name, other, _, by_query in family]
        tested = {test: list(by_query.values()) for test, (*_, by_query) in zip(tests, family, strict=True)}
        randomization = [randomization_test(values) for values in tested.values()]
        t_tests = [t_test(values) for values in tested.values()]
        p_values = zip(randomization, t_tests, holm(randomization), holm(t_tests), strict=True)
        corrected = dict(zip(tested, p_values, strict=True))
        for test, (name, other, scope, by_query) in zip(tests, family, strict=True):
            values = list(by_query.values())
            wins, losses = sum(value > 0 for value in values), sum(value < 0 for value in values)
            comparisons.append(
                Comparison(
                    *(name, other, measure, scope, len(values), fmean(values), *corrected[test]),
                    bootstrap_interval(values),
                    *(wins, len(values) - wins - losses, losses),
                    *most_influential(by_query),
                )
            )
    return tuple(comparisons)


def _differences(
    system: Evaluation, baseline: Evaluation, measure: str
) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield the scopes with figures of both, and the difference for each of their queries."""
    if measure not in system.per_query or measure not in baseline.per_query:
        raise UsageError(f"expected a measure of both evaluations, found {measure!r}; compute it for both")
    if system.queries != baseline.queries:
        raise UsageError(
            "expected evaluations on the same queries, found others; use the same qrels for both"
        )
    values, others = system.per_query[measure], baseline.per_query[measure]
    for scope, figure in system.figures[measure].items():
        if figure is not None and baseline.figures[measure][scope] is not None:
            ids = system.queries[scope]
            weights = system.weights.get(measure) or dict.fromkeys(ids, 1.0)
            # so that their mean is the difference of the figures
            unit = fmean(weights[query] for query in ids) or 1.0
            yield scope, {q: (values[q] - others[q]) * (weights[q] / unit) for q in ids}


def most_influential(differences: Mapping[str, float]) -> tuple[str | None, float | None]:
    """The query without which the mean changes most, and that mean (Efron and Tibshirani, 1993, ch. 11)."""
    if len(differences) < 2:
        return None, None
    mean = fmean(differences.values())
    query = max(differences, key=lambda query_id: abs(differences[query_id] - mean))
    return query, fmean(value for query_id, value in differences.items() if query_id != query)


def figure_interval(evaluation: Evaluation, measure: str, scope: str) -> tuple[float, float]:
    """Compute the 95 % interval of a figure over the queries of a scope."""
    weights = evaluation.weights.get(measure) or dict.fromkeys(evaluation.queries[scope], 1.0)
    ids = [query for query in evaluation.queries[scope] if weights[query]]
    values = evaluation.per_query[measure]
    return bootstrap_interval([values[query] for query in ids], [weights[query] for query in ids])


def bootstrap_interval(differences: Sequence[float], weights: Sequence[float] = ()) -> tuple[float, float]:
    """Compute the 95 % percentile interval of a (weighted) mean by the paired bootstrap (ibid., ch. 13)."""
    import numpy as np

    values = np.array(differences)
    shares = np.array(weights or np.ones(values.size))
    generator = np.random.default_rng(SEED)
    block = max(1, 1_000_000 // values.size)
    means = []
    for left in range(RESAMPLES, 0, -block):
        drawn = generator.integers(values.size, size=(min(block, left), values.size))
        means.append((values * shares)[drawn].sum(axis=1) / shares[drawn].sum(axis=1))
    low, high = np.percentile(np.concatenate(means), [2.5, 97.5])
    return float(low), float(high)


def randomization_test(differences: Sequence[float]) -> float:
    """Compute the two-sided p of Fisher's paired randomization test (Smucker, Allan and Carterette, 2007).

    p is the proportion of sign patterns whose mean is at least as far from 0 as the observed one: of all with
    at most EXACT_UP_TO non-zero differences, with more of SAMPLES random ones and the observed one.
    """
    import numpy as np

    values = np.array([value for value in differences if value != 0.0])
    if values.size == 0:
        return 1.0
    # Sums that are mathematically equal differ by rounding; their patterns count as equally far from 0.
    threshold = abs(float(values.sum())) - 1e-12 * float(np.abs(values).sum())
    if values.size <= EXACT_UP_TO:
        sums = values[:1]  # its sign is fixed: the mirror image of a pattern is as far from 0
        for value in values[1:]:
            sums = np.concatenate([sums + value, sums - value])
        return float(np.mean(np.abs(sums) >= threshold))
    generator = np.random.default_rng(SEED)
    extreme = 0
    for left in range(SAMPLES, 0, -10_000):
        signs = generator.integers(0, 2, size=(min(10_000, left), values.size), dtype=np.int8)
        extreme += int(np.count_nonzero(np.abs((2.0 * signs - 1.0) @ values) >= threshold))
    return (1 + extreme) / (1 + SAMPLES)


def t_test(differences: Sequence[float]) -> float:
    """Compute the two-sided p of the paired t-test; 1 for fewer than two differences, or only zeros."""
    if len(differences) < 2 or not any(differences):
        return 1.0
    stats = check_package("scipy.stats")
    with warnings.catch_warnings():
        # Equal differences have no variance: p is 0, and scipy warns of a loss of precision.
        warnings.simplefilter("ignore", RuntimeWarning)
        return float(stats.ttest_1samp(differences, 0.0).pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for multiple comparisons by Holm's step-down procedure (1979); the order is kept."""
    order = sorted((p, i) for i, p in enumerate(p_values))
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for step, (p, i) in enumerate(order):
        highest = max(highest, min(1.0, p * (len(order) - step)))
        adjusted[i] = highest
    return adjusted

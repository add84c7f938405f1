"""Is a difference between two systems more than chance? Paired tests over queries, corrected for number."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from qbe.errors import UsageError
from qbe.evaluate.results import Evaluation

EXACT_UP_TO = 20
"""Up to so many queries that differ, all 2**n sign patterns are counted; beyond, random ones are drawn."""

SAMPLES = 100_000
SEED = 20210607


@dataclass(frozen=True, slots=True)
class Comparison:
    """One system against a baseline under one measure, on the queries of one scope.

    Attributes:
        queries: number of paired queries.
        difference: mean over these queries of system minus baseline, in the measure's unit.
        randomization_p: two-sided p of the paired randomization test.
        t_test_p: two-sided p of the paired t-test.
        randomization_p_holm: the former after Holm's correction (1979) over all comparisons of the measure.
        t_test_p_holm: likewise.
    """

    system: str
    baseline: str
    measure: str
    scope: str
    queries: int
    difference: float
    randomization_p: float
    t_test_p: float
    randomization_p_holm: float
    t_test_p_holm: float


def compare(
    systems: Mapping[str, Evaluation],
    baselines: Mapping[str, Evaluation],
    measures: Sequence[str] | None = None,
    seed: int = SEED,
) -> tuple[Comparison, ...]:
    """Compare every system with every baseline, by measure and scope.

    The family that Holm's correction covers is all comparisons of one measure: every system, baseline
    and scope. A system is not compared with itself, nor where either has no figure. CSFCube's data
    sheet asks for tests over all queries, not over folds; so it is done here.

    Args:
        systems: evaluations by name.
        baselines: evaluations by name.
        measures: names to compare under; all of the first baseline's when None.
        seed: of the random sign patterns; the same seed gives the same p-values.

    Raises UsageError for a measure that an evaluation lacks.
    """
    if measures is None:
        measures = list(next(iter(baselines.values())).figures) if baselines else []
    compared: list[Comparison] = []
    for measure in measures:
        family = [
            _compare(name, system, baseline_name, baseline, measure, scope, seed)
            for baseline_name, baseline in baselines.items()
            for name, system in systems.items()
            if name != baseline_name
            for scope in _common_scopes(system, baseline, measure)
        ]
        randomized = holm([comparison.randomization_p for comparison in family])
        tested = holm([comparison.t_test_p for comparison in family])
        compared += [
            replace(comparison, randomization_p_holm=first, t_test_p_holm=second)
            for comparison, first, second in zip(family, randomized, tested, strict=True)
        ]
    return tuple(compared)


def _common_scopes(system: Evaluation, baseline: Evaluation, measure: str) -> list[str]:
    if measure not in system.figures or measure not in baseline.figures:
        raise UsageError(f"expected a measure of both evaluations, found {measure!r}; evaluate it first")
    if system.queries != baseline.queries:
        raise UsageError(
            "expected evaluations on the same queries, found others; use the same qrels for both"
        )
    return [
        scope
        for scope, figure in system.figures[measure].items()
        if figure is not None and baseline.figures[measure][scope] is not None
    ]


def _compare(
    name: str,
    system: Evaluation,
    baseline_name: str,
    baseline: Evaluation,
    measure: str,
    scope: str,
    seed: int,
) -> Comparison:
    ours, theirs = system.per_query[measure], baseline.per_query[measure]
    differences = [ours[query_id] - theirs[query_id] for query_id in system.queries[scope]]
    randomized, tested = randomization_test(differences, seed=seed), t_test(differences)
    return Comparison(
        system=name,
        baseline=baseline_name,
        measure=measure,
        scope=scope,
        queries=len(differences),
        difference=fmean(differences),
        randomization_p=randomized,
        t_test_p=tested,
        randomization_p_holm=randomized,  # alone in its family, until compare corrects it
        t_test_p_holm=tested,
    )


def randomization_test(
    differences: Sequence[float], samples: int = SAMPLES, seed: int = SEED, exact_up_to: int = EXACT_UP_TO
) -> float:
    """Two-sided p of Fisher's paired randomization test on the mean (Smucker, Allan, Carterette, 2007).

    Were both systems alike, each difference could as well have had the other sign. p is the share of
    sign patterns whose mean is as far from 0 as the one observed: of all patterns when at most
    ``exact_up_to`` differences are not 0, else of ``samples`` random ones and the observed one.
    """
    import numpy as np

    values = np.array([value for value in differences if value != 0.0])
    if values.size == 0:
        return 1.0
    # Sums that are equal on paper differ by rounding: such patterns count as equally far.
    threshold = abs(float(values.sum())) - 1e-12 * float(np.abs(values).sum())
    if values.size <= exact_up_to:
        sums = values[:1]  # its sign stays: every pattern has a mirror image equally far from 0
        for value in values[1:]:
            sums = np.concatenate([sums + value, sums - value])
        return float(np.mean(np.abs(sums) >= threshold))
    generator = np.random.default_rng(seed)
    as_far = 0
    block = 10_000
    for start in range(0, samples, block):
        signs = generator.integers(0, 2, size=(min(block, samples - start), values.size), dtype=np.int8)
        as_far += int(np.count_nonzero(np.abs((2.0 * signs - 1.0) @ values) >= threshold))
    return (1 + as_far) / (1 + samples)


def t_test(differences: Sequence[float]) -> float:
    """Two-sided p of the paired t-test; 1 when no query differs, or for a single one, which tells nothing."""
    if len(differences) < 2 or not any(differences):
        return 1.0
    from scipy import stats

    with warnings.catch_warnings():
        # Equal differences have no variance: p is 0, and scipy warns of the lost precision.
        warnings.simplefilter("ignore", RuntimeWarning)
        return float(stats.ttest_1samp(differences, 0.0).pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values after Holm's step-down correction (1979), in the order given.

    The i-th smallest of m is multiplied by m - i + 1; none falls below a smaller one's, none exceeds 1.
    """
    order = sorted((p, i) for i, p in enumerate(p_values))
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for step, (p, i) in enumerate(order):
        highest = max(highest, min(1.0, p * (len(order) - step)))
        adjusted[i] = highest
    return adjusted

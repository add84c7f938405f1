"""Paired tests and Holm's correction: values worked by hand, references, properties."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from qbe.evaluate import significance
from qbe.evaluate.evaluation import Evaluation
from qbe.evaluate.significance import bootstrap_interval, compare, holm, most_influential, t_test

differences = st.lists(st.integers(-4, 4).map(lambda n: n / 10), min_size=1, max_size=9)


@given(differences)
def test_exact_randomization_counts_all_sign_patterns(values):
    tenths = [round(10 * value) for value in values]
    sums = [
        abs(sum(s * v for s, v in zip(signs, tenths, strict=True)))
        for signs in itertools.product((1, -1), repeat=len(tenths))
    ]
    expected = sum(total >= abs(sum(tenths)) for total in sums) / len(sums)
    assert significance.randomization_test(values) == pytest.approx(expected)


def test_t_test_by_hand_and_as_scipy_pairs():
    # Mean 2, deviation 1, t = 2 sqrt(3); with 2 degrees of freedom p = 1 - t / sqrt(t^2 + 2).
    assert t_test([1, 2, 3]) == pytest.approx(1 - math.sqrt(12 / 14))
    system, baseline = [0.4, 0.6, 0.9, 0.2], [0.3, 0.7, 0.5, 0.1]
    paired = [a - b for a, b in zip(system, baseline, strict=True)]
    assert t_test(paired) == pytest.approx(stats.ttest_rel(system, baseline).pvalue)
    assert [t_test(values) for values in ([0.0, 0.0], [0.5], [0.5, 0.5, 0.5])] == [1.0, 1.0, 0.0]


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.5]) == [1.0, 1.0]
    assert holm([]) == []


def evaluation(values, **figures):
    queries = tuple(f"{i}_method" for i in range(len(values)))
    per_query = {"AP": dict(zip(queries, values, strict=True))}
    return Evaluation({"method": queries, "all": queries}, per_query, {"AP": figures})


def test_compare_pairs_queries_and_corrects_within_a_measure():
    base = evaluation([0.1, 0.2, 0.3], method=0.2, all=0.2)
    better = evaluation([0.3, 0.5, 0.7], method=0.5, all=0.5)
    partial = evaluation([0.1, 0.2, 0.4], method=0.23, all=None)
    comparisons = compare({"better": better, "partial": partial, "base": base}, {"base": base})
    assert [(c.system, c.scope, c.queries) for c in comparisons] == [
        ("better", "method", 3),
        ("better", "all", 3),
        ("partial", "method", 3),
    ]
    assert comparisons[0].difference == pytest.approx(0.3)
    assert [c.randomization_p for c in comparisons] == [0.25, 0.25, 1.0]
    assert [c.randomization_p_holm for c in comparisons] == [0.5, 0.5, 1.0]  # all are the queries of method
    t_tests = holm([c.t_test_p for c in comparisons[1:]])
    assert [c.t_test_p_holm for c in comparisons] == pytest.approx([t_tests[0], *t_tests])
    both = {"better": better, "base": base}
    assert {c.randomization_p_holm for c in compare(both, both)} == {0.25}


def test_the_most_influential_query_is_the_one_that_changes_the_mean_most():
    # Means without each: (0.5 + 0.75) / 2 = 0.625, (-1 + 0.75) / 2, (-1 + 0.5) / 2; with all 1 / 12.
    assert most_influential({"a": -1.0, "b": 0.5, "c": 0.75}) == ("a", 0.625)
    assert most_influential({"a": 0.5, "b": 0.25}) == ("a", 0.25)  # equal influence: the first
    assert most_influential({"a": 0.5}) == (None, None)


def test_the_bootstrap_interval_is_seeded_and_that_of_scipy(monkeypatch):
    values = list(np.random.default_rng(3).normal(0.2, 1.0, 40))
    low, high = bootstrap_interval(values)
    assert (low, high) == bootstrap_interval(values)
    reference = stats.bootstrap((values,), np.mean, method="percentile", n_resamples=20_000)
    assert (low, high) == pytest.approx(tuple(reference.confidence_interval), abs=0.03)
    # Of two queries the mean is 0, 0.5 or 1, with the chances 1/4, 1/2, 1/4.
    assert bootstrap_interval([0.0, 1.0]) == (0.0, 1.0)
    assert bootstrap_interval([0.25] * 3) == (0.25, 0.25)
    monkeypatch.setattr(significance, "RESAMPLES", 100)
    low, high = bootstrap_interval([float(i % 2) for i in range(30_000)])  # in blocks
    assert 0.49 < low < 0.5 < high < 0.51

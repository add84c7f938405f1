"""The CSFCube protocol's measures: values worked by hand, properties, agreement with ir-measures."""

import math

import ir_measures
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbe.errors import UsageError
from qbe.evaluate import measures as own
from qbe.evaluate.measures import MEASURES, ndcg_percent, parse_measures, per_query_values, trec_order

LOG3 = math.log2(3)
pools = st.lists(st.integers(0, 3), min_size=1, max_size=60)


def test_ndcg_cuts_at_a_fifth_and_counts_the_first_two_ranks_alike():
    pool = [3, 3, 2, 1, 0, 0, 0, 0, 0, 0]
    assert ndcg_percent([2, 3, 0, 3], pool) == pytest.approx(5 / 6)
    assert ndcg_percent([3, 2, 0, 3], pool) == pytest.approx(5 / 6)


def test_ndcg_of_the_textbook_example():
    # The example of Stanford's CS276 handout on evaluation, whose DCG at 10 is 9.605.
    gains = [3, 2, 3, 0, 0, 1, 2, 2, 3, 0]
    pool = gains + [0] * 40
    ideal = 3 + 3 + 3 / LOG3 + 2 / 2 + 2 / math.log2(5) + 2 / math.log2(6) + 1 / math.log2(7)
    assert ndcg_percent(gains, pool) == pytest.approx(9.6051177391888114 / ideal)


@pytest.mark.parametrize(("size", "cutoff"), [(4, 0), (5, 1), (9, 1), (99, 19), (250, 50)])
def test_ndcg_rounds_the_cutoff_down(size, cutoff):
    ranked = [0] * cutoff + [3] + [0] * (size - cutoff - 1)
    assert ndcg_percent(ranked, ranked) == 0.0
    assert ndcg_percent(sorted(ranked, reverse=True), ranked) == (1.0 if cutoff else 0.0)


def test_negative_grades_gain_nothing_and_r_precision_is_precision_at_the_last_relevant_rank():
    assert ndcg_percent([-2, 3], [3, 0, 0, 0, 0, 0, 0, 0, 0, -2]) == pytest.approx(1.0)
    assert own.precision_at_last([2, 0, 3, 1], [2, 0, 3, 1]) == pytest.approx(2 / 3)
    assert own.precision_at_last([2, 0], [2, 0, 3, 1]) == 0.0


@pytest.mark.parametrize("measure", MEASURES.values(), ids=list(MEASURES))
@pytest.mark.parametrize("pool", [[], [0, 0, 0, 0, 0], [1, 0, 0, 0, 0]])
def test_a_pool_without_anything_relevant_gives_zero(measure, pool):
    assert measure.function(pool, pool) == (1.0 if measure.name == "CSFCube_nDCG" and 1 in pool else 0.0)


@given(pools, st.randoms(use_true_random=False))
def test_values_lie_in_0_1_and_a_prefix_scores_no_higher(pool, random):
    ranked = random.sample(pool, len(pool))
    prefix = ranked[: random.randrange(len(ranked) + 1)]
    for measure in MEASURES.values():
        whole, part = measure.function(ranked, pool), measure.function(prefix, pool)
        assert 0.0 <= part <= whole <= 1.0 + 1e-12


@given(pools.filter(lambda pool: max(pool) >= 2 and len(pool) >= 5))
def test_a_perfect_ranking_scores_one(pool):
    perfect = sorted(pool, reverse=True)
    for label in ("NDCG%20", "MAP", "R-Precision"):
        assert MEASURES[label].function(perfect, pool) == pytest.approx(1.0)
    assert own.recall(perfect, pool) == pytest.approx(min(1.0, 20 / sum(grade >= 2 for grade in pool)))


def test_order_is_trec_evals():
    assert trec_order({"a": 1.0, "b": 2.0, "c": 1.0}) == ["b", "c", "a"]
    assert trec_order({"a": 12.345678901, "b": 12.345678900}) == ["b", "a"]  # equal in single precision


qrels_and_run = st.dictionaries(
    st.sampled_from(["1_background", "2_method", "3_result"]),
    st.lists(
        st.tuples(st.integers(0, 3), st.none() | st.sampled_from([0.1, 0.5, 0.5000000001, 2.0, -1.0])),
        min_size=1,
        max_size=30,
    ),
    min_size=1,
)


@settings(max_examples=30, deadline=None)
@given(qrels_and_run)
def test_ir_measures_computes_the_protocols_measures_and_agrees_where_it_has_them(content):
    qrels = {q: {f"d{i}": grade for i, (grade, _) in enumerate(rows)} for q, rows in content.items()}
    scores = {
        q: {f"d{i}": score for i, (_, score) in enumerate(rows) if score is not None}
        for q, rows in content.items()
    }
    stock = {"CSFCube_AP": "AP(rel=2)", "CSFCube_P20": "P(rel=2)@20", "CSFCube_R20": "R(rel=2)@20"}
    names = [*(measure.name for measure in MEASURES.values()), *stock.values()]
    values = per_query_values(parse_measures(names), qrels, scores)
    for query_id in qrels:
        grades = own.judged_ranking(query_id, qrels[query_id], scores[query_id])
        for measure in MEASURES.values():
            assert values[measure.name][query_id] == pytest.approx(measure.function(*grades))
    for label, stock_name in stock.items():
        assert values[label] == pytest.approx(values[stock_name])


def test_protocol_measures_are_known_to_ir_measures_by_name():
    parse_measures([])
    qrels = [ir_measures.Qrel("1_method", "a", 2), ir_measures.Qrel("1_method", "b", 0)]
    run = [ir_measures.ScoredDoc("1_method", "b", 2.0), ir_measures.ScoredDoc("1_method", "a", 1.0)]
    named = [ir_measures.parse_measure("CSFCube_AP"), ir_measures.parse_measure("RR(rel=2)")]
    assert ir_measures.calc_aggregate(named, qrels, run) == dict.fromkeys(named, 0.5)


def test_measures_are_named_canonically_once():
    names = ["MAP", "AP", "NDCG%20", "R-Precision", "Precision@20"]
    assert list(parse_measures(names)) == ["AP", "CSFCube_nDCG", "CSFCube_Rprec", "P@20"]
    with pytest.raises(UsageError, match=r"; did you mean NDCG%20\?$"):
        parse_measures(["NDCG%21"])


@pytest.mark.parametrize(
    "name",
    [
        *("foo", "P", "P@x", "nDCG(foo=1)", "", "P(rel="),
        *("P@0", "nDCG@0", "R(cutoff=0)", "AP(rel=0)", "P(rel=0)@5", "P@99999999999999999999"),
    ],
)
def test_a_measure_that_cannot_be_is_refused(name):
    with pytest.raises(UsageError, match=r"CSFCube_nDCG|did you mean NDCG%20"):
        parse_measures([name])


def test_a_missing_and_a_failing_provider_are_told(monkeypatch):
    def fail(*_):
        raise RuntimeError("gdeval.pl is unhappy")

    monkeypatch.setattr(ir_measures, "iter_calc", fail)
    with pytest.raises(UsageError, match=r"gdeval.pl is unhappy"):
        per_query_values(parse_measures(["AP"]), {"1_method": {"a": 1}}, {"1_method": {"a": 1.0}})
    monkeypatch.setattr(ir_measures.DefaultPipeline, "supports", lambda measure: False)
    with pytest.raises(UsageError, match="RBP"):
        parse_measures(["RBP"])


def test_all_measures_break_ties_alike():
    """Of equal scores the id that comes later is first, as in trec_eval."""
    scores = {"q": dict.fromkeys(["a", "b", "c"], 1.0)}
    measures = parse_measures(["RR", "RR@10", "P@1", "nDCG@1", "Success@1"])
    found = per_query_values(measures, {"q": {"a": 0, "b": 0, "c": 1}}, scores)
    assert {name: values["q"] for name, values in found.items()} == dict.fromkeys(found, 1.0)


@pytest.mark.parametrize("name", ["Accuracy@1", "nDCG(gains={1:1e999})@5"])
def test_a_measure_that_divides_by_zero_or_gains_no_number_is_refused(name):
    measures = parse_measures([name])
    with pytest.raises(UsageError) as refused:
        per_query_values(measures, {"q": {"a": 1}}, {"q": {"a": 1.0}})
    assert f"cannot compute all of {next(iter(measures))} " in str(refused.value)


def test_a_query_of_grades_below_minus_one_alone_ends_no_process():
    qrels, scores = {"1": {"a": 1}, "2": {"a": -2, "b": -5}}, {"1": {"a": 1.0}, "2": {"a": 1.0}}
    assert per_query_values(parse_measures(["AP"]), qrels, scores) == {"AP": {"1": 1.0, "2": 0.0}}

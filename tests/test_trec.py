"""Run, qrels, topics and pools files."""

import math
import struct
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbe import runs as topic_files
from qbe import runs as trec
from qbe.types import Hit

FINITE = st.floats(allow_nan=False, allow_infinity=False, max_value=1e30, min_value=-1e30)
WORD = st.text(st.characters(codec="utf-8", categories=["L", "N", "P"]), min_size=1, max_size=8)


def single(value: float) -> float:
    return struct.unpack("<f", struct.pack("<f", value))[0]


def test_format_run_exactly() -> None:
    rankings = {"7_method": (Hit("a", 2.5), Hit("b", 0.1)), "8_result": (Hit("c", -1.0),)}
    assert trec.format_run("bm25", rankings) == (
        "7_method Q0 a 1 2.5 bm25\n7_method Q0 b 2 0.100000001 bm25\n8_result Q0 c 1 -1 bm25\n"
    )


def test_ties_are_moved_to_the_next_single_precision_number() -> None:
    # The spacing of single-precision numbers just below 1 is 2**-24, just above it 2**-23.
    assert list(trec.strictly_decreasing([1.0, 1.0, 1.0])) == [1.0, 1 - 2**-24, 1 - 2**-23]
    assert list(trec.strictly_decreasing([1 + 2**-23, 1 + 2**-40])) == [1 + 2**-23, 1.0]
    assert list(trec.strictly_decreasing([0.0, 0.0, 0.0])) == [0.0, -(2**-149), -(2**-148)]
    assert list(trec.strictly_decreasing([2**-149, 2**-149])) == [2**-149, 0.0]


@pytest.mark.parametrize(
    "scores", [[math.inf], [math.nan], [-math.inf], [1e39], [-3.4028234663852886e38] * 2]
)
def test_scores_that_single_precision_cannot_hold(scores: list[float]) -> None:
    with pytest.raises(ValueError, match="finite in single precision"):
        list(trec.strictly_decreasing(scores))


@settings(max_examples=30)
@given(st.lists(FINITE, max_size=40))
def test_strictly_decreasing_in_single_precision_as_printed(scores: list[float]) -> None:
    scores.sort(reverse=True)
    values = list(trec.strictly_decreasing(scores))
    printed = [single(float(f"{value:.9g}")) for value in values]
    assert printed == values
    assert all(first > second for first, second in pairwise(values))
    assert all(value <= single(score) for value, score in zip(values, scores, strict=True))


@settings(max_examples=30)
@given(st.dictionaries(WORD, st.lists(WORD, unique=True, min_size=1, max_size=5), max_size=4), st.data())
def test_run_round_trip(tmp_path_factory, paper_ids, data):
    rankings = {}
    for query_id, ids in paper_ids.items():
        scores = data.draw(st.lists(FINITE, min_size=len(ids), max_size=len(ids)).map(sorted))
        exact = trec.strictly_decreasing(reversed(scores))
        rankings[query_id] = tuple(Hit(paper_id, score) for paper_id, score in zip(ids, exact, strict=True))
    path = tmp_path_factory.getbasetemp() / "round-trip.trec"
    path.write_text(trec.format_run("t", rankings))
    again = trec.read_run(path).rankings
    assert {
        query_id: tuple(hit._replace(score=single(hit.score)) for hit in hits)
        for query_id, hits in again.items()
    } == rankings


def test_read_run_orders_as_trec_eval_does(tmp_path: Path) -> None:
    path = tmp_path / "x.trec"
    # The ranks say otherwise; 2 and 2.0000000001 are one number in single precision.
    path.write_text("q Q0 a 1 2.0000000001 t\nq Q0 b 2 2 t\nq Q0 c 3 3 t\n\n")
    assert [hit.paper_id for hit in trec.read_run(path).rankings["q"]] == ["c", "b", "a"]


def test_pools_exactly_and_back(tmp_path: Path) -> None:
    path = tmp_path / "pools.tsv"
    topic_files.write_pools(path, {"7_method": ["b", "a"], "8_result": ["c"]})
    assert path.read_text() == "query_id\tpaper_id\n7_method\tb\n7_method\ta\n8_result\tc\n"
    with path.open("a") as stream:
        stream.write("\r\n7_method\tb\r\n")
    assert topic_files.read_pools(path) == {"7_method": ["b", "a"], "8_result": ["c"]}

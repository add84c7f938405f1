"""Runs: files, data frames, measures, significance, fusion."""

import math
from pathlib import Path

import ir_measures
import pandas as pd
import pytest

import qbe
from qbe.errors import FileFormatError, UsageError
from qbe.evaluate.significance import compare
from qbe.run import Run
from qbe.types import Hit

QRELS = {"1_method": {"a": 3, "b": 0, "c": 1}, "2_method": {"a": 0, "b": 2}}


def run(tag: str = "t", **rankings: str) -> Run:
    """A run of one-letter papers, best first, with the scores 0, -1, ..."""
    named = {
        f"{name.removeprefix('q')}_method": tuple(
            Hit(paper, float(-place)) for place, paper in enumerate(ids)
        )
        for name, ids in rankings.items()
    }
    return Run(tag, named)


def test_a_run_is_a_mapping_of_queries_and_files_of_facets_are_one(tmp_path):
    ranked = run(q1="ab", q2="b")
    assert list(ranked) == ["1_method", "2_method"]
    assert (len(ranked), "2_method" in ranked, "3_method" in ranked) == (2, True, False)
    assert ranked["2_method"] == (Hit("b", 0.0),)
    assert ranked == run(q1="ab", q2="b") != run("other", q1="ab", q2="b")
    run("first", q1="ba").write(tmp_path / "x.method.trec")
    Run("second", {"1_result": (Hit("c", 2.0),)}).write(tmp_path / "x.result.trec")
    both = Run.from_trec(tmp_path / "x.method.trec", tmp_path / "x.result.trec")
    assert (both.tag, list(both)) == ("first", ["1_method", "1_result"])
    with pytest.raises(FileFormatError, match="found 1_method"):
        Run.from_trec(tmp_path / "x.method.trec", tmp_path / "x.method.trec")


@pytest.mark.parametrize("tag", ["", "my run"])
def test_a_tag_that_is_not_one_word_is_not_written(tag, tmp_path):
    with pytest.raises(UsageError, match="run tag of one word"):
        Run(tag, {}).write(tmp_path / "x.trec")


def test_a_data_frame_and_back():
    ranked = run(q1="ba", q2="c")
    frame = ranked.to_dataframe()
    assert frame.columns.tolist() == ["qid", "docno", "score", "rank"]
    assert frame["rank"].tolist() == [0, 1, 0]
    assert Run.from_dataframe(frame.sample(frac=1, random_state=1), "t")["1_method"] == ranked["1_method"]
    assert Run("t", {}).to_dataframe().empty
    tied = pd.DataFrame({"qid": [1, 1], "docno": [8, 7], "score": [0.5, 0.5]})
    assert Run.from_dataframe(tied)["1"] == (Hit("7", 0.5), Hit("8", 0.5))
    with pytest.raises(UsageError, match="found no score"):
        Run.from_dataframe(frame.drop(columns="score"))


def test_figures_are_those_of_ir_measures():
    ranked, names = run(q1="bca", q2="ab"), ["nDCG@2", "AP(rel=2)", "RR"]
    figures = ranked.evaluate(QRELS, names).figures
    frame = ranked.to_dataframe().rename(columns={"qid": "query_id", "docno": "doc_id"})
    measures = [ir_measures.parse_measure(name) for name in names]
    expected = ir_measures.calc_aggregate(measures, QRELS, frame)
    assert {name: by_scope["all"] for name, by_scope in figures.items()} == pytest.approx(
        {str(measure): value for measure, value in expected.items()}
    )
    assert run(q1="ab", q2="b").evaluate(QRELS, ["NDCG%20"]).figures["CSFCube_nDCG"]["method"] == 0
    with pytest.raises(UsageError, match="found 'foo'"):
        ranked.evaluate(QRELS, ["foo"])


def test_comparisons_are_those_of_the_command():
    good, bad = run("good", q1="ab", q2="ba"), run("bad", q1="ba", q2="ab")
    results = good.compare(bad, QRELS, ["RR"])
    assert results == compare(
        {"good": good.evaluate(QRELS, ["RR"])}, {"bad": bad.evaluate(QRELS, ["RR"])}, ["RR"]
    )
    assert [(c.scope, c.difference, c.randomization_p) for c in results] == [
        ("method", 0.5, 0.5),
        ("all", 0.5, 0.5),
    ]
    assert pd.DataFrame(results)["baseline"].tolist() == ["bad", "bad"]
    same = run("good", q1="ba", q2="ab")
    assert {c.baseline for c in good.compare(same, QRELS, ["RR"])} == {"good (other)"}


def test_fusion_by_hand():
    one = Run("one", {"q": (Hit("a", 9.0), Hit("b", 5.0)), "r": (Hit("a", 1.0),)})
    two = Run("two", {"q": (Hit("c", 3.0), Hit("b", 2.0), Hit("a", 1.0)), "s": ()})
    z = math.sqrt(3 / 2)
    fused = one.fuse(two, weights=[1, 2], tag="both")
    assert (fused.tag, list(fused)) == ("both", ["q"])
    # one: a 1, b -1, c (absent) -1; two: c z, b 0, a -z.
    assert {hit.paper_id: hit.score for hit in fused["q"]} == pytest.approx(
        {"c": -1 + 2 * z, "b": -1, "a": 1 - 2 * z}
    )
    assert [hit.paper_id for hit in fused["q"]] == ["c", "b", "a"]
    equal = Run("equal", {"q": (Hit("a", 0.1), Hit("b", 0.1))})
    assert [hit.score for hit in equal.fuse(equal)["q"]] == [0, 0]
    with pytest.raises(UsageError, match="2 `weights`, one for each run, found 1"):
        one.fuse(two, weights=[1])
    with pytest.raises(UsageError, match="found none; fuse runs of the same topics"):
        one.fuse(Run("other", {"x": ()}))


def test_a_pipeline_makes_runs_of_topics(tiny_index, sample, tmp_path):
    from qbe.topics import read_pools

    pools = read_pools(sample / "pools.tsv")
    with qbe.open_index(tiny_index) as index, qbe.Pipeline(index, qbe.Dense()) as pipeline:
        run = pipeline.run(sample / "topics.tsv", k=5)
        assert run == pipeline.run(qbe.read_topics(sample / "topics.tsv"), k=5)
        pooled = pipeline.run(sample / "topics.tsv", pools=pools)
    assert run.tag == "qbe-dense"
    assert {len(hits) for hits in run.values()} == {5}
    assert {query: {hit.paper_id for hit in hits} for query, hits in pooled.items()} == {
        query: set(pool) for query, pool in pools.items()
    }
    run.write(tmp_path / "dense.trec")
    again = Run.from_trec(Path(tmp_path / "dense.trec"))
    assert {q: [hit.paper_id for hit in hits] for q, hits in again.items()} == {
        q: [hit.paper_id for hit in hits] for q, hits in run.items()
    }

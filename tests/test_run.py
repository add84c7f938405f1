"""Runs: files, data frames, measures, significance, fusion."""

import math
from functools import partial

import pandas as pd
import pytest
from support.searching import ids

import qbe
from qbe.errors import FileFormatError, UsageError
from qbe.evaluate.evaluation import evaluate
from qbe.evaluate.report import Scoring, build_report
from qbe.evaluate.run import Run
from qbe.evaluate.significance import compare
from qbe.runs import read_qrels
from qbe.types import Facet, Hit

QRELS = {"1_method": {"a": 3, "b": 0, "c": 1}, "2_method": {"a": 0, "b": 2}}


def run(tag: str = "t", **rankings: str) -> Run:
    """A run of one-letter papers, best first, with the scores 0, -1, ..."""
    hits = {
        name: [Hit(paper, float(-place)) for place, paper in enumerate(ids)] for name, ids in rankings.items()
    }
    return Run(tag, {f"{name.removeprefix('q')}_method": tuple(each) for name, each in hits.items()})


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


HUGE, TWICE = 1e39, (Hit("a", 2.0), Hit("a", 1.0))
SPACED = [
    Run("", {}),
    Run("my run", {}),
    *(Run("t", {"q": (Hit(name, 1.0),)}) for name in ("a b", "")),
    *(Run("t", {name: (Hit("a", 1.0),)}) for name in ("my q", "")),
]


@pytest.mark.parametrize(
    "rankings", [{"q": TWICE}, *({"q": (Hit("a", x),)} for x in (math.nan, -math.inf, HUGE))]
)
def test_what_cannot_be_written_is_not_evaluated_nor_fused(rankings, tmp_path):
    ranked, one = Run("t", rankings), Run("one", {"q": (Hit("a", 1.0),)})
    evaluated = partial(ranked.evaluate, {"q": {"a": 1}})
    for action in (evaluated, partial(ranked.write, tmp_path / "x.trec"), partial(one.fuse, ranked)):
        with pytest.raises(UsageError, match=r"for q;|query q:"):
            action()
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("spaced", SPACED)
def test_tags_and_ids_that_are_not_one_word_are_not_written(spaced, tmp_path):
    with pytest.raises(UsageError, match=r"ids of one word each|run tag of one word"):
        spaced.write(tmp_path / "x.trec")


@pytest.mark.parametrize("scores", [(1.0, 1.0, 1.0), (1 + 2e-10, 1 + 1e-10, 1.0), (1.0, 2.0, 2.0)])
def test_a_run_is_evaluated_as_its_file_is(scores, tmp_path):
    qrels, ranked = {"q": {"a": 3, "b": 1}}, Run("t", {"q": tuple(map(Hit, "abc", scores))})
    ranked.write(tmp_path / "x.trec")
    written, found = Run.from_trec(tmp_path / "x.trec"), ranked.evaluate(qrels, ["nDCG", "AP", "CSFCube_AP"])
    assert found == written.evaluate(qrels, ["nDCG", "AP", "CSFCube_AP"])
    assert found.figures["nDCG"]["all"] == pytest.approx(1)
    tied = Run("t", {"q": (Hit("c", 1.0), Hit("b", 1.0), Hit("a", 1.0))})  # trec_eval's order, as of a file
    assert tied.evaluate(qrels, ["AP"]) == evaluate(qrels, tied, ["AP"])


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


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ([("q", "a", math.nan)], "found nan"),
        ([("q", "a", 1.0), ("q", "a", 2.0)], "found a again for q"),
        ([("q", None, 1.0)], "each row of docno"),
        ([(math.nan, "a", 1.0)], "each row of qid"),
        ([("q", "a", "high")], "numbers as score"),
    ],
)
def test_a_data_frame_that_is_no_run_is_refused(rows, found):
    with pytest.raises(UsageError, match=found):
        Run.from_dataframe(pd.DataFrame(rows, columns=["qid", "docno", "score"]))


def test_comparisons_are_those_of_the_command():
    good, bad = run("good", q1="ab", q2="ba"), run("bad", q1="ba", q2="ab")
    results = good.compare(bad, QRELS, "RR")
    assert good.evaluate(QRELS, "RR") == good.evaluate(QRELS, ["RR"])
    told = "no hit of the run is in the qrels, all count as irrelevant: compare document ids"
    assert [each.evaluate(QRELS).warnings for each in (good, run(q1="x", q2="y"))] == [(), (told,)]
    system, baseline = ({each.tag: each.evaluate(QRELS, ["RR"])} for each in (good, bad))
    assert results == compare(system, baseline, ["RR"])
    figures = [(c.scope, c.difference, c.randomization_p) for c in results]
    assert figures == [("method", 0.5, 0.5), ("all", 0.5, 0.5)]
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
    assert ids(fused["q"]) == ["c", "b", "a"]
    equal = Run("equal", {"q": (Hit("a", 0.1), Hit("b", 0.1))})
    assert [hit.score for hit in equal.fuse(equal)["q"]] == [0, 0]
    with pytest.raises(UsageError, match="2 `weights`, one for each run, found 1"):
        one.fuse(two, weights=[1])
    for weights in ([1, math.nan], [math.inf, 1]):
        with pytest.raises(UsageError, match="finite numbers as `weights`"):
            one.fuse(two, weights=weights)
    with pytest.raises(UsageError, match="found none; fuse runs of the same topics"):
        one.fuse(Run("other", {"x": ()}))


def test_a_pipeline_makes_runs_of_topics(tiny_index, sample):
    pools = qbe.read_pools(sample / "pools.tsv")
    with qbe.open_index(tiny_index) as index, qbe.Pipeline(index, qbe.Dense()) as pipeline:
        run = pipeline.run(sample / "topics.tsv", k=5)
        assert run == pipeline.run(qbe.read_topics(sample / "topics.tsv"), k=5)
        pooled = pipeline.run(sample / "topics.tsv", pools=sample / "pools.tsv")
    assert run.tag == "qbe-dense"
    assert {len(hits) for hits in run.values()} == {5}
    found = {query: {hit.paper_id for hit in hits} for query, hits in pooled.items()}
    assert found == {query: set(pool) for query, pool in pools.items()}


def test_protocols_and_frames_are_those_of_other_tools(sample, tmp_path):
    files = [sample / f"sample.{facet}.qrels" for facet in Facet]
    qrels = read_qrels(*files)
    hits = {query: [Hit(name, -float(place)) for place, name in enumerate(qrels[query])] for query in qrels}
    ranked = Run("x", {query: tuple(found) for query, found in hits.items()})
    ranked.write(tmp_path / "x.trec")
    for protocol, folds in (("csfcube", sample / "folds.json"), ("pools", None)):
        report = build_report(files, [tmp_path / "x.trec"], Scoring(protocol))
        assert ranked.evaluate(qrels, protocol=protocol, folds=folds) == report.evaluations["x"]
    for wrong in ({"protocol": "csfcube"}, {"protocol": "exploration"}, {"folds": sample / "folds.json"}):
        with pytest.raises(UsageError):
            ranked.evaluate(qrels, **wrong)
    frame = ranked.to_dataframe("ir_measures")
    assert [*frame] == ["query_id", "doc_id", "score", "rank"]
    assert Run.from_dataframe(frame, "x") == ranked
    with pytest.raises(UsageError, match="pyterrier or ir_measures"):
        ranked.to_dataframe("trec")

"""The protocols of RELISH, TRECCOVID-RF and SciDocs: judged pools, means over queries, one table."""

import json
import math
import random
from pathlib import Path
from statistics import fmean

import pytest
import pytrec_eval
from support.runs import run

from qbe import FileFormatError, Hit, Run
from qbe.cli.evaluate import main
from qbe.evaluate.evaluation import pool_protocol
from qbe.evaluate.report import published_under
from qbe.runs import write_qrels

QRELS = {"7": {"7": 2, "a": 2, "b": 1, "c": 0, "d": 2, "e": 0}, "8": {"a": 1, "b": 0}}
BINARY = {query: {d: int(grade > 0) for d, grade in pool.items()} for query, pool in QRELS.items()}


def test_figures_by_hand() -> None:
    evaluation = pool_protocol(QRELS, run({"7": "x7bacyde", "8": "ba"}), ["P@1"])
    # The pool of 7 has 5 papers: a cut at 1 rank, where b gains 1 of 2; a and d stand at ranks 2 and 4.
    # That of 8 has 2: a cut at 0 ranks, and nothing of grade 2, the highest.
    ideal = 2 + 2 / math.log2(3) + 1 / math.log2(4)
    assert evaluation.per_query == {
        "NDCG%20": {"7": 0.5, "8": 0.0},
        "MAP": {"7": pytest.approx((1 / 2 + 2 / 4) / 2), "8": 0.0},
        "NDCG": {
            "7": pytest.approx((1 + 2 / math.log2(3) + 2 / math.log2(5)) / ideal),
            "8": pytest.approx(1 / math.log2(3)),
        },
        "P@1": {"7": 1.0, "8": 0.0},
    }
    assert evaluation.figures["NDCG%20"] == {"all": 0.25}
    assert evaluation.warnings == ("1 queries with fewer than 5 pool documents (8): their NDCG%20 is 0",)
    # Without a grade of 2 every grade of 1 is relevant.
    assert pool_protocol(BINARY, run({"7": "bacde", "8": "ba"})).per_query["MAP"] == {
        "7": pytest.approx((1 + 1 + 3 / 4) / 3),
        "8": 0.5,
    }


def test_what_a_run_lacks_counts_as_not_retrieved() -> None:
    evaluation = pool_protocol(BINARY, run({"7": "ab", "9": "a"}))
    assert evaluation.per_query["MAP"] == {"7": pytest.approx(2 / 3), "8": 0.0}
    assert evaluation.warnings == (
        "no documents for query 8: it scores as an empty ranking",
        "queries without judgements left out: 1 (9)",
        "3 pool documents missing in 1 queries (7, ...): they count as not retrieved",
        "1 queries with fewer than 5 pool documents (8): their NDCG%20 is 0",
    )
    with pytest.raises(FileFormatError, match="expected a run for the judged queries"):
        pool_protocol(QRELS, run({"9": "a"}))
    # A query that was judged for itself alone has nothing to find.
    assert pool_protocol({"7": {"7": 1, "a": 1}, "8": {"8": 1}}, run({"7": "a", "8": "a"})).figures == {
        "NDCG%20": {"all": 0.0},
        "MAP": {"all": 0.5},
        "NDCG": {"all": 0.5},
    }


def test_figures_are_those_of_scidocs_and_aspires_scorers() -> None:
    """Against pytrec_eval on the pools, and CSFCube's discount written once more, on random rankings."""
    draw = random.Random(7)
    documents = [f"d{i}" for i in range(40)]
    qrels = {f"q{i}": {d: draw.choice([0, 0, 1]) for d in draw.sample(documents, 30)} for i in range(20)}
    scores = {query: {d: draw.random() for d in documents} for query in qrels}
    hits = {query: tuple(Hit(*each) for each in by_paper.items()) for query, by_paper in scores.items()}
    ranked = Run("t", hits)
    pooled = {query: {d: s for d, s in scores[query].items() if d in pool} for query, pool in qrels.items()}
    expected = pytrec_eval.RelevanceEvaluator(qrels, {"map", "ndcg"}).evaluate(pooled)
    per_query = pool_protocol(qrels, ranked).per_query
    assert per_query["MAP"] == {query: pytest.approx(values["map"]) for query, values in expected.items()}
    assert per_query["NDCG"] == {query: pytest.approx(values["ndcg"]) for query, values in expected.items()}

    def gain(grades: list[int]) -> float:
        return grades[0] + sum(grade / math.log2(rank) for rank, grade in enumerate(grades[1:6], start=2))

    assert pool_protocol(qrels, ranked).figures["NDCG%20"]["all"] == pytest.approx(
        fmean(
            gain([pool[d] for d in sorted(pool, key=pooled[query].__getitem__, reverse=True)])
            / gain(sorted(pool.values(), reverse=True))
            for query, pool in qrels.items()
        )
    )


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Judgements and two runs in the current folder; the first arguments of the command."""
    monkeypatch.chdir(tmp_path)
    write_qrels("c.test.qrels", QRELS)
    run({"7": "adbce", "8": "ab"}).write("good.trec")
    run({"7": "cebad", "8": "ba"}).write("bad.trec")
    return ["--qrels", "c.test.qrels", "--run", "good.trec", "bad.trec"]


def test_one_table_a_row_a_run(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [*files, "--baseline", "bad.trec", "--measures", "P@1", "--output", "report.json"]
    main(["--protocol", "pools", *arguments, "--details"])
    out = capsys.readouterr().out
    good, bad = (f"{100 * pooled_ndcg(*each):.2f}" for each in (("adbce", 1), ("cebad", 1 / math.log2(3))))
    assert [line.split() for line in out.splitlines()[:5]] == [
        ["judged", "pools,", "means", "over", "queries;", "queries:", "all", "2"],
        [],
        ["run", *(word for name in ("NDCG%20", "MAP", "NDCG") for word in (name, "(per", "cent)")), "P@1"],
        ["good", "50.00", "50.00", good, "1.0000"],
        ["bad", "0.00", "16.25", bad, "0.0000"],
    ]
    assert "good    bad      MAP      all         2      +33.75" in out
    report = json.loads(Path("report.json").read_text())
    assert (report["protocol"], report["split"]) == ("pools", None)


def pooled_ndcg(order: str, other: float) -> float:
    """The same without the query paper."""
    gains = sum(QRELS["7"][d] / math.log2(rank + 1) for rank, d in enumerate(order, start=1))
    return (gains / (2 + 2 / math.log2(3) + 1 / math.log2(4)) + other) / 2


def test_published_rows_are_of_two_collections() -> None:
    rows = {(row.system, row.collection): row.figures for row in published_under("pools").rows}
    assert rows["SPECTER", "RELISH"] == {"NDCG%20": {"all": 0.772}, "MAP": {"all": 0.6062}}
    assert rows["OTASPIRE, biomedical", "TRECCOVID-RF"]["MAP"] == {"all": 0.3092}
    assert len(rows) == 8

"""The CSFCube protocol: folds, pools, what a run may lack; the release's own pools and figures."""

import json
from fractions import Fraction

import pytest
from support.runs import folds_text

from qbe import Facet, FileFormatError, Hit, Run
from qbe import runs as trec
from qbe.cli.evaluate import main
from qbe.evaluate.evaluation import evaluate
from qbe.evaluate.protocols import csfcube_protocol, load_folds
from qbe.evaluate.report import published_under

# Grades of five documents, in the order in which the run ranks them.
GRADES = {
    "1_background": "20000",
    "2_background": "30000",
    "3_background": "00200",
    "4_method": "02000",
    "5_method": "00002",
    "6_result": "20000",
    "7_result": "02000",
}

FOLDS = {
    "background": (["1_background"], ["2_background", "3_background"]),
    "method": (["4_method"], ["5_method"]),
    "result": (["6_result"], ["7_result"]),
}


@pytest.fixture
def folds(tmp_path):
    (tmp_path / "folds.json").write_text(folds_text(FOLDS))
    return load_folds(tmp_path / "folds.json")


@pytest.fixture
def qrels():
    return {q: {f"d{i}": int(grade) for i, grade in enumerate(grades)} for q, grades in GRADES.items()}


@pytest.fixture
def run():
    return Run("r", {q: tuple(Hit(f"d{i}", -float(i)) for i in range(5)) for q in GRADES})


def without(run, *query_ids):
    return Run(run.tag, {q: hits for q, hits in run.rankings.items() if q not in query_ids})


def test_a_facet_is_the_mean_of_its_fold_means_and_aggregated_joins_the_facets_folds(qrels, run, folds):
    result = csfcube_protocol(qrels, run, folds)
    # Average precision is 1 / rank of the only relevant document.
    background = [Fraction(1), (1 + Fraction(1, 3)) / 2]
    aggregated = [(1 + Fraction(1, 2) + 1) / 3, (1 + Fraction(1, 3) + Fraction(1, 5) + Fraction(1, 2)) / 4]
    assert result.fold_figures["MAP"]["background"] == pytest.approx([float(mean) for mean in background])
    assert result.figures["MAP"] == pytest.approx(
        {
            "background": float(sum(background) / 2),
            "method": (1 / 2 + 1 / 5) / 2,
            "result": (1 + 1 / 2) / 2,
            "aggregated": float(sum(aggregated) / 2),
        }
    )
    first, second = (("1_background", "4_method", "6_result"), ("2_background", "3_background", "5_method"))
    assert result.queries["aggregated"] == (*first, *second, "7_result")
    assert result.warnings == ()


def test_the_development_split_is_fold1_dev_alone(qrels, run, folds):
    result = csfcube_protocol(qrels, run, folds, split="dev")
    assert result.figures["MAP"]["background"] == pytest.approx((1 + 1 / 3) / 2)
    assert result.queries["method"] == ("5_method",)


def test_other_measures_on_the_same_pools_and_folds(qrels, run, folds):
    qrels["1_background"]["1"] = 3  # the query paper
    result = csfcube_protocol(qrels, run, folds, ["AP(rel=2)", "NumRet"])
    assert list(result.figures) == ["AP(rel=2)", "NumRet"]
    assert result.figures["AP(rel=2)"] == pytest.approx(csfcube_protocol(qrels, run, folds).figures["MAP"])
    assert result.per_query["NumRet"]["1_background"] == 5


def test_the_query_paper_and_unjudged_documents_change_nothing(qrels, run, folds):
    expected = csfcube_protocol(qrels, run, folds)
    qrels["1_background"]["1"] = 3
    rankings = {q: (Hit("1", 9.0), Hit("stranger", 8.0), *hits) for q, hits in run.rankings.items()}
    assert csfcube_protocol(qrels, Run("r", rankings), folds) == expected


def test_a_missing_query_scores_zero_and_a_missing_facet_has_no_figure(qrels, run, folds):
    result = csfcube_protocol(qrels, without(run, "2_background"), folds)
    assert result.per_query["MAP"]["2_background"] == 0.0
    assert result.figures["MAP"]["background"] == pytest.approx((1 + 1 / 6) / 2)
    assert result.warnings == ("no documents for query 2_background: it scores as an empty ranking",)
    result = csfcube_protocol(qrels, without(run, "4_method", "5_method"), folds)
    assert result.figures["MAP"]["background"] is not None
    assert result.figures["MAP"]["method"] is None
    assert result.figures["MAP"]["aggregated"] is None
    assert result.warnings == ("no method query in the run: no figures for method nor for all queries",)


def test_missing_documents_count_as_not_retrieved_and_are_told(qrels, run, folds):
    rankings = {**run.rankings, "5_method": (Hit("d0", 1.0), Hit("d1", 0.0))}
    result = csfcube_protocol(qrels, Run("r", rankings), folds)
    assert result.per_query["MAP"]["5_method"] == 0.0
    assert result.per_query["R-Precision"]["5_method"] == 0.0
    assert "3 pool documents missing in 1 queries (5_method, ...)" in result.warnings[0]


def test_judgements_of_one_facet_give_that_facet(qrels, run, folds):
    result = csfcube_protocol({q: grades for q, grades in qrels.items() if q.endswith("_method")}, run, folds)
    assert result.figures["MAP"] == pytest.approx({"method": 0.35})
    assert result.warnings == ("queries without judgements left out: 5 (1_background, 2_background, ...)",)
    two = {q: grades for q, grades in qrels.items() if not q.endswith("_result")}
    assert list(csfcube_protocol(two, run, folds).figures["MAP"]) == ["background", "method"]


def test_a_run_must_answer_some_query(qrels, folds):
    stranger = Run("r", {"9_method": (Hit("d0", 1.0),)})
    for protocol, more in ((csfcube_protocol, folds), (evaluate, ["AP"])):
        with pytest.raises(FileFormatError):
            protocol(qrels, stranger, more)


def test_plain_evaluation_means_over_queries_by_facet(qrels, run):
    result = evaluate(qrels, without(run, "2_background"), ["AP", "P@1"])
    assert result.figures["AP"] == pytest.approx(
        {
            "background": (1 + 1 / 3) / 3,
            "method": 0.35,
            "result": 0.75,
            "all": (1 + 1 / 3 + 1 / 2 + 1 / 5 + 1 + 1 / 2) / 7,
        }
    )
    assert result.warnings == ("no documents for query 2_background: it scores as an empty ranking",)


def test_plain_evaluation_without_facets_has_one_figure():
    run = Run("r", {"301": (Hit("a", 2.0), Hit("b", 1.0))})
    assert evaluate({"301": {"b": 1}, "302_method": {"c": 1}}, run, ["RR"]).figures == {"RR": {"all": 0.25}}


SPECTER = {
    # CSFCube's scorer (eval_scripts/ranking_eval.py), run on the SPECTER pools it ships; in per cent.
    "NDCG%20": ["66.70", "37.41", "56.67", "53.28"],
    "MAP": ["43.95", "22.44", "36.79", "34.23"],
    "R-Precision": ["24.81", "11.72", "18.62", "18.29"],
    "Precision@20": ["35.31", "13.58", "23.78", "23.97"],
    "Recall@20": ["57.45", "40.81", "52.72", "50.14"],
}
SCOPES = ["background", "method", "result", "aggregated"]


@pytest.fixture
def specter(qbe_data, tmp_path):
    release = qbe_data / "csfcube"
    for facet in Facet:
        judged = json.loads((release / f"test-pid2anns-csfcube-{facet}.json").read_text())
        qrels = {
            f"{query_paper}_{facet}": dict(zip(pool["cands"], pool["relevance_adju"], strict=True))
            for query_paper, pool in judged.items()
        }
        trec.write_qrels(tmp_path / f"csfcube.{facet}.qrels", qrels)
        pools = release / "eval_scripts" / "sample_ranked_pools"
        ranked = json.loads((pools / f"test-pid2pool-csfcube-specter-{facet}-ranked.json").read_text())
        rankings = {
            f"{query_paper}_{facet}": tuple(Hit(paper_id, -distance) for paper_id, distance in pool)
            for query_paper, pool in ranked.items()
        }
        Run("specter", rankings).write(tmp_path / f"specter.{facet}.trec")
    (tmp_path / "folds.json").write_bytes((release / "evaluation_splits.json").read_bytes())
    return tmp_path


def test_the_releases_specter_pools_give_the_published_figures(specter, capsys):
    files = [str(specter / f"{{}}.{facet}.{{}}") for facet in Facet]
    qrels = [name.format("csfcube", "qrels") for name in files]
    runs = [name.format("specter", "trec") for name in files]
    output = specter / "report.json"
    arguments = ["--qrels", *qrels, "--run", *runs, "--published", "--output", str(output), "--details"]
    main(["--protocol", "csfcube", *arguments])
    text = capsys.readouterr()
    assert text.err == ""
    tables = [line.split() for line in text.out.splitlines() if line.startswith("specter ")]
    assert tables == [["specter", *figures] for figures in SPECTER.values()]
    report = json.loads(output.read_text())
    (row,) = report["rows"]
    assert row["run"] == "specter"
    for measure, figures in SPECTER.items():
        assert [f"{100 * row['figures'][measure][scope]:.2f}" for scope in SCOPES] == figures
    assert [len(report["queries"][scope]) for scope in SCOPES] == [16, 17, 17, 50]


def test_the_published_specter_row_is_the_scorers():
    (row,) = (row for row in published_under("csfcube").rows if row.system == "SPECTER")
    for measure, figures in SPECTER.items():
        assert [f"{100 * row.figures[measure][scope]:.2f}" for scope in SCOPES] == figures


def test_published_rows_have_a_source_and_every_paper_rows_or_a_reason():
    known, rows = published_under("csfcube")
    for row in rows:
        assert row.source
        assert row.paper in known
        values = [value for figures in row.figures.values() for value in figures.values()]
        assert values
        assert all(0.0 < value < 1.0 for value in values)
    with_rows = {row.paper for row in rows}
    assert all((key in with_rows) != bool(paper.no_rows) for key, paper in known.items())

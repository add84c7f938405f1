"""Comparison by query: gains and losses, overranked and missed papers, as values and as text."""

import json
from pathlib import Path

import pytest
from support.runs import folds_text, run

from qbe.cli.evaluate import main
from qbe.errors import UsageError
from qbe.evaluate.report import RankedPaper, Scoring, build_report, outcomes
from qbe.runs import write_qrels

# A pool of ten: NDCG%20 looks at two ranks, the ideal gains there are 3 and 2, both undiscounted.
GRADES = {"a": 3, "b": 2, "c": 2, "d": 1, "e": 0, "f": 0, "g": 0, "h": 0, "i": 0, "j": 0}

RANKINGS = {
    # query -> the run's ranking, the baseline's, and NDCG%20 of both by hand, in fifths
    "1_method": ("efabcdghij", "abcdefghij", 0, 5),
    "2_method": ("abcdefghij", "dabcefghij", 5, 4),
    "1_result": ("ebacdfghij", "eabcdfghij", 2, 3),
    "2_result": ("edabcfghij", "edabcfghij", 1, 1),
}


def write(folder):
    """Qrels, folds and runs ``run+rerank`` and ``run`` of the queries, with the corpus."""
    halves = {}
    for facet in ("method", "result"):
        ids = [f"1_{facet}", f"2_{facet}"]
        halves[facet] = (ids[:1], ids[1:])
        for column, name in enumerate(("run+rerank", "run")):
            run({q: RANKINGS[q][column] for q in ids}).write(folder / f"{name}.{facet}.trec")
    write_qrels(folder / "all.qrels", dict.fromkeys(RANKINGS, GRADES))
    (folder / "folds.json").write_text(folds_text(halves))
    papers = [{"paper_id": i, "title": f"Title  of\n{i}", "abstract": ["A."]} for i in ("1", "2", *GRADES)]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(paper) + "\n" for paper in papers))


def files(name):
    return sorted(Path().glob(f"{name}.*.trec"))


def report_of(system, baseline):
    return build_report([Path("all.qrels")], system, Scoring("csfcube"), baseline_files=baseline)


@pytest.fixture
def collection(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path)


def test_outcomes_of_every_query(collection):
    results = outcomes(report_of(files("run+rerank"), files("run")), [Path("all.qrels")])
    by_query = {outcome.query_id: outcome for outcome in results}
    assert list(by_query) == ["1_method", "2_method", "1_result", "2_result"]
    of_result = outcomes(report_of(files("run+rerank"), [Path("run.result.trec")]), [Path("all.qrels")])
    assert [outcome.query_id for outcome in of_result] == ["1_result", "2_result"]
    with pytest.raises(UsageError, match="`baseline_files`"):
        outcomes(report_of(files("run"), []), [Path("all.qrels")])
    for query_id, (_, _, score, baseline) in RANKINGS.items():
        assert by_query[query_id].score == pytest.approx(score / 5)
        assert by_query[query_id].baseline == pytest.approx(baseline / 5)
        assert by_query[query_id].pool == 10
    assert by_query["1_method"].overranked == (RankedPaper("e", 0, 1), RankedPaper("f", 0, 2))
    assert by_query["1_method"].missed == RankedPaper("a", 3, 3)
    assert by_query["2_method"].overranked == ()
    assert by_query["2_method"].missed is None
    assert by_query["1_result"].overranked == (RankedPaper("e", 0, 1),)
    assert by_query["2_result"].overranked == (RankedPaper("e", 0, 1), RankedPaper("d", 1, 2))


def test_worst_queries_are_printed_behind_the_tables(collection, capsys):
    runs = ["--run", *map(str, files("run+rerank")), "--baseline", *map(str, files("run"))]
    command = ["--protocol", "csfcube", "--qrels", "all.qrels", *runs]
    main([*command, "--worst", "1", "--corpus", "corpus.jsonl"])
    worst = (
        " of run+rerank{}, NDCG%20 (per cent):\n"
        "1_method  0.00 against 100.00 (-100.00)  Title of 1\n"
        "  high    rank 1 of 10, grade 0: e  Title of e\n"
        "  high    rank 2 of 10, grade 0: f  Title of f\n"
        "  missed  rank 3 of 10, grade 3: a  Title of a\n"
    )
    losses, scores = worst.format(" against run"), worst.format("")
    assert capsys.readouterr().out.endswith(f"Largest losses{losses}\nLowest scores{scores}")

"""Comparison by query: gains and losses, overranked and missed papers, as values and as text."""

import json
from pathlib import Path

import pytest
from support.runs import folds_text, run

from qbe.cli.evaluate import main
from qbe.errors import UsageError
from qbe.evaluate.report import Scoring, build_report, worst_to_text
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


def test_every_query_with_its_overranked_papers_and_the_best_missed_one(collection):
    text = worst_to_text(report_of(files("run+rerank"), files("run")), [Path("all.qrels")], 9, {})
    losses = (
        "1_method  0.00 against 100.00 (-100.00)",
        "  high    rank 1 of 10, grade 0: e",
        "  high    rank 2 of 10, grade 0: f",
        "  missed  rank 3 of 10, grade 3: a",
        "1_result  40.00 against 60.00 (-20.00)",
        "  high    rank 1 of 10, grade 0: e",
        "  missed  rank 3 of 10, grade 3: a",
    )
    lowest = (
        *losses[:4],
        "2_result  20.00 against 20.00 (+0.00)",
        "  high    rank 1 of 10, grade 0: e",
        "  high    rank 2 of 10, grade 1: d",
        "  missed  rank 3 of 10, grade 3: a",
        *losses[4:],
        "2_method  100.00 against 80.00 (+20.00)",
    )
    titles = [
        f"{what}, NDCG%20 (per cent):"
        for what in ("Largest losses of run+rerank against run", "Lowest scores of run+rerank")
    ]
    assert text.splitlines() == [titles[0], *losses, "", titles[1], *lowest]
    of_result = report_of(files("run+rerank"), [Path("run.result.trec")])
    assert "_method" not in worst_to_text(of_result, [Path("all.qrels")], 9, {})
    with pytest.raises(UsageError, match="`baseline_files`"):
        worst_to_text(report_of(files("run"), []), [Path("all.qrels")], 9, {})


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

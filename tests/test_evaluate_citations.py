"""The protocol of citation recommendation: figures worked by hand, published rows."""

import csv
import json
from pathlib import Path

import pytest
from support.runs import run

from qbe import Hit, Run
from qbe.cli.evaluate import main
from qbe.evaluate.evaluation import citations_protocol
from qbe.runs import write_qrels

QRELS = {
    "q1": {"a": 1, "b": 1, "c": 1, "d": 2, "q1": 1, "x": 0},
    "q2": {"a": 1},
    "q3": {"a": 1, "b": 1},
    "q4": {"a": 1},
}
RANKINGS = {
    "q1": ["q1", "a", "x", "b"],
    "q2": ["x", "a"],
    "q3": ["q3", *(f"u{i}" for i in range(999)), "a", "b"],
}


def figures(rankings: dict[str, list[str]], qrels: dict[str, dict[str, int]]) -> dict[str, float | None]:
    """The figures over all queries."""
    found = citations_protocol(qrels, run(rankings)).figures
    return {name: by_scope["all"] for name, by_scope in found.items()}


# The measures


def test_values_of_each_query_by_hand():
    per_query = citations_protocol(QRELS, run(RANKINGS)).per_query
    assert per_query["P@20"] == {"q1": 2 / 20, "q2": 1 / 20, "q3": 0, "q4": 0}
    assert per_query["R@20"] == {"q1": 2 / 4, "q2": 1, "q3": 0, "q4": 0}
    assert per_query["F1@20"] == pytest.approx({"q1": 1 / 6, "q2": 2 / 21, "q3": 0, "q4": 0})
    assert per_query["MRR"] == pytest.approx({"q1": 1, "q2": 1 / 2, "q3": 1 / 1000, "q4": 0})
    assert per_query["R@1000"] == {"q1": 2 / 4, "q2": 1, "q3": 1 / 2, "q4": 0}


def test_figures_are_means_over_the_queries_of_the_qrels():
    assert figures(RANKINGS, QRELS) == pytest.approx(
        {
            "F1@20": (1 / 6 + 2 / 21) / 4,
            "F1@20 of means": 2 * (0.15 / 4) * (1.5 / 4) / (0.15 / 4 + 1.5 / 4),
            "MRR": (1 + 1 / 2 + 1 / 1000) / 4,
            "R@1000": 2 / 4,
            "P@20": 0.15 / 4,
            "R@20": 1.5 / 4,
        }
    )


def test_the_twentieth_and_the_thousandth_paper_are_the_last_that_count():
    others = [f"u{i}" for i in range(1000)]
    qrels = {"q2": {"a": 1}}
    assert figures({"q2": [*others[:19], "a"]}, qrels)["R@20"] == 1
    assert figures({"q2": [*others[:20], "a"]}, qrels)["R@20"] == 0
    assert figures({"q2": [*others, "a"]}, qrels)["MRR"] == 0


def test_equal_scores_are_ordered_alike_for_all_measures():
    tied = Run("t", {"q": tuple(Hit(paper_id, 1.0) for paper_id in "abc")})
    found = citations_protocol({"q": {"a": 1}}, tied, ["P@1", "RR@1000"]).figures
    assert (found["P@1"], found["MRR"]) == ({"all": 0}, {"all": pytest.approx(1 / 3)})  # c, b, a


# The command


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Qrels and two runs in the current folder; the first arguments of the command."""
    monkeypatch.chdir(tmp_path)
    write_qrels("c.qrels", {query: QRELS[query] for query in ("q1", "q2")})
    run({query: RANKINGS[query] for query in ("q1", "q2")}).write("good.trec")
    run(q1="xa", q2="x").write("bad.trec")
    return ["--protocol", "citations", "--qrels", "c.qrels", "--run", "good.trec", "bad.trec"]


def tables(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines that were printed, with single spaces."""
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def test_one_table_and_tests_against_the_baseline(files, capsys):
    main([*files, "--baseline", "bad.trec", "--output", "report.json", "--details"])
    report = json.loads(Path("report.json").read_text())
    assert report["measures"]["R@1000"] == "Recall at k, as ir-measures computes R@1000"
    assert "F1@20 of means" not in report["rows"][0]["per_query"]
    assert tables(capsys)[:10] == [
        "citation recommendation, means over query papers; queries: all 2",
        "",
        "run F1@20 F1@20 of means MRR R@1000 P@20 R@20",
        "good 0.1310 0.1364 0.7500 0.7500 0.0750 0.7500",
        "bad 0.0417 0.0417 0.2500 0.1250 0.0250 0.1250",
        "",
        "system against measure queries of n difference p (randomization) Holm p (t-test) Holm",
        "good bad F1@20 all 2 +0.0893 0.5000 0.5000 0.0424 0.0424",
        "good bad MRR all 2 +0.5000 0.5000 0.5000 <0.0001 <0.0001",
        "good bad R@1000 all 2 +0.6250 0.5000 0.5000 0.3440 0.3440",
    ]


def test_published_rows_name_their_collections(files, capsys):
    main([*files, "--published"])
    lines = tables(capsys)
    assert lines[2] == "run collection F1@20 F1@20 of means MRR R@1000 P@20 R@20"
    assert lines[3] == "good these qrels 0.1310 0.1364 0.7500 0.7500 0.0750 0.7500"
    with (Path(__file__).parent / "data" / "published" / "citations.tsv").open() as rows:
        expected = [
            f"{row['system']} [Nogueira et al. 2020] {row['collection']} {row['split']}".rstrip()
            + "".join(
                f" {(cell and '0' + cell) or '-'}" for cell in ("", row["F1_20"], row["MRR"], row["R_1000"])
            )
            + " - -"
            for row in csv.DictReader(rows, delimiter="\t")
        ]
    assert len(expected) == 40
    assert lines[5:45] == expected
    assert lines[46].startswith("Published figures, of other collections than these qrels")

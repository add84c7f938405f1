"""Crossed pairs: which they are, how rankings are scored on them, and the protocol of the command."""

import json

import pytest
from support.runs import run

from qbe import Facet, FileFormatError, Hit
from qbe.cli.evaluate import main
from qbe.evaluate.facets import crossed_protocol, read_facet_grades
from qbe.runs import write_qrels

B, M, R = Facet
HEADER = "query_id\tpaper_id\tbackground\tmethod\tresult\n"
GRADES = {
    "q": {
        "a": {B: 0.0, M: 2.0, R: 1.0},
        "b": {B: 3.0, M: 1.0, R: 1.0},
        "c": {B: 1.0, M: 0.5, R: 0.0},
        "d": {B: 1.0, M: 1.0},
    },
    "p": {"a": {B: 2.0, M: 0.0}, "e": {B: 0.5, M: 1.0}},
}


def test_equal_scores_count_half_and_a_candidate_that_is_missing_ranks_last():
    scored = {
        "q_method": {"a": 2.0, "b": 3.0, "c": 2.0, "d": 1.0},  # wrong, equal, right
        "q_background": {"b": 1.0, "c": 1.0, "d": 1.0},  # a is not there: all right
        "q_result": {"a": 1.0},
        "p_method": {"e": 1.0},
        "p_background": {"e": 1.0, "a": 0.0},  # wrong
    }
    rankings = {query: [Hit(*each) for each in scores.items()] for query, scores in scored.items()}
    evaluation = crossed_protocol(GRADES, rankings)
    figures = [by_scope["method-background"] for by_scope in evaluation.figures.values()]
    assert figures == [(0 + 0.5 + 1 + 1) / 4, 3 / 4, (0 + 0.5 + 1 + 0) / 4]
    assert evaluation.pairs == {"method-background": 4, "result-background": 1}


def test_the_protocol_by_hand():
    ranked = run(q_method="bacd", q_background="bcda", p_method="ea", p_background="ea", q_result="acb")
    evaluation = crossed_protocol(GRADES, ranked)
    assert evaluation.queries == {
        "method-background": ("q_method-background", "p_method-background"),
        "result-background": ("q_result-background",),
    }
    assert evaluation.figures == {
        "right by first": {"method-background": 3 / 4, "result-background": 1.0},
        "right by second": {"method-background": 3 / 4, "result-background": 1.0},
        "right by both": {"method-background": 2 / 4, "result-background": 1.0},
    }
    assert evaluation.per_query["right by first"]["q_method-background"] == 2 / 3


def test_a_missing_query_ranks_no_pair_right():
    full = {"q_method": "abcd", "q_background": "bcda", "q_result": "acb"}
    assert crossed_protocol(GRADES, run(**full, p_method="ea", p_background="ae")).warnings == ()
    lacking = crossed_protocol(GRADES, run(**full, p_method="ea", x_method="a", p_result="a"))
    assert lacking.warnings == (
        "no documents for query p_background: it scores as an empty ranking",
        "queries without judgements left out: 2 (x_method, p_result)",
    )
    by_name = {name: values["p_method-background"] for name, values in lacking.per_query.items()}
    assert by_name == {"right by first": 1, "right by second": 0, "right by both": 0}


def test_a_run_without_a_facet_of_the_pairs_is_refused():
    with pytest.raises(FileFormatError, match="by background"):
        crossed_protocol(GRADES, run(q_method="ab", q_result="ab"))


def test_pairs_and_qrels_are_read_alike(tmp_path):
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text(
        "query_id\tpaper_id\tbackground\tmethod\tresult\tnote\n"
        "q\ta\t0\t2\t1\tx\nq\tb\t3\t1\t1\ty\nq\tq\t3\t3\t3\tz\n"
    )
    rows = {"a": (0, 2, 1), "b": (3, 1, 1), "q": (3, 3, 3)}
    for place, facet in enumerate(Facet):
        graded = {f"q_{facet}": {paper_id: row[place] for paper_id, row in rows.items()}}
        write_qrels(tmp_path / f"x.{facet}.qrels", graded)
    grades = read_facet_grades([pairs])
    assert grades == read_facet_grades(tmp_path / f"x.{facet}.qrels" for facet in Facet)
    assert grades == {"q": {"a": {B: 0.0, M: 2.0, R: 1.0}, "b": {B: 3.0, M: 1.0, R: 1.0}}}
    told = "line 2: expected two ids and numbers from 0 to 3 as grades"
    for line in ("q\ta\t0\thigh\t1", "\ta\t0\t1\t1", "q\ta\t0\t1\t1\t2\t3"):
        pairs.write_text(f"{HEADER}{line}\n")
        with pytest.raises(FileFormatError, match=told):
            read_facet_grades([pairs])
    write_qrels(tmp_path / "whole.qrels", {"q": {"a": 1}})
    with pytest.raises(FileFormatError, match="expected queries such as p1_method, found q"):
        read_facet_grades([tmp_path / "whole.qrels"])


def test_grades_that_contradict_each_other_are_refused(tmp_path):
    one, two = "q\ta\t0\t2\t1\n", "q\ta\t0\t2\t3\n"
    first, again, within, other = (tmp_path / name for name in ("first", "again", "in", "other.qrels"))
    for path, rows in ((first, one), (again, one + one), (within, one + two)):
        path.write_text(HEADER + rows)
    other.write_text("q_result 0 a 3\n")
    assert read_facet_grades([first, again]) == read_facet_grades([first])
    for paths in ([within], [first, other]):
        told = f"{paths[-1]}: .*one grade by result for q and a, found 1 and 3"
        with pytest.raises(FileFormatError, match=told):
            read_facet_grades(paths)
    other.write_text("q_method 0 a -1\n")
    with pytest.raises(FileFormatError, match="from 0 to 3, found -1 for q and a by method"):
        read_facet_grades([other])


def test_the_command(tmp_path, capsys):
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text(f"{HEADER}q\ta\t0\t2\t1\nq\tb\t3\t1\t1\nq\tc\t1\t.5\t0\n")
    for facet, names in (("method", "abc"), ("background", "bac"), ("result", "acb")):
        run(**{f"q_{facet}": names}).write(tmp_path / f"x.{facet}.trec")
    runs = [str(tmp_path / f"x.{facet}.trec") for facet in Facet]
    command = ["--protocol", "crossed", "--qrels", str(pairs), "--run", *runs]
    main([*command, "--output", str(tmp_path / "report")])
    title, *rows = capsys.readouterr().out.splitlines()
    assert title.endswith("queries: method-background 1 (2 pairs), result-background 1 (1 pair)")
    figures = [row.split()[-2:] for row in rows if row.startswith("x ")]
    assert figures == [["1.0000", "1.0000"], ["0.5000", "0.0000"], ["0.5000", "0.0000"]]
    report = json.loads((tmp_path / "report").read_text())
    assert report["measures"]["right by first"] == "share of crossed pairs ranked right by first facet"

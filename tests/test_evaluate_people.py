"""Protocols of people's judgements outside CSFCube, by values computed by hand after the published scorer."""

import json
from pathlib import Path

import pytest

from qbe import FileFormatError, Hit, Run, UsageError
from qbe.cli.evaluate import main
from qbe.evaluate.report import Scoring, build_report, published_under
from qbe.evaluate.significance import figure_interval

# Two researchers, of whom the first scored 5, 4, 2 and 2, the second 3 and 1.25; two samples of own papers.
QRELS = "".join(
    f"{sample}.{who} 0 {paper} {grade}\n"
    for sample in (1, 2)
    for who, grades in (("r", {"a": 20, "b": 16, "c": 8, "d": 8}), ("s", {"e": 12, "f": 5}))
    for paper, grade in grades.items()
)


def run_of(**scores: dict[str, float]) -> str:
    return "".join(
        f"{query[1:].replace('_', '.')} Q0 {paper} 1 {score} x\n"
        for query, by_paper in scores.items()
        for paper, score in by_paper.items()
    )


# Pairs with different scores (weights): ab 4, ac 12, ad 12, bc 8, bd 8; ef 7. In sample 1 bc and bd are wrong
# and ad is tied, ef right; in sample 2 ab is wrong, and ef, since a paper that is not ranked is the last.
RUN = run_of(
    _1_r={"a": 0.5, "b": 0.2, "c": 0.3, "d": 0.5},
    _1_s={"e": 2, "f": 1},
    _2_r={"b": 4, "a": 3, "c": 1, "d": 0},
    _2_s={"f": 1},
)
WRONG = {"1": 12 / 2 + 8 + 8, "2": 4 + 7}


@pytest.fixture
def files(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("reviewers.qrels").write_text(QRELS)
    Path("x.trec").write_text(RUN)
    return tmp_path


def figures(protocol: str, qrels: str, run: str) -> dict[str, float]:
    (evaluation,) = build_report([qrels], [run], Scoring(protocol)).evaluations.values()
    return {name: figure["all"] for name, figure in evaluation.figures.items()}


def test_loss_easy_and_hard_of_reviewers(files):
    """The mean over samples; easy are ac, ad, bc, bd, and hard is ab."""
    assert figures("reviewers", "reviewers.qrels", "x.trec") == pytest.approx(
        {"loss": (WRONG["1"] / 51 + WRONG["2"] / 51) / 2, "easy": (1 + 4) / 8, "hard": 1 / 2}
    )


def test_samples_that_a_run_lacks_are_left_out_and_comparisons_are_over_researchers(files, capsys):
    Path("y.trec").write_text("".join(line for line in RUN.splitlines(keepends=True) if line[0] == "1"))
    assert figures("reviewers", "reviewers.qrels", "y.trec")["loss"] == pytest.approx(WRONG["1"] / 51)
    report = build_report(["reviewers.qrels"], ["x.trec"], Scoring("reviewers"), baseline_files=["y.trec"])
    loss = next(each for each in report.comparisons if each.measure == "loss")
    assert (loss.queries, loss.difference) == (2, pytest.approx((WRONG["2"] - WRONG["1"]) / 51 / 2))
    (evaluation, _) = report.evaluations.values()
    assert evaluation.per_query["loss"] == pytest.approx({"r": (22 + 4) / 88, "s": 7 / 14})
    low, high = figure_interval(evaluation, "loss", "all")
    assert (low, high) == pytest.approx((26 / 88, 0.5))  # both researchers drawn are the same
    command = "--protocol reviewers --qrels reviewers.qrels --run x.trec y.trec --details --published"
    main(command.split())
    printed = capsys.readouterr()
    assert ["y", "loss", "0.4314", "0.0000", "to", "0.5000"] in map(str.split, printed.out.splitlines())
    assert ["SPECTER2", "[OpenReview]", "0.220", "0.890", "0.610"] in map(str.split, printed.out.splitlines())
    assert "warning: y: 2 queries of samples that the run lacks are left out" in printed.err


def test_reviews_are_averaged_over_reviews(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("q").write_text("A-0 0 A-1 2\nA-0 0 A-2 1\nA-1 0 A-0 2\nB-x-0 0 B-x-1 2\n")
    Path("x.trec").write_text(
        "A-0 Q0 A-2 1 3 x\nA-0 Q0 A-1 2 2 x\nA-1 Q0 A-0 1 3 x\nB-x-0 Q0 B-x-2 1 3 x\nB-x-0 Q0 B-x-3 1 2 x\n"
    )
    found = figures("reviews", "q", "x.trec")
    assert found["AP(rel=2)"] == pytest.approx((3 / 4 + 0) / 2)
    assert found["P(rel=2)@10"] == pytest.approx((0.1 + 0) / 2)
    run = Run.from_trec("x.trec").evaluate({"A-0": {"A-1": 2}, "B-0": {"B-1": 1}}, ["RR"], "reviews")
    assert run.per_query == {"RR": {"A": 0.5, "B": 0.0}}


def labelled(path: str, **labels: str) -> None:
    names = {"b": "background", "o": "objective", "m": "method", "r": "result", "x": "other"}
    with Path(path).open("w") as stream:
        for paper, letters in labels.items():
            texts = [f"We {place}." for place in range(len(letters))]
            record = {"paper_id": paper, "title": paper, "abstract": texts}
            given = [f"{names[each]}_label" for each in letters]
            stream.write(json.dumps({**record, "pred_labels": given}) + "\n")


def test_headings_are_compared_by_sentence_without_conclusions(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    labelled("given.jsonl", p="bbmrx", q="mr", absent="b")
    labelled("tagged.jsonl", p="obrrm", q="mx", other="r")
    main(["--protocol", "headings", "--qrels", "given.jsonl", "--run", "tagged.jsonl"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split() == ["run", "accuracy", "F1", "background", "F1", "method", "F1", "result"]
    # 4 of 7; background 2 of 3 and nothing else, method 1 of 2, result 1 of 2 and one method.
    assert lines[3].split() == ["tagged", "0.5714", "0.8000", "0.6667", "0.5000"]
    labelled("tagged.jsonl", p="ob", q="mx")
    with pytest.raises(FileFormatError, match="tagged: expected 5 labels of p, found 2; keep its sentences"):
        main(["--protocol", "headings", "--qrels", "given.jsonl", "--run", "tagged.jsonl"])


def test_protocols_with_measures_of_their_own_take_no_others(files):
    with pytest.raises(UsageError, match="the `protocol` reviewers has measures of its own"):
        build_report(["reviewers.qrels"], ["x.trec"], Scoring("reviewers", ["AP"]))
    run = Run("x", {"1.r": [Hit("a", 1.0)]})
    with pytest.raises(UsageError, match="the `protocol` reviewers has measures of its own"):
        run.evaluate({"1.r": {"a": 20}}, ["AP"], "reviewers")


def test_published_rows_of_reviewers():
    rows = {row.system: row.figures for row in published_under("reviewers").rows}
    assert rows["SPECTER"] == {"loss": {"all": 0.269}, "easy": {"all": 0.852}, "hard": {"all": 0.567}}

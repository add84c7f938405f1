"""The plot of a report: its points, the same bytes each time."""

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="skipped: matplotlib is not installed (extra plot)")

from qbe.cli.evaluate import main
from qbe.errors import MissingDependencyError, OutputError, UsageError
from qbe.evaluate.render import check_plot, figure_of
from qbe.evaluate.report import Scoring, build_report

FILES = {
    "c.qrels": "1_method 0 a 1\n2_method 0 a 1\n1_result 0 a 1\n",
    "half.trec": "1_method Q0 b 1 2 t\n1_method Q0 a 2 1 t\n2_method Q0 a 1 1 t\n1_result Q0 a 1 1 t\n",
    "good.trec": "".join(f"{query} Q0 a 1 1 t\n" for query in ("1_method", "2_method", "1_result")),
}
RUNS = ["--qrels", "c.qrels", "--run", "half.trec", "good.trec", "--measures", "RR", "P@1"]


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        Path(name).write_text(text)


def lines(axis) -> dict[str, list[float]]:
    return {bars.get_label(): list(bars.lines[0].get_ydata()) for bars in axis.containers}


def test_a_panel_a_measure_a_line_a_scope_the_runs_in_their_order():
    report = build_report(["c.qrels"], ["half.trec", "good.trec"], Scoring(measures=["RR", "P@1"]))
    reciprocal, precision = figure_of(report).axes
    assert [label.get_text() for label in reciprocal.get_xticklabels()] == ["half", "good"]
    assert lines(reciprocal) == {"method": [0.75, 1], "result": [1, 1], "all": [pytest.approx(2.5 / 3), 1]}
    assert lines(precision)["method"] == [0.5, 1]


def test_with_a_baseline_differences_and_their_intervals():
    report = build_report(["c.qrels"], ["good.trec"], Scoring(measures=["RR"]), baseline_files=["half.trec"])
    figure = figure_of(report)
    assert figure.get_suptitle() == "difference to half, 95 % intervals"
    (axis,) = figure.axes
    assert lines(axis) == {"method": [0.25], "result": [0], "all": [pytest.approx(0.5 / 3)]}
    bars = axis.containers[0].lines[2][0].get_segments()  # type: ignore[attr-defined]
    assert [float(y) for _, y in bars[0]] == [0, 0.5]


def test_papers_with_several_facets_a_panel_a_run(capsys):
    """Of paper 1 alone; 2 is a query by one facet."""
    report = build_report(["c.qrels"], ["half.trec", "good.trec"], Scoring(measures=["RR"]))
    half, good = figure_of(report, by_paper=True).axes
    assert (half.get_title(), good.get_title()) == ("half: RR", "good: RR")
    assert [label.get_text() for label in half.get_xticklabels()] == ["1"]
    assert lines(half) == {"method": [0.5], "result": [1]}
    main([*RUNS, "--plot", "papers.svg", "--by-paper"])
    assert "half: RR" in Path("papers.svg").read_text()
    Path("one.qrels").write_text("2_method 0 a 1\n")
    with pytest.raises(UsageError, match="queries by several facets as `by_paper`, found none"):
        main(["--qrels", "one.qrels", "--run", "good.trec", "--plot", "one.svg", "--by-paper"])


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_the_same_figures_give_the_same_bytes(kind, capsys):
    main([*RUNS, "--plot", f"a.{kind}"])
    first = Path(f"a.{kind}").read_bytes()
    main([*RUNS, "--plot", f"a.{kind}", "--output", "a.json", "--overwrite"])
    assert Path(f"a.{kind}").read_bytes() == first
    assert json.loads(Path("a.json").read_text())["rows"][0]["run"] == "half"
    Path(f"a.{kind}").write_text("notes")
    with pytest.raises(OutputError, match="`plot`"):
        main([*RUNS, "--plot", f"a.{kind}"])


def test_without_matplotlib_the_pip_line_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'qbe\[plot\]'"):
        check_plot("a.svg")

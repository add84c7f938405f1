"""All tables in one command: what it runs, and that it goes on where it ended."""

import re
from pathlib import Path

import pytest

from benchmarks import charts, run, tables
from benchmarks.charts import Chart, Line, write_chart
from benchmarks.tables import PREPARATIONS, TABLES, Preparation, Table
from qbe.errors import OutputError, UsageError

README = Path(__file__).parent.parent / "benchmarks" / "README.md"
LEFT_OUT = ("benchmarks.run",)


def test_the_document_shows_the_commands_that_are_run():
    shown = re.findall(r"^    (?:QBE_DATA=\.\.\. )?(python -m .*)$", README.read_text(), re.MULTILINE)
    expected = [command for command in shown if not any(module in command for module in LEFT_OUT)]
    assert [table.command for table in TABLES if not table.command.startswith("make")] == expected


def test_what_tables_need_can_be_prepared_and_comes_in_order():
    names = [step.name for step in PREPARATIONS]
    assert all(set(table.needs) <= set(names) for table in TABLES)
    for place, step in enumerate(PREPARATIONS):
        assert set(step.needs) <= set(names[:place])


@pytest.fixture
def small(tmp_path, monkeypatch):
    """Two tables, of which the first needs a file."""
    monkeypatch.chdir(tmp_path)
    made = Preparation("file", "made", "echo made >> made", 60)
    few = Table("few", "cat made; echo few >> ran", 30, ("file",)), Table("more", "test -e later", 30)
    monkeypatch.setattr(run, "PREPARATIONS", (made,))
    monkeypatch.setattr(run, "TABLES", few)
    return tmp_path


def test_a_second_call_goes_on_with_what_is_missing(small, capsys):
    with pytest.raises(OutputError, match="these failed: more"):
        run.main([])
    assert "2.0 hours in all" in capsys.readouterr().out
    results = small / "runs" / "benchmarks"
    assert (results / "few.txt").read_text() == "$ cat made; echo few >> ran\n\nmade\n"
    assert not (results / "more.txt").exists()
    (small / "later").touch()
    run.main([])
    assert (results / "more.txt").read_text() == "$ test -e later\n\n"
    assert ((small / "ran").read_text(), (small / "made").read_text()) == ("few\n", "made\n")
    capsys.readouterr()
    run.main(["--list"])
    assert capsys.readouterr().out == "0.0 hours in all\n"


def test_results_of_another_version_are_left_alone(small):
    run.main(["few"])
    file = small / "runs" / "benchmarks" / run.MADE_BY
    file.write_text(file.read_text().replace(run.version("qbe"), "0.1"))
    with pytest.raises(OutputError, match=r"found those of qbe 0\.1 with Python"):
        run.main(["few"])


def test_a_name_that_no_table_has_is_refused():
    with pytest.raises(UsageError, match=f"expected tables of {tables.TABLES[0].name}, .*, found bm26"):
        run.chosen(["bm25", "bm26"])


# Charts


CHART = Chart("On $5", "papers", "recall", ["10", "all"], [Line("a", [0.1, 0.3], [(0, 0.2), (0.2, 0.4)])])


def test_a_chart_has_its_lines_places_and_ranges():
    pytest.importorskip("matplotlib", reason="skipped: matplotlib is not installed (extra plot)")
    both = CHART._replace(lines=[*CHART.lines, Line("b", [0.2, 0.2])])
    (axes,) = charts.chart_figure(both).axes
    assert [(line.get_label(), list(line.get_ydata())) for line in axes.lines] == [
        ("a", [0.1, 0.3]),
        ("b", [0.2, 0.2]),
    ]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["10", "all"]
    assert len(axes.collections) == 1
    assert axes.lines[0].get_color() != axes.lines[1].get_color()


@pytest.mark.parametrize("name", ["chart.svg", "chart.png"])
def test_equal_charts_have_equal_bytes(tmp_path, name):
    pytest.importorskip("matplotlib", reason="skipped: matplotlib is not installed (extra plot)")
    write_chart(tmp_path / name, CHART)
    first = (tmp_path / name).read_bytes()
    write_chart(tmp_path / name, CHART)
    assert (tmp_path / name).read_bytes() == first
    if name.endswith("svg"):
        assert ">On $5</text>" in first.decode()


def test_a_chart_of_another_format_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"expected a plot file that ends in \.svg or \.png"):
        write_chart(tmp_path / "chart.pdf", CHART)

"""The picture of gains and losses: its bars, its text, the same bytes each time."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="skipped: matplotlib is not installed (extra plot)")

from qbe.errors import MissingDependencyError, OutputError, UsageError
from qbe.evaluate.__main__ import main
from qbe.evaluate.plot import gains_figure, write_plot
from qbe.evaluate.queries import RunComparison
from qbe.evaluate.results import Evaluation
from qbe.plots import check_plot

SYSTEM = {"7_method": 0.5, "8_method": 0.25, "9_method": 0.75, "7_result": 0.5}
BASELINE = {"7_method": 0.5, "8_method": 0.5, "9_method": 0.25, "7_result": 0.125}


def evaluation(values):
    queries = {facet: tuple(q for q in values if q.endswith(facet)) for facet in ("method", "result")}
    return Evaluation(queries, {"NDCG%20": values}, {})


@pytest.fixture
def comparison():
    return RunComparison("fused+rerank", "fused", evaluation(SYSTEM), evaluation(BASELINE))


def test_a_panel_a_facet_and_a_bar_a_query_best_first(comparison):
    method, result = gains_figure(comparison).axes
    assert [bar.get_width() for bar in method.patches] == [50.0, 0.0, -25.0]  # type: ignore[attr-defined]
    assert [label.get_text() for label in method.get_yticklabels()] == ["9", "7", "8"]
    assert method.yaxis_inverted()  # the first bar is at the top
    assert [bar.get_width() for bar in result.patches] == [37.5]  # type: ignore[attr-defined]
    assert method.get_xlim() == result.get_xlim()
    assert method.get_title(loc="left") == "method: mean +8.33 (1 up, 1 down, 1 equal)"
    assert result.get_title(loc="left") == "result: mean +37.50 (1 up, 0 down, 0 equal)"
    gain, _, loss = (bar.get_facecolor() for bar in method.patches)
    assert gain == result.patches[0].get_facecolor() != loss


def test_the_same_figures_give_the_same_bytes_whatever_the_settings(comparison, tmp_path):
    import matplotlib

    for name in ("a.svg", "a.png"):
        write_plot(tmp_path / name, comparison)
        with matplotlib.rc_context({"font.size": 20, "svg.fonttype": "path", "svg.hashsalt": None}):
            write_plot(tmp_path / f"again-{name}", comparison)
            assert matplotlib.rcParams["font.size"] == 20
        assert (tmp_path / name).read_bytes() == (tmp_path / f"again-{name}").read_bytes()
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_text_in_svg_stays_text_and_has_no_date(comparison, tmp_path):
    write_plot(tmp_path / "a.SVG", comparison)
    svg = (tmp_path / "a.SVG").read_text()
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", svg)
    assert {"fused+rerank against fused, query by query", "difference in NDCG%20, points"} <= set(texts)
    assert {"7", "8", "9"} <= set(texts)
    assert "<dc:date>" not in svg


def test_only_svg_and_png(tmp_path):
    for name in ("gains.pdf", "gains"):
        with pytest.raises(UsageError, match=rf"found .*{name}; rename it"):
            check_plot(tmp_path / name)


def test_without_matplotlib_the_pip_line_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr("qbe.plots.importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'qbe\[plot\]'"):
        check_plot(tmp_path / "gains.svg")


def test_a_file_that_cannot_be_written_is_told(comparison, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot write"):
        write_plot(tmp_path / "file" / "gains.svg", comparison)


def test_the_command_draws_the_sample(sample, tmp_path, monkeypatch, capsys):
    """Two rankings of the sample's pools: as listed, and by id."""
    monkeypatch.chdir(tmp_path)
    pools: dict[str, list[str]] = {}
    for line in (sample / "pools.tsv").read_text().splitlines()[1:]:
        query_id, paper_id = line.split("\t")
        pools.setdefault(query_id, []).append(paper_id)
    for name, order in (("listed", list), ("by-id", sorted)):
        lines = [
            f"{query_id} Q0 {paper_id} 0 {-rank} {name}\n"
            for query_id, paper_ids in pools.items()
            for rank, paper_id in enumerate(order(paper_ids))
        ]
        Path(f"{name}.trec").write_text("".join(lines))
    qrels = [str(sample / f"sample.{facet}.qrels") for facet in ("background", "method", "result")]
    runs = ["--run", "listed.trec", "--baseline", "by-id.trec"]
    main(["--protocol", "csfcube", "--qrels", *qrels, *runs, "--plot", "gains.svg"])
    assert "listed" in capsys.readouterr().out
    svg = Path("gains.svg").read_text()
    for facet in ("background", "method", "result"):
        assert f">{facet}: mean " in svg
    for query_id in pools:
        assert f">{query_id.split('_')[0]}</text>" in svg


def test_evaluating_without_a_plot_does_not_load_matplotlib():
    program = (
        "import sys\nimport qbe.evaluate.plot, qbe.evaluate.__main__\n"
        "assert 'matplotlib' not in sys.modules and 'numpy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parent.parent)

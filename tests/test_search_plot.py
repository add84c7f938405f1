"""The plot of hits by their grades: its points and its text, the same bytes each time, when it is refused."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="skipped: matplotlib is not installed (extra plot)")

from qbe.errors import MissingDependencyError, OutputError, UsageError
from qbe.query import Aspect, Query
from qbe.search.plot import MOST, grades_figure, write_plot
from qbe.types import Facet, Hit, Paper, Sentence

TITLES = {"a": "Prices of $10 and $20", "b": "A <b>bold</b> & long title " + "of words " * 9, "c": ""}
HITS = [
    Hit("a", 2.5, grades={"background": 2.5, "method": 0.25, "result": 3.0}),
    Hit("b", 1.0, grades={"background": 1.0, "method": 2.0, "result": 0.0}),
    Hit("c", 0.5, grades={"background": 0.5, "method": 1.0}),
]


def lookup(paper_id: str) -> Paper:
    return Paper(paper_id, TITLES.get(paper_id, f"Title of {paper_id}"), (Sentence("We search."),))


@pytest.fixture
def query() -> Query:
    paper = Paper("q", "Costs of $x$", (Sentence("We pay.", Facet.METHOD),), labelled=True)
    return Query.of(Aspect(paper, Facet.BACKGROUND), Aspect(paper, Facet.METHOD, weight=-0.75))


def texts(svg: Path) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg.read_text())


def test_points_are_grades_and_the_query_is_where_a_paper_like_itself_would_be(query):
    panel, titles = grades_figure(lookup, query, HITS).axes
    points, marked = panel.collections
    assert points.get_offsets().tolist() == [[2.5, 0.25], [1.0, 2.0], [0.5, 1.0]]
    largest, smallest, unknown = points.get_sizes().tolist()  # type: ignore[attr-defined]
    assert largest > smallest == unknown > 0
    assert marked.get_offsets().tolist() == [[3, 3]]
    assert [note.get_text() for note in panel.texts] == ["1", "2", "3", "query"]
    assert (panel.get_xlabel(), panel.get_ylabel()) == (
        "problem: grade by background",
        "method: grade by method",
    )
    first, second, third = titles.texts[0].get_text().splitlines()
    assert first == " 1  Prices of $10 and $20"
    assert second.startswith(" 2  A <b>bold</b> & long title of words")
    assert second.endswith("…")
    assert third == " 3  c"


def test_hits_without_grades_are_left_out_and_keep_their_places(query):
    hits = [HITS[0], Hit("x", 2.0), HITS[1]]
    panel, _ = grades_figure(lookup, query, hits).axes
    assert [note.get_text() for note in panel.texts] == ["1", "3", "query"]


def test_no_more_hits_than_can_be_told_apart(query):
    hits = [HITS[0]._replace(paper_id=f"p{place}") for place in range(MOST + 5)]
    panel, _ = grades_figure(lookup, query, hits).axes
    assert len(panel.texts) == MOST + 1


@pytest.mark.parametrize("hits", [HITS, []])
def test_the_same_hits_give_the_same_bytes_whatever_the_settings(query, hits, tmp_path):
    import matplotlib

    for name in ("a.svg", "a.png"):
        write_plot(tmp_path / name, lookup, query, hits)
        with matplotlib.rc_context({"font.size": 20, "svg.fonttype": "path", "svg.hashsalt": None}):
            write_plot(tmp_path / f"again-{name}", lookup, query, hits)
        assert (tmp_path / name).read_bytes() == (tmp_path / f"again-{name}").read_bytes()
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_text_in_svg_stays_text_and_dollars_are_no_formulas(query, tmp_path):
    write_plot(tmp_path / "a.svg", lookup, query, HITS)
    written = texts(tmp_path / "a.svg")
    assert {"1", "2", "3", "query", "problem: grade by background"} <= set(written)
    assert any("Prices of $10 and $20" in text for text in written)
    assert any("A &lt;b&gt;bold&lt;/b&gt; &amp; long title" in text for text in written)
    assert any("like “Costs of $x$”, for its background" in text for text in written)


# The command


@pytest.fixture
def plotted(search, graded_index, tmp_path):
    """Search stored vectors and plot; gives the run and the texts of the plot."""

    def run(*arguments: object) -> tuple[list[str], list[str]]:
        stages = ("--first-stage", "dense", "--rerank", "none", "--hits", 4)
        printed = search(*stages, "--plot", tmp_path / "hits.svg", *arguments, folder=graded_index)
        return [line.split()[2] for line in printed.splitlines()], texts(tmp_path / "hits.svg")

    return run


@pytest.mark.parametrize(
    "arguments",
    [
        ("--paper", "s036", "--like", "competitors"),
        ("--paper", "s036", "--facet", "method"),
        ("--paper", "s036"),
        ("--paper", "s036", "s051", "--not-paper", "s059"),
        ("--text", "We route nurses. Rounds are columns of a linear program."),
    ],
)
def test_hits_of_any_query_are_drawn(plotted, papers, arguments):
    found, written = plotted(*arguments)
    titles = {paper.paper_id: paper.title for paper in papers}
    assert len(found) == 4
    assert {"1", "2", "3", "4", "query"} <= set(written)
    for rank, paper_id in enumerate(found, start=1):
        assert any(text.startswith(f" {rank}  {titles[paper_id][:40]}") for text in written)


def test_a_plot_is_replaced_and_another_file_is_not(plotted, search, graded_index, tmp_path):
    plotted("--paper", "s036", "--facet", "method")
    before = (tmp_path / "hits.svg").read_bytes()
    plotted("--paper", "s118", "--facet", "method")
    assert (tmp_path / "hits.svg").read_bytes() != before
    (tmp_path / "mine.svg").write_text('<?xml version="1.0"?>\n<svg/>')
    with pytest.raises(OutputError, match=r"mine\.svg"):
        search("--paper", "s036", "--plot", tmp_path / "mine.svg", folder=graded_index)
    assert (tmp_path / "mine.svg").read_text().endswith("<svg/>")


def test_a_plot_without_hits(plotted):
    found, written = plotted("--paper", "s036", "--like", "competitors", "--year", "1800")
    assert found == []
    assert "query" in written


def test_grades_that_cannot_be_had_are_told(search, tiny_index, tmp_path):
    """The tiny encoder is not that which the grade model reads."""
    arguments = ("--paper", "s036", "--first-stage", "dense", "--rerank", "none", "--hits", 2)
    with pytest.raises(UsageError, match="expected an index with vectors of the default") as raised:
        search(*arguments, "--plot", tmp_path / "hits.svg")
    assert raised.value.exit_code == 2
    assert not (tmp_path / "hits.svg").exists()


def test_a_plot_is_of_one_query(search, tmp_path):
    with pytest.raises(UsageError, match="--plot draws the hits of one query; give --paper") as raised:
        search("--topics", "topics.tsv", "--plot", tmp_path / "hits.svg")
    assert raised.value.exit_code == 2


def test_without_matplotlib_the_pip_line_is_told_before_anything_is_opened(search, tmp_path, monkeypatch):
    monkeypatch.setattr("qbe.plots.importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r"hits\.svg: .*pip install 'qbe\[plot\]'") as raised:
        search("--paper", "s036", "--plot", tmp_path / "hits.svg", folder=tmp_path / "nowhere")
    assert raised.value.exit_code == 1
    assert "\n" not in str(raised.value)


def test_only_svg_and_png(search, tmp_path):
    with pytest.raises(UsageError, match=r"ends in \.svg or \.png, found .*hits\.pdf; rename it"):
        search("--paper", "s036", "--plot", tmp_path / "hits.pdf", folder=tmp_path / "nowhere")


def test_searching_without_a_plot_does_not_load_matplotlib():
    program = (
        "import sys\nimport qbe.search.plot, qbe.search.__main__\nassert 'matplotlib' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parent.parent)


def test_a_wrong_option_ends_with_2_in_one_line(graded_index):
    """As a user runs it."""
    for arguments, code in ((["--like", "problem"], 2), (["--not-paper", "nosuch"], 1)):
        command = [
            sys.executable,
            "-m",
            "qbe",
            "search",
            "--index",
            graded_index,
            "--paper",
            "s036",
            *arguments,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1)
        assert done.stderr.startswith("qbe search: expected ")


def test_where_no_paper_can_be_graded_that_is_said_before_the_search(search, tiny_index, tmp_path):
    with pytest.raises(UsageError, match="vectors of the default encoder for grades, found one without"):
        search("--paper", "s036", "--plot", tmp_path / "a.svg", "--output", tmp_path / "a.json")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("output", ["a.svg", "../{}/a.svg"])
def test_a_plot_is_not_written_over_the_results(search, graded_index, tmp_path, output):
    with pytest.raises(UsageError, match=r"expected two files for --plot and --output, found .* twice"):
        search(
            "--paper",
            "s036",
            "--plot",
            tmp_path / "a.svg",
            "--output",
            f"{tmp_path}/{output.format(tmp_path.name)}",
            folder=graded_index,
        )

"""The analyses of citation recommendation in `benchmarks/`: options, what they compute, their sentences."""

import argparse
import subprocess
import sys

import numpy as np
import pytest
from benchmarks.citation_balance import ALL, Balance, balanced, feature_lists, held_back, last_years, learned
from support.citing import (
    CITING,
    COUNT,
    NO_YEAR,
    cited_by,
    index_of,
    papers_that_cite,
    shared,
    write_tiny_model,
)
from support.live import corpus

from benchmarks import charts, citation_balance, citation_common, citation_tokens
from benchmarks.charts import Chart, Line, write_chart
from benchmarks.citation_common import ranked
from benchmarks.citation_tokens import RANKINGS, budget_of, cut, enough
from qbe.cite.model import read_model
from qbe.errors import ModelError, UsageError
from qbe.evaluate.citations import citations_protocol
from qbe.index.index import Index
from qbe.parallel import Workers
from qbe.run import Run
from qbe.train.citation.figures import CitationFigures
from qbe.train.citation.heads import FeatureList
from qbe.train.work_folder import check_provenance
from qbe.types import Hit, Paper, Sentence

pytestmark = pytest.mark.usefixtures("one_thread")
COMMANDS = (citation_balance, citation_tokens)


@pytest.fixture(scope="module")
def citing(papers):
    return papers_that_cite(papers)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, citing, tiny_encoder):
    base = tmp_path_factory.getbasetemp()
    return shared(base, lambda path: index_of(path, citing, tiny_encoder), "index")


@pytest.fixture(scope="module")
def model(tmp_path_factory, folder):
    base = tmp_path_factory.getbasetemp()
    return shared(base, lambda path: write_tiny_model(path, folder), "model")


def paper(title, *sentences):
    return Paper("p1", title, tuple(map(Sentence, sentences)), offsets=((0, 1),) * len(sentences))


def words(text):
    return len(text.split())


# Options


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.__name__)
def test_help_names_the_options_and_loads_nothing_heavy(command):
    code = (
        f"import sys; sys.argv = ['', '--help']\nfrom {command.__name__} import parser\n"
        "try: parser().parse_args(['--help'])\n"
        "finally: assert not {'torch', 'matplotlib', 'faiss', 'onnxruntime'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--collection DIR" in done.stdout
    assert "--plot FILE" in done.stdout


def test_balances_are_numbers_or_all():
    options = citation_balance.parser().parse_args(["--work", "w", "--negatives", "2", "all"])
    assert options.negatives == [2, ALL]
    assert citation_balance.parser().parse_args(["--work", "w"]).negatives == (1, 3, 10, 30, 100, ALL)


def test_a_budget_leaves_tokens_to_the_query():
    assert budget_of("511") == 511
    with pytest.raises(argparse.ArgumentTypeError, match="expected fewer than 512 tokens, found 512"):
        budget_of("512")


# Query forms


def result_of(*ranks):
    """The protocol's figures of queries whose one cited paper has a rank; 0 is none."""
    qrels = {f"q{number}": {"cited": 1} for number in range(len(ranks))}
    run = Run("run", {f"q{n}": (Hit("cited" if rank else "other", 1.0),) for n, rank in enumerate(ranks)})
    return citations_protocol(qrels, run)


# Class balance


def feature_list(seed, positives, size):
    random = np.random.default_rng(seed)
    cited = np.isin(np.arange(size), random.permutation(size)[:positives])
    return FeatureList(random.standard_normal((size, 3)) + cited[:, None], cited, positives + 1)


def test_lists_keep_what_is_cited_and_so_many_others():
    lists = [feature_list(0, 2, 20), feature_list(1, 0, 9), feature_list(2, 3, 5)]
    kept = balanced(lists, 3, seed=0)
    assert [(int(each.cited.sum()), int((~each.cited).sum()), each.total) for each in kept] == [
        (2, 6, 3),
        (0, 0, 1),
        (3, 2, 4),
    ]
    first = [row.tolist() for row in lists[0].features]
    places = [first.index(row.tolist()) for row in kept[0].features]
    assert places == sorted(places)
    assert lists[0].cited[places].tolist() == kept[0].cited.tolist()


def test_lists_differ_by_seed_and_are_whole_with_all():
    lists = [feature_list(0, 2, 40)]
    one, again, other = (balanced(lists, 3, seed)[0].features.tolist() for seed in (0, 0, 1))
    assert one == again != other
    assert balanced(lists, ALL, 0)[0] is lists[0]


def test_a_judge_is_measured_on_all_candidates_of_dev():
    train, dev = [feature_list(seed, 3, 30) for seed in range(12)], [feature_list(99, 2, 50)]
    one = learned(train, dev, 1, seeds=(0, 1))
    assert (one.name, one.total, len(one.figures)) == ("1", 36, 2)
    assert {figures.recall for figures in one.figures} == {2 / 3}
    assert learned(train, dev, ALL, seeds=(0,)).total == 12 * 27


def test_the_last_years():
    none = np.zeros(0, np.int64)
    years = np.array([2010.0, 2012.0, np.nan, 2011.0, 2012.0, 2020.0])
    assert list(last_years(dict.fromkeys(range(5), none), years, 2)) == [1, 3, 4]


def test_features_of_queries_over_an_index(folder, model, citing):
    """All papers that are not younger than the query are there, and what it cites is marked."""
    rows = (20, 41)
    cited = {row: np.array(cited_by(row), np.int64) for row in rows}
    with Index(folder) as index, index.reading() as reader, Workers(1) as workers:
        lists = feature_lists(reader, workers, read_model(model).projection, cited)
    old = [sum(each.metadata.get("year", 9999) <= 2000 + row // 4 for each in citing) for row in rows]
    assert [len(each.cited) for each in lists] == [count - 1 for count in old]
    assert [(int(each.cited.sum()), each.total) for each in lists] == [
        (sum(place != NO_YEAR for place in cited_by(row)), len(cited_by(row))) for row in rows
    ]


def test_the_held_back_projection_of_a_training(tmp_path, model):
    check_provenance(tmp_path, {"recipe": {"held_back": 6}, "index": "a1b2"})
    with pytest.raises(ModelError) as raised:
        held_back(tmp_path, "a1b2")
    assert str(raised.value) == (
        f"{tmp_path}: expected the work folder of a training over this index, found no held-back.npz; "
        "run qbe train citation --work with it"
    )
    np.savez(tmp_path / "held-back.npz", **read_model(model).projection._asdict())
    projection, years = held_back(tmp_path, "a1b2")
    assert years == 6
    np.testing.assert_array_equal(projection.whole, read_model(model).projection.whole)
    with pytest.raises(ModelError, match="found that of another index"):
        held_back(tmp_path, "ffff")


def balance_of(negatives, *f1):
    return Balance(negatives, 7, [CitationFigures(value, 0.5, 0.9) for value in f1])


def test_the_sentence_on_the_balance():
    few, many = balance_of(1, 0.2, 0.21), balance_of(ALL, 0.25, 0.26)
    assert citation_balance.finding([few, many]) == (
        "That the balance of classes matters holds here: mean F1@20 goes from .2050 with 1 to .2550 with all "
        "negatives for each positive, .0500 apart; seeds of one balance are .0100 apart at most."
    )
    sentence = citation_balance.finding([few, balance_of(3, 0.2, 0.22)])
    assert sentence.startswith("That the balance of classes matters does not hold here: ")


# Token budgets


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        (20, ["a b c", "d e f", "g"]),
        (9, ["a b c", "d e f", "g"]),
        (8, ["a b c", "d e f"]),
        (7, ["a b c", "d e"]),
        (5, ["a b c"]),
        (4, ["a b"]),
        (1, ["a"]),
    ],
)
def test_a_paper_cut_to_whole_words(budget, expected):
    whole = paper("my title", "a b c", "d e f", "g")
    short = cut(whole, budget, words)
    assert [sentence.text for sentence in short.sentences] == expected
    assert (short is whole) == (budget >= 9)
    assert short.title == "my title"
    if short is not whole:
        assert short.offsets is None


def test_words_of_several_tokens_are_kept_whole():
    assert cut(paper("t", "abc de f"), 5, lambda text: len(text.replace(" ", ""))).abstract == "abc"


@pytest.mark.parametrize(
    ("figures", "chances", "expected"),
    [
        ({64: 0.1, 128: 0.2, 256: 0.21}, {64: 0.001, 128: 0.3}, 128),
        ({64: 0.1, 128: 0.2, 256: 0.21}, {64: 0.001, 128: 0.01}, 256),
        ({64: 0.2, 128: 0.1, 256: 0.21}, {64: 0.6, 128: 0.01}, 256),
        ({64: 0.3, 128: 0.2, 256: 0.2}, {64: 0.001, 128: 1.0}, 64),
        ({64: 0.3}, {}, 64),
    ],
)
def test_from_how_many_tokens_on_none_is_worse(figures, chances, expected):
    assert enough(figures, chances) == expected


def test_the_sentence_on_tokens():
    sentence = citation_tokens.finding({64: 0.15, 128: 0.2, 256: 0.21}, {64: 0.0001, 128: 0.25})
    assert sentence == (
        "That longer texts are ranked better holds here up to 128 tokens: by texts and years F1@20 is .150 "
        "with 64 (p < 0.001), .200 with 128 (p = 0.250) and .210 with 256."
    )
    sentence = citation_tokens.finding({64: 0.2, 128: 0.21}, {64: 0.25})
    assert sentence == (
        "That longer texts are ranked better does not hold here: by texts and years F1@20 is .200 with 64 "
        "(p = 0.250) and .210 with 128."
    )


def test_finished_budgets_are_not_computed_again(tmp_path, monkeypatch, citing, tiny_encoder, model):
    """Of the whole, on some papers and the tiny encoder: what is kept, and that the same call reads it."""
    collection = tmp_path / "collection"
    collection.mkdir()
    corpus(collection, "papers", citing)
    names = [each.paper_id for each in citing]
    lines = [
        f"{names[place]} 0 {names[cited]} 1\n" for place in range(CITING, COUNT) for cited in cited_by(place)
    ]
    (collection / "dev.qrels").write_text("".join(lines))

    def opened():
        return citation_tokens.Budgets(collection, tmp_path / "work", 1, str(model), str(tiny_encoder))

    budgets = opened()
    built, figures = budgets.built(40), [budgets.evaluated(40, ranking).figures for ranking in RANKINGS]
    assert 0 < built["cut"] <= COUNT
    assert {path.name for path in (tmp_path / "work").iterdir()} == {
        "made-from.json",
        "40",
        "40.json",
        "40.default.trec",
        "40.without-links.trec",
        "40.without-links.512-together.trec",
    }
    monkeypatch.setattr("qbe.index.building.build.build", None)
    monkeypatch.setattr(citation_tokens.Budgets, "_run", None)
    assert opened().built(40) == built
    assert [opened().evaluated(40, ranking).figures for ranking in RANKINGS] == figures
    with (collection / "dev.qrels").open("a") as stream:
        stream.write(f"{names[COUNT - 1]} 0 {names[0]} 1\n")
    with pytest.raises(ModelError, match="expected parts of the same recipe and data, found those of others"):
        opened()


# Rankings and plots


def test_queries_are_ranked_in_blocks(citing, monkeypatch):
    monkeypatch.setattr(citation_common, "BLOCK", 2)
    blocks = []

    def search(block):
        blocks.append([each.paper_id for each in block])
        return [[Hit(f"hit-of-{each.paper_id}", 1.0)] for each in block]

    run = ranked(search, citing[:3])
    names = [each.paper_id for each in citing[:3]]
    assert blocks == [names[:2], names[2:]]
    assert {query: [hit.paper_id for hit in hits] for query, hits in run.rankings.items()} == {
        name: [f"hit-of-{name}"] for name in names
    }


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


def test_every_command_draws_a_chart_of_its_figures():
    chart = citation_balance.chart([balance_of(3, 0.25, 0.75), balance_of(ALL, 0.5, 0.5)])
    assert (chart.places, chart.lines) == (
        ["3", "all"],
        [Line("F1@20", [0.5, 0.5], [(0.25, 0.75), (0.5, 0.5)])],
    )
    results = {ranking: {128: result_of(1), 64: result_of(0)} for ranking in RANKINGS}
    chart = citation_tokens.chart(results)
    assert (chart.places, [line.name for line in chart.lines]) == (["64", "128"], [r.name for r in RANKINGS])
    assert chart.lines[0].values == [0.0, pytest.approx(2 / 21)]

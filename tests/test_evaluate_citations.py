"""The protocol of citation recommendation: figures worked by hand, years, overlap, published rows, errors."""

import json
from pathlib import Path

import pytest

from qbe.errors import UsageError
from qbe.evaluate.__main__ import main
from qbe.evaluate.citations import citations_protocol, pairs_by_overlap, words
from qbe.evaluate.published import papers, published_rows
from qbe.evaluate.results import OverlapBin
from qbe.run import Run
from qbe.types import Hit, Paper, Sentence

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


def run(rankings: dict[str, list[str]]) -> Run:
    """A run of these papers, best first."""
    return Run(
        "t",
        {query: tuple(Hit(p, -float(rank)) for rank, p in enumerate(ids)) for query, ids in rankings.items()},
    )


def figures(rankings: dict[str, list[str]], qrels: dict[str, dict[str, int]]) -> dict[str, float | None]:
    """The figures over all queries."""
    return {
        name: by_scope["all"] for name, by_scope in citations_protocol(qrels, run(rankings)).figures.items()
    }


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


def test_the_twentieth_paper_counts_and_the_next_one_does_not():
    others = [f"u{i}" for i in range(19)]
    assert figures({"q2": [*others, "a"]}, {"q2": {"a": 1}})["R@20"] == 1
    assert figures({"q2": [*others, "u19", "a"]}, {"q2": {"a": 1}})["R@20"] == 0


def test_no_paper_behind_the_thousandth_counts():
    beyond = [*(f"u{i}" for i in range(1000)), "a"]
    assert figures({"q2": beyond}, {"q2": {"a": 1}})["MRR"] == 0


def test_equal_scores_are_ordered_alike_for_all_measures():
    tied = Run("t", {"q": tuple(Hit(paper_id, 1.0) for paper_id in "abc")})
    found = citations_protocol({"q": {"a": 1}}, tied, ["P@1", "RR@1000"]).figures
    assert (found["P@1"], found["MRR"]) == ({"all": 0}, {"all": pytest.approx(1 / 3)})  # c, b, a


# Overlap


def paper(paper_id: str, title: str, *sentences: str, **metadata: object) -> Paper:
    return Paper(paper_id, title, tuple(map(Sentence, sentences)), metadata=metadata)


PAPERS = {
    "q1": paper("q1", "Maps of old towns", "We draw the maps.", year=2019),  # maps old towns we draw
    "q2": paper("q2", "", "The."),
    "a": paper("a", "MAPS, maps and maps"),
    "b": paper("b", "We draw", "Old towns: maps!"),
    "c": paper("c", "Fish", "It is about fish."),
    "x": paper("x", "Maps"),
}


def test_words_are_distinct_lower_case_and_no_stop_words():
    assert words(PAPERS["q1"]) == {"maps", "old", "towns", "we", "draw"}
    assert words(paper("p", "Über_Zürich's 2-D", "C'est été")) == {
        "über",
        "zürich",
        "s",
        "2",
        "d",
        "c",
        "est",
        "été",
    }


def test_pairs_stand_in_the_bin_of_the_share_of_the_querys_words():
    pairs = pairs_by_overlap({"q1": QRELS["q1"]}, PAPERS)
    assert {name: found for name, found in pairs.items() if found} == {
        "0.00-0.05": (("q1", "c"),),
        "0.20-0.25": (("q1", "a"),),
        "0.95-1.00": (("q1", "b"),),
        "no text": (("q1", "d"),),
    }


def test_bins_end_with_the_last_that_has_a_pair():
    pairs = pairs_by_overlap({"q1": {"a": 1}}, PAPERS)
    assert list(pairs) == ["0.00-0.05", "0.05-0.10", "0.10-0.15", "0.15-0.20", "0.20-0.25"]


def test_a_query_without_words_shares_none():
    assert pairs_by_overlap({"q2": {"a": 1}}, PAPERS) == {"0.00-0.05": (("q2", "a"),)}


def test_cited_papers_among_the_first_twenty_are_found():
    qrels = {"q1": {"a": 1, "b": 1}, "q4": {"a": 1}}
    ranked = run({"q1": ["q1", *(f"u{i}" for i in range(19)), "a", "b"]})
    pairs = {"low": (("q1", "a"), ("q4", "a")), "high": (("q1", "b"),)}
    found = citations_protocol(qrels, ranked, pairs=pairs).overlap
    assert found == (OverlapBin("low", 2, 1), OverlapBin("high", 1, 0))


# The command


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Qrels, a corpus and two runs in the current folder; the first arguments of the command."""
    monkeypatch.chdir(tmp_path)
    qrels = {query: QRELS[query] for query in ("q1", "q2")}
    Path("c.qrels").write_text(
        "".join(f"{query} 0 {p} {grade}\n" for query, grades in qrels.items() for p, grade in grades.items())
    )
    Path("papers.jsonl").write_text(
        "".join(
            json.dumps(
                {"paper_id": p.paper_id, "title": p.title, "abstract": p.abstract, "metadata": p.metadata}
            )
            + "\n"
            for p in PAPERS.values()
        )
    )
    for name, rankings in {"good": RANKINGS, "bad": {"q1": ["x", "a"], "q2": ["x"]}}.items():
        Path(f"{name}.trec").write_text(
            "".join(
                f"{query} Q0 {p} {rank} {-rank} t\n"
                for query in ("q1", "q2")
                for rank, p in enumerate(rankings[query], start=1)
            )
        )
    return ["--protocol", "citations", "--qrels", "c.qrels", "--run", "good.trec", "bad.trec"]


def tables(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines that were printed, with single spaces."""
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def test_one_table_and_tests_against_the_baseline(files, capsys):
    main([*files, "--baseline", "bad.trec"])
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


def test_measures_by_year_of_the_query_papers(files, capsys):
    main([*files, "--by", "year", "--corpus", "papers.jsonl"])
    assert tables(capsys)[:8] == [
        "citation recommendation, means over query papers; queries: 2019 1, no year 1, all 2",
        "",
        "F1@20 2019 no year all",
        "good 0.1667 0.0952 0.1310",
        "bad 0.0833 0.0000 0.0417",
        "",
        "F1@20 of means 2019 no year all",
        "good 0.1667 0.0952 0.1364",
    ]


def test_shares_found_by_overlap(files, capsys):
    main([*files, "--by", "overlap", "--corpus", "papers.jsonl"])
    lines = tables(capsys)
    start = lines.index("overlap cited good bad")
    shown = [line for line in lines[start + 1 : start + 22] if " 0 - -" not in line]
    assert shown == [
        "0.00-0.05 2 0.5000 0.0000",
        "0.20-0.25 1 1.0000 1.0000",
        "0.95-1.00 1 1.0000 0.0000",
        "no text 1 0.0000 0.0000",
    ]


def test_the_report_has_the_overlap_and_the_definitions(files):
    main([*files, "--by", "overlap", "--corpus", "papers.jsonl", "--output", "report.json"])
    report = json.loads(Path("report.json").read_text())
    assert report["rows"][0]["overlap"][0] == {"overlap": "0.00-0.05", "cited": 2, "found": 1}
    assert report["measures"]["F1@20"].startswith("harmonic mean of a query's precision and recall")
    assert report["measures"]["R@1000"] == "Recall at k, as ir-measures computes R@1000"
    assert "F1@20 of means" not in report["rows"][0]["per_query"]


def test_published_rows_name_their_collections(files, capsys):
    main([*files, "--published"])
    lines = tables(capsys)
    assert lines[2] == "run collection F1@20 F1@20 of means MRR R@1000 P@20 R@20"
    assert lines[3] == "good these qrels 0.1310 0.1364 0.7500 0.7500 0.0750 0.7500"
    assert lines[5] == "BM25 [Nogueira et al. 2020] Open Research - 0.089 0.312 0.421 - -"
    assert lines[9] == "BM25 + SciBERT-large [Nogueira et al. 2020] DBLP - 0.272 0.714 - - -"
    assert lines[13] == "Citeomatic [Citeomatic 2018] PubMed - 0.329 0.771 - - -"
    assert lines[15].startswith("Published figures, of other collections than these qrels")


def test_every_published_row_has_a_source_a_collection_and_figures():
    rows = published_rows("citations")
    assert {row.collection for row in rows} == {"Open Research", "DBLP", "PubMed"}
    assert len({(row.system, row.collection) for row in rows}) == len(rows) == 9
    assert all(row.source and row.figures["MRR"]["all"] for row in rows)
    assert {row.paper for row in rows} == set(papers("citations"))


def test_there_are_published_rows_of_two_protocols_only():
    with pytest.raises(UsageError, match="`protocol`"):
        published_rows("crossed")

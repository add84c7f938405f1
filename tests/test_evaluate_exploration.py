"""Exploration: gains and relevant papers, which ranking counts, the measures by hand, and the command."""

import json
from math import log2
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.runs import run

from qbe import Aspect, Facet, FileFormatError, Paper, Query, Sentence
from qbe.cli.evaluate import main
from qbe.evaluate.facets import Contrast, contrast_of, exploration_protocol, ndcg

B, M, R = Facet
SCOPES = (
    *("background-not-method", "method-not-background", "background-not-result"),
    *("result-not-background", "method-not-result", "result-not-method"),
)

GRADES = {
    "p": {
        "a": {B: 3.0, M: 0.5},  # a gain of 2.5 for the problem and not the method: relevant
        "b": {B: 3.0, M: 2.0},  # 1
        "c": {B: 2.0, M: 0.0},  # 2: relevant
        "d": {B: 0.0, M: 3.0},  # 0
        "e": {B: 3.0},
    },
    "q": {"a": {B: 1.5, M: 0.0}, "d": {B: 0.0, M: 0.0}},  # 1.5, not relevant
}
# Without the one paper that is better by its method.
BACKGROUND_NOT_METHOD = {"q": GRADES["q"], "p": {k: row for k, row in GRADES["p"].items() if k != "d"}}


# Gains


def test_the_query_paper_is_no_candidate_and_a_scope_may_have_no_relevant_paper():
    grades = {"p": {"p": {B: 3.0, M: 0.0}, "a": {B: 1.0, M: 0.0}}}
    evaluation = exploration_protocol(grades, run({"p_background": "pa"}))
    scope = "background-not-method"
    assert evaluation.figures == {"nDCG@10": {scope: 1}, "P@10": {scope: None}, "RR": {scope: None}}


@pytest.mark.parametrize(
    ("liked", "disliked", "relevant"), [(2, 0.5, True), (1.9, 0, False), (3, 0.6, False), (2, 0, True)]
)
def test_relevant_begins_at_two_and_ends_at_a_half(liked, disliked, relevant):
    evaluation = exploration_protocol({"p": {"a": {B: liked, R: disliked}}}, run({"p_background": "a"}))
    assert bool(evaluation.with_relevant["background-not-result"]) is relevant


# Ids


@pytest.mark.parametrize(
    ("query_id", "contrast"),
    [
        ("1e-05*p_method&-1e+20*p_result", Contrast("p", M, R)),
        ("1*a_b*c_method&-1*a_b*c_result", Contrast("a_b*c", M, R)),
        ("a&b_method", Contrast("a&b", M)),  # a topic of a file may be named so
        ("p", None),
        ("p_abstract", None),
        ("p_same-problem-other-method", Contrast("p", B, M)),
        ("p_competitors", None),
        ("1*p_background&0.5*p_method", None),
        ("1*p_background&-1*p_background", None),
        ("1*p_background&-1*q_method", None),
        ("1*p_background&-1*p_abstract", None),
    ],
)
def test_what_ids_ask_for(query_id, contrast):
    assert contrast_of(query_id) == contrast


@given(
    st.text(st.characters(codec="utf-8", exclude_categories=["Z", "C"]), min_size=1)
    | st.text("a%&256*_", min_size=1),
    st.permutations(list(Facet)),
    st.floats(1e-3, 1e3),
    st.booleans(),
)
def test_ids_of_queries_are_read_back(paper_id, facets, weight, disliked_first):
    liked, disliked, _ = facets
    paper = Paper(paper_id, "T", (Sentence("S."),))
    aspects = [Aspect(paper, liked, weight=weight), Aspect(paper, disliked, weight=-weight / 2)]
    if disliked_first:
        aspects.reverse()
    assert contrast_of(Query.of(*aspects).query_id) == Contrast(paper_id, liked, disliked)
    assert contrast_of(Query(paper, liked).query_id) == Contrast(paper_id, liked)


# Measures


def test_ndcg_by_hand():
    ideal = 2.5 + 2 / log2(3) + 1 / 2
    assert ndcg([1, 0, 2.5], [2.5, 1, 2, 0]) == (1 + 2.5 / 2) / ideal
    assert ndcg([2.5, 2, 1, 0], [2.5, 1, 2, 0]) == 1
    assert ndcg([0] * 10 + [1], [0] * 10 + [1]) == 0  # the eleventh place does not count
    assert ndcg([], [1.0]) == 0
    assert ndcg([0.0], [0.0]) == 0


def test_the_protocol_by_hand():
    both = {"1*p_background&-0.5*p_method": "ebxpca", "1*q_background&-0.5*q_method": "da"}
    evaluation = exploration_protocol(GRADES, run(both | {"p_method": "da"}))
    scope, other = "background-not-method", "method-not-background"
    assert evaluation.queries == {scope: (f"p_{scope}", f"q_{scope}"), other: (f"p_{other}",)}
    assert evaluation.with_relevant == {scope: (f"p_{scope}",), other: (f"p_{other}",)}
    # Of p's ranking e (no grade of its method), x (no grade at all) and p itself are left out: b, c, a.
    first = (1 + 2 / log2(3) + 2.5 / 2) / (2.5 + 2 / log2(3) + 1 / 2)
    second = (1.5 / log2(3)) / 1.5
    assert evaluation.per_query == {
        "nDCG@10": {f"p_{scope}": first, f"q_{scope}": second, f"p_{other}": 1.0},
        "P@10": {f"p_{scope}": 0.2, f"p_{other}": 0.1},
        "RR": {f"p_{scope}": 0.5, f"p_{other}": 1.0},
    }
    assert evaluation.figures == {
        "nDCG@10": {scope: (first + second) / 2, other: 1.0},
        "P@10": {scope: 0.2, other: 0.1},
        "RR": {scope: 0.5, other: 1.0},
    }
    told = "3 pool documents missing in 2 queries (p_background-not-method, ...): they count as not retrieved"
    assert evaluation.warnings == (told,)


def test_the_six_scopes_stand_in_their_order():
    grades = {"p": {str(place): {f: 3.0 * (f is facet) for f in Facet} for place, facet in enumerate(Facet)}}
    evaluation = exploration_protocol(grades, run({f"p_{facet}": "012" for facet in Facet}))
    assert tuple(evaluation.queries) == SCOPES
    assert evaluation.figures["RR"] == dict(zip(SCOPES, [1, 1 / 2, 1, 1 / 3, 1 / 2, 1 / 3], strict=True))


# Which ranking counts


def test_a_ranking_of_both_facets_is_taken_before_that_of_the_liked_one():
    rankings = {"p_background": "bca", "1*p_background&-1*p_method": "acb"}
    assert exploration_protocol(GRADES, run(rankings)).per_query["nDCG@10"]["p_background-not-method"] == 1
    plain = exploration_protocol(GRADES, run({"p_background": "bca", "1*p_method&-1*p_background": "d"}))
    assert plain.per_query["nDCG@10"]["p_background-not-method"] < 1
    assert plain.per_query["nDCG@10"]["p_method-not-background"] == 1
    rankings = {"1*p_background&-1*p_method": "abc", "q_background": "ad"}
    (warning,) = exploration_protocol(BACKGROUND_NOT_METHOD, run(rankings)).warnings
    assert warning.startswith("1 of 2 queries for background-not-method are ranked by the liked facet alone")


def test_a_missing_query_scores_0_and_others_are_left_out_with_warnings():
    ranked = run({"q_background": "ad", "z_background": "a", "p": "a", "p_result": "a"})
    evaluation = exploration_protocol(BACKGROUND_NOT_METHOD, ranked)
    assert evaluation.per_query == {
        "nDCG@10": {"q_background-not-method": 1, "p_background-not-method": 0},
        "P@10": {"p_background-not-method": 0},
        "RR": {"p_background-not-method": 0},
    }
    assert evaluation.figures["nDCG@10"] == {"background-not-method": 0.5}
    assert evaluation.warnings == (
        "no documents for query p_background-not-method: it scores as an empty ranking",
        "queries without judgements left out: 2 (z_background, p)",
    )


def test_a_scope_without_any_ranking_has_no_figure():
    evaluation = exploration_protocol(GRADES, run({"p_method": "da", "q_method": "a"}))
    assert evaluation.figures == {
        measure: {"background-not-method": None, "method-not-background": 1 if measure != "P@10" else 0.1}
        for measure in ("nDCG@10", "P@10", "RR")
    }
    assert list(evaluation.per_query["nDCG@10"]) == ["p_method-not-background"]
    told = "no query for background-not-method in the run: no figures for background-not-method"
    assert evaluation.warnings[0] == told


def test_two_rankings_for_one_contrast_and_runs_of_other_papers_are_refused():
    twice = {"1*p_background&-0.5*p_method": "ab", "-1*p_method&1*p_background": "ba"}
    for rankings in (twice, {"z_background": "a", "p": "a"}, {}):
        with pytest.raises(FileFormatError):
            exploration_protocol(GRADES, run(rankings))


# The command

PAIRS = """\
query_id\tpaper_id\tbackground\tmethod\tresult
p\ta\t3\t.5\t1
p\tb\t3\t2\t1
p\tc\t2\t0\t2
q\ta\t1.5\t0\t1.5
q\td\t0\t0\t0
"""


@pytest.fixture
def files(tmp_path, monkeypatch) -> list[str]:
    """Graded pairs, a run of both facets, and one of the liked facet; the first arguments of the command."""
    monkeypatch.chdir(tmp_path)
    Path("pairs.tsv").write_text(PAIRS)
    run({f"1*{paper}_background&-0.5*{paper}_method": "acbd" for paper in "pq"}).write(Path("both.trec"))
    run({"p_background": "bacd", "q_background": "da"}).write(Path("one.background.trec"))
    return ["--protocol", "exploration", "--qrels", "pairs.tsv"]


def test_the_command_prints_a_row_for_each_scope(files, capsys):
    arguments = [*files, "--run", "both.trec", "--baseline", "one.background.trec"]
    main([*arguments, "--output", "report.json", "--details"])
    printed = capsys.readouterr()
    one = (1 + 2.5 / log2(3) + 2 / 2) / (2.5 + 2 / log2(3) + 1 / 2)
    mean = (one + 1 / log2(3)) / 2
    lines = [line.split() for line in printed.out.splitlines()]
    scope = "background-not-method"
    assert lines[2:4] == [["nDCG@10", "queries", "both", "one"], [scope, "2", "1.0000", f"{mean:.4f}"]]
    assert [line[1:] for line in lines if line[:1] == [scope]] == [
        ["2", "1.0000", f"{mean:.4f}"],
        ["1", "0.2000", "0.2000"],
        ["1", "1.0000", "0.5000"],
    ]
    assert ["result-not-method", "2", "-", "-"] in lines
    assert "qbe evaluate: warning: one: no query for result-not-method in the run" in printed.err
    # Two differences of one sign: 2 of 4 sign patterns.
    tested = next(line for line in lines if line[:2] == ["both", "one"])
    assert tested[2:7] == ["nDCG@10", scope, "2", f"{1 - mean:+.4f}", "0.5000"]
    report = json.loads(Path("report.json").read_text())
    assert report["queries"][scope] == [f"p_{scope}", f"q_{scope}"]
    assert report["rows"][0]["figures"]["RR"]["result-not-method"] is None


def test_runs_of_topics_are_named_by_their_files(files, capsys):
    """Of several topics of a paper that of the liked facet counts; a topic without a facet is its paper's."""
    of_topics = {"p_method": "dbca", "p_background": "acbd", "q": "acbd", "q_result": "dbca"}
    run(of_topics).write(Path("topics.background-not-method.trec"))
    run({"p_method": "bcad", "p_background": "acbd"}).write(Path("topics.method-not-background.trec"))
    main([*files, "--run", *map(str, Path().glob("topics.*")), "both.trec", "--output", "report.json"])
    topics, both = json.loads(Path("report.json").read_text())["rows"]
    scope = "background-not-method"
    assert topics["figures"]["nDCG@10"][scope] == both["figures"]["nDCG@10"][scope] == 1.0

"""First hits that are as asked: requirements by shape, the measures by hand, and the command."""

import json

import pytest
from support.runs import hits

from qbe import SHAPES, Facet, FileFormatError, Run
from qbe.cli.evaluate import main
from qbe.evaluate.facets import REQUIREMENTS, as_asked_protocol, is_as_asked

B, M, R = Facet

GRADES = {
    "p": {
        "a": {B: 0.0, M: 2.0, R: 0.0},
        "b": {B: 2.0, M: 1.5, R: 0.0},
        "c": {B: 1.5, M: 1.0, R: 1.5},
        "d": {B: 1.0, M: 1.5, R: 0.5},
        "e": {B: 0.5, M: 0.5, R: 0.0},
    },
    "q": {"a": {B: 0.0, M: 0.0, R: 0.0}},
}


@pytest.mark.parametrize(
    ("scope", "right"),
    [
        ("background", "bc"),
        ("method", "abd"),
        ("result", "c"),
        ("same-method-other-problem", "ad"),
        ("same-problem-other-method", "c"),
        ("competitors", "b"),
    ],
)
def test_what_is_asked_for_by_shape(scope, right):
    assert [name for name, row in GRADES["p"].items() if is_as_asked(row, scope)] == list(right)


def test_every_facet_and_every_shape_of_exploration_has_its_requirements():
    assert set(REQUIREMENTS) == {facet.value for facet in Facet} | set(SHAPES)


def test_measures_by_hand():
    """x and y are not judged; of the method a, b and d are right; the query paper itself does not count."""
    run = Run("by-hand", {"p_method": hits("xpacybd"), "q_method": hits("a"), "p_competitors": hits("ba")})
    result = as_asked_protocol(GRADES, run)
    assert list(result.queries) == list(REQUIREMENTS)
    assert result.queries["competitors"] == ("p_competitors", "q_competitors")
    assert {measure: values["p_method"] for measure, values in result.per_query.items()} == {
        "P@5": 2 / 5,  # x a c y b
        "P@10": 3 / 10,
        "best P@5": 3 / 5,
        "best P@10": 3 / 10,
        "mean background grade": 3.5 / 3,
        "mean method grade": 1.5,
        "mean result grade": 0.5,
        "judged@10": 4 / 6,
    }
    figures = {scope: figure for scope, figure in result.figures["P@5"].items() if figure is not None}
    assert figures == {"method": 1 / 5, "competitors": 1 / 10}
    assert result.warnings == (
        "2 of the first 10 hits by method are not judged",
        "1 of 2 queries by competitors missing (q, ...)",
    )


def test_what_is_not_judged_in_a_scope_does_not_count_there():
    grades = {"p": {"a": {M: 3.0}, "b": {B: 0.0}}, "r": {"b": {B: 3.0}}}
    assert not is_as_asked({M: 3.0}, "same-method-other-problem")
    rankings = {"p_method": hits("ab"), "r_background": hits("b")}
    result = as_asked_protocol(grades, Run("by-hand", rankings))
    assert (result.figures["P@5"]["method"], result.figures["P@5"]["background"]) == (0.2, 0.1)
    assert result.queries["method"] == ("p_method",)
    assert result.queries["same-method-other-problem"] == ()
    assert result.per_query["judged@10"]["p_method"] == 0.5
    assert result.figures["mean method grade"]["method"] == 3
    assert result.warnings == (
        "1 of 2 queries by background missing (p, ...)",
        "1 of the first 10 hits by method are not judged",
    )
    more = as_asked_protocol(grades, Run("by-hand", {**rankings, "r_method": hits("b")}))
    assert more.figures == result.figures
    assert "queries by method without judgements left out: 1 (r, ...)" in more.warnings


def test_searches_named_as_in_exploration():
    rows = {"p": {"a": {M: 0.0, B: 3.0}}}
    names = ("p_background-not-method", "p_same-problem-other-method")
    for name in names:
        assert as_asked_protocol(rows, {name: hits("a")}).figures["P@5"]["same-problem-other-method"] == 0.2
    with pytest.raises(FileFormatError, match="one ranking by same-problem-other-method for paper p"):
        as_asked_protocol(rows, dict.fromkeys(names, hits("a")))


def test_the_command_joins_the_files_of_the_shapes(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = ["query_id paper_id background method result"]
    rows += [f"{q} {p} {row[B]} {row[M]} {row[R]}" for q, pool in GRADES.items() for p, row in pool.items()]
    (tmp_path / "wild.tsv").write_text("\n".join(row.replace(" ", "\t") for row in rows))
    files = ("fused", "a", "method"), ("fused", "c", "competitors"), ("bm25", "e", "method")
    for name, best, scope in files:
        topics = ("p", "q") if scope == "competitors" else ("p_method", "q_method")
        Run(name, dict(zip(topics, (hits(best), hits("a")), strict=True))).write(f"{name}.{scope}.trec")
    arguments = ["--protocol", "as-asked", "--qrels", "wild.tsv", "--output", "report.json"]
    arguments += ["--run", "fused.method.trec", "fused.competitors.trec"]
    main([*arguments, "--baseline", "bm25.method.trec"])
    fused, bm25 = json.loads((tmp_path / "report.json").read_text())["rows"]
    assert (fused["figures"]["P@5"]["method"], fused["figures"]["P@5"]["competitors"]) == (0.1, 0.0)
    assert (bm25["figures"]["P@5"]["method"], bm25["figures"]["P@5"]["competitors"]) == (0.0, None)
    assert "first hits that are as asked, means over query papers" in capsys.readouterr().out


def test_a_scope_without_judgements_by_its_facets():
    grades = {"p": {"a": {M: 2.0}}}
    with pytest.raises(FileFormatError, match="judgements by all facets that competitors asks for"):
        as_asked_protocol(grades, {"p_competitors": hits("a")})
    both = as_asked_protocol(grades, {"p_competitors": hits("a"), "p_method": hits("a")})
    assert both.warnings[0] == "all queries by competitors without judgements left out"
    assert both.figures["P@5"]["method"] == 0.2

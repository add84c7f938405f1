"""Lists put together: wishes as users write them, places by hand, and lists of searches over the sample."""

import json
from collections import Counter
from functools import partial

import numpy as np
import pytest
from support.messages import messages_of
from support.searching import ids

from qbe import Dense, Facet, Grades, Hit, Index, Pipeline, Query, Stages, UsageError, Variety
from qbe.cli.evaluate import main as evaluate
from qbe.evaluate.facets import alpha_ndcg, diversity_protocol, read_facet_grades
from qbe.query import COMPETITORS, SAME_METHOD_OTHER_PROBLEM, SAME_PROBLEM_OTHER_METHOD, SHAPES, parse_wish
from qbe.search.explore import varied
from qbe.search.request import SearchForm

BACKGROUND, METHOD, RESULT = Facet
MIX = {SAME_PROBLEM_OTHER_METHOD: 1.0, SAME_METHOD_OTHER_PROBLEM: 1.0, COMPETITORS: 2.0}


def test_thresholds_are_liked_or_disliked_facets():
    weights, variety = parse_wish(["background:0.5>=2"], ["method<=1.5"])
    assert weights == {BACKGROUND: 0.5, METHOD: -1.0}
    assert variety.bounds == {BACKGROUND: (2.0, 3.0), METHOD: (0.0, 1.5)}
    assert parse_wish(["background:0.5>=2", "method<=1.5"], []) == (weights, variety)


WRONG = [
    *((liked,) for liked in ("background>=4", "background>=two", "background>2", "background>=nan")),
    *(("background>=1", "background<=2"), ("competitors:0",), ("competitors:2", "competitors:3")),
    ("competitors:2", "method"),
    *(("same-problem-other-method:5", name) for name in ("compettors:5", "competitors>=2")),
    *((liked,) for liked in ("compettors", "metod>=2")),
]


def test_wrong_wishes(told):
    wishes = [partial(parse_wish, liked, []) for liked in WRONG]
    wishes.append(partial(parse_wish, ["background"], ["method>=2"]))
    told("wishes", messages_of(wishes, UsageError))


def test_requests_of_programs_have_the_same_grammar():
    form = SearchForm(paper_ids=["s036"], like=[f"{name}:{share}" for name, share in MIX.items()])
    assert form.variety == Variety(MIX)
    assert form.aspects == {BACKGROUND: 1.0, METHOD: 1.0}
    form = SearchForm(paper_ids=["s036"], like=["method>=2"], diversity=0.25)
    assert form.variety == Variety(bounds={METHOD: (2.0, 3.0)}, diversity=0.25)
    assert form.aspects is METHOD


def test_places_by_hand():
    """Quotients 6, 3, 1; 2, 3, 1; 2, 1, 1; 1.2, 1, 1; 0.86, 1, 1; 0.86, 1/3, 1: the first of equals."""
    mixed = varied(np.tile(np.linspace(1, 0.5, 6), (3, 1)), [6.0, 3.0, 1.0])
    assert [place[:2] for place in mixed] == [(0, 0), (1, 1), (2, 0), (3, 0), (4, 1), (5, 2)]
    # Second: 0.75 * 0.8 - 0.25 * 1 = 0.35 and 0.75 * 0.5 - 0 = 0.375; third: 0.35.
    similarity = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    places = varied(np.array([[1.0, 0.8, 0.5]]), similarity=similarity, diversity=0.25)
    assert places == [(0, 0, 0.75), (2, 0, 0.375), (1, 0, 0.35)]
    only = varied(np.array([[0.5, 0.8, 1.0]]), similarity=similarity, diversity=1.0)
    assert [candidate for candidate, *_ in only] == [2, 1, 0]  # the best one first, whatever the share


@pytest.fixture(scope="module")
def pipeline(graded):
    with Pipeline(graded, Dense()) as pipeline:
        yield pipeline


@pytest.mark.slow
def test_a_mix_has_each_paper_once_and_the_best_of_each_shape_first(graded, pipeline):
    paper, variety = graded.paper("s036"), Variety(MIX)
    hits = pipeline.search(Query.by_facets(paper, variety.weights), 127, variety=variety, matches=False)
    assert len(set(ids(hits))) == len(hits) == 127
    query = Query.by_facets(paper, variety.weights)
    assert pipeline.search(query, 9, variety=variety, matches=False) == hits[:9]
    for name, weights in SHAPES.items():
        alone = pipeline.search(Query.by_facets(paper, weights), 127, matches=False)
        chances = {hit.paper_id: hit.score for hit in alone}
        of_shape = [hit for hit in hits if hit.corner == name]
        assert [hit.chance for hit in of_shape] == pytest.approx([chances[hit.paper_id] for hit in of_shape])
        earlier = hits[: hits.index(of_shape[0])]
        assert of_shape[0].paper_id == next(each for each in ids(alone) if each not in ids(earlier))


@pytest.mark.slow
def test_a_varied_list_begins_alike_and_its_papers_differ_more(graded, pipeline):
    paper = graded.paper("s001")
    plain = pipeline.search(Query(paper), 120, matches=False)
    hits = pipeline.search(Query(paper), 120, variety=Variety(diversity=0.5), matches=False)
    assert sorted(ids(hits)) == sorted(ids(plain)) and hits[0].paper_id == plain[0].paper_id
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    vectors = {each: graded.vectors(graded.paper(each)).whole for each in ids(plain)}

    def likeness(some):
        first = np.array([vectors[hit.paper_id] for hit in some[:10]], np.float64)
        return (first @ first.T)[np.triu_indices(10, 1)].mean()

    assert likeness(hits) < likeness(plain)
    with Pipeline(graded, Stages(Dense(), Grades(diversity=0.5))) as by_stage:
        hits = by_stage.search(Query(paper), 120, matches=False)
    with Pipeline(graded, Stages(Dense(), Grades())) as by_grades:
        assert by_grades.search(Query(paper), 120, variety=Variety(diversity=0.5), matches=False) == hits


@pytest.mark.slow
@pytest.mark.parametrize("weights", [{METHOD: 1.0}, {BACKGROUND: 1.0, METHOD: 1.0}])
def test_bounds_leave_the_order_alone(graded, pipeline, weights):
    query, variety = Query.by_facets(graded.paper("s036"), weights), Variety(bounds={METHOD: (0.5, 1.0)})
    found = pipeline.grade(query, pipeline.search(query, 127, matches=False))
    hits = pipeline.search(query, 127, variety=variety, matches=False)
    assert 0 < len(hits) < 127
    assert ids(hits) == ids(hit for hit in found if 0.5 <= hit.grades["method"] <= 1.0)


@pytest.mark.slow
def test_what_a_mix_needs(graded, pipeline, tiny_index):
    variety = Variety(MIX)
    with pytest.raises(UsageError, match="query of the facets of a `mix`"):
        pipeline.search(Query(graded.paper("s036")), variety=variety)
    with Index(tiny_index) as tiny, Pipeline(tiny, Dense()) as ungraded:
        query = Query.by_facets(tiny.paper("s036"), variety.weights)
        for each in (variety, Variety(diversity=0.5), Variety(bounds={METHOD: (1, 2)})):
            with pytest.raises(UsageError, match="expected an index with vectors of facet-encoder or"):
                ungraded.search(query, variety=each)


@pytest.mark.slow
def test_the_command_mixes_as_many_hits_as_asked_for(search, graded_index):
    like = (f"{name}:{share:g}" for name, share in MIX.items())
    options = ("--first-stage", "dense", "--paper", "s036", "--like", *like)
    (record,) = map(json.loads, search(*options, "--format", "json", folder=graded_index).splitlines())
    assert len(record["hits"]) == 4
    assert {hit["corner"] for hit in record["hits"]} <= set(SHAPES)
    table = search(*options, "--format", "table", folder=graded_index)
    assert all(f"{hit['corner']}: background" in table for hit in record["hits"])
    corners = Counter(hit["corner"] for hit in record["hits"])
    shapes = ", ".join(f"{count} {corner}" for corner, count in corners.items())
    assert f"”: {shapes}:" in " ".join(table.split())


PAIRS = """query_id\tpaper_id\tbackground\tmethod\tresult
p\ta\t3\t0\t0
p\tb\t2\t1\t0
p\tc\t0\t3\t0
p\td\t2\t2\t2
p\te\t0\t0\t0
q\ta\t0\t0\t0
"""


def test_alpha_ndcg_by_hand():
    """Clarke et al. (2008): a further paper of a subtopic is worth half."""
    both, one, other = {"a", "b"}, {"a"}, {"b"}
    assert alpha_ndcg([both], [both]) == 1
    assert alpha_ndcg([set(), one], [one]) == pytest.approx(1 / np.log2(3))
    again = (1 + 0.5 / np.log2(3)) / (1 + 1 / np.log2(3) + 0.5 / 2)
    assert alpha_ndcg([one, one], [one, one, other]) == pytest.approx(again)
    assert alpha_ndcg([both, one], [one, both]) == 1  # the ideal takes the one with both first
    assert alpha_ndcg([one], [set()]) == 0


def test_a_list_is_scored_by_corners(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pairs.tsv").write_text(PAIRS)

    def figures(order):
        hits = tuple(Hit(name, -float(place)) for place, name in enumerate(order))
        evaluation = diversity_protocol(read_facet_grades(["pairs.tsv"]), {"p_anything": hits, "other": hits})
        return {name: by_scope["all"] for name, by_scope in evaluation.figures.items()}

    mixed, plain = figures("acdbe"), figures("abe")
    assert mixed["alpha-nDCG@10"] == mixed["corners@10"] == 1
    assert plain["corners@10"] == pytest.approx(1 / 3)
    ideal = 1 + 1 / np.log2(3) + 1 / 2 + 0.5 / np.log2(5)
    assert plain["alpha-nDCG@10"] == pytest.approx((1 + 0.5 / np.log2(3)) / ideal)
    assert plain["P@10"] == pytest.approx(0.2)
    # Means of all facets are 1, 1, 1, 2, 0.
    ideal = 2 + 1 / np.log2(3) + 1 / 2 + 1 / np.log2(5)
    assert plain["nDCG@10"] == pytest.approx((1 + 1 / np.log2(3)) / ideal)
    assert plain["background spread"] == pytest.approx((1 + 3 + 2) / 3)
    lines = "".join(f"p_background Q0 {name} {rank} {9 - rank} x\n" for rank, name in enumerate("acdbe"))
    (tmp_path / "mixed.trec").write_text(lines)
    evaluate(["--protocol=diversity", "--qrels=pairs.tsv", "--run=mixed.trec", "--output=report.json"])
    assert capsys.readouterr().out
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["rows"][0]["figures"]["alpha-nDCG@10"]["all"] == 1

"""Joint grades: the input worked by hand, and searches whose best papers they grade again."""

import shutil

import numpy as np
import pytest

from qbe.models.cards import JOINT_GRADER, JOINT_GRADES, Estimates, read_card
from qbe.models.encoding import PaperTokenizer
from qbe.models.folders import resolve_encoder
from qbe.query import HIGHEST, Query, TopicAspect, Variety
from qbe.search import rerankers as joint
from qbe.search.grading import Regrader
from qbe.search.request import SearchRequest
from qbe.search.rerankers import JointGrader, paper_ids
from qbe.search.session import SearchSession
from qbe.search.stages import CrossEncoder, Fused, Grades
from qbe.types import Facet, Paper, Sentence
from qbe.util.work import Workers

pytestmark = pytest.mark.slow

BACKGROUND, METHOD, RESULT = Facet
SHAPE = {BACKGROUND: -1, METHOD: 1}


class Fixed:
    """Grades by the number in a paper's id, and remembers what it graded."""

    card = read_card(JOINT_GRADES, JOINT_GRADER)

    def __init__(self):
        self.graded = []

    def grade(self, _, candidates, progress=None):
        self.graded += [each.paper_id for each in candidates]
        return np.array([[float(each.paper_id)] * 3 for each in candidates])


def test_what_is_read_of_a_paper():
    tokenizer = PaperTokenizer(resolve_encoder().tokenizer)
    fish, swim = tokenizer.ids("fish")[0], tokenizer.ids("swim")[0]
    short = Paper("1", "fish swim", (Sentence("swim"), Sentence("fish fish")))
    assert paper_ids(tokenizer, short) == [fish, swim, swim, fish, fish]
    long = Paper("1", "fish " * 200, (Sentence("swim " * 60),) * 9)
    assert paper_ids(tokenizer, long) == [fish] * 96 + [swim] * 112
    assert paper_ids(tokenizer, Paper("1", "", ())) == []


def test_the_best_are_graded_again():
    """By hand: the mean of both grades, and of its chance the card's line."""
    candidates, paper = [Paper(number, "", ()) for number in "01230"], Paper("q", "", ())
    before = Estimates(np.full((5, 3), 2.0), np.full((5, 3), 0.25), np.full((5, 3), 0.5))
    grader = Fixed()
    after = Regrader(grader, 2).regraded(paper, candidates, before, np.array([0.5, 2.0, 0.0, 2.0, 2.0]))
    assert grader.graded == ["1", "3"]  # of equal ones the first
    np.testing.assert_array_equal(after.grades, [[2.0] * 3, [1.5] * 3, [2.0] * 3, [2.5] * 3, [2.0] * 3])
    (intercept, slope), *_ = grader.card.chances
    np.testing.assert_allclose(after.similar[3, 0], 1 / (1 + np.exp(-intercept - slope * 2.5)), atol=1e-6)
    np.testing.assert_allclose(after.similar[[1, 3]] + after.other[[1, 3]], 1, atol=1.1e-6)
    np.testing.assert_array_equal(after.similar[[0, 2, 4]], before.similar[[0, 2, 4]])
    assert before.grades.max() == 2.0


def test_pairs_are_graded_alone_as_together_and_once(graded, monkeypatch):
    paper, candidates = graded.paper("s036"), [graded.paper(f"s{number:03}") for number in range(1, 7)]
    alone = np.vstack([JointGrader().grade(paper, [each]) for each in candidates])
    pairs = []
    monkeypatch.setattr(joint, "KEPT", 6)
    pair = joint.pair_input
    monkeypatch.setattr(joint, "pair_input", lambda *given: pairs.append(given) or pair(*given))
    with Workers(2) as workers:
        np.testing.assert_array_equal(JointGrader(workers=workers).grade(paper, candidates), alone)
    grader = JointGrader()
    pairs.clear()
    np.testing.assert_array_equal(grader.grade(paper, [*candidates, candidates[0]]), alone[[*range(6), 0]])
    np.testing.assert_array_equal(grader.grade(paper, candidates[::-1]), alone[::-1])
    assert len(pairs) == 6
    grader.grade(candidates[0], [paper])  # another pair, in place of the one that was asked for first
    grader.grade(paper, candidates[:5])
    assert len(pairs) == 7
    grader.grade(paper, candidates[5:])
    assert len(pairs) == 8
    assert grader.grade(paper, []).shape == (0, 3)


def test_a_cross_encoder_that_is_not_named_ranks_by_the_grade_in_the_facet(graded, tmp_path):
    own = shutil.copytree(JOINT_GRADES, tmp_path / "own")
    paper, pool = graded.paper("s036"), ["s051", "s031", "s100"]
    grades = JointGrader().grade(paper, [graded.paper(name) for name in pool])
    for place, facet in ((0, BACKGROUND), (1, METHOD)):
        order = [pool[row] for row in np.argsort(-grades[:, place])]
        for model in (None, "joint-grades", str(own)):
            stage = CrossEncoder(model, weight=1, background_penalty=0)
            with SearchSession(graded, Fused() >> stage) as session:
                found = session.search(SearchRequest(Query(paper, facet), 3, pool)).hits
            assert [hit.paper_id for hit in found] == order


def test_papers_that_are_alike_are_told(graded):
    """Itself, the same method (self-supervision), the same problem (citations), and neither."""
    papers = [graded.paper(name) for name in ("s036", "s051", "s031", "s100")]
    same, method, problem, neither = JointGrader().grade(papers[0], papers)
    assert (same > 2.5).all()
    assert method[1] > method[0] > neither[0] + 0.5
    assert problem[0] > problem[1] + 1
    assert (neither < 0.1).all()


@pytest.mark.parametrize("mix", [{}, {"competitors": 2, "same-method-other-problem": 1}])
def test_a_search_ranks_by_the_mean_of_both_grades(graded, mix):
    paper, variety = graded.paper("s036"), Variety(mix)
    queries = [Query(paper, METHOD), Query.by_facets(paper, SHAPE)]
    if mix:
        queries = [Query.by_facets(paper, variety.weights)]
    found = {}
    for count in (None, 3):
        with SearchSession(graded, Fused() >> Grades(joint=count)) as session:
            requests = [SearchRequest(query, 60, grades=True, variety=variety) for query in queries]
            found[count] = [session.search(request).hits for request in requests]
    grader = JointGrader()
    for plain, again in zip(found[None], found[3], strict=True):
        before, after = ({hit.paper_id: hit.grades for hit in hits} for hits in (plain, again))
        changed = [name for name, grades in after.items() if name in before and grades != before[name]]
        assert 1 <= len(changed) <= 3
        for name in changed:
            (joined,) = grader.grade(paper, [graded.paper(name)])
            for place, facet in enumerate(Facet):
                plain_grade = before[name][facet.value]
                mean = min(max((plain_grade + joined[place]) / 2, 0), HIGHEST)
                if 0 < plain_grade < HIGHEST:  # a grade beyond the scale is shown at its end
                    assert after[name][facet.value] == pytest.approx(mean, abs=1e-4), (name, facet)


def test_what_is_shown_and_bounded_are_the_grades_that_ranked(graded):
    """Of a hundred hits ten are reranked, and three of these graded again."""
    query, found = Query(graded.paper("s036"), METHOD), {}
    for count in (None, 3):
        with SearchSession(graded, Fused() >> Grades(depth=10, joint=count)) as session:
            found[count] = {
                hit.paper_id: hit for hit in session.search(SearchRequest(query, 100, grades=True)).hits
            }
            variety = Variety(bounds={BACKGROUND: (0.3, 3.0)})
            bounded = session.search(SearchRequest(query, 100, variety=variety)).hits
        admitted = {name for name, hit in found[count].items() if hit.grades["background"] >= 0.3}
        assert {hit.paper_id for hit in bounded} == admitted
        assert all(hit.grades == found[count][hit.paper_id].grades for hit in bounded)
    changed = [name for name, hit in found[3].items() if hit.grades != found[None][name].grades]
    assert len(changed) == 3
    assert set(changed) <= set(list(found[3])[:10])


def test_the_first_ranking_of_an_exploration_waits_for_no_cross_encoder(graded, monkeypatch):
    request = SearchRequest(Query.by_facets(graded.paper("s036"), SHAPE), 5, grades=True)
    found = []
    for count in (None, 3):
        with SearchSession(graded, Fused() >> Grades(joint=count)) as session:
            found.append(list(session.run(request)))
            aspects = [TopicAspect("s036", facet) for facet in SHAPE]
            done: list[int] = []
            session.batch([request], done.append)
            assert sum(done) == session.rerank_pairs(aspects, 20) == 20 + (count or 0)
    plain, twice = found
    assert [each.stage for each in plain] == ["first-stage"]
    assert [each.stage for each in twice] == ["first-stage", "reranked"]
    assert [each.is_final for each in twice] == [False, True]
    assert plain[0].hits == twice[0].hits
    assert {hit.paper_id for hit in plain[0].hits} & {hit.paper_id for hit in twice[1].hits}
    monkeypatch.setattr(JointGrader, "grade", lambda *_: pytest.fail("graded"))
    with SearchSession(graded, Fused() >> Grades(joint=3)) as session:
        assert session.search(request, rerank=False).hits == plain[0].hits

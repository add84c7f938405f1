"""Searches from several papers: like these, not like those, like what a bibliography names."""

import json
from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest
from support.messages import refusals
from support.searching import ids

from qbe import CrossEncoder, Dense, Facet, Paper, Pipeline, Sentence
from qbe.cli.search import main
from qbe.query import COMPETITORS, SAME_METHOD_OTHER_PROBLEM, SHAPES, Aspect, Query, format_weight
from qbe.search.first_stages import z_normalize
from qbe.search.queries import query_by
from qbe.search.rank import combine_aspects, sum_of_papers

BACKGROUND, METHOD, RESULT = Facet


@pytest.fixture(scope="module")
def dense(index) -> Iterator[Pipeline]:
    with Pipeline(index, Dense()) as pipeline:
        yield pipeline


def seed(name: str) -> Paper:
    return Paper(name, "", tuple(Sentence(f"A {facet}.", facet) for facet in Facet), labelled=True)


def columns(*rows: tuple[float, ...]) -> list[np.ndarray]:
    return [np.array(row, dtype=np.float64) for row in rows]


def test_of_more_than_two_papers_the_best_two_of_each_candidate_count_as_much_as_all():
    aspects = [Aspect(seed("a"), weight=2.0), Aspect(seed("b"))]
    scores = columns((1, -3, 0), (5, 1, -2))
    assert sum_of_papers(scores[:1], aspects[:1]).tolist() == [2, -6, 0]
    assert sum_of_papers(scores, aspects).tolist() == [2 + 5, -6 + 1, -2]
    three = [Aspect(seed(name)) for name in "abc"]
    assert sum_of_papers(columns((1, 9), (3, -9), (5, 1)), three).tolist() == [3 / 2 * 8, 3 / 2 * 10]
    assert sum_of_papers(columns((1,), (3,), (5,), (4,)), [*three, Aspect(seed("d"))]).tolist() == [4 / 2 * 9]
    seven = [Aspect(seed(name)) for name in "abcdefg"]
    assert sum_of_papers(columns(*((float(place),) for place in range(7))), seven).tolist() == [7 / 3 * 15]
    # Papers a, b and c come to 1 - 4, 2 and 3; a is liked, though its sum is below 0.
    aspects = [
        *(Aspect(seed("a"), BACKGROUND), Aspect(seed("a"), METHOD, weight=-2.0), Aspect(seed("b"), METHOD)),
        Aspect(seed("c"), METHOD),
    ]
    assert sum_of_papers(columns((1,), (2,), (2,), (3,)), aspects).tolist() == [3 / 2 * 5]


def test_the_order_of_a_pool_is_that_of_the_whole_index(dense, index):
    """Scores are normalized over all that the aspects bring: here, the whole sample."""
    query = Query.of(*(Aspect(index.paper(name)) for name in ("s001", "s036", "s099")))
    whole = ids(dense.search(query, k=200))
    for pool in (whole[3::40], whole[60:63], whole[-9:], whole[20:90]):
        assert ids(dense.search(query, k=90, pool=sorted(pool))) == pool


def test_every_disliked_paper_counts_and_z_scores_are_divided_by_the_weights():
    aspects = [Aspect(seed(name)) for name in "abc"] + [Aspect(seed(name), weight=-0.5) for name in "de"]
    scores = columns((1,), (2,), (3,), (4,), (6,))
    assert sum_of_papers(scores, aspects).tolist() == [3 / 2 * 5 - 0.5 * 4 - 0.5 * 6]
    # As where of an abstract less a facet only the facet is reranked.
    aspects = [Aspect(seed("a"), METHOD, weight=-0.5), Aspect(seed("b"), METHOD, weight=-1.0)]
    assert sum_of_papers(columns((2, 4), (1, 0)), aspects).tolist() == [-2, -2]
    aspects = [*(Aspect(seed(name)) for name in "abc"), Aspect(seed("d"), weight=-1.5)]
    scores = columns((3, 1), (1, 3), (9, 1), (5, 7))  # z-normalized: 1, -1; -1, 1; 1, -1; -1, 1
    assert combine_aspects(scores, aspects).tolist() == [(3 + 1.5) / 4.5, (0 - 1.5) / 4.5]


def test_one_paper_makes_a_query_of_one_aspect_but_for_papers_not_wanted():
    assert query_by([seed("a")], [], None).query_id == "a"
    assert query_by([seed("a")], [], METHOD).query_id == "a_method"
    assert query_by([seed("a")], [], (0, 2)).query_id == "a_sentences-0-2"
    assert query_by([seed("a")], [], {METHOD: 2.0}).is_single
    one = query_by([seed("a")], [seed("x")], SHAPES[SAME_METHOD_OTHER_PROBLEM])
    disliked = format_weight(SHAPES[SAME_METHOD_OTHER_PROBLEM][BACKGROUND])
    assert one.query_id == f"1*a_method&{disliked}*a_background&-0.5*x_method"
    assert query_by([seed("a")], [seed("x")], None).query_id == "1*a_abstract&-0.5*x_abstract"


def test_several_papers_each_have_the_aspects():
    for what, query_id in (
        (None, "1*a_abstract&1*b_abstract"),
        (RESULT, "1*a_result&1*b_result"),
        (SHAPES[COMPETITORS], "1*a_background&1*a_method&1*b_background&1*b_method"),
        ({METHOD: 2.0, RESULT: -0.5}, "2*a_method&-0.5*a_result&2*b_method&-0.5*b_result"),
    ):
        assert query_by([seed("a"), seed("b")], [], what).query_id == query_id


@pytest.mark.parametrize(
    "names", [("s036", "s051"), ("s036", "s051", "s059"), ("s001", "s002", "s003", "s004")]
)
def test_z_scores_of_several_papers_are_joined(dense, index, names):
    hits = dense.search(query_by([index.paper(name) for name in names], [], METHOD), 128)
    pool = sorted({paper.paper_id for paper in index} - set(names))
    assert sorted(hit.paper_id for hit in hits) == pool
    by_paper = []
    for name in names:
        of_one = dense.search(Query(index.paper(name), METHOD), 128, pool)
        scores = {hit.paper_id: hit.score for hit in of_one}
        by_paper.append(z_normalize(np.array([scores[paper_id] for paper_id in pool])))
    best = np.sort(by_paper, axis=0)[-2:].sum(axis=0) / 2
    expected = dict(zip(pool, best.tolist(), strict=True))
    for hit in hits:
        assert hit.score == pytest.approx(expected[hit.paper_id], abs=1e-6)


def test_an_abstract_less_a_facet_of_another_paper_is_reranked(graded):
    """Only the facet is reranked, which counts against a paper."""
    with Pipeline(graded, Dense(), CrossEncoder(depth=4, background_penalty=0)) as pipeline:
        query = Query.of(Aspect(graded.paper("s036")), Aspect(graded.paper("s051"), METHOD, weight=-0.5))
        hits = pipeline.search(query, 6, explain=True)
    assert ["reranker" in hit.component_scores for hit in hits] == [True] * 4 + [False] * 2
    # Of four standardized scores none is farther from 0 than the root of 3.
    assert all(abs(hit.component_scores["reranker"]) <= 3**0.5 + 1e-6 for hit in hits[:4])


def test_grades_of_several_papers(graded):
    """Each hit has the best grade by any of the papers wanted; the score is the mean of their chances, times
    that of being unlike the other paper.
    """
    with Pipeline(graded, Dense()) as pipeline:
        papers = [graded.paper(name) for name in ("s036", "s051")]
        weights = SHAPES[SAME_METHOD_OTHER_PROBLEM]
        hits = pipeline.search(query_by(papers, [graded.paper("s059")], weights), 128, explain=True)
        single = [
            {hit.paper_id: hit for hit in pipeline.search(Query.by_facets(paper, weights), 128, explain=True)}
            for paper in (*papers, graded.paper("s059"))
        ]
    assert len(hits) == 125
    wanted = [f"{facet} of {name}" for name in ("s036", "s051") for facet in ("method", "background")]
    for hit in hits:
        first, second, unlike = (hits_of_one[hit.paper_id] for hits_of_one in single)
        assert hit.grades == {name: max(first.grades[name], second.grades[name]) for name in first.grades}
        score = (first.score + second.score) / 2 * hit.component_scores["method of s059"] ** 0.5
        assert hit.score == pytest.approx(score, abs=1e-5)
        assert hit.component_scores["method of s059"] <= 1 - unlike.component_scores["method"] + 0.05
        assert list(hit.component_scores) == [*wanted, "method of s059"]


ARGUMENTS = ("--first-stage", "dense", "--rerank", "none", "--hits", 5)


def found(run: str) -> list[str]:
    return [line.split()[2] for line in run.splitlines()]


def test_papers_are_named_once(search, dense, index):
    expected = dense.search(query_by([index.paper(name) for name in ("s036", "s051")], [], None), 5)
    for arguments in (("s036", "s051"), ("s036", "--paper", "s051"), ("s036", "s051", "s036")):
        assert found(search("--paper", *arguments, *ARGUMENTS)) == ids(expected)


def test_papers_not_wanted_are_named(search, dense, index):
    line = "--paper s036 --not-paper s059 s031 s059 --facet background"
    run = search(*line.split(), *ARGUMENTS)
    query = query_by([index.paper("s036")], [index.paper(name) for name in ("s059", "s031")], BACKGROUND)
    assert query.query_id == "1*s036_background&-0.25*s059_background&-0.25*s031_background"
    assert found(run) == ids(dense.search(query, 5))
    assert run.split()[0] == query.query_id


def test_papers_of_a_bibliography(tiny_index, dense, index, tmp_path, capsys):
    path = tmp_path / "refs.bib"
    titles = [index.paper(name).title for name in ("s036", "s051")]
    entries = {"s036": titles[0], "b": titles[1], "c": "Unknown", "s059": "Another"}
    path.write_text("".join(f"@misc{{{key}, title = {{{name}}}}}\n" for key, name in entries.items()))
    main(["--index", str(tiny_index), "--cited", str(path), *map(str, ARGUMENTS), "--format", "json"])
    printed = capsys.readouterr()
    record = json.loads(printed.out)
    assert [aspect["paper_id"] for aspect in record["aspects"]] == ["s036", "s051"]
    expected = dense.search(query_by([index.paper(name) for name in ("s036", "s051")], [], None), 5)
    assert [hit["paper_id"] for hit in record["hits"]] == ids(expected)
    first = printed.err.splitlines()[0]
    assert first == f"qbe search: {path}: 2 of 4 entries are not in the index and are left out (c, s059)"


def test_what_is_refused(search, tmp_path, monkeypatch, told):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "none.txt").write_text("nosuch\n")
    (tmp_path / "one.txt").write_text("s036\n")
    wrong = (
        *("--paper s036 nosuch", "--paper s036 --not-paper nosuch", "--paper s036 --not-paper s036"),
        *("--cited none.txt", "--paper s036 s051 --sentences 0", "--cited one.txt --sentences 0"),
        "--topics t.tsv --not-paper s036",
    )
    told("several papers", refusals(partial(search, *ARGUMENTS), wrong))

"""Reranking: how scores are mixed, what is reranked, what is explained, and the command's options."""

import json
import math
import sys

import numpy as np
import pytest
from support.papers import Papers
from support.rerankers import ByHand
from support.searching import PLAIN, ids, reranked

from qbe import BM25, BuildSettings, Facet, Hit, Match, ModelError, Paper, Pipeline, Query, Sentence
from qbe.cli.search import main
from qbe.index.build import build
from qbe.search.present import to_table
from qbe.search.rank import RerankScore
from qbe.search.writers import Result, to_record

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def searcher(index) -> Pipeline:
    return Pipeline(index, PLAIN)


@pytest.fixture(scope="module")
def query(index) -> Query:
    return Query(index.paper("s024"), Facet.METHOD)


@pytest.fixture(scope="module")
def first(searcher, query) -> list[Hit]:
    return searcher.search(query, 1000, matches=False)


def upside_down(first: list[Hit]) -> ByHand:
    return ByHand({hit.paper_id: float(rank) for rank, hit in enumerate(first)})


def test_the_first_stage_alone_the_reranker_alone_and_mixed_scores_by_hand(searcher, index, query, first):
    assert ids(reranked(index, upside_down(first), depth=20, weight=0).search(query, 1000)) == ids(first)
    alone = reranked(index, upside_down(first), depth=20, weight=1)
    assert ids(alone.search(query, 1000)) == [*ids(first)[:20][::-1], *ids(first)[20:]]
    half = reranked(index, upside_down(first), depth=2, weight=0.5)
    assert [hit.score for hit in half.search(query, 2)] == [0.0, 0.0]
    assert ids(half.search(query, 2)) == sorted(ids(first)[:2])  # ties by id
    found = reranked(index, upside_down(first), depth=4, weight=0.75).search(query, 9)
    scores = np.array([hit.score for hit in first[:4]])
    z = (scores - scores.mean()) / scores.std()
    ranks = (np.arange(4) - 1.5) / math.sqrt(1.25)
    mixed = dict(zip(ids(first), 0.25 * z + 0.75 * ranks, strict=False))
    assert ids(found[:4]) == sorted(mixed, key=lambda paper_id: -mixed[paper_id])
    assert [hit.score for hit in found[:4]] == pytest.approx(sorted(mixed.values(), reverse=True))
    # The rest lies 1 below, at the distances that the first stage gave it.
    assert ids(found[4:]) == ids(first[4:9])
    lowest = found[3].score - 1
    rest = [lowest + hit.score - first[4].score for hit in first[4:9]]
    assert found[4].score == lowest
    assert [hit.score for hit in found[4:]] == pytest.approx(rest)


@pytest.mark.parametrize("score", [math.nan, math.inf])
def test_scores_that_are_no_numbers_are_refused(searcher, index, query, first, score):
    reranker = ByHand({hit.paper_id: score if rank == 7 else 0.0 for rank, hit in enumerate(first)})
    message = f"expected finite scores of the reranker by-hand, found {score} for paper {first[7].paper_id};"
    assert reranked(index, reranker, depth=7).search(query)
    with pytest.raises(ModelError, match=message):
        reranked(index, reranker, depth=8).search(query)


def test_a_reranked_hit_tells_of_both_stages(searcher, index, query, first):
    reranking = reranked(index, upside_down(first), depth=3, weight=1)
    stage = searcher.search(query, 5, matches=False, explain=True)
    found = reranking.search(query, 5, explain=True)
    for hit, rank in zip(found, (2, 1, 0, 3, 4), strict=True):
        expected = {**stage[rank].component_scores, "first_stage": first[rank].score}
        last = len(index.paper(hit.paper_id).sentences) - 1
        if rank < 3:
            both = {**expected, "reranker": rank}
            assert (hit.component_scores, hit.driven_by) == (both, Match(0, last, rank))
        else:
            assert (hit.component_scores, hit.driven_by) == (expected, None)
    plain = reranking.search(query, 5)
    assert plain == [hit._replace(component_scores=None) for hit in found]
    assert reranking.search(query, 5, matches=False) == [hit._replace(matches=()) for hit in plain]


ASKING = (Sentence("We ask.", Facet.METHOD), Sentence("We know.", Facet.RESULT))
ASKED = Paper("asked", "A question", ASKING, True)
ANSWERING = (Sentence("They tell.", Facet.METHOD), Sentence("They do."))
ANSWER = Paper("answer", "An answer", ANSWERING, True, {"year": "1999"})
BELOW = Paper("below", "Below", (Sentence("Nothing."),), True)
SCORES = {"bm25": 12.5, "whole": 0.125, "first_stage": 0.75, "reranker": -2.0}
SCORES_BELOW = {"bm25": 3.0, "whole": 0.0, "first_stage": -1.25}
HITS = [
    Hit("answer", 1.5, (Match(0, 1, 0.5),), SCORES, Match(0, 0, 0.25)),
    Hit("below", -3.0, (Match(0, 0, 0.125),), SCORES_BELOW),
]


def test_the_table_explains_reranking_and_shows_what_drove_it():
    table = to_table(Papers(ANSWER, BELOW).paper, Query(ASKED, Facet.METHOD), HITS, 100, explain=True)
    assert table.splitlines() == [
        "Papers like “A question”, for its method:",
        "",
        "  *0          method given: We ask.",
        "   1          result given: We know.",
        "Searched with the sentences marked *; ~3 below is the match of sentence 3, with its similarity. >3",
        "is the pair of sentences that contributed most to the reranker's score.",
        "",
        "   1   1.5000 An answer (1999)  [answer]",
        "              bm25 12.5000, whole 0.1250, first stage 0.7500, reranker -2.0000",
        "  >0   0.2500 method given: They tell.",
        "  ~0   0.5000 other given: They do.",
        "",
        "   2  -3.0000 Below  [below]",
        "              bm25 3.0000, whole 0.0000, first stage -1.2500, not reranked",
        "  ~0   0.1250 other given: Nothing.",
    ]
    table = to_table(Papers(ANSWER, BELOW).paper, Query(ASKED, Facet.METHOD), HITS, 100)
    assert table.splitlines()[2:] == [
        "   1   1.5000 An answer (1999)  [answer]",
        "              method: They tell.",
        "",
        "   2  -3.0000 Below  [below]",
        "              (labelled other) Nothing.",
    ]


def test_json_explains_reranking():
    arguments = (Papers(ANSWER, BELOW).paper, Result("q", Query(ASKED, Facet.METHOD), HITS))
    one, two = to_record(*arguments, explain=True)["hits"]
    assert one["component_scores"] == SCORES
    pair = {"query_position": 0, "query_sentence": "We ask.", "position": 0, "sentence": "They tell."}
    pair |= {"offsets": None, "facet": "method", "score": 0.25, "probability": None}
    assert one["driven_by"] == pair
    assert one["plan"] == two["plan"] == []
    assert (two["component_scores"], two["driven_by"]) == (SCORES_BELOW, None)
    for hit in to_record(*arguments)["hits"]:
        about = {"title", "year", "authors", "venue", "links", "abstract"}
        assert set(hit) == {"rank", "paper_id", "score", "matches", *about}


def test_a_function_reranks(index, query, first):
    asked = []

    def by_length(aspect, papers):
        asked.append((aspect.paper.paper_id, aspect.facet, len(papers)))
        return [len(paper.abstract) for paper in papers]

    with reranked(index, by_length, depth=9, weight=1) as pipeline:
        lengths = [len(index.paper(hit.paper_id).abstract) for hit in pipeline.search(query, 9)]
        assert asked == [("s024", Facet.METHOD, 9)]
        assert lengths == sorted(lengths, reverse=True)
        assert pipeline.search(Query(index.paper("s024")), 9)  # it takes whole abstracts
    for wrong in ([1.0], dict.fromkeys(range(100), 1.0), "1", ["a"], None):
        stage = reranked(index, lambda aspect, papers, wrong=wrong: wrong)
        with stage as pipeline, pytest.raises(ModelError, match="expected 100 scores of the reranker"):
            pipeline.search(query)
    with (
        Pipeline(index, BM25()) as plain,
        Pipeline(index, BM25(), lambda _, papers: [1] * len(papers)) as own,
    ):
        assert ids(own.search(query, 200)) == ids(plain.search(query, 200))  # without background penalty


def test_an_object_that_says_nothing_of_itself_reranks(index, query):
    class Bare:
        def batch_score(self, requests, progress=None):
            return [[RerankScore(float(len(paper.title))) for paper in papers] for _, papers in requests]

    with reranked(index, Bare(), depth=9, weight=1) as pipeline:
        for each in (query, Query(index.paper("s024"))):
            lengths = [len(index.paper(hit.paper_id).title) for hit in pipeline.search(each, 9)]
            assert lengths == sorted(lengths, reverse=True)


def test_queries_without_a_facet_follow_one_rule(tiny_index, tiny_cross_encoder, tiny_joint_grades, capsys):

    def run(*arguments: object) -> tuple[list[str], str]:
        main(["--index", str(tiny_index), "--paper", "s024", "--hits", "20", *map(str, arguments)])
        printed = capsys.readouterr()
        return [line.split()[2] for line in printed.out.splitlines()], printed.err

    plain, said = run("--rerank", "none")
    assert said == ""
    note = "qbe search: 1 of 1 queries: not reranked, since joint grades take queries with a facet\n"
    assert run("--rerank", tiny_joint_grades) == run() == (plain, note)
    assert run("--sentences", "0", "--rerank", tiny_joint_grades)[1] == note
    for aspect in ((), ("--sentences", "0,2")):
        order, said = run(*aspect, "--rerank", tiny_cross_encoder)
        assert said == ""
        assert order != run(*aspect, "--rerank", "none")[0]
    assert run("--facet", "method", "--rerank", tiny_joint_grades)[1] == ""


def test_an_index_without_vectors_is_reranked(search, sample, tiny_joint_grades, tmp_path):
    build(tmp_path / "bm25", [str(sample / "corpus.jsonl")], BuildSettings(dense=False))
    arguments = ("--paper", "s024", "--facet", "method", "--rerank", tiny_joint_grades)
    output = search(*arguments, "--explain", "--format", "json", folder=tmp_path / "bm25")
    for hit in json.loads(output)["hits"]:
        names = ["bm25", "first_stage", "reranker"]
        assert list(hit["component_scores"]) == names[: 3 if hit["rank"] <= 100 else 2]
        assert hit["matches"] == []


def test_progress_is_a_bar_or_lines(tiny_index, sample, tiny_cross_encoder, monkeypatch, capsys):
    topics = ("--topics", sample / "topics.tsv", "--pool", sample / "pools.tsv", "--facet", "method")
    arguments = [*map(str, ("--index", tiny_index, *topics, "--rerank", f"{tiny_cross_encoder}:depth=5"))]
    main(arguments)
    assert capsys.readouterr().err.count("\n") == 1  # that topics of other facets are left out
    monkeypatch.setattr("qbe.cli.common.EVERY", 0.0)
    main(arguments)
    assert capsys.readouterr().err.splitlines()[-1] == "ranking: 40 of 40 candidates"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    main(arguments)
    last = capsys.readouterr().err.splitlines()[-1].rpartition("\r")[2]
    assert last.startswith("ranking: 100%")
    assert " 40/40 " in last  # 8 queries, 5 candidates each


def test_stages_are_explained_and_a_reranker_that_is_not_there_is_told(tiny_index, tmp_path, capsys):
    with pytest.raises(ModelError, match="expected a reranker known by name"):
        main(["--index", str(tiny_index), "--paper", "s024", "--facet=method", f"--rerank={tmp_path}/nosuch"])
    for option, name in (("--first-stage", "fused: "), ("--rerank", "projections: ")):
        main([option, "help"])
        assert name in capsys.readouterr().out

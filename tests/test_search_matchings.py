"""The matchings of sentence vectors in ``qbe search``: their ranks, options and explanations."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.builds import Job, build_job
from support.papers import Papers
from support.rerankers import over_index, score

from qbe.errors import IndexFormatError
from qbe.index.building.build import build
from qbe.index.building.settings import BuildSettings
from qbe.index.index import Index
from qbe.query import Query
from qbe.search.present import to_record, to_table
from qbe.search.stages import MATCHINGS
from qbe.topics import read_pools, read_topics
from qbe.trec import read_run
from qbe.types import Facet, Hit, Match, Paper, Sentence, TransportEntry


@pytest.fixture(scope="module")
def index(tiny_index) -> Iterator[Index]:
    with Index(tiny_index) as index:
        yield index


@pytest.mark.parametrize("name", MATCHINGS)
def test_a_pool_is_ranked_by_the_matching_alone(search, index, sample, name, tmp_path):
    topics, pools = sample / "topics.tsv", sample / "pools.tsv"
    arguments = (
        "--topics",
        topics,
        "--facet",
        "method",
        "--pool",
        pools,
        "--rerank",
        f"matching:kind={name}",
    )
    search(*arguments, "--first-stage", "bm25", "--output", tmp_path / "run")
    run = read_run(tmp_path / "run")
    assert run.tag == f"qbe-bm25+{name}"
    reranker = over_index(name, index)
    for query_id, query_paper, facet, *_ in read_topics(topics):
        if facet is Facet.METHOD:
            pool = [paper_id for paper_id in read_pools(pools)[query_id] if paper_id != query_paper]
            query, papers = Query(index.paper(query_paper), facet), list(map(index.paper, pool))
            scored = score(reranker, query, papers, vectors=index.vectors)
            scores = {paper_id: pair.score for paper_id, pair in zip(pool, scored, strict=True)}
            ranked = sorted(pool, key=lambda paper_id: (-scores[paper_id], paper_id))
            assert [hit.paper_id for hit in run.rankings[query_id]] == ranked


@pytest.fixture(scope="module")
def dense(sample, tiny_encoder, tmp_path_factory) -> Path:
    """The sample, indexed without postings."""
    folder = tmp_path_factory.mktemp("indexes") / "dense"
    corpus = (str(sample / "corpus.jsonl"),)
    build_job(folder, Job(corpus=corpus, encoder=str(tiny_encoder), bm25=False))
    return folder


@pytest.mark.parametrize("aspect", [(), ("--facet", "result"), ("--sentences", "0,3")])
def test_an_index_of_vectors_alone_will_do(search, dense, aspect):
    arguments = ("--paper", "s024", *aspect, "--first-stage", "dense", "--hits", 5, "--explain")
    options = ("--rerank", "matching:depth=3,weight=0.5", "--format", "json")
    record = json.loads(search(*arguments, *options, folder=dense))
    selected = {sentence["position"] for sentence in record["sentences"] if sentence["selected"]}
    for hit in record["hits"][:3]:
        assert sum(moved["mass"] for moved in hit["plan"]) == pytest.approx(1, abs=1e-4)
        assert {moved["query_position"] for moved in hit["plan"]} == selected
        assert hit["driven_by"]["query_position"] in selected
    assert [hit["plan"] for hit in record["hits"][3:]] == [[], []]
    assert "plan" not in json.loads(search(*arguments[:-1], *options, folder=dense))["hits"][0]


def test_an_abstract_from_outside_is_matched(search):
    arguments = ("--text", "Nurses drive all day. We plan their rounds.", "--first-stage", "dense")
    explained = search(*arguments, "--rerank", "matching", "--explain", "--format", "table", "--hits", 2)
    assert explained.count(" transport ") == 2
    assert "3→0 0.20 is the mass that went from sentence 3 to the paper's sentence 0." in " ".join(
        explained.split()
    )
    assert " transport " not in search(
        *arguments, "--rerank", "matching:kind=attention", "--explain", "--format", "table"
    )


def test_temperature_and_regularization_count(search):
    arguments = ("--paper", "s024", "--first-stage", "dense", "--hits", 50)
    found = {
        search(*arguments, "--rerank", f"matching:depth=100{parameter}")
        for parameter in ("", ",temperature=0.01", ",regularization=1", ",temperature=5000")
    }
    assert len(found) == 3  # 5000 is the default for a whole abstract


ASKED = Paper("asked", "A question", (Sentence("We ask."), Sentence("We know.")))
ANSWER = Paper("answer", "An answer", (Sentence("They tell."), Sentence("They do.")))
PLAN = (TransportEntry(1, 0, 0.75), TransportEntry(0, 1, 0.2456789), TransportEntry(0, 0, 0.004))
HIT = Hit("answer", 1.5, (), {"bm25": 12.5, "first_stage": 0.75, "reranker": -2.0}, Match(1, 0, 0.25), PLAN)


def test_the_plan_is_shown():
    table = to_table(Papers(ANSWER).paper, Query(ASKED), [HIT], 100, explain=True)
    assert table.splitlines()[4:] == [
        "Searched with the sentences marked *; ~3 below is the match of sentence 3, with its similarity. >3",
        "is the pair of sentences that contributed most to the reranker's score. 3→0 0.20 is the mass that",
        "went from sentence 3 to the paper's sentence 0.",
        "",
        "   1   1.5000 An answer  [answer]",
        "              bm25 12.5000, first stage 0.7500, reranker -2.0000",
        "              transport 1→0 0.75, 0→1 0.25",
        "  >1   0.2500 no label: They tell.",
    ]
    (hit,) = to_record(Papers(ANSWER).paper, "q", Query(ASKED), [HIT], explain=True)["hits"]
    assert hit["plan"] == [
        {"query_position": 1, "position": 0, "mass": 0.75},
        {"query_position": 0, "position": 1, "mass": 0.245679},
        {"query_position": 0, "position": 0, "mass": 0.004},
    ]


def test_an_index_without_vectors_is_refused(search, sample, tmp_path):
    build(tmp_path / "bm25", [str(sample / "corpus.jsonl")], BuildSettings(dense=False))
    arguments = ("--paper", "s024", "--first-stage", "bm25", "--rerank", "matching")
    with pytest.raises(
        IndexFormatError, match=r"expected an index with vectors, .* another `first_stage` or"
    ):
        search(*arguments, folder=tmp_path / "bm25")

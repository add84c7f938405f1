"""Questions in place of papers: what they name, how they are searched, the same in all front ends."""

import json

import pytest
from starlette.testclient import TestClient
from support.searching import ids

from qbe import SHAPES, Facet, Pipeline, Query, UsageError, default_stages, paper_from_question
from qbe.cli.search import main as search_main
from qbe.search.paper_file import pasted_paper
from qbe.search.queries import ASKED, Question, query_by, question_of
from qbe.serve.app import create_app
from qbe.serve.mcp import Search, search_papers

TOLD = """\
graph neural networks for traffic forecasting | graph neural networks | traffic forecasting
Traffic forecasting using graph networks | graph networks | Traffic forecasting
image captioning with attention | attention | image captioning
vehicle tracking via Kalman filters | Kalman filters | vehicle tracking
who else uses optimal transport for alignment? | optimal transport | alignment
Has anyone applied active learning to named entity recognition? | active learning | named entity recognition
how do session types help to verify concurrent programs? | session types | verify concurrent programs
papers on image captioning with attention | attention | image captioning
which results are known on data augmentation for speech? | data augmentation | speech
find me work that uses Bloom filters | Bloom filters |
what are graph convolutional networks used for? | graph convolutional networks |
applications of Gaussian processes | Gaussian processes |
variational autoencoders | variational autoencoders |
approaches to the travelling salesman problem | | travelling salesman problem
how can fake news be detected? | | fake news be detected
how do people count frogs? | | count frogs
malware detection on Android | | malware detection on Android
speech recognition for low-resource languages | | speech recognition for low-resource languages
mechanisms for differential privacy | | differential privacy
"""  # the last but one has no technique; of mechanisms in general nothing is searched for


@pytest.mark.parametrize("line", TOLD.splitlines())
def test_technique_and_problem_are_told_by_form_and_words(line):
    text, method, problem = (part.strip() for part in line.split("|"))
    assert question_of(text) == Question(method, problem)


def test_words_that_lean_to_neither_are_a_topic():
    assert question_of("what is known about crowdsourcing?") == Question(topic="crowdsourcing")


@pytest.mark.parametrize(
    "text",
    [
        *("We plan rounds as shortest paths.", "we plan rounds as shortest paths"),
        *("This paper is about graph kernels for molecules", "Planning rounds takes hours.", "word " * 21),
        "",
    ],
)
def test_statements_are_no_questions(text):
    assert question_of(text) is None


UNANSWERED = "no paper is likely to be what you ask for; these are the nearest"
ASKING = "who else uses transformers for labelling sentences?"


def test_front_ends_rank_alike_and_say_what_was_searched_for(service, search, graded_index, tmp_path):
    with Pipeline(service.index, default_stages(service.index)) as pipeline:
        hits = pipeline.search(Query(paper_from_question(ASKING)), k=5)
    expected = ids(hits)
    assert len(expected) == 5
    said = "the method “transformers” and the problem “labelling sentences”"

    record = json.loads(search("--text", ASKING, "--format", "json", "--hits", 5, folder=graded_index))
    assert [hit["paper_id"] for hit in record["hits"]] == expected
    asked = {"text": ASKING, "method": "transformers", "problem": "labelling sentences", "topic": ""}
    assert record[ASKED] == asked
    table = search("--text", ASKING, "--format", "table", folder=graded_index)
    assert said in " ".join(table.split("\n\n")[0].split())

    (tmp_path / "topics.tsv").write_text(f"query_id\ttext\nq1\t{ASKING}\n")
    (tmp_path / "asked.txt").write_text(ASKING)
    for source in (("--topics", tmp_path / "topics.tsv"), ("--paper-file", tmp_path / "asked.txt")):
        record = json.loads(search(*source, "--format", "json", "--hits", 5, folder=graded_index))
        assert [hit["paper_id"] for hit in record["hits"]] == expected

    client = TestClient(create_app(service), base_url="http://127.0.0.1")
    answer = client.post("/api/search", json={"text": ASKING, "k": 5}).json()
    assert [hit["paper_id"] for hit in answer["hits"]] == expected
    assert said in answer["query"]["heading"]
    assert answer["notes"] == [UNANSWERED]
    found = search_papers(service, Search(text=ASKING, k=5))
    assert ids(found.hits) == expected
    assert said in found.query.heading


def test_a_question_that_is_not_reranked_is_told_only_where_a_reranker_was_asked_for(graded_index, capsys):
    line = ["--index", str(graded_index), "--text", ASKING, "--hits", "1"]
    search_main(line)
    assert "not reranked" not in capsys.readouterr().err
    search_main([*line, "--rerank", "projections"])
    assert "1 of 1 queries: not reranked, since projections" in capsys.readouterr().err


def test_a_question_that_no_paper_answers_is_told_so(graded_index, capsys):
    line = ["--index", str(graded_index), "--format", "table", "--text"]
    search_main([*line, ASKING])
    assert UNANSWERED in capsys.readouterr().err
    search_main([*line, "self-supervised vectors for suggesting citations"])  # as one does
    assert not capsys.readouterr().err


def test_facets_of_a_question_are_what_it_names():
    paper = pasted_paper("graph kernels for molecules", "")
    by_method = query_by([paper], [], Facet.METHOD)
    assert [*by_method.papers[0].texts(by_method.aspects[0].selected_positions())] == ["graph kernels"]
    shape = query_by([paper], [], SHAPES["same-problem-other-method"])
    assert [(str(each.facet), each.selected_positions()) for each in shape.aspects] == [
        ("background", (1,)),
        ("method", (0,)),
    ]
    # A facet that it does not name, and picked sentences, are those of the text as it is.
    for what in (Facet.RESULT, (0,)):
        assert query_by([paper], [], what).papers == (paper,)


def test_what_has_a_title_or_several_sentences_is_a_paper():
    for paper in (pasted_paper("graph kernels", "On molecules"), pasted_paper("Kernels? They help", "")):
        assert query_by([paper], [], None).papers == (paper,)
    with pytest.raises(UsageError, match="paper_from_text"):
        paper_from_question("We cut stone.")

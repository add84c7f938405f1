"""Topics: which are searched by what, under which ids; papers from outside; what is left out is said."""

import json
from functools import partial

import pytest
from support.messages import messages_of

from qbe import BuildSettings, FileFormatError, PaperNotFoundError, Topic, UsageError, build_index
from qbe.cli.search import main
from qbe.runs import read_topics, write_topics

ABSTRACT = "Home nurses drive a lot. We plan rounds as shortest paths. They drive a fifth less."


@pytest.fixture
def search(tiny_index, tmp_path, capsys):
    """Search topics of a text in this process; gives the ranked papers by query, and what is said."""

    def run(text: str, *arguments: str) -> tuple[dict[str, list[str]], list[str]]:
        (tmp_path / "topics.tsv").write_text(text.replace(" | ", "\t"))
        options = ("--rerank", "none", "--first-stage", "dense", "--hits", "3")
        main(["--index", str(tiny_index), "--topics", str(tmp_path / "topics.tsv"), *options, *arguments])
        printed = capsys.readouterr()
        rankings: dict[str, list[str]] = {}
        for line in printed.out.splitlines():
            rankings.setdefault(line.split()[0], []).append(line.split()[2])
        return rankings, [line.removeprefix(f"qbe search: {tmp_path}/") for line in printed.err.splitlines()]

    return run


def test_topics_without_a_facet_are_searched_by_the_one_given(search):
    by_method, said = search("query_id | paper_id\nq1 | s036\nq2 | s051\n", "--facet", "method")
    stated, _ = search("query_id | paper_id | facet\nq1 | s036 | method\nq2 | s051 | method\n")
    whole, _ = search("query_id | paper_id\nq1 | s036\nq2 | s051\n")
    assert by_method == stated
    assert list(by_method) == ["q1", "q2"]
    assert by_method != whole
    assert said == []


def test_topics_of_another_facet_are_left_out_and_told(search):
    text = "query_id | paper_id | facet | aspects\na | s036 | method\nb | s036\nc | s036 | result\n"
    text += "d | s036\t\tmethod result\n"
    rankings, said = search(text, "--facet", "method")
    assert list(rankings) == ["a", "b"]
    assert rankings["a"] == rankings["b"]
    assert said == ["topics.tsv: 2 of 4 topics state another facet, or aspects, and are left out (c, d)"]
    rankings, said = search(text, "--like", "background", "method")
    assert list(rankings) == ["a", "b", "c"]
    assert said == ["topics.tsv: 1 of 4 topics state another facet, or aspects, and are left out (d)"]
    with pytest.raises(UsageError, match="1 of 1 topics state another facet"):
        search("query_id | paper_id | facet\nq | s036 | result\n", "--facet", "method")


def test_topics_whose_labels_lack_the_facet_are_left_out_and_told(
    tmp_path, capsys, tiny_encoder, tiny_tagger
):
    records = [
        {"paper_id": name, "title": name, "abstract": ["Fish swim.", f"We {name}."], "pred_labels": labels}
        for name, labels in {
            "one": ["background", "method"],
            "two": ["background", "background"],
            "three": ["result", "method"],
        }.items()
    ]
    corpus, topics = tmp_path / "papers.jsonl", tmp_path / "topics.tsv"
    corpus.write_text("\n".join(map(json.dumps, records)))
    settings = BuildSettings(encoder=str(tiny_encoder), tagger=str(tiny_tagger))
    build_index(tmp_path / "index", str(corpus), settings).close()
    topics.write_text("query_id\tpaper_id\nq1\tone\nq2\ttwo\nq3\tthree\n")
    line = f"--index {tmp_path}/index --topics {topics} --rerank none --first-stage=dense".split()
    every = {"q1", "q2", "q3"}
    for options, left in ((["--facet=method"], "q2"), (["--like=background", "--unlike=method"], "q2, q3")):
        main([*line, *options])
        printed = capsys.readouterr()
        assert {line.split()[0] for line in printed.out.splitlines()} == every - set(left.split(", "))
        assert f"lack the facet, which --facets predicted would give ({left})" in printed.err
    main([*line, "--facet", "method", "--facets", "predicted"])
    printed = capsys.readouterr()
    assert {line.split()[0] for line in printed.out.splitlines()} == every
    assert printed.err == ""


def test_topics_from_outside_bring_their_text(search, tiny_index, capsys):
    text = f"text | query_id | facet | title\n{ABSTRACT} | q1 | method | Routing nurses\n{ABSTRACT} | q2\n"
    rankings, said = search(text)
    outside = ["--text", ABSTRACT, "--index", f"{tiny_index}"]
    outside += ["--rerank=none", "--first-stage=dense", "--hits=3"]
    for query_id, options in (("q1", ["--title", "Routing nurses", "--facet", "method"]), ("q2", [])):
        main([*outside, *options])
        assert rankings[query_id] == [line.split()[2] for line in capsys.readouterr().out.splitlines()]
    assert said == []
    explored, _ = search(text, "--like", "competitors")
    assert list(explored) == ["q1", "q2"]
    mixed, _ = search(f"query_id | paper_id | text\nq1 | s036\nq2\t\t{ABSTRACT}\n")
    assert mixed["q2"] == rankings["q2"]


def test_topics_from_outside_are_read_back(tmp_path):
    topics = [Topic("q1", "s036"), Topic("q2", "", None, (), "Fish swim.\n We count.", "On\tfish")]
    write_topics(tmp_path / "topics.tsv", topics)
    assert (tmp_path / "topics.tsv").read_text() == (
        "query_id\tpaper_id\ttitle\ttext\nq1\ts036\t\t\nq2\t\tOn fish\tFish swim. We count.\n"
    )
    assert read_topics(tmp_path / "topics.tsv")[1][4:] == ("Fish swim. We count.", "On fish")


WRONG = [
    ["q1 | s036 | - | - | -", "q2 | nosuch | - | - | -"],
    *(["q1 | s036 | - | - | -", "", "q2 | S036 | - | - | -"], ["q1 | s036 | - | method@nosuch | -"]),
    *(["q1 | - | - | - | \0"], ["q1 | - | - | - | -"], ["q1 | s036 | - | - | Fish swim."], []),
    *(["q1 | s036 | - | sentences:0,99 | -"], ["q1 | - | - | sentences:2 | Fish swim. We count."]),
]


def test_what_is_wrong_with_topics_is_named_with_its_line(search, tmp_path, told):
    texts = ["\n".join(["query_id | paper_id | facet | aspects | text", *rows]) for rows in WRONG]
    headers = ("paper_id | facet", "query_id | paper_id | facets", "query_id | text | text")
    texts += [f"{header}\na | b | c" for header in headers]
    searches = [partial(search, text.replace(" | ", "\t").replace("-", "") + "\n") for text in texts]
    told("topics", messages_of(searches, (FileFormatError, PaperNotFoundError), tmp_path))

"""``qbe search`` without reranking: sources of queries, forms of output, errors, exit codes."""

import io
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from support.messages import refusals
from support.searching import first_stage, ids

from qbe import Facet, Index, Query
from qbe.cli.search import main
from qbe.runs import read_pools, read_run, read_topics


@pytest.fixture
def search(search):
    return partial(search, "--rerank", "none")


def command(*arguments: object, **options) -> subprocess.CompletedProcess:
    line = [sys.executable, "-m", "qbe.search", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, check=False, **options)


@pytest.fixture
def paper_file(tmp_path, papers) -> Path:
    path = tmp_path / "paper.json"
    one = papers[23]
    record = {"title": one.title, "abstract": [s.text for s in one.sentences]}
    record["pred_labels"] = [f"{sentence.facet or 'other'}_label" for sentence in one.sentences]
    path.write_text(json.dumps(record))
    return path


@pytest.mark.parametrize("stage", ["bm25", "dense", "fused"])
def test_topics_make_a_run(search, sample, tmp_path, stage, tiny_index):
    output = tmp_path / "new" / "run.trec"
    arguments = ("--topics", sample / "topics.tsv", "--first-stage", stage, "--hits", 20)
    assert search(*arguments, "--output", output) == ""
    run = read_run(output)
    assert run.tag == f"qbe-{stage}"
    topics = read_topics(sample / "topics.tsv")
    assert list(run.rankings) == [topic.query_id for topic in topics]
    with Index(tiny_index) as index:
        searcher = first_stage(index, stage)
        for topic in topics:
            hits = searcher.search(Query(index.paper(topic.paper_id), topic.facet), 20)
            assert ids(run.rankings[topic.query_id]) == ids(hits)
    written = output.read_bytes()
    assert search(*arguments).encode() == written
    search(*arguments, "--threads", 3, "--output", output, "--overwrite")
    assert output.read_bytes() == written


def test_topics_of_one_facet_with_pools_and_a_tag(search, sample, tmp_path):
    pools = read_pools(sample / "pools.tsv")
    arguments = ("--topics", sample / "topics.tsv", "--facet", "method", "--pool", sample / "pools.tsv")
    search(*arguments, "--run-tag", "mine", "--output", tmp_path / "run")
    run = read_run(tmp_path / "run")
    assert run.tag == "mine"
    assert list(run.rankings) == [query_id for query_id in pools if query_id.endswith("_method")]
    for query_id, hits in run.rankings.items():
        assert set(ids(hits)) == set(pools[query_id])


def test_pools_without_a_paper_to_find_are_told(tmp_path, tiny_index, capsys):
    (tmp_path / "topics.tsv").write_text("query_id\tpaper_id\nq1\ts001\nq2\ts002\n")
    (tmp_path / "pools.tsv").write_text("query_id\tpaper_id\nq1\ts001\nq2\ts003\n")
    given = ["--index", tiny_index, "--topics", tmp_path / "topics.tsv", "--pool", tmp_path / "pools.tsv"]
    main([*map(str, given), "--first-stage", "bm25", "--rerank", "none"])
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 1
    assert "1 of 2 pools hold no paper that may be found (q1, ...)" in printed.err


def test_json_tells_of_matched_sentences(search, tiny_index):
    (line,) = search("--paper", "s024", "--facet", "method", "--format", "json", "--hits", 3).splitlines()
    record = json.loads(line)
    assert (record["query_id"], record["paper_id"], record["facet"]) == ("s024_method", "s024", "method")
    assert [hit["rank"] for hit in record["hits"]] == [1, 2, 3]
    with Index(tiny_index) as index:
        found = first_stage(index).search(Query(index.paper("s024"), Facet.METHOD), 3)
        for hit, expected in zip(record["hits"], found, strict=True):
            paper = index.paper(expected.paper_id)
            assert (hit["paper_id"], hit["score"]) == (expected.paper_id, expected.score)
            assert (hit["title"], hit["year"]) == (paper.title, paper.year)
            for match, pair in zip(hit["matches"], expected.matches, strict=True):
                assert match["sentence"] == paper.sentences[pair.position].text
                assert match["facet"] == str(paper.sentences[pair.position].facet)
                assert match["query_sentence"] == index.paper("s024").sentences[pair.query_position].text


def test_a_table_says_what_was_searched_for_and_that_nothing_was_found(search, papers):
    for options, said in (
        (("--facet", "method"), f"Papers like “{papers[23].title}”, for its method:"),
        ((), "by its abstract:"),
        (("--sentences", "3,0"), "by sentences 3, 0:"),
    ):
        table = search("--paper", "s024", *options, "--format", "table")
        assert said in " ".join(table.split())
        assert len(table.strip().split("\n\n")) == 11
    text = search("--text", "🧬 the", "--first-stage", "bm25", "--format", "table")
    assert text.endswith("No paper was found.\n")
    assert search("--text", "🧬 the", "--first-stage", "bm25") == ""


def test_every_source_finds_the_same(search, paper_file, papers, monkeypatch):
    def ranking(*arguments: object) -> list[str]:
        return [line.split()[2] for line in search(*arguments, "--hits", 9).splitlines()]

    for options in ((), ("--facet", "method"), ("--sentences", "0,2")):
        outside = ranking("--paper-file", paper_file, *options)
        assert outside == ["s024", *ranking("--paper", "s024", *options)][:9]
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(paper_file.open("rb")))
        assert ranking("--paper-file", "-", *options) == outside
    assert ranking("--text", papers[23].abstract, "--title", papers[23].title)[0] == "s024"
    assert search("--text", papers[23].abstract).startswith("query Q0 s024 1 ")


REFUSED = [
    *(["--paper", "s001", "--hits", "0"], ["--paper", "s001", "--first-stage", "dense:nprobe=0"]),
    *(["--paper", "s001", "--threads", "0"], ["--paper", "s001", "--first-stage", "splade"]),
    *(["--paper", "s001", "--title", "T"], ["--paper", "s001", "--run-tag", "a b"]),
    *(["--paper", "s001", "--run-tag", ""], ["--topics", "topics.tsv", "--sentences", "0"]),
    *(["--paper", "s001", "--sentences", "0,x"], ["--paper", "s001", "--sentences", ""]),
    *(["--paper", "s001", "--sentences", "0,9"], ["--paper", "s001", "--pool", "pools.tsv"]),
    *(["--paper", "s999"], ["--text", " "], ["--paper-file", "absent.json"], ["--topics", "absent.tsv"]),
    *(["--topics", "pools.tsv"], ["--paper", "s001", "--output", "file/run.trec"]),
    *(["--paper", "s001", "--output", "."], ["--topics", "topics.tsv", "--pool", "few.tsv"]),
    *(["--topics", "named.tsv", "--pool", "other.tsv"], ["--paper", "draft.txt"]),
    *(["--paper", "s001", "--output", "x", "--resume"], ["--topics", "topics.tsv", "--resume"]),
    *(["--paper", "s001", *each, "--explain"] for each in (["--facet", "method"], ["--format", "trec"])),
]


def test_what_is_refused(search, sample, tmp_path, monkeypatch, told):
    monkeypatch.chdir(tmp_path)
    for name in ("topics.tsv", "pools.tsv"):
        (tmp_path / name).write_bytes((sample / name).read_bytes())
    (tmp_path / "few.tsv").write_text("query_id\tpaper_id\ns036_method\ts001\n")
    (tmp_path / "named.tsv").write_text("query_id\tpaper_id\nq1\ts036\n")
    (tmp_path / "other.tsv").write_text("query_id\tpaper_id\nq1\ts001\nq1\tx7\n")
    (tmp_path / "file").touch()
    names = sorted(path.name for path in tmp_path.iterdir())
    told("qbe search", refusals(search, REFUSED))
    assert sorted(path.name for path in tmp_path.iterdir()) == names


@pytest.mark.parametrize("options", ["--facet method --sentences 0", "--like competitors --facet method"])
def test_wrong_options_end_with_2(options, capsys):
    paper = "--index x --paper 1 "
    for line in ("", "--paper s001", paper + "--text 2", paper + options, paper + "--cited refs.bib"):
        with pytest.raises(SystemExit) as caught:
            main(line.split())
        assert caught.value.code == 2
        assert capsys.readouterr().err.splitlines()[-1].startswith("qbe search: error: ")


def test_an_index_may_have_any_name(tiny_index, sample, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("h", "help", "@h"):
        (tmp_path / name).symlink_to(tiny_index)
        main(["--index", name, "--paper", "s001", "--first-stage=dense", "--rerank=none", "--hits=1"])
        assert capsys.readouterr().out.startswith("s001 Q0 ")


@pytest.mark.slow
def test_accents_need_no_locale(tiny_index, tmp_path):
    environment = {**os.environ, "LC_ALL": "C"}
    output = tmp_path / "résumé.md"
    text = "Il était une fois: des écoles."
    arguments = ["--index", tiny_index, "--text", text]
    arguments += ["--first-stage", "dense", "--rerank", "none", "--format", "table"]
    done = command(*arguments, env=environment, encoding="utf-8")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Papers like “{text}”, by its abstract")
    done = command(*arguments, "--output", output, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Il était" in output.read_text(encoding="utf-8")


def test_a_reader_that_goes_away_is_no_error(tiny_index, sample):
    options = f"--index {tiny_index} --topics {sample}/topics.tsv --first-stage dense --rerank none"
    line = f"{sys.executable} -m qbe.search {options} | head -1"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""

"""``qbe cite``: sources of papers, what is known, forms of output, runs of topics, errors, exit codes."""

import csv
import io
import json
import logging
import re
from pathlib import Path

import pytest
from support.bibliographies import read_bibtex
from support.citing import NO_YEAR, index_of, papers_that_cite, shared, write_tiny_model

from qbe import _cli
from qbe.cite.__main__ import main
from qbe.cite.config import CiteConfig
from qbe.cite.options import OPTIONS, PROGRAM
from qbe.cite.recommender import CiteRequest, Recommender
from qbe.errors import RunError
from qbe.index.index import Index
from qbe.search import output as outputs
from qbe.search.stages import CrossEncoder
from qbe.text.split import paper_from_text
from qbe.trec import read_run

QUERY = "s031"
TITLE, ABSTRACT = "Labels for cities", "Cities have few labels. We ask drivers for them."
TOPICS = {"q1": QUERY, "q2": "s040", "q3": "s011", "q4": "s020", "q5": "s007"}
"""The third is without a year."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory, papers, tiny_encoder) -> Path:
    base = tmp_path_factory.getbasetemp()
    return shared(base, lambda path: index_of(path, papers_that_cite(papers), tiny_encoder), "index")


@pytest.fixture(scope="module")
def model(tmp_path_factory, folder) -> Path:
    return shared(tmp_path_factory.getbasetemp(), lambda path: write_tiny_model(path, folder), "model")


@pytest.fixture(scope="module")
def index(folder):
    with Index(folder) as opened:
        yield opened


@pytest.fixture(scope="module")
def recommender(index, model):
    with Recommender.open(index, CiteConfig(model=str(model))) as opened:
        yield opened


@pytest.fixture
def cite(folder, model, capsys):
    """Run the command in this process; gives what it printed."""

    def run(*arguments: object) -> str:
        main(["--index", str(folder), "--model", str(model), *map(str, arguments)])
        return capsys.readouterr().out

    return run


@pytest.fixture
def logging_as_before():
    """The command logs to standard error, which is another one in the next test."""
    logger = logging.getLogger("qbe")
    handlers, level = [*logger.handlers], logger.level
    yield
    logger.handlers[:] = handlers
    logger.setLevel(level)


@pytest.fixture
def refused(folder, model, capsys, logging_as_before):
    """The exit code of the command and the line that it ends with."""

    def run(*arguments: object) -> tuple[object, str]:
        options = [*map(str, arguments)]
        if "--index" not in options:
            options = ["--index", str(folder), *options]
        if "--model" not in options:
            options += ["--model", str(model)]
        with pytest.raises(SystemExit) as ended:
            _cli.run(PROGRAM, main, OPTIONS, options)
        told = capsys.readouterr()
        assert told.out == ""
        line = told.err.splitlines()[-1]
        assert line.startswith(f"{PROGRAM}: ")
        return ended.value.code, line.removeprefix(f"{PROGRAM}: ")

    return run


@pytest.fixture
def topics(tmp_path) -> Path:
    path = tmp_path / "topics.tsv"
    lines = ["query_id\tpaper_id", *(f"{query}\t{paper}" for query, paper in TOPICS.items())]
    path.write_text("\n".join(lines) + "\n")
    return path


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def ranked(run: str) -> dict[str, list[str]]:
    """The ids of papers in a TREC run, by query."""
    found: dict[str, list[str]] = {}
    for line in run.splitlines():
        query_id, _, paper_id, *_ = line.split()
        found.setdefault(query_id, []).append(paper_id)
    return found


# Where the paper comes from


def test_a_paper_of_the_index(cite, recommender, index):
    """Without a terminal the result is a run of up to a thousand."""
    lines = cite("--paper", QUERY).splitlines()
    hits = recommender.recommend(index.paper(QUERY), 1000)
    assert len(lines) == len(hits) == 47
    for rank, (line, hit) in enumerate(zip(lines, hits, strict=True), start=1):
        query_id, _, paper_id, its_rank, score, tag = line.split()
        assert (query_id, paper_id, its_rank, tag) == (
            QUERY,
            hit.paper_id,
            str(rank),
            "qbe-cite",
        )
        assert float(score) == pytest.approx(hit.score, abs=1e-5)


def test_a_pasted_abstract(cite, recommender):
    expected = recommender.recommend(paper_from_text(TITLE, ABSTRACT), 5)
    arguments = ("--text", ABSTRACT, "--title", TITLE, "--hits", 5)
    assert ranked(cite(*arguments)) == {"query": [hit.paper_id for hit in expected]}
    without = recommender.recommend(paper_from_text("", ABSTRACT), 5)
    assert ranked(cite("--text", ABSTRACT, "--hits", 5)) == {"query": [hit.paper_id for hit in without]}


def test_a_paper_in_a_file(cite, tmp_path, monkeypatch):
    expected = ranked(cite("--text", ABSTRACT, "--title", TITLE))
    record = json.dumps({"title": TITLE, "abstract": ABSTRACT})
    assert ranked(cite("--paper-file", write(tmp_path / "draft.json", record))) == expected
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(record.encode()))))
    assert ranked(cite("--paper-file", "-")) == expected


def test_drafts_in_bibtex(cite, recommender, tmp_path):
    """One has no abstract, and is asked for by its title."""
    text = (
        f"@misc{{whole, title = {{{TITLE}}}, abstract = {{{ABSTRACT}}}, year = 2005}}\n"
        f"@misc{{title, title = {{{TITLE}}}}}\n"
    )
    found = ranked(cite("--bibtex", write(tmp_path / "drafts.bib", text), "--hits", 5))
    whole, title = paper_from_text(TITLE, ABSTRACT), paper_from_text(TITLE, TITLE)
    whole = type(whole)(whole.paper_id, whole.title, whole.sentences, metadata={"year": 2005})
    expected = recommender.batch_recommend([CiteRequest(whole), CiteRequest(title)], 5)
    assert found == {
        name: [hit.paper_id for hit in hits] for name, hits in zip(("whole", "title"), expected, strict=True)
    }


def test_topics_make_a_run(cite, recommender, index, topics, tmp_path):
    output = tmp_path / "new" / "run.trec"
    assert cite("--topics", topics, "--hits", 9, "--run-tag", "mine", "--output", output) == ""
    run = read_run(output)
    assert run.tag == "mine"
    papers = [CiteRequest(index.paper(paper_id)) for paper_id in TOPICS.values()]
    expected = recommender.batch_recommend(papers, 9)
    assert {query_id: [hit.paper_id for hit in hits] for query_id, hits in run.rankings.items()} == {
        query_id: [hit.paper_id for hit in hits] for query_id, hits in zip(TOPICS, expected, strict=True)
    }
    assert cite("--topics", topics, "--hits", 9, "--run-tag", "mine", "--threads", 1) == output.read_text()


# What is known


@pytest.mark.parametrize("option", ["--cited", "--exclude"])
def test_papers_that_are_cited_or_not_wanted(cite, recommender, index, tmp_path, option):
    refs = "@misc{a, title = {B}, doi = {10.5555/s003}}\n@misc{s020, title = {C}}\n"
    found = ranked(cite("--paper", QUERY, option, write(tmp_path / "refs.bib", refs)))[QUERY]
    names = {"cited" if option == "--cited" else "exclude": ("s003", "s020")}
    assert found == [hit.paper_id for hit in recommender.recommend(index.paper(QUERY), 1000, **names)]
    assert {"s003", "s020"}.isdisjoint(found)


def test_entries_that_the_index_lacks_are_told_in_one_line(folder, model, capsys, tmp_path):
    path = write(tmp_path / "cited.txt", "s003\nnobody\ns020\nno-one\n")
    main(["--index", str(folder), "--model", str(model), "--paper", QUERY, "--cited", str(path)])
    told = capsys.readouterr()
    assert (
        told.err
        == f"qbe cite: {path}: 2 of 4 entries are not in the index and are left out (nobody, no-one)\n"
    )
    assert len(told.out.splitlines()) == 45


def test_links_may_be_left_out(cite, index, model):
    with Recommender.open(index, CiteConfig(model=str(model), links=False)) as recommender:
        expected = [hit.paper_id for hit in recommender.recommend(index.paper(QUERY), 1000)]
    found = ranked(cite("--paper", QUERY, "--no-links"))[QUERY]
    assert found == expected != ranked(cite("--paper", QUERY))[QUERY]


def test_a_reranker_of_pairs(cite, index, model, tiny_cross_encoder):
    rerank = CrossEncoder(str(tiny_cross_encoder), depth=9, weight=0.25)
    with Recommender.open(index, CiteConfig(model=str(model), rerank=rerank)) as recommender:
        expected = [hit.paper_id for hit in recommender.recommend(index.paper(QUERY), 1000)]
    found = ranked(cite("--paper", QUERY, "--rerank", f"{tiny_cross_encoder}:depth=9,weight=0.25"))[QUERY]
    assert found == expected != ranked(cite("--paper", QUERY))[QUERY]
    assert ranked(cite("--paper", QUERY, "--rerank", "none")) == ranked(cite("--paper", QUERY))


def test_papers_that_do_not_pass_are_told_in_one_line(folder, model, capsys):
    arguments = ["--index", str(folder), "--model", str(model), "--paper", QUERY, "--before", "2000"]
    main([*arguments, "--hits", "10"])
    told = capsys.readouterr()
    assert told.err == (
        "qbe cite: 4 of 48 papers pass the filter, fewer than the 10 hits asked for; "
        "1 papers have no year and do not pass\n"
    )
    assert len(told.out.splitlines()) == 4


def test_each_topic_has_its_own_year(cite, index, tmp_path):
    path = write(tmp_path / "topics.tsv", "query_id\tpaper_id\nq1\ts009\nq2\ts021\n")
    found = ranked(cite("--topics", path, "--before", "query"))
    for query_id, year, count in (("q1", 2002, 10), ("q2", 2005, 22)):
        assert len(found[query_id]) == count
        assert max(index.paper(paper_id).metadata["year"] for paper_id in found[query_id]) == year


# Forms of output


def test_a_table_is_for_people(cite, index):
    text = cite("--paper", QUERY, "--format", "table")
    assert index.paper(QUERY).title in " ".join(text.split())
    assert [int(rank) for rank in re.findall(r"^ +(\d+) +-?\d+\.\d{4} ", text, re.MULTILINE)] == [
        *range(1, 21)
    ]


def test_json_tells_of_matched_sentences(cite, recommender, index):
    (line,) = cite("--paper", QUERY, "--format", "json", "--hits", 3).splitlines()
    record = json.loads(line)
    assert (record["query_id"], record["paper_id"]) == (QUERY, QUERY)
    hits = recommender.recommend(index.paper(QUERY), 3)
    assert [(hit["paper_id"], hit["score"]) for hit in record["hits"]] == [
        (hit.paper_id, hit.score) for hit in hits
    ]
    for found, hit in zip(record["hits"], hits, strict=True):
        assert [match["position"] for match in found["matches"]] == [match.position for match in hit.matches]


@pytest.mark.parametrize("by", ["--format", "--output"])
def test_bibliographies(cite, recommender, index, tmp_path, by):
    hits = recommender.recommend(index.paper(QUERY), 20)
    titles = [index.paper(hit.paper_id).title for hit in hits]
    texts = {}
    for form, name in (("bibtex", "new.bib"), ("ris", "new.ris")):
        if by == "--format":
            texts[form] = cite("--paper", QUERY, "--format", form)
        else:
            for _ in range(2):  # what it has written it may replace
                assert cite("--paper", QUERY, "--output", tmp_path / name) == ""
            texts[form] = (tmp_path / name).read_text()
    assert [entry["title"] for entry in read_bibtex(texts["bibtex"])] == titles
    assert re.findall(r"^TI  - (.*)$", texts["ris"], re.MULTILINE) == titles


def test_csv_and_markdown(cite, recommender, index):
    hits = recommender.recommend(index.paper(QUERY), 20)
    rows = list(csv.DictReader(io.StringIO(cite("--paper", QUERY, "--format", "csv"))))
    assert [(row["query_id"], row["paper_id"]) for row in rows] == [(QUERY, hit.paper_id) for hit in hits]
    text = cite("--paper", QUERY, "--format", "markdown", "--hits", 1)
    assert index.paper(hits[0].paper_id).title in text


# Runs of topics that were interrupted


@pytest.fixture
def interrupted(monkeypatch, folder, model, topics, tmp_path):
    """Interrupt a run of five topics in its third block; gives its arguments."""
    monkeypatch.setattr(outputs, "BLOCK", 2)
    whole = Recommender.batch_recommend

    def interrupt(*arguments: str) -> list[str]:
        calls = []

        def batch_recommend(self, requests, *rest, **options):
            calls.append(len(requests))
            if len(calls) == 3:
                raise KeyboardInterrupt
            return whole(self, requests, *rest, **options)

        monkeypatch.setattr(Recommender, "batch_recommend", batch_recommend)
        line = ["--index", str(folder), "--model", str(model), "--topics", str(topics), "--hits", "5"]
        line += ["--output", str(tmp_path / "run"), *arguments]
        with pytest.raises(KeyboardInterrupt) as raised:
            main(line)
        assert ("--resume" in str(raised.value)) == ("bibtex" not in line)
        monkeypatch.setattr(Recommender, "batch_recommend", whole)
        assert calls == [2, 2, 1]
        assert not (tmp_path / "run").exists()
        return line

    return interrupt


def test_a_run_of_tables_goes_on_in_its_width_alone(interrupted, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "90")
    line = interrupted("--format", "table")
    monkeypatch.setenv("COLUMNS", "70")
    with pytest.raises(RunError, match="found other options"):
        main([*line, "--resume"])
    monkeypatch.setenv("COLUMNS", "90")
    main([*line, "--resume"])
    assert (tmp_path / "run").exists()


def test_an_interrupted_run_goes_on(interrupted, cite, topics, tmp_path, monkeypatch):
    line = interrupted()
    with pytest.raises(RunError, match="holds an unfinished run"):
        main(line)
    with pytest.raises(RunError, match="found other options"):
        main([*line, "--resume", "--no-links"])
    asked, whole = [], Recommender.batch_recommend

    def counted(self, requests, *rest, **options):
        asked.append(len(requests))
        return whole(self, requests, *rest, **options)

    monkeypatch.setattr(Recommender, "batch_recommend", counted)
    main([*line, "--resume"])
    assert asked == [1]
    assert (tmp_path / "run").read_text() == cite("--topics", topics, "--hits", 5)
    assert not (tmp_path / ".run.part").exists()


def test_an_interrupted_run_is_begun_again(interrupted, cite, topics, tmp_path):
    main([*interrupted(), "--overwrite", "--no-links"])
    assert (tmp_path / "run").read_text() == cite("--topics", topics, "--hits", 5, "--no-links")


def test_a_bibliography_of_several_topics_has_each_paper_once(interrupted, tmp_path, refused):
    """It cannot be continued: which entries it has is known while it is written only."""
    line = interrupted("--format", "bibtex")
    code, message = refused(*line, "--resume")
    assert code == 2
    assert message.startswith("expected --resume with another --format, found bibtex")


# Errors


PAPER = ("--paper", QUERY)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "one of the arguments --paper --paper-file --text --bibtex --topics is required"),
        ((*PAPER, "--text", "a"), "argument --text: not allowed with argument --paper"),
        ((*PAPER, "--references", "a"), "unrecognized argument: --references; did you mean --cited?"),
    ],
)
def test_options_that_the_parser_refuses(refused, folder, capsys, arguments, message):
    with pytest.raises(SystemExit) as ended:
        main(["--index", str(folder), *arguments])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*PAPER, "--hits", 0), "expected --hits of at least 1, found 0"),
        ((*PAPER, "--depth", 0), "expected --depth of at least 1, found 0"),
        ((*PAPER, "--threads", 0), "expected --threads of at least 1, found 0"),
        ((*PAPER, "--title", "a"), "--title goes with --text; a paper file holds its own title"),
        (
            (*PAPER, "--rerank", "matching"),
            "expected the folder of a model of pairs as --rerank, found matching",
        ),
        ((*PAPER, "--run-tag", "a b"), "expected a --run-tag of one word, found 'a b'"),
        ((*PAPER, "--before", "then"), "expected a year or query as --before, found 'then'"),
        ((*PAPER, "--before", "0"), "expected a year from 1 to 9999 in --before, found 0"),
        (
            (*PAPER, "--resume"),
            "--resume is about a run of topics in a file; give --topics and --output with it",
        ),
        (
            ("--topics", "topics.tsv", "--overwrite"),
            "--overwrite is about a run of topics in a file; give --topics and --output with it",
        ),
        (
            ("--topics", "topics.tsv", "--cited", "refs.bib"),
            "--cited is about one paper; give --paper, --paper-file or --text with it",
        ),
        (
            ("--bibtex", "drafts.bib", "--exclude", "refs.bib"),
            "--exclude is about one paper; give --paper, --paper-file or --text with it",
        ),
    ],
)
def test_options_that_do_not_go_together(refused, arguments, message):
    assert refused(*arguments) == (2, message)


def test_a_filter_by_a_year_that_is_not_known(refused, topics, papers):
    message = "expected a year of the query's paper {} for --before query, found none; give --before a year"
    assert refused("--text", ABSTRACT, "--before", "query") == (2, message.format("query"))
    without = papers[NO_YEAR].paper_id
    assert refused("--topics", topics, "--before", "query") == (2, message.format(without))


def test_a_bibliography_of_which_nothing_is_known(refused, tmp_path):
    path = write(tmp_path / "cited.txt", "nobody\nno-one\n")
    expected = (
        f"{path}: expected papers of the index, found none of its 2 entries in it (nobody, no-one); "
        "give ids, DOIs or arXiv ids, one a line, or entries with a title"
    )
    for option in ("--cited", "--exclude"):
        assert refused(*PAPER, option, path) == (2, expected)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--paper", "absent"), "found 'absent'; qbe list shows ids and titles"),
        (("--text", ""), "--text: expected an abstract, found an empty one"),
        (("--paper-file", "no-abstract.json"), "no-abstract.json, line 1: expected"),
        (("--paper-file", "absent.json"), "absent.json: No such file or directory"),
        (("--bibtex", "empty.bib"), "expected at least one paper, found none in empty.bib"),
        (("--bibtex", "absent.bib"), "absent.bib: No such file or directory"),
        (("--topics", "absent.tsv"), "absent.tsv"),
        (("--topics", "of-others.tsv"), "of-others.tsv, line 2: expected the id of one of the 48 papers"),
        ((*PAPER, "--cited", "absent.txt"), "absent.txt"),
        ((*PAPER, "--cited", "absent.bib"), "absent.bib"),
        ((*PAPER, "--cited", "latin.txt"), "latin.txt, line 2: expected UTF-8 text, found byte 0xe9"),
        (
            (*PAPER, "--model", "absent"),
            "absent: expected a citation model (citation.json, citation.npz), found",
        ),
        ((*PAPER, "--index", "absent"), "absent"),
        ((*PAPER, "--output", "notes.txt"), "notes.txt"),
    ],
)
def test_what_cannot_be_read_or_written_ends_in_one_line(refused, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    Path("no-abstract.json").write_text(json.dumps({"title": TITLE}))
    Path("empty.bib").write_text("nothing\n")
    Path("of-others.tsv").write_text("query_id\tpaper_id\nq1\tabsent\n")
    Path("latin.txt").write_bytes(b"s003\n\xe9\n")
    Path("notes.txt").write_text("My notes.\n")
    code, line = refused(*arguments)
    assert code == 1
    assert message in line
    assert Path("notes.txt").read_text() == "My notes.\n"

"""``qbe cite``: sources of papers, what is known, forms of output, runs of topics, errors, exit codes."""

import csv
import io
import json
import logging
import re
from dataclasses import replace
from pathlib import Path

import pytest
from support.bibliographies import read_bibtex
from support.citing import NO_YEAR
from support.searching import ids

from qbe import CiteConfig, CiteRequest, CrossEncoder, Recommender, paper_from_text
from qbe.cli import common as _cli
from qbe.cli.cite import main
from qbe.errors import OutputError
from qbe.runs import read_run

QUERY = "s031"
TITLE, ABSTRACT = "Labels for cities", "Cities have few labels. We ask drivers for them."
TOPICS = {"q1": QUERY, "q2": "s040", "q3": "s011", "q4": "s020", "q5": "s007"}  # of s011 no year is known


@pytest.fixture(scope="module")
def recommender(citing_index, citing_model):
    with Recommender.open(citing_index, CiteConfig(model=str(citing_model))) as opened:
        yield opened


@pytest.fixture
def cite(citing_folder, citing_model, capsys):
    def run(*arguments: object) -> str:
        main(["--index", str(citing_folder), "--model", str(citing_model), *map(str, arguments)])
        return capsys.readouterr().out

    return run


@pytest.fixture
def topics(tmp_path) -> Path:
    lines = "".join(f"{query}\t{paper}\n" for query, paper in TOPICS.items())
    return write(tmp_path / "topics.tsv", f"query_id\tpaper_id\n{lines}")


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def ranked(run: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in run.splitlines():
        query_id, _, paper_id, *_ = line.split()
        found.setdefault(query_id, []).append(paper_id)
    return found


def test_a_paper_of_the_index(cite, recommender, citing_index):
    """Without a terminal the result is a run of up to a thousand."""
    lines = cite("--paper", QUERY).splitlines()
    hits = recommender.recommend(citing_index.paper(QUERY), 1000)
    assert len(lines) == len(hits) == 47
    for rank, (line, hit) in enumerate(zip(lines, hits, strict=True), start=1):
        query_id, _, paper_id, its_rank, score, tag = line.split()
        assert (query_id, paper_id, its_rank, tag) == (QUERY, hit.paper_id, str(rank), "qbe-cite")
        assert float(score) == pytest.approx(hit.score, abs=1e-5)


def test_a_pasted_abstract_and_a_paper_in_a_file(cite, recommender, tmp_path):
    for title in (TITLE, ""):
        expected = {"query": ids(recommender.recommend(paper_from_text(title, ABSTRACT), 5))}
        given = ("--title", title) if title else ()
        assert ranked(cite("--text", ABSTRACT, *given, "--hits", 5)) == expected
        file = write(tmp_path / "draft.json", json.dumps({"title": title, "abstract": ABSTRACT}))
        assert ranked(cite("--paper-file", file, "--hits", 5)) == expected


def test_drafts_in_bibtex(cite, recommender, tmp_path):
    whole, title = (f"@misc{{{name}, title = {{{TITLE}}}" for name in ("whole", "title"))
    text = f"{whole}, abstract = {{{ABSTRACT}}}, year = 2005}}\n{title}}}\n"
    found = ranked(cite("--bibtex", write(tmp_path / "drafts.bib", text), "--hits", 5))
    dated = replace(paper_from_text(TITLE, ABSTRACT), metadata={"year": 2005})
    requests = [CiteRequest(dated), CiteRequest(paper_from_text(TITLE, TITLE))]
    expected = recommender.batch_recommend(requests, 5)
    assert found == {name: ids(hits) for name, hits in zip(("whole", "title"), expected, strict=True)}


@pytest.mark.parametrize("option", ["--cited", "--exclude"])
def test_papers_that_are_cited_or_not_wanted(cite, recommender, citing_index, tmp_path, option):
    refs = "@misc{a, title = {B}, doi = {10.5555/s003}}\n@misc{s020}\n"
    found = ranked(cite("--paper", QUERY, option, write(tmp_path / "refs.bib", refs)))[QUERY]
    names = {"cited" if option == "--cited" else "exclude": ("s003", "s020")}
    assert found == ids(recommender.recommend(citing_index.paper(QUERY), 1000, **names))
    assert {"s003", "s020"}.isdisjoint(found)


def test_what_is_left_out_is_told_in_one_line(citing_folder, citing_model, capsys, tmp_path):
    path = write(tmp_path / "cited.txt", "s003\nnobody\ns020\nno-one\n")
    command = ["--index", str(citing_folder), "--model", str(citing_model), "--paper", QUERY]
    main([*command, "--cited", str(path)])
    told = capsys.readouterr()
    assert told.err.startswith(f"qbe cite: {path}: 2 of 4 entries are not in the index")
    assert (told.err.count("\n"), told.out.count("\n")) == (1, 45)
    main([*command, "--before", "2000", "--hits", "10"])
    told = capsys.readouterr()
    passing = "qbe cite: 4 of 48 papers pass the filter, fewer than the 10 hits asked for; 1 "
    assert told.err.startswith(passing)
    assert (told.err.count("\n"), told.out.count("\n")) == (1, 4)


def test_links_may_be_left_out_and_pairs_reranked(cite, citing_index, citing_model, tiny_cross_encoder):
    plain = ranked(cite("--paper", QUERY))
    rerank = CrossEncoder(str(tiny_cross_encoder), depth=9, weight=0.25)
    for config, options in (
        ({"links": False}, ["--no-links"]),
        ({"query": "title", "links": False}, ["--query", "title", "--no-links"]),
        ({"query": "keyterms"}, ["--query", "keyterms"]),
        ({"rerank": rerank}, ["--rerank", f"{tiny_cross_encoder}:depth=9,weight=0.25"]),
    ):
        with Recommender.open(citing_index, CiteConfig(model=str(citing_model), **config)) as recommender:
            expected = ids(recommender.recommend(citing_index.paper(QUERY), 1000))
        assert ranked(cite("--paper", QUERY, *options)) == {QUERY: expected} != plain
    assert ranked(cite("--paper", QUERY, "--rerank", "none")) == plain


def test_each_topic_has_its_own_year(cite, citing_index, tmp_path):
    path = write(tmp_path / "topics.tsv", "query_id\tpaper_id\nq1\ts009\nq2\ts021\n")
    found = ranked(cite("--topics", path, "--before", "query"))
    for query_id, year, count in (("q1", 2002, 10), ("q2", 2005, 22)):
        assert len(found[query_id]) == count
        assert max(citing_index.paper(paper_id).metadata["year"] for paper_id in found[query_id]) == year


def test_a_table_is_for_people(cite, citing_index):
    text = cite("--paper", QUERY, "--format", "table")
    assert " ".join(text.split()).startswith(f"Papers for “{citing_index.paper(QUERY).title}” to cite: ")
    assert re.findall(r"^ +(\d+) +-?\d+\.\d{4} ", text, re.MULTILINE) == [str(rank) for rank in range(1, 21)]


def test_files_and_programs_get_the_same_papers(cite, recommender, citing_index, tmp_path):
    hits = recommender.recommend(citing_index.paper(QUERY), 20)
    (line,) = cite("--paper", QUERY, "--format", "json", "--hits", 3).splitlines()
    for found, hit in zip(json.loads(line)["hits"], hits[:3], strict=True):
        assert (found["paper_id"], found["score"]) == (hit.paper_id, hit.score)
        assert [match["position"] for match in found["matches"]] == [match.position for match in hit.matches]
    rows = list(csv.DictReader(io.StringIO(cite("--paper", QUERY, "--format", "csv"))))
    assert [(row["query_id"], row["paper_id"]) for row in rows] == [(QUERY, hit.paper_id) for hit in hits]
    titles = [citing_index.paper(hit.paper_id).title for hit in hits]
    assert titles[0] in cite("--paper", QUERY, "--format", "markdown", "--hits", 1)
    text = cite("--paper", QUERY, "--format", "ris")
    assert re.findall(r"^TI  - (.*)$", text, re.MULTILINE) == titles
    for more in ([], ["--overwrite"]):
        assert cite("--paper", QUERY, "--output", tmp_path / "new.bib", *more) == ""
    text = (tmp_path / "new.bib").read_text()
    assert [entry["title"] for entry in read_bibtex(text)] == titles
    assert re.match(r"% qbe cite: .*\n", text)
    with pytest.raises(OutputError, match="expected no such file, found one"):
        cite("--paper", QUERY, "--output", tmp_path / "new.bib")


def test_topics_make_a_run(cite, recommender, citing_index, topics, tmp_path):
    output = tmp_path / "new" / "run.trec"
    assert cite("--topics", topics, "--hits", 9, "--run-tag", "mine", "--output", output) == ""
    run = read_run(output)
    assert run.tag == "mine"
    hits = recommender.batch_recommend([CiteRequest(citing_index.paper(each)) for each in TOPICS.values()], 9)
    assert list(run.rankings) == list(TOPICS)
    assert [*map(ids, run.rankings.values())] == [*map(ids, hits)]
    assert cite("--topics", topics, "--hits", 9, "--run-tag", "mine", "--threads", 1) == output.read_text()


PAPER = f"--paper {QUERY}"
WRONG = [
    *("", f"{PAPER} --text a", f"{PAPER} --references a", f"{PAPER} --hits 0", f"{PAPER} --depth 0"),
    *(f"{PAPER} --threads 0", f"{PAPER} --title a", f"{PAPER} --rerank matching", f"{PAPER} --rerank nosuch"),
    *(f"{PAPER} --run-tag a\tb", f"{PAPER} --before then", f"{PAPER} --before=", f"{PAPER} --before 0"),
    *(f"{PAPER} --resume", "--topics of-others.tsv --cited latin.txt"),
    "--bibtex empty.bib --exclude latin.txt",
    *("--text We. --before query", "--topics no-year.tsv --before query", f"{PAPER} --cited strangers.txt"),
    *(f"{PAPER} --exclude strangers.txt", "--paper absent", "--paper-file no-abstract.json"),
    *("--paper-file absent.json", "--bibtex empty.bib", "--bibtex absent.bib", "--bibtex broken.bib"),
    *("--topics absent.tsv", "--topics of-others.tsv", f"{PAPER} --cited absent.txt"),
    *(f"{PAPER} --cited absent.bib", f"{PAPER} --cited latin.txt", f"{PAPER} --model absent"),
    *(f"{PAPER} --index absent", f"{PAPER} --output notes.txt"),
]


def test_what_cannot_be_done_ends_in_one_line(
    citing_folder, citing_model, papers, tmp_path, monkeypatch, capsys, told
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(logging.getLogger("qbe"), "handlers", [])  # of this standard error
    for name, text in {
        "no-abstract.json": json.dumps({"title": TITLE}),
        "empty.bib": "nothing\n",
        "broken.bib": "@misc{a, title = {On fish\n",
        "strangers.txt": "nobody\nno-one\n",
        "of-others.tsv": "query_id\tpaper_id\nq1\tabsent\n",
        "notes.txt": "My notes.\n",
        "no-year.tsv": f"query_id\tpaper_id\nq1\t{papers[NO_YEAR].paper_id}\n",
    }.items():
        Path(name).write_text(text)
    Path("latin.txt").write_bytes(b"s003\n\xe9\n")
    messages = []
    for arguments in WRONG:
        line = arguments.split(" ") if arguments else []
        for option, value in (("--index", citing_folder), ("--model", citing_model)):
            line += [] if option in line else [option, str(value)]
        with pytest.raises(SystemExit) as ended:
            _cli.run("qbe cite", main, line)
        printed = capsys.readouterr()
        assert printed.out == ""
        messages.append(f"{ended.value.code} {printed.err.splitlines()[-1]}")
    told("cite", messages)
    assert Path("notes.txt").read_text() == "My notes.\n"

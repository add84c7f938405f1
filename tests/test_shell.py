"""Commands of the shell, read from a stream, over a real index."""

import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from qbe.index.opening import open_index
from qbe.service.requests import Export, SearchBody
from qbe.service.service import SearchService
from qbe.shell.shell import PATIENT, Shell
from qbe.types import Paper, Sentence

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
ABSTRACT = [
    "Readers of papers want to find others like them. We train an encoder",
    "without labels by masking words. It finds more than all earlier systems.",
]


class Said(NamedTuple):
    """What a shell wrote: tables, and errors."""

    out: str
    errors: list[str]

    @property
    def ids(self) -> list[list[str]]:
        """The ids of the hits of each ranking or page."""
        return [re.findall(r"\[(s\d+)\]", page) for page in re.split(r"\n\d+\.\d\d s.*\n", self.out)[:-1]]


@pytest.fixture(scope="module")
def service(graded_index) -> Iterator[SearchService]:
    with open_index(graded_index) as index, SearchService(index, limits=PATIENT) as service:
        yield service


@pytest.fixture(scope="module")
def shell(service) -> Callable[..., Said]:
    """Gives lines to a shell, which ends behind them."""

    def run(*lines: str) -> Said:
        out, errors = io.StringIO(), io.StringIO()
        text = "".join(f"{line}\n" for line in ("rerank off", *lines))
        Shell(service, io.StringIO(text), out, errors).run()
        return Said(out.getvalue(), errors.getvalue().splitlines())

    return run


def found(service: SearchService, **request: object) -> list[str]:
    """The ids that the service finds."""
    record = service.search(SearchBody(**{"k": 10, "rerank": False} | request))
    return [hit["paper_id"] for hit in record["hits"]]


def test_hits_are_shown_as_a_table(shell, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    said = shell("k 1", "facet method", "paper s036")
    assert said.errors == []
    heading, hit, last = said.out.split("\n\n")
    assert heading.startswith("Papers like “Two Crops of a Paragraph")
    margin = " " * 14
    assert re.sub(r"\d\.\d+", "#", hit).splitlines() == [
        "   1   # Masking Politicians' Words: Self-Supervision Brings No Gain in Claim Verification",
        f"{margin}(2020)  [s051]",
        f"{margin}background #, method #, result # of 3",
        f"{margin}method: Each statement was perturbed in two ways, with numbers hidden and clauses",
        f"{margin}reordered, and an encoder learned to bring the perturbed versions together before it",
        f"{margin}was fine-tuned.",
    ]
    assert re.fullmatch(r"\d\.\d\d s; more shows the next hits\n", last)


def test_each_command_asks_what_it_says(shell, service):
    said = shell(
        "paper s036 s051",
        "facet result",
        "paper s036",
        "facet all",
        "sentences 0,2",
        "like background unlike method:0.5",
        "explore competitors",
        "year 2020-2022",
        "k 3",
    )
    assert said.errors == []
    years = {"year_from": 2020, "year_to": 2022}
    assert said.ids == [
        found(service, paper_ids=["s036", "s051"]),
        found(service, paper_ids=["s036", "s051"], facet="result"),
        found(service, paper_ids=["s036"], facet="result"),
        found(service, paper_ids=["s036"]),
        found(service, paper_ids=["s036"], sentences=[0, 2]),
        found(service, paper_ids=["s036"], like=["background"], unlike=["method:0.5"]),
        found(service, paper_ids=["s036"], explore="competitors"),
        found(service, paper_ids=["s036"], explore="competitors", **years),
        found(service, paper_ids=["s036"], explore="competitors", **years, k=3),
    ]


@pytest.mark.parametrize("end", ["", "  ", "."])
def test_a_text_ends_with_an_empty_line_or_a_dot(shell, service, end):
    said = shell("text On search", "", *ABSTRACT, end, "facet method")
    assert said.errors == []
    source = {"text": "\n".join(ABSTRACT), "title": "On search"}
    assert said.ids == [found(service, **source), found(service, **source, facet="method")]
    assert said.out.startswith("Papers like “On search”, by its abstract:\n")


def test_more_goes_on_to_the_end_without_repetition(shell):
    said = shell("k 50", "paper s036", "more", "more", "more")
    ids = [paper_id for page in said.ids for paper_id in page]
    assert len(ids) == len(set(ids)) == 127
    assert [len(page) for page in said.ids] == [50, 50, 27]
    assert said.errors == ["error: expected further hits, found none"]
    assert re.search(r"^ 127 ", said.out, re.MULTILINE)


def test_what_was_chosen_changes_the_search(shell, service):
    said = shell("k 5", "paper s036", "seed 2", "not 1 3", "seen 1-2", "k 4")
    (first, second, third, *_) = found(service, paper_ids=["s036"], k=5)
    seeds = {"paper_ids": ["s036", second]}
    with_seed = found(service, **seeds, k=5)
    unwanted = [with_seed[0], with_seed[2]]
    without = found(service, **seeds, not_paper_ids=unwanted, k=5)
    assert said.ids == [
        [first, second, third, *_],
        with_seed,
        without,
        found(service, **seeds, not_paper_ids=unwanted, exclude=without[:2], k=4),
    ]
    assert "Left out from the next search on: 2 papers.\n" in said.out
    assert said.errors == []


def test_what_is_searched_with_is_listed(shell, service):
    said = shell("k 3", "facet method", "paper s036", "seed 1", "not 2", "seen 3", "seeds")
    seed, *_ = found(service, paper_ids=["s036"], facet="method", k=3)
    rows = [
        tuple(line.split(None, 1))
        for line in said.out.rpartition("1 paper.\n")[2].splitlines()
        if line[2] != " "
    ]
    assert ("paper", f"{seed}  {service.index.paper(seed).title}") in rows
    assert {("k", "3"), ("facet", "method"), ("rerank", "off")} < set(rows)
    assert {name for name, _ in rows} == {"paper", "not", "seen", "k", "facet", "rerank"}


def test_a_hit_becomes_the_query_in_place_of_a_text(shell, service):
    said = shell("k 2", "text", *ABSTRACT, "", "seed 1")
    (first, _) = found(service, text="\n".join(ABSTRACT), k=2)
    assert said.ids[1] == found(service, paper_ids=[first], k=2)
    assert "The search goes on from these papers, without the text.\n" in said.out


def test_why_shows_both_sentences(shell, service):
    said = shell("k 2", "facet method", "paper s036", "why 2")
    record = service.search(SearchBody(paper_ids=["s036"], facet="method", k=2, rerank=False))
    text = " ".join(said.out.rpartition("the next hits\n")[2].split())
    assert f"2 {record['hits'][1]['score']:.4f} {record['hits'][1]['title']}" in text
    for match in record["hits"][1]["matches"]:
        assert f"~{match['query_position']} {match['score']:.4f} {match['facet']} " in text
        assert match["query_sentence"] in text and match["sentence"] in text


def test_an_abstract_is_shown_with_its_facets(shell, service):
    said = shell("k 1", "facet method", "paper s036", "show", "show 1", "show s031")
    text = " ".join(said.out.split())
    assert "*2 method: We train a sentence encoder without labels" in text
    assert " 0 background: Authors often know that a statement needs a reference" in text
    for paper_id in ("s051", "s031"):
        paper = service.paper(paper_id)
        for sentence in paper["sentences"]:
            assert f" {sentence['position']} {sentence['facet']}: {sentence['text']}" in text


def test_citations_are_recommended(shell):
    said = shell("k 2", "paper s036", "cite", "more", "show")
    assert said.errors == []
    assert "\nPapers for “Two Crops of a Paragraph" in said.out
    assert re.search(r"^   4 ", said.out, re.MULTILINE)


def test_reranking_shows_the_first_stage_at_once_and_then_the_order(shell, service):
    said = shell("k 3", "year 2020", "rerank on", "facet method", "paper s036", "more", "rerank off")
    question = {"paper_ids": ["s036"], "facet": "method", "year_from": 2020, "year_to": 2020, "k": 3}
    first = found(service, **question)
    assert said.ids == [
        first,
        found(service, **question, rerank=True),
        found(service, **question, rerank=True, start=3),
        first,
    ]
    assert said.out.count("reranked:") == 1


def test_hits_and_seeds_are_exported_to_new_files(shell, service, tmp_path):
    path = tmp_path / "my papers.txt"
    all_hits, seeds = f"export json {tmp_path}/all", f"export json {tmp_path}/some seeds"
    said = shell("k 2", "paper s036 s051", f"export ris '{path}' 2", "more", all_hits, seeds, all_hits)
    (second, *_) = said.ids[0][1:]
    assert path.read_text(encoding="utf-8") == service.export(Export(paper_ids=[second], format="ris"))
    assert f"1 paper written to {path}.\n" in said.out
    written = [
        [json.loads(line)["paper_id"] for line in (tmp_path / name).read_text().splitlines()]
        for name in ("all", "some")
    ]
    assert written == [said.ids[0] + said.ids[1], ["s036", "s051"]]
    assert said.errors == [
        f"error: {tmp_path}/all: expected the name of a new file, found one; choose another name"
    ]


def test_reset_begins_anew(shell):
    said = shell("k 2", "paper s036", "seen 1", "reset", "more", "show", "paper s036")
    assert said.errors == [
        "error: expected a search before",
        "error: expected something to show; begin with paper ID or text",
    ]
    assert [len(page) for page in said.ids] == [2, 10]


def test_help_lists_all_commands(shell):
    listed = shell("help").out
    named = [line.split()[0] for line in listed.splitlines() if line[2] != " "]
    assert named == [name[3:] for name in vars(Shell) if name.startswith("do_")]
    assert shell("help more").out == "  more  the next hits\n"


ERRORS = {
    "shwo": "expected a command, found 'shwo'; did you mean show?",
    "paper": "expected the id of a paper, found none; Tab completes it",
    "paper nosuch": "expected the id, DOI, arXiv id or title of one of the 128 papers of the index, found "
    "'nosuch'; check it",
    "facet problem": "facet: input should be 'background', 'method' or 'result'",
    "like": "expected facets such as method or method:0.5, found none",
    "sentences one": "expected sentence positions such as 0,3, found 'one'; check sentences",
    "year then": "expected years such as 2015-2019, 2015-, -2019, 2018 or query, found 'then'",
    "category": "expected categories such as cs.CL, or all, found none",
    "k ten": "expected a number of hits, found 'ten'",
    "more": "expected a search before",
    "why x": "expected numbers of hits from 1 to 0, such as 1 3 5-7, found 'x'",
    "seed": "expected numbers of hits, such as 1 3 5-7, found none",
    "seen 1-999999": "expected numbers of hits from 1 to 0, such as 1 3 5-7, found '1-999999'",
    "cite": "expected something to search with; begin with paper ID or text",
    "export bibtex": "expected a format (bibtex, ris, csv, markdown, json) and a file, found 'bibtex'",
    "export bibtex a seeds": "expected papers to export, found none",
    "rerank": "expected on or off, found ''",
    "quit now": "expected the command alone, found 'now' after it",
    "text\n.": "expected an abstract, found none",
}


@pytest.mark.parametrize("line", ERRORS)
def test_errors_are_one_line_and_the_shell_goes_on(shell, line):
    said = shell(line, "help more")
    assert said.errors == [f"error: {ERRORS[line]}"]
    assert said.out == "  more  the next hits\n"


def test_errors_about_hits_name_those_there_are(shell, tmp_path):
    said = shell("k 2", "paper s036", "why 3", "seed 1", "sentences 0", f"export x {tmp_path}/a 1")
    assert said.errors == [
        "error: expected numbers of hits from 1 to 2, such as 1 3 5-7, found '3'",
        "error: expected one paper for sentences, found 2",
        "error: format: input should be 'bibtex', 'ris', 'csv', 'markdown' or 'json'",
    ]
    assert not list(tmp_path.iterdir())


def test_what_fails_changes_nothing(shell):
    said = shell("k 2", "facet method", "paper s036", "paper nosuch", "sentences 99", "year 3-2", "more")
    assert len(said.errors) == 3
    assert len(said.ids) == 2
    assert said.ids[0] != said.ids[1]


def test_a_commit_is_picked_up_and_characters_that_a_terminal_acts_on_are_not_written(graded_index, tmp_path):
    folder = shutil.copytree(graded_index, tmp_path / "index")
    paper = Paper("new", "On \x1b[2Jfish\x07", (Sentence("Fish \x9bswim."), Sentence("We watch.")))
    with open_index(folder) as index, SearchService(index, limits=PATIENT) as service:
        with open_index(folder) as other:
            other.append([paper])
        out = io.StringIO()
        Shell(service, io.StringIO("paper new\nshow\nseeds\n"), out, out).run()
    assert out.getvalue().startswith("Papers like")
    assert "On [2Jfish" in out.getvalue()
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", out.getvalue())


@pytest.fixture
def completed(service):
    """Completes the last word of a line."""
    opened = Shell(service, io.StringIO(), io.StringIO(), io.StringIO())
    return lambda line: opened.completedefault(line.rpartition(" ")[2], line)


def test_arguments_are_completed(completed):
    assert completed("facet ") == ["background", "method", "result", "all"]
    assert completed("explore same-m") == ["same-method-other-problem"]
    assert completed("paper s03") == [f"s03{digit}" for digit in range(10)]
    assert completed("paper s001 s12") == [f"s12{digit}" for digit in range(9)]
    assert completed("show x") == []
    assert completed("more s0") == []


def run(index: Path, text: bytes) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "qbe.shell", "--index", str(index)]
    return subprocess.run(command, input=text, capture_output=True, check=False, env=ENVIRONMENT)


def test_commands_come_through_a_pipe_without_a_prompt(graded_index):
    done = run(graded_index, "k 1\npaper s036\npaper \udcff\nhelp more\n".encode(errors="surrogateescape"))
    assert done.returncode == 0
    out = done.stdout.decode()
    assert out.startswith("Papers like “Two Crops")
    assert out.endswith("  more  the next hits\n")
    assert "qbe>" not in out
    assert done.stderr.decode().startswith("error: expected the id, DOI, arXiv id or title of one of ")
    assert done.stderr.count(b"\n") == 1


def test_an_index_that_is_none_is_one_line(tmp_path):
    done = run(tmp_path, b"")
    assert done.returncode == 1
    assert done.stdout == b""
    assert done.stderr.startswith(b"qbe shell: ")
    assert done.stderr.count(b"\n") == 1

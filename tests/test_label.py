"""Pairs graded by a language model: where they come from, what the command writes, agreement, reranking."""

import hashlib
import json
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from support.endpoint import answer, endpoint, error, grades, kept
from support.messages import messages_of, refusals
from support.searching import ids

from qbe import Facet, Fused, LanguageModel, Query, SearchRequest, SearchSession
from qbe.cli.label import main
from qbe.cli.search import main as search_main
from qbe.errors import FileFormatError, QbeError, UsageError
from qbe.index.index import Index
from qbe.index.share import pack_index, pull
from qbe.label import pairs as files
from qbe.label.grading import HandGrades, agreement
from qbe.label.pairs import Pair, read_pairs, write_pairs
from qbe.runs import read_graded_pairs
from qbe.util.work import ordered_map

pytestmark = pytest.mark.slow

QUERIES = ["s036", "s024", "s011"]


@pytest.fixture
def label(tiny_index, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("queries.txt").write_text("\n".join(QUERIES))

    def run(*arguments: object) -> str:
        main(["--index", str(tiny_index), *map(str, arguments)])
        return capsys.readouterr().out

    return run


def by_words(request) -> object:
    return grades(len(request.prompt) % 4, len(request.prompt) % 3, 0)


@pytest.fixture(scope="module")
def pairs(index) -> list[Pair]:
    return files.pool_candidates(index, QUERIES, 14, seed=0)


def test_candidates_come_from_all_pools_in_turn(pairs):
    for query in QUERIES:
        assert Counter(pair.pool for pair in pairs if pair.query_id == query) == dict.fromkeys(files.POOLS, 2)
        candidates = [pair.paper_id for pair in pairs if pair.query_id == query]
        assert candidates == sorted(set(candidates) - {query})


def test_the_best_by_each_facet_are_candidates_and_far_ones_are_in_no_ranking(index, pairs):
    with SearchSession(index, Fused()) as session:
        for query in QUERIES:
            found = {pair.paper_id: pair.pool for pair in pairs if pair.query_id == query}
            for facet in Facet:
                (best,) = session.search(SearchRequest(Query(index.paper(query), facet), 1)).hits
                assert best.paper_id in found
            near = session.search(SearchRequest(Query(index.paper(query)), 60)).hits
            assert files.FAR not in {found.get(hit.paper_id) for hit in near}


def test_pairs_without_a_model_have_no_grades(label):
    printed = label("--queries", "queries.txt", "--sample", 2, "--candidates", 6, "--output", "pairs.tsv")
    assert "pairs.tsv: 12 pairs of 2 query papers" in printed
    assert Path("pairs.tsv").read_text().startswith("query_id\tpaper_id\tpool\n")
    assert len(read_pairs("pairs.tsv")) == 12


def test_query_papers_are_those_with_a_keyword(label, index):
    found = files.ids_with(index, ["posts and  health", "SALMON"])
    texts = [f"{paper.title} {paper.abstract}".lower() for paper in map(index.paper, found)]
    assert found
    assert all(re.search(r"\b(posts and health|salmon)\b", text) for text in texts)
    label("--keywords", "posts and health", "--candidates", 7, "--output", "pairs.tsv")
    named = files.ids_with(index, ["Posts and Health"])
    assert {pair.query_id for pair in read_pairs("pairs.tsv")} == {*named}


def test_the_first_papers_of_runs_are_pairs(tmp_path, monkeypatch):
    """Of q_method and q, which are the same paper's, without that paper; no index is needed."""
    monkeypatch.chdir(tmp_path)
    runs = {"one": ("q_method", "qabc"), "two": ("q", "cdab"), "three": ("r", "ab")}
    for name, (query, order) in runs.items():
        hits = (f"{query} Q0 {paper} {n} {9 - n} tag\n" for n, paper in enumerate(order, 1))
        Path(f"{name}.trec").write_text("".join(hits))
    Path("topics.tsv").write_text("query_id\tpaper_id\tfacet\nq_method\tq\tmethod\n")
    files = [f"{name}.trec" for name in runs]
    main(["--runs", *files, "--depth", "2", "--topics", "topics.tsv", "--output", "pairs.tsv"])
    assert read_pairs("pairs.tsv") == [
        *(Pair("q", "a", "one"), Pair("q", "b", "one"), Pair("q", "c", "two"), Pair("q", "d", "two")),
        *(Pair("r", "a", "three"), Pair("r", "b", "three")),
    ]
    main(["--runs", *files[:2], "--topics", "topics.tsv", "--output", "all.tsv"])
    assert [(pair.paper_id, pair.pool) for pair in read_pairs("all.tsv")] == [
        *(("a", "one+two"), ("b", "one+two"), ("c", "one+two"), ("d", "two"))
    ]


GRADED = ("--queries", "queries.txt", "--candidates", 6, "--output", "graded.tsv", "--model", "tiny")


def test_graded_pairs_are_what_training_reads(label):
    with endpoint(by_words) as server:
        printed = label(*GRADED, "--endpoint", server.url)
    assert "graded.tsv: 18 of 18 pairs graded; 18 requests and 7,740 tokens so far" in printed
    lists = read_graded_pairs("graded.tsv")
    assert list(lists) == QUERIES
    graded = {(query, pair.paper_id): pair.grades for query, pairs in lists.items() for pair in pairs}
    rows = kept(Path("graded.tsv.answers.sqlite"))
    assert {(each["query_id"], each["paper_id"]): tuple(each["grades"]) for each in rows} == graded
    assert [each["query_id"] for each in rows] != sorted(each["query_id"] for each in rows)  # shuffled


def test_two_facets_by_the_guideline_of_sciface(label):
    sent = answer('{"BG": {"score": 2, "reason": "stone"}, "MT": {"score": 3, "reason": "saw"}}')
    with endpoint(sent) as server:
        printed = label(*GRADED, "--guideline", "sciface", "--merge", "method:3:2", "--endpoint", server.url)
    assert "Be conservative" in server.requests[0].prompt
    assert [line.split()[0] for line in printed.splitlines()[1:]] == ["background", "method"]
    rows = [line.split("\t") for line in Path("graded.tsv").read_text().splitlines()[1:]]
    assert {tuple(row[2:5]) for row in rows} == {("2", "2", "")}


def test_an_estimate_asks_nothing(label):
    with endpoint(by_words) as server:
        printed = label(*GRADED, "--dry-run", "--endpoint", server.url, "--price", "1000000:0")
    found = re.search(r"18 requests, about ([\d,]+) tokens in .* about ([\d,]+)\.00", printed)
    assert found[1] == found[2]
    assert not server.requests
    assert sorted(path.name for path in Path().iterdir()) == ["queries.txt"]


def test_papers_without_abstracts_are_told(tiny_index, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("pairs.tsv").write_text("query_id\tpaper_id\ns001\ts002\ns001\ts003\n")
    line = ["--pairs", "pairs.tsv", "--output", "graded.tsv", "--dry-run"]
    line += ["--model", "tiny", "--endpoint", "http://127.0.0.1:1"]
    main(["--index", str(tiny_index), *line])
    assert "abstract" not in capsys.readouterr().err
    pack_index(tiny_index, "titles.tar.zst", abstracts=False)
    pull("titles.tar.zst", "titles")
    main(["--index", "titles", *line])
    assert "3 of 3 papers have no abstract" in capsys.readouterr().err


def test_a_budget_ends_and_a_larger_one_goes_on(label):
    with endpoint(by_words) as server:
        asked = (*GRADED, "--overwrite", "--endpoint", server.url, "--budget-requests")
        for budget in (10, 15):
            assert f"{budget} of 18 pairs graded" in label(*asked, budget)
            assert len(server.requests) == budget
        assert "18 of 18 pairs graded" in label(*asked, 99, "--merge", "1:0", "2:0")
    assert len(server.requests) == len({request.prompt for request in server.requests}) == 18
    lists = read_graded_pairs("graded.tsv").values()
    assert {grade for pairs in lists for pair in pairs for grade in pair[1]} == {0, 3}


def test_pairs_without_a_grade_are_told_and_asked_for_again(label):
    given = ("--pairs", "pairs.tsv", "--output", "graded.tsv", "--model", "tiny", "--parallel", 1)
    write_pairs("pairs.tsv", [Pair("s036", paper_id) for paper_id in ("s051", "s007", "s124")])
    with (
        endpoint(lambda request: answer("?") if "Posts and Health" in request.prompt else grades()) as server,
        pytest.raises(QbeError, match="found none for 1, such as s036 and s007"),
    ):
        label(*given, "--endpoint", server.url)
    assert [pair.paper_id for pair in read_graded_pairs("graded.tsv")["s036"]] == ["s051", "s124"]
    with endpoint(by_words) as server:
        label(*given, "--endpoint", server.url, "--overwrite")
    assert len(server.requests) == 1
    assert len(read_graded_pairs("graded.tsv")["s036"]) == 3


WRONG = (
    "",
    "--output o.tsv --model m --endpoint http://127.0.0.1:1/v1 --pairs none",
    "--output o.tsv --pairs queries.txt",
    "--output o.tsv --merge 3:2",
    "--output o.tsv --pairs queries.txt --merge 3:2",
    "--agreement a b --merge 3=2",
    "--output o.tsv --candidates 0",
    "--output o.tsv --sample 1000",
    "--output o.tsv --queries ids",
    "--output o.tsv --model m --price cheap",
    "--output o.tsv --model m",
    "--output o.tsv --model m --parallel 0",
    "--output queries.txt",
    "--output o.tsv --model m --answers ./o.tsv",
    "--output graded --sample 1",
    "--output hand --sample 1",
    "--output hand --pairs hand --model m",
    "--output o.tsv --keywords nosuchword",
    "--output o.tsv --runs queries.txt",
    "--output o.tsv --differences graded graded",
)


def test_wrong_options(label, monkeypatch, told):
    monkeypatch.delenv("QBE_LLM_ENDPOINT", raising=False)
    Path("ids").write_text("s036\nnosuch\n")
    write_pairs("graded", [Pair("s036", "s051")], [(3, 1, 0)])
    HandGrades([Pair("s036", "s051")], Path()).grade("hand", "s036", "s051", (3, 1, 0))
    Path("hand.tsv").rename("hand")
    before = {path: path.read_bytes() for path in Path().iterdir()}
    told("label", refusals(label, WRONG))
    assert {path: path.read_bytes() for path in Path().iterdir()} == before


def test_nothing_answered_is_asked_for_again_after_a_kill(label, light_index):
    """A command that is killed in the middle and goes on, and one that is left alone, ask the same."""
    answers, rng = Path("graded.tsv.answers.sqlite"), random.Random(0)
    write_pairs("pairs.tsv", [Pair("s036", f"s{number:03}") for number in range(1, 36)])

    def behave(request) -> object:
        time.sleep(0.03)
        return error(429, Retry_After="0.01") if rng.random() < 0.1 else by_words(request)

    def line(url: str, output: str) -> list[str]:
        given = ["--index", str(light_index), "--pairs", "pairs.tsv", "--output", output]
        return [*given, "--model", "tiny", "--endpoint", url, "--parallel", "2"]

    with endpoint(behave) as server:
        process = subprocess.Popen([sys.executable, "-m", "qbe", "label", *line(server.url, "graded.tsv")])
        while len(server.requests) < 15:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not Path("graded.tsv").exists()
        answered = {row["digest"] for row in kept(answers)}
        time.sleep(0.1)
        before = len(server.requests)
        main(line(server.url, "graded.tsv"))
        prompts = [json.dumps(["tiny", request.prompt]) for request in server.requests[before:]]
        asked = {hashlib.sha256(prompt.encode()).hexdigest() for prompt in prompts}
    assert len(answered) >= 10
    assert not answered & asked
    with endpoint(by_words) as server:
        main(line(server.url, "alone.tsv"))
    assert Path("graded.tsv").read_bytes() == Path("alone.tsv").read_bytes()


@pytest.fixture
def two(tmp_path, monkeypatch) -> tuple[str, str]:
    monkeypatch.chdir(tmp_path)
    pairs = [Pair("q", "a"), Pair("q", "b"), Pair("r", "a"), Pair("r", "b"), Pair("r", "c")]
    write_pairs("a.tsv", pairs[:4], [(3, 0, 1), (1, 0, 1), (2, 1, 1), (0, 2.5, 1)])
    write_pairs("b.tsv", pairs, [(3, 0, 1), (0, 1, 2), (2, 1, 0), (1, 3, 1), (0, 0, 0)])
    return "a.tsv", "b.tsv"


def test_figures_of_agreement_by_hand(two):
    write_pairs("c.tsv", [Pair("x", "y")], [(0, 0, 0)])
    with pytest.raises(FileFormatError):  # files that share no pair
        agreement("a.tsv", "c.tsv")
    found = agreement(*two)
    assert (found.pairs, found.queries, found.only) == (4, 2, (0, 1))
    background, method, result = found.facets
    # squared differences 0, 1, 0, 1; variances 1.25 and 1.25, means alike: 1 - 0.5 / 2.5
    assert background.kappa == pytest.approx(0.8)
    assert background.plain_kappa == pytest.approx(1 / 3)  # half are equal, a quarter by chance
    # squared differences of ranks 0, 4, 0, 4; the variance of 1.5, 1.5, 3.5, ..., 7.5 is 40 / 7
    assert background.alpha == pytest.approx(1 - 2 / (80 / 7))
    # ranks 4, 2, 3, 1 and 4, 1, 3, 2: 1 - 6 * 2 / (4 * 15)
    assert background.spearman == pytest.approx(0.8)
    assert background.median_spearman == 1.0
    assert (background.equal, background.same_side) == (0.5, 1.0)
    assert background.confusion == {(3, 3): 1, (1, 0): 1, (2, 2): 1, (0, 1): 1}
    assert method.grades == (0.875, 1.25)
    assert (result.kappa, result.spearman) == (0.0, None)
    assert agreement("a.tsv", "a.tsv").facets[2][3:6] == (None, None, None)  # one grade alone


def test_agreement_with_grades_merged(two):
    background, method, _ = agreement(two[0], two[1], files.parse_merges(["3:2", "1:0"])).facets
    assert background.kappa == background.spearman == background.equal == 1.0
    assert method.confusion == {(0, 0): 2, (2.0, 2): 1} | {(0, 0): 3}
    background, method, _ = agreement(two[0], two[1], files.parse_merges(["method:3:2", "method:1:0"])).facets
    assert (background.kappa, method.confusion) == (pytest.approx(0.8), {(0, 0): 3, (2, 2): 1})


def test_agreement_is_printed(two, capsys):
    main(["--agreement", *two])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "4 pairs of 2 queries in both; 0 only in a.tsv, 1 only in b.tsv"
    assert " ".join(lines[3].split()) == "background 0.80 0.33 0.82 0.80 1.00 0.50 1.00 1.50 1.50"
    assert lines[7:13] == [
        "background: grades of a.tsv (rows) and b.tsv (columns)",
        "           0      1      2      3",
        "    0      0      1      0      0",
        "    1      1      0      0      0",
        "    2      0      0      1      0",
        "    3      0      0      0      1",
    ]
    main(["--agreement", *two, "--format", "json"])
    assert json.loads(capsys.readouterr().out)["facets"]["background"]["kappa"] == pytest.approx(0.8)


def test_what_grades_are_merged_and_compared(two, told):
    main(["--pairs", "a.tsv", "--merge", "3:2", "--output", "merged.tsv"])
    assert [pair.grades for pair in read_graded_pairs("merged.tsv")["r"]] == [(2, 1, 1), (0, 2, 1)]
    write_pairs("twice.tsv", [Pair("q", "a")] * 2, [(3, 1, 0), (2, 1, 0)])
    write_pairs("hand.tsv", [Pair("q", "a")], [(3, 1, 0)], "ann")
    lines = [
        "--pairs twice.tsv --merge 3:2 --output o.tsv",
        "--agreement a.tsv twice.tsv",
        "--pairs a.tsv --merge 3:2 --output hand.tsv",
    ]
    told("grades merged and compared", refusals(lambda *words: main(list(words)), lines))
    assert read_graded_pairs("hand.tsv")["q"][0].grades == (3, 1, 0)
    for text in ("3:12", "23:1", ":2", "3:", "3:2:1", "3=2", "3", "mood:3:2", "method:3", "a:method:3:2"):
        with pytest.raises(UsageError, match="as in 3:2"):
            files.parse_merges([text])


def test_a_third_assessor_decides_where_two_differ(two):
    main(["--differences", *two, "--output", "third.tsv"])
    assert [pair[:2] for pair in read_pairs("third.tsv")] == [("q", "b"), ("r", "a"), ("r", "b")]
    write_pairs("c.tsv", read_pairs("third.tsv"), [(2, 2, 2), (3, 3, 3), (1, 2.5, 0)], "cy")
    main(["--adjudicate", *two, "c.tsv", "--output", "decided.tsv"])
    assert list(files.read_grades("decided.tsv").values()) == [(3, 0, 1), (2, 2, 2), (2, 1, 3), (1, 2.5, 1)]
    write_pairs("c.tsv", [Pair("q", "b")], [(2, 2, 2)])
    with pytest.raises(FileFormatError, match="found none of r and a; grade those that are left"):
        main(["--adjudicate", *two, "c.tsv", "--output", "decided.tsv", "--overwrite"])


def test_a_facet_without_grades_stays_empty(two):
    none = float("nan")
    write_pairs("half.tsv", [Pair("q", "a"), Pair("q", "b")], [(3, 1, none), (0, 2, none)])
    assert Path("half.tsv").read_text().splitlines()[1] == "q\ta\t3\t1\t\tgiven"
    assert [each.facet for each in agreement("half.tsv", "b.tsv").facets] == [Facet.BACKGROUND, Facet.METHOD]
    with pytest.raises(FileFormatError, match="numbers from 0 to 3 as grades"):
        read_graded_pairs("half.tsv")
    main(["--pairs", "half.tsv", "--merge", "3:2", "--output", "merged.tsv"])
    assert Path("merged.tsv").read_text().splitlines()[1] == "q\ta\t2\t1\t\tgiven"


@pytest.fixture(scope="module")
def asked(index) -> SearchRequest:
    return SearchRequest(Query(index.paper("s036"), Facet.METHOD), k=20)


@pytest.fixture(scope="module")
def third(index, asked):
    with SearchSession(index, Fused()) as session:
        return index.paper(session.search(asked).hits[2].paper_id)


def by_model(server, depth: int):
    return Fused() >> LanguageModel("tiny", server.url, depth=depth)


def test_grades_order_the_best_papers(index, third, asked):
    def behave(request) -> object:
        return grades(0, 3, 0) if third.title in request.prompt else grades(3, 1, 2)

    with endpoint(behave) as server, SearchSession(index, by_model(server, 10)) as session:
        first, second = session.run(asked)
        assert len(server.requests) == 10
        assert session.search(asked).hits == second.hits  # nothing is asked twice
        assert len(server.requests) == 10
    order = ids(first.hits)
    assert order.pop(2) == third.paper_id
    assert ids(second.hits) == [third.paper_id, *order]
    assert second.hits[0].grades == {"background": 0, "method": 3, "result": 0}
    assert not second.notes


def test_a_paper_without_a_grade_is_told_and_kept(index, third, asked, caplog):
    def behave(request) -> object:
        return error(400, "too long") if third.title in request.prompt else grades(method=1)

    with endpoint(behave) as server, SearchSession(index, by_model(server, 10)) as session:
        first, second = session.run(asked)
    assert ids(second.hits) == ids(first.hits)
    assert second.notes == (f"tiny gave no grades for {third.paper_id}",)
    assert third.paper_id in caplog.text
    assert "too long" in caplog.text


CROSSED = {Facet.METHOD: 1, Facet.BACKGROUND: -1}


def test_all_facets_of_a_query_are_graded_at_once(index):
    paper = index.paper("s036")
    with endpoint(by_words) as server, SearchSession(index, by_model(server, 5)) as session:
        hits = session.search(SearchRequest(Query.by_facets(paper, CROSSED), k=10)).hits
        session.search(SearchRequest(Query(paper), k=10))
    assert len(server.requests) <= 10  # of two rankings, five of each
    wanted = [hit.grades["method"] - hit.grades["background"] for hit in hits[:5]]
    assert wanted[0] == max(wanted)


def test_a_language_model_ranks_where_the_grade_model_would(graded_index):
    with endpoint(by_words) as server, Index(graded_index) as graded:
        query = Query.by_facets(graded.paper("s036"), CROSSED)
        with SearchSession(graded, by_model(server, 3)) as session:
            assert session.can_grade
            hits = session.search(SearchRequest(query, k=4, grades=True)).hits
    assert len(server.requests) == 3
    assert all(isinstance(grade, int) for hit in hits[:3] for grade in hit.grades.values())


def test_a_table_says_whose_grades_it_shows(tiny_index, capsys):
    with endpoint(by_words) as server:
        given = ["--index", str(tiny_index), "--paper", "s036", "--facet", "method", "--hits", "3"]
        given += ["--rerank", f"llm:model=tiny,endpoint={server.url},depth=3"]
        for form in ("table", "markdown"):
            search_main([*given, "--format", form])
            assert capsys.readouterr().out.count(" of 3, by tiny") == 3


def test_an_endpoint_that_answers_nothing_ends_the_search(index, asked):
    ended = pytest.raises(QbeError, match="choose another")
    with endpoint(error(400)) as server, SearchSession(index, by_model(server, 2)) as session, ended:
        session.search(asked)


def test_grades_by_hand_are_kept_for_each_assessor(tmp_path):
    pairs = [Pair("q", name, "far") for name in "abcdef"]
    hands = HandGrades(pairs, tmp_path)
    orders = []
    for assessor in ("ann", "ben"):
        order, turn = [], hands.turn(assessor)
        while turn.pair is not None:
            order.append(turn.pair.paper_id)
            turn = hands.grade(assessor, "q", turn.pair.paper_id, (len(order) % 4, 0, 3))
        assert turn == (None, 6, 6)
        orders.append(order)
    assert orders[0] != orders[1]
    hands.grade("ann", "q", "a", (1, 1, 1))  # corrected
    again = HandGrades(pairs, tmp_path)
    assert again.turn("ann") == (None, 6, 6)
    assert again.turn("cy").graded == 0
    assert read_graded_pairs(tmp_path / "ann.tsv")["q"][0] == ("a", (1, 1, 1))
    assert agreement(tmp_path / "ann.tsv", tmp_path / "ben.tsv").pairs == 6
    present = {"q", "b"}  # of papers that left the index nothing is asked, and no grade is lost
    assert again.turn("cy", present) == (Pair("q", "b", "far"), 0, 1)
    assert again.grade("cy", "q", "b", (0, 0, 0), present) == (None, 1, 1)


def test_servers_of_the_same_pairs_lose_no_grade(tmp_path):
    pairs = [Pair("q", f"p{number}") for number in range(40)]
    hands = [HandGrades(pairs, tmp_path) for _ in range(4)]

    def grade(place):
        for pair in pairs[place::4]:
            hands[place].grade("ann", "q", pair.paper_id, (0, 1, 2))

    list(ordered_map(grade, range(4), threads=4))
    assert hands[0].turn("ann").graded == 40


def test_what_is_no_name_or_pair_writes_nothing(tmp_path, told):
    hands = HandGrades([Pair("q", "a")], tmp_path / "grades")
    (tmp_path / "outside.tsv").write_text("notes")
    wrong = (("../outside", "a"), ("Ann", "a"), ("", "a"), ("ann", "b"), ("a" * 41, "a"))
    graded = [partial(hands.grade, assessor, "q", paper_id, (0, 0, 0)) for assessor, paper_id in wrong]
    told("grades by hand", messages_of(graded, UsageError))
    assert (tmp_path / "outside.tsv").read_text() == "notes"
    assert not (tmp_path / "grades").exists()

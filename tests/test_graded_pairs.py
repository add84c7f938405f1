"""Graded pairs: their files, errors, and the pairs of the repository."""

from pathlib import Path

import pytest

from qbe.runs import GradedPair, has_graded_pairs, read_graded_pairs
from qbe.train.pairs import DATA, pair_files, papers_of, without

HEADER = "query_id\tpaper_id\tbackground\tmethod\tresult\n"


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_pairs_are_read_by_query_in_order(tmp_path):
    text = "note\tresult\tpaper_id\tmethod\tbackground\tquery_id\n"
    text += "x\t0.5\tp2\t1\t2\tq1\n\t0\tp1\t0\t3\tq2\nz\t3\tp1\t2.5\t0\tq1\n"
    actual = read_graded_pairs(write(tmp_path / "pairs.tsv", text))
    assert actual == {
        "q1": [GradedPair("p2", (2, 1, 0.5)), GradedPair("p1", (0, 2.5, 3))],
        "q2": [GradedPair("p1", (3, 0, 0))],
    }
    assert list(actual) == ["q1", "q2"]


def test_files_of_pairs_are_told_by_their_first_line(tmp_path):
    assert has_graded_pairs(write(tmp_path / "pairs.tsv", HEADER))
    assert has_graded_pairs(write(tmp_path / "more.tsv", "note\t" + HEADER))
    assert not has_graded_pairs(write(tmp_path / "run.qrels", "q_method 0 p 3\n"))
    assert not has_graded_pairs(write(tmp_path / "empty.tsv", ""))


def test_leaving_papers_out():
    a, b, c = (GradedPair(name, (1, 2, 3)) for name in "abc")
    lists = {"q1": [a, b], "q2": [b], "a": [c], "q3": [c, a]}
    assert without(lists, frozenset("b")) == {"q1": [a], "a": [c], "q3": [c, a]}
    assert without(lists, frozenset("a")) == {"q1": [b], "q2": [b], "q3": [c]}
    assert without(lists, frozenset()) == lists
    assert papers_of(lists, {"q9": [c]}) == {"q1", "q2", "q3", "q9", "a", "b", "c"}


@pytest.fixture(scope="module")
def of_the_repository() -> list[dict[str, list[GradedPair]]]:
    return list(map(read_graded_pairs, pair_files([DATA / "graded-pairs"])))


def test_the_pairs_of_the_repository(of_the_repository):
    *parts, again = of_the_repository
    assert list(map(len, parts)) == [640, 264, 1700, 960, 960, 520]
    lists = {query: pairs for part in parts for query, pairs in part.items()}
    # train-7 has further candidates of their queries, and of six of facet-judgments.
    assert (len(again), sum(map(len, again.values())), len(again.keys() - lists.keys())) == (80, 763, 6)
    known = {query: {pair.paper_id for pair in candidates} for query, candidates in lists.items()}
    assert not any(pair.paper_id in known.get(query, ()) for query, them in again.items() for pair in them)
    pairs = [(query, pair.paper_id) for query, candidates in lists.items() for pair in candidates]
    assert (len(lists), len(pairs), len(set(pairs))) == (5044, 88_442, 88_442)
    for number, part in enumerate(parts):
        steps = {4 * grade for candidates in part.values() for pair in candidates for grade in pair.grades}
        two_assessors = number == len(parts) - 1  # a tenth of train-6: means of halves
        assert steps == set(range(0, 13, 1 if two_assessors else 2))
    assert not any(query == candidate for query, candidate in pairs)


def test_the_pairs_of_the_repository_keep_clear_of_those_they_extend(of_the_repository):
    *parts, _ = of_the_repository
    lists = {query: pairs for part in parts for query, pairs in part.items()}
    train, dev = (read_graded_pairs(DATA / "facet-judgments" / f"{part}.tsv") for part in ("train", "dev"))
    assert (len(train), len(dev)) == (442, 46)
    assert not lists.keys() & (train.keys() | dev.keys())
    assert not papers_of(lists) & dev.keys()
    dev_2 = read_graded_pairs(DATA / "graded-pairs" / "dev-2.tsv")
    assert {len(pairs) for pairs in dev_2.values()} == {60}
    assert len(dev_2) == 48
    assert not dev_2.keys() & (lists.keys() | train.keys() | dev.keys())
    assert not any(papers_of(part) & dev_2.keys() for part in parts[2:])
    dev_3 = read_graded_pairs(DATA / "graded-pairs" / "dev-3.tsv")
    assert {len(pairs) for pairs in dev_3.values()} == {24}
    assert len(dev_3) == 40
    assert not dev_3.keys() & papers_of(lists, train, dev, dev_2)
    assert not papers_of(dev_2) & dev.keys()

"""The sample in the package is as its README says, and its judgements follow from its layout."""

import json
import re
from collections import Counter
from itertools import permutations
from pathlib import Path

import pytest

import qbe.datasets.embedded
from qbe.datasets.embedded import FACTORS, Layout, Place, grade, pool, read_layout
from qbe.topics import read_pools, read_topics, write_pools
from qbe.trec import Judgment, write_qrels
from qbe.types import Facet

SAMPLE = Path(qbe.datasets.embedded.__file__).with_name("sample")
PAPERS = [json.loads(line) for line in (SAMPLE / "papers.jsonl").read_text(encoding="utf-8").splitlines()]
LAYOUT = read_layout(SAMPLE / "layout.json")
TOPICS = read_topics(SAMPLE / "topics.tsv")
POOLS = {topic.query_id: pool(LAYOUT, topic.paper_id, topic.facet) for topic in TOPICS}


def facets_of(paper: dict) -> list[Facet | None]:
    return [Facet.from_label(label) for label in paper["pred_labels"]]


def test_papers_are_complete_and_labelled() -> None:
    assert [paper["paper_id"] for paper in PAPERS] == [f"s{number:03}" for number in range(1, 129)]
    assert len({paper["title"] for paper in PAPERS}) == 128
    for paper in PAPERS:
        assert list(paper) == ["paper_id", "title", "abstract", "pred_labels", "metadata"]
        assert 4 <= len(paper["abstract"]) <= 6
        assert len(paper["pred_labels"]) == len(paper["abstract"])
        assert all(label.endswith("_label") for label in paper["pred_labels"])
        assert set(Facet) <= set(facets_of(paper))
        assert re.fullmatch(r"20\d\d", paper["metadata"]["year"])


def test_sentences_are_clean_and_never_repeat() -> None:
    sentences = [sentence for paper in PAPERS for sentence in paper["abstract"]]
    assert all(re.fullmatch(r"[A-Z]\S*( \S+)+[.?]", sentence) for sentence in sentences)
    assert len({sentence.casefold() for sentence in sentences}) == len(sentences)


def test_no_two_papers_share_seven_words_in_a_row() -> None:
    """Same variant, other words: lexical match must not suffice to predict judgements."""
    paper_of: dict[tuple[str, ...], str] = {}
    for paper in PAPERS:
        words = re.findall(r"\w+", " ".join(paper["abstract"]).casefold())
        for phrase in zip(*(words[start:] for start in range(7)), strict=False):
            assert paper_of.setdefault(phrase, paper["paper_id"]) == paper["paper_id"], phrase


def test_each_factor_is_balanced() -> None:
    for facet in Facet:
        places = Counter(place[facet] for place in LAYOUT.places.values())
        assert len(places) == 16
        assert set(places.values()) == {8}
        families = {place.family for place in places}
        assert len(families) == 8
        assert sorted(family for pair in LAYOUT.related[facet] for family in pair) == sorted(families)


def test_factors_are_independent_in_pairs() -> None:
    for first, second in permutations(Facet, 2):
        families: Counter[tuple[str, str]] = Counter()
        variants: Counter[tuple[Place, str]] = Counter()
        for place in LAYOUT.places.values():
            families[place[first].family, place[second].family] += 1
            variants[place[first], place[second].family] += 1
        assert len(families) == 64
        assert set(families.values()) == {2}
        assert len(variants) == 128
        assert set(variants.values()) == {1}


def test_variants_are_independent_within_a_family() -> None:
    factors = json.loads((SAMPLE / "layout.json").read_text(encoding="utf-8"))["factors"]
    rank = {
        facet: {
            Place(family, variant): number
            for family, variants in factors[factor].items()
            for number, variant in enumerate(variants)
        }
        for facet, factor in FACTORS.items()
    }
    for facet in Facet:
        combinations = Counter(
            (place[facet].family, *(rank[other][place[other]] for other in Facet))
            for place in LAYOUT.places.values()
        )
        assert len(combinations) == 8 * 2**3
        assert set(combinations.values()) == {2}


def test_queries_are_eight_a_facet_one_a_family() -> None:
    assert len(TOPICS) == 24
    assert len({topic.paper_id for topic in TOPICS}) == 24
    papers = {paper["paper_id"]: paper for paper in PAPERS}
    for facet in Facet:
        topics = [topic for topic in TOPICS if topic.facet is facet]
        # Also under the other two facets: no query family is favoured anywhere.
        for other in Facet:
            assert len({LAYOUT.places[topic.paper_id][other].family for topic in topics}) == 8
        for topic in topics:
            assert topic.query_id == f"{topic.paper_id}_{facet}"
            assert facet in facets_of(papers[topic.paper_id])


def test_pools_follow_from_the_layout(tmp_path: Path) -> None:
    write_pools(tmp_path / "pools.tsv", POOLS)
    assert (tmp_path / "pools.tsv").read_bytes() == (SAMPLE / "pools.tsv").read_bytes()
    committed = read_pools(SAMPLE / "pools.tsv")
    for topic in TOPICS:
        assert topic.paper_id not in committed[topic.query_id]
        assert len(committed[topic.query_id]) == 43


@pytest.mark.parametrize("facet", Facet, ids=str)
def test_judgements_follow_from_the_layout(facet: Facet, tmp_path: Path) -> None:
    topics = [topic for topic in TOPICS if topic.facet is facet]
    name = f"sample.{facet}.qrels"
    judgments = [
        Judgment(topic.query_id, paper_id, grade(LAYOUT, topic.paper_id, paper_id, facet))
        for topic in topics
        for paper_id in POOLS[topic.query_id]
    ]
    write_qrels(tmp_path / name, judgments)
    assert (tmp_path / name).read_bytes() == (SAMPLE / name).read_bytes()
    for topic in topics:
        grades = Counter(each.relevance for each in judgments if each.query_id == topic.query_id)
        assert grades == {3: 7, 2: 8, 1: 16, 0: 12}


def test_papers_outside_a_pool_are_irrelevant() -> None:
    for topic in TOPICS:
        judged = {topic.paper_id, *pool(LAYOUT, topic.paper_id, topic.facet)}
        assert {
            grade(LAYOUT, topic.paper_id, other, topic.facet) for other in LAYOUT.places.keys() - judged
        } == {0}


def test_folds_have_the_shape_of_csfcube() -> None:
    folds = json.loads((SAMPLE / "folds.json").read_text(encoding="utf-8"))
    assert list(folds) == ["background", "method", "result", "all"]
    for facet in Facet:
        fold = folds[facet.value]
        assert list(fold) == ["fold1_dev", "fold2_dev", "fold1_test", "fold2_test"]
        assert fold["fold1_test"] == fold["fold2_dev"]
        assert fold["fold2_test"] == fold["fold1_dev"]
        assert [len(queries) for queries in fold.values()] == [4, 4, 4, 4]
        expected = [topic.query_id for topic in TOPICS if topic.facet is facet]
        assert fold["fold1_dev"] + fold["fold2_dev"] == expected
        # Nothing relevant to a query of one fold is relevant to a query of the other.
        for first in fold["fold1_dev"]:
            for second in fold["fold2_dev"]:
                assert grade(LAYOUT, first.split("_")[0], second.split("_")[0], facet) == 0
    for name in ("fold1_dev", "fold2_dev", "fold1_test", "fold2_test"):
        assert folds["all"][name] == [query for facet in Facet for query in folds[facet.value][name]]


def tiny_layout(method_of_d: str = "m1") -> Layout:
    """Four papers, each with its own finding; problems: two variants of x, one of y, one of z."""
    problems = {"a": Place("x", "x1"), "b": Place("x", "x2"), "c": Place("y", "y1"), "d": Place("z", "z1")}
    methods = dict.fromkeys("abc", Place("m", "m1")) | {"d": Place("m", method_of_d)}
    places = {
        paper_id: {
            Facet.BACKGROUND: problems[paper_id],
            Facet.METHOD: methods[paper_id],
            Facet.RESULT: Place(f"f{paper_id}", "f1"),
        }
        for paper_id in "abcd"
    }
    related = {facet: frozenset({frozenset({"x", "y"})}) for facet in FACTORS}
    return Layout(places, related)


def test_grades_by_hand() -> None:
    layout = tiny_layout()
    assert [grade(layout, "a", other, Facet.BACKGROUND) for other in "abcd"] == [3, 2, 1, 0]
    assert [grade(layout, "c", other, Facet.BACKGROUND) for other in "abcd"] == [1, 1, 3, 0]
    assert [grade(layout, "a", other, Facet.RESULT) for other in "abcd"] == [3, 0, 0, 0]
    with pytest.raises(KeyError):
        grade(layout, "a", "unknown", Facet.METHOD)


def test_pools_by_hand() -> None:
    assert pool(tiny_layout(), "a", Facet.BACKGROUND) == ["b", "c", "d"]  # d only for its method
    assert pool(tiny_layout(method_of_d="n1"), "a", Facet.BACKGROUND) == ["b", "c"]

"""BM25 is Lucene's, as Pyserini searches it, and Lucene's is the formula."""

import json
from collections.abc import Iterable, Sequence
from math import log
from pathlib import Path
from typing import Any

import pytest

from qbe import BuildSettings, Facet, Hit, Paper, Query, Sentence, read_pools, read_topics
from qbe.corpus.json_formats import read_jsonl
from qbe.index.build import build
from qbe.index.index import Index
from qbe.index.jvm import java_class, silence_log4j
from qbe.index.lucene import contents
from qbe.index.share import pull
from qbe.index.update import append_papers, delete_papers
from qbe.models.encoding import EncodedAspect
from qbe.search.first_stages import BM25Stage, query_text
from qbe.search.stages import BM25_QUERIES
from qbe.util.work import Workers

pytestmark = pytest.mark.slow

ROUNDING = 6e-5  # Anserini rounds scores to four places, and lowers each of equal ones by a millionth


def bm25(
    index: Index, query: Query, k: int, pool: Sequence[str] | None = None, form: str = "title+facet"
) -> list[Hit]:
    stage = BM25Stage(index.reader, Workers(), form)
    return stage.batch_search([EncodedAspect.of(query.aspects[0])], k, [pool])[0]


def words(index: Index, query: Query, form: str) -> str:
    return query_text(EncodedAspect.of(query.aspects[0]), form, index.reader)


class Collection:
    """An index of ours, one that Anserini makes of the same texts, and queries, each with its form."""

    def __init__(self, folder: Path, source: Path) -> None:
        topics, papers = read_topics(source / "topics.tsv"), list(read_jsonl(source / "corpus.jsonl"))
        build(folder / "index", papers, BuildSettings(dense=False))
        self.index = Index(folder / "index")
        self.searched = (folder / "index" / "000001" / "lucene", folder / "anserini")
        queries = [Query(self.index.paper(topic.paper_id), topic.facet) for topic in topics]
        queries = [query for query in queries if query.aspects[0].paper.positions(query.aspects[0].facet)]
        self.queries = [(form, query) for query in queries for form in BM25_QUERIES]
        (folder / "documents").mkdir()
        with (folder / "documents" / "documents.jsonl").open("w") as stream:
            for paper in papers:
                stream.write(json.dumps({"id": paper.paper_id, "contents": contents(paper)}) + "\n")
        # What ``python -m pyserini.index.lucene`` calls, with the options of its documentation.
        options = ["-collection", "JsonCollection", "-input", str(folder / "documents")]
        options += ["-index", str(folder / "anserini"), "-generator", "DefaultLuceneDocumentGenerator"]
        java_class("io.anserini.index.IndexCollection").main([*options, "-threads", "1"])
        silence_log4j()


@pytest.fixture(scope="module")
def collection(tmp_path_factory, sample) -> Collection:
    return Collection(tmp_path_factory.mktemp("bm25"), sample)


def test_ranking_and_scores_are_those_of_anserinis_searcher(collection):
    """Of the class that Pyserini's ``LuceneSearcher`` calls, by either index."""
    searchers = [java_class("io.anserini.search.SimpleSearcher")(str(path)) for path in collection.searched]
    for form, query in collection.queries:
        found = [(hit.paper_id, hit.score) for hit in bm25(collection.index, query, 1000, form=form)]
        assert found
        for searcher in searchers:
            hits = searcher.search(words(collection.index, query, form), 1000)
            assert found == [(hit.docid, hit.score) for hit in hits]
    for searcher in searchers:
        searcher.close()
    assert len(collection.queries) >= 48


def test_scores_in_a_pool_are_those_of_the_whole_index(collection, sample):
    index = collection.index
    pools = read_pools(sample / "pools.tsv")
    for topic in read_topics(sample / "topics.tsv"):
        query = Query(index.paper(topic.paper_id), topic.facet)
        whole = {hit.paper_id: hit.score for hit in bm25(index, query, len(index))}
        ranked = bm25(index, query, 1000, pools[topic.query_id])
        assert sorted(hit.paper_id for hit in ranked) == sorted(pools[topic.query_id])
        for hit in ranked:
            assert hit.score == pytest.approx(whole.get(hit.paper_id, 0.0), abs=ROUNDING)
            assert hit.score >= 0


def paper(paper_id: str, title: str, *sentences: str) -> Paper:
    return Paper(paper_id, title, tuple(Sentence(text, Facet.METHOD) for text in sentences), labelled=True)


@pytest.fixture(scope="module")
def three(tmp_path_factory) -> Index:
    """Three documents of 2, 4 and 3 tokens; ``the`` is a stopword."""
    texts = (
        ("d1", "The cat", ["Dog."]),
        ("d2", "Cat", ["The cat, bird, fish."]),
        ("d3", "", ["Fish.", "Bird bird!"]),
    )
    records = ({"paper_id": name, "title": title, "abstract": text} for name, title, text in texts)
    return indexed(tmp_path_factory.mktemp("three"), records)


def indexed(folder: Path, records: Iterable[dict[str, Any]]) -> Index:
    (folder / "papers.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    build(folder / "index", [str(folder / "papers.jsonl")], BuildSettings(dense=False))
    return Index(folder / "index")


def test_postings_of_an_earlier_lucene_are_searched_and_by_an_update_indexed_again(three, tmp_path):
    """Those of the same papers by Lucene 9.9, packed; it does not add to them what it indexes itself."""
    folder = tmp_path / "updated"
    pull(str(Path(__file__).parent / "data" / "indexes" / "lucene-9.tar.zst"), folder)
    query = Query(paper("q", "", "bird dog fish"), Facet.METHOD)
    with Index(folder) as before:
        assert before.manifest.lucene["version"] == "9.9.1"
        assert bm25(before, query, 10) == bm25(three, query, 10)
    fourth = paper("d4", "Birds", "Dogs.")
    append_papers(folder, [fourth])
    delete_papers(folder, ["d1"])
    build(tmp_path / "fresh", [three.paper("d2"), three.paper("d3"), fourth], BuildSettings(dense=False))
    with Index(folder) as after, Index(tmp_path / "fresh") as fresh:
        assert after.manifest.lucene == fresh.manifest.lucene
        assert bm25(after, query, 10) == bm25(fresh, query, 10) != []
        assert not any("lucene-input" in name for name in after.manifest.files)


def score(*terms: tuple[int, int, int, int]) -> float:
    """BM25 with k1 = 0.9 and b = 0.4 as Lucene has it, without the constant factor k1 + 1.

    A term is (documents that have it, its frequency in the document, the document's length, its
    frequency in the query); three documents, three tokens in the mean.
    """
    return sum(
        weight * log(1 + (3 - df + 0.5) / (df + 0.5)) * tf / (tf + 0.9 * (0.6 + 0.4 * length / 3))
        for df, tf, length, weight in terms
    )


def test_pools_keep_papers_without_a_common_word(three):
    query = Query(paper("q", "", "dog"), Facet.METHOD)
    found = bm25(three, query, 10, ["d3", "d2", "d1"])
    assert [(hit.paper_id, hit.score > 0) for hit in found] == [("d1", True), ("d2", False), ("d3", False)]
    assert [hit.score for hit in found[1:]] == [0.0, 0.0]
    assert bm25(three, query, 2, ["d3", "d2", "d1"]) == found[:2]


def test_a_query_may_have_any_number_of_terms(three):
    words = " ".join(f"w{number}x" for number in range(3000))
    few = bm25(three, Query(paper("q", "cat", "dog")), 10)
    assert bm25(three, Query(paper("q", "cat", "dog", words)), 10) == few


def test_query_forms(three):
    sentences = (Sentence("A.", Facet.METHOD), Sentence("B."), Sentence("C.", Facet.METHOD))
    query = Query(Paper("q", "Title", sentences, True), Facet.METHOD)
    texts = {"title+facet": "Title A. C.", "facet": "A. C.", "title": "Title", "abstract": "Title A. B. C."}
    assert {form: words(three, query, form) for form in texts} == texts
    assert words(three, Query(query.aspects[0].paper, positions=(2, 1)), "title+facet") == "Title C. B."


def test_key_terms_are_frequent_in_the_text_and_rare_in_the_collection(three):
    """Bo1: dog 2 log2(4) + log2(4/3), fish log2(2.5) + log2(5/3), birds and cats 1 + 1; ties by stem."""
    terms = three.reader.key_terms("Cats, birds; the dog, unknown dogs' fish")
    assert terms == ["dog", "fish", "birds", "Cats"]
    query = Query(paper("q", "The dog", "Unknown birds."), Facet.METHOD)
    assert words(three, query, "keyterms") == "dog birds"


def test_tfidf_is_lucenes_over_the_same_postings(three):
    """A term: sqrt(tf) (1 + ln((n + 1) / (df + 1))) / sqrt(tokens of the paper)."""
    query = Query(paper("q", "", "cat dog"), Facet.METHOD)
    stage = BM25Stage(three.reader, Workers(), "facet", "tfidf")
    (found,) = stage.batch_search([EncodedAspect.of(query.aspects[0])], 10, [None])
    of_cat, of_dog = 1 + log(4 / 3), 1 + log(4 / 2)
    assert [hit.paper_id for hit in found] == ["d1", "d2"]
    expected = [(of_cat + of_dog) / 2**0.5, 2**0.5 * of_cat / 4**0.5]
    assert [hit.score for hit in found] == pytest.approx(expected, abs=ROUNDING)


def test_equal_scores_at_the_last_place_are_told_apart_by_id(tmp_path):
    """More papers of the same words than are asked for: the first by id, whatever Lucene's order is."""
    ids = [f"{number * 37 % 100:02d}" for number in range(100)]
    records = ({"paper_id": name, "title": "Fish", "abstract": ["Fish swim."]} for name in ids)
    index = indexed(tmp_path, records)
    for k in (1, 3, 50, 99, 100):
        hits = bm25(index, Query(paper("q", "", "fish"), Facet.METHOD), k)
        assert [hit.paper_id for hit in hits] == sorted(ids)[:k]


PLAIN = "DNA of G\u00f6del fish networks, CO2 of \u30ab\u30ca"
FORMS = {
    "full-width": "\uff24\uff2e\uff21 \uff4f\uff46 G\u00f6del fish networks, CO2 of \u30ab\u30ca",
    "half-width": "DNA of G\u00f6del fish networks, CO2 of \uff76\uff85",
    "lowered": "DNA of G\u00f6del fish networks, CO\u2082 of \u30ab\u30ca",
    "raised": "DNA of G\u00f6del fish networks, CO\u00b2 of \u30ab\u30ca",
    "two-parts": "DNA of Go\u0308del fish networks, CO2 of \u30ab\u30ca",
    "ligature": "DNA of G\u00f6del \ufb01sh networks, CO2 of \u30ab\u30ca",
    "soft-hyphens": "DNA of G\u00f6\u00addel fish net\u00adworks, CO2 of \u30ab\u30ca",
    "no-width": "D\u2060NA of G\u00f6del \ufefffish net\u200bworks, CO2 of \u30ab\u30ca",
    "direction": "\u200eDNA\u200f of G\u00f6del fish \u2066net\u2069works, CO2 of \u30ab\u30ca",
    "all": "\uff24\u2060NA of Go\u00ad\u0308del \ufb01sh net\u00adworks, CO\u2082 of \uff76\uff85",
}


def test_texts_are_found_whatever_form_their_letters_have(tmp_path):
    """Whether they were indexed or appended, by each word and in each form, with the plain text's scores."""
    other = Paper("other", "Newts na\u00efvely swim", (Sentence("Ponds, x\u00bd and e\u2212, are cold."),))
    written = [Paper(name, text, (Sentence(text),)) for name, text in FORMS.items()]
    usual = [Paper(name, PLAIN, (Sentence(PLAIN),)) for name in FORMS]
    build(tmp_path / "plain", [other, *usual], BuildSettings(dense=False))
    build(tmp_path / "written", [other, *written[:5]], BuildSettings(dense=False))
    append_papers(tmp_path / "written", written[5:])
    with Index(tmp_path / "plain") as plain, Index(tmp_path / "written") as index:
        assert [index.paper(name) for name in FORMS] == written
        asked = dict.fromkeys(FORMS.values(), PLAIN)
        asked |= {word: word for word in ("DNA", "G\u00f6del", "fish", "networks", "CO2", "\u30ab\u30ca")}
        for text, as_usual in asked.items():
            rows, scores = index.reader.search(text, 99)
            assert sorted(index.papers.ids[row] for row in rows) == sorted(FORMS), text
            assert scores.tolist() == plain.reader.search(as_usual, 99).scores.tolist()
        for text in ("newts", "na\u00efvely", "x\u00bd and e\u2212"):
            found, same = index.reader.search(text, 99), plain.reader.search(text, 99)
            assert found.scores.tolist() == same.scores.tolist()
            assert [index.papers.ids[row] for row in found.rows] == ["other"]
        assert index.reader.key_terms("Go\u0308del \ufb01sh") == ["fish", "G\u00f6del"]

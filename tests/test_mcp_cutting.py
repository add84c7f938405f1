"""Answers of limited length, and what of a paper is shortened in them."""

from hypothesis import given, settings
from hypothesis import strategies as st

from qbe.mcp.answers import LONG, MOST_AUTHORS, Hit, Hits, LabelledSentence, Sentences, clipped
from qbe.mcp.cutting import LIMIT, fitting_hits, fitting_sentences, size_of
from qbe.mcp.records import hit_of

CHARACTERS = st.sampled_from(["a", "é", "鱼", "🐟", '"', "\n", "\x01"])
TEXTS = st.builds(lambda character, count: character * count, CHARACTERS, st.integers(0, 8000))


def hit(rank: int, abstract: str, title: str = "On fish") -> Hit:
    record = {
        "paper_id": f"p{rank}",
        "title": title,
        "year": "2019",
        "authors": ["Ann Lee"],
        "venue": "Fish Letters",
        "links": {},
        "rank": rank,
        "score": 1 / rank,
        "matches": [],
        "abstract": abstract,
    }
    return hit_of(record)


def page(hits: list[Hit], *, has_more: bool = False) -> Hits:
    end = hits[-1].rank
    return Hits(heading="", notes=[], hits=hits, has_more=has_more, next_start=end if has_more else None)


@settings(max_examples=300)
@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=40), st.integers(0, 900), st.booleans())
def test_a_page_is_within_its_limit_and_loses_nothing(texts, start, has_more):
    hits = [hit(start + n, abstract, title) for n, (abstract, title) in enumerate(texts, start=1)]
    whole = page(hits, has_more=has_more)
    cut = fitting_hits(whole, start)
    assert size_of(cut) <= LIMIT
    assert 1 <= len(cut.hits) <= len(hits)
    with_abstract = [each.abstract is not None for each in cut.hits]
    assert with_abstract == sorted(with_abstract, reverse=True)
    for shown, given_hit in zip(cut.hits, hits, strict=False):
        assert shown in (given_hit, given_hit.model_copy(update={"abstract": None}))
    if len(cut.hits) < len(hits):
        assert not any(with_abstract)  # abstracts are left out first
        assert (cut.has_more, cut.next_start) == (True, start + len(cut.hits))
    else:
        assert (cut.has_more, cut.next_start) == (whole.has_more, whole.next_start)
    assert (cut.cut is None) is (cut.hits == hits)


def test_the_places_of_what_was_cut_are_named():
    hits = [hit(n, "Fish swim. " * 300) for n in range(11, 31)]
    assert fitting_hits(page(hits), 10).cut == (
        "To stay below 20 kB, the abstracts of hits 15 to 30 were left out (get_paper gives them)."
    )


def test_one_hit_that_was_cut_is_named_in_the_singular():
    long = hit(1, "Fish swim. " * 1700)
    assert fitting_hits(page([long, hit(2, "Fish swim. " * 80)]), 0).cut == (
        "To stay below 20 kB, the abstract of hit 2 was left out (get_paper gives it)."
    )


@settings(max_examples=200)
@given(st.lists(st.integers(1, 3000), max_size=60), CHARACTERS, st.data())
def test_sentences_are_within_their_limit_and_none_is_lost(lengths, character, data):
    sentences = [
        LabelledSentence(position=n, facet=None, text=character * length) for n, length in enumerate(lengths)
    ]
    whole = Sentences(title="", sentences=sentences, has_more=False, next_start=None)
    start, shown = 0, []
    while start is not None:
        part = fitting_sentences(whole, start)
        assert size_of(part) <= LIMIT
        assert (part.cut is None) is (part.next_start is None)
        shown += part.sentences
        start = part.next_start
    assert shown == sentences


def test_a_hit_of_many_authors_names_the_first():
    record = {
        "paper_id": "p1",
        "title": "On fish",
        "year": "to appear",
        "authors": [f"Ann Lee {n}" for n in range(3000)],
        "venue": "",
        "links": {"doi": "https://doi.org/10.1/7", "url": "https://example.org/" + "a" * 300},
        "rank": 1,
        "score": 0.12345678,
        "matches": [],
        "abstract": "",
    }
    shown = hit_of(record)
    assert shown.authors == [f"Ann Lee {n}" for n in range(MOST_AUTHORS)]
    assert shown.author_count == 3000
    assert (shown.year, shown.venue, shown.why, shown.grades) == (None, None, None, None)
    assert shown.links == {"doi": "https://doi.org/10.1/7"}
    assert shown.score == 0.123457


def test_a_hit_is_explained_by_the_closest_pair_of_what_is_liked():
    def match(aspect: int, sentence: str, score: float) -> dict[str, object]:
        query_sentence = f"{sentence}?"
        return {
            "aspect": aspect,
            "query_position": 0,
            "query_sentence": query_sentence,
            "position": 0,
            "sentence": sentence,
            "offsets": None,
            "facet": "method",
            "score": score,
        }

    record = hit(1, "").model_dump() | {
        "year": "",
        "venue": "",
        "matches": [match(0, "a", 0.1), match(0, "b " * 400, 0.3), match(1, "c", 0.9)],
    }
    why = hit_of(record).why
    assert why.similarity == 0.3
    assert len(why.sentence) <= LONG
    assert why.sentence.endswith("b…")


def test_a_text_that_fits_is_not_shortened():
    assert clipped("Fish swim.", 10) == "Fish swim."
    assert clipped("Fish swim.", 9) == "Fish swi…"

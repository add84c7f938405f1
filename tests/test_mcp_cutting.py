"""Answers of limited length, and what of a paper is shortened in them."""

from hypothesis import given, settings
from hypothesis import strategies as st

from qbe.mcp.answers import (
    LIMIT,
    MOST_AUTHORS,
    Hit,
    Hits,
    Sentence,
    Sentences,
    clipped,
    fitting,
    fitting_hits,
    size_of,
)

CHARACTERS = st.sampled_from(["a", "é", "鱼", "🐟", '"', "\n", "\x01"])
TEXTS = st.builds(lambda character, count: character * count, CHARACTERS, st.integers(0, 8000))
RECORD = {
    "paper_id": "p1",
    "title": "On fish",
    "year": "2019",
    "authors": ["Ann Lee"],
    "venue": "Fish Letters",
    "links": {},
    "rank": 1,
    "score": 0.12345678,
    "matches": [],
    "abstract": "",
}


def page(hits: list[tuple[str, str]], start: int = 0, *, has_more: bool = False) -> Hits:
    records = [
        {**RECORD, "rank": rank, "abstract": abstract, "title": title}
        for rank, (abstract, title) in enumerate(hits, start=start + 1)
    ]
    end = start + len(hits) if has_more else None
    fields = {"query": {"heading": ""}, "notes": [], "hits": records, "has_more": has_more}
    return Hits.model_validate({**fields, "next_start": end})


@settings(max_examples=300)
@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=40), st.integers(0, 900), st.booleans())
def test_a_page_is_within_its_limit_and_loses_nothing(texts, start, has_more):
    whole = page(texts, start, has_more=has_more)
    cut = fitting_hits(whole, start)
    assert size_of(cut) <= LIMIT
    assert 1 <= len(cut.hits) <= len(whole.hits)
    with_abstract = [each.abstract is not None for each in cut.hits]
    assert with_abstract == sorted(with_abstract, reverse=True)
    for shown, given_hit in zip(cut.hits, whole.hits, strict=False):
        assert shown in (given_hit, given_hit.model_copy(update={"abstract": None}))
    if len(cut.hits) < len(whole.hits):
        assert not any(with_abstract)  # abstracts are left out first
        assert (cut.has_more, cut.next_start) == (True, start + len(cut.hits))
    else:
        assert (cut.has_more, cut.next_start) == (whole.has_more, whole.next_start)
    assert (cut.cut is None) is (cut.hits == whole.hits)


def test_the_places_of_what_was_cut_are_named():
    assert fitting_hits(page([("Fish swim. " * 300, "On fish")] * 20, 10), 10).cut == (
        "To stay below 20 kB, abstracts from hit 15 on were left out (get_paper gives them)."
    )


@settings(max_examples=200)
@given(st.lists(st.integers(1, 3000), max_size=60), CHARACTERS)
def test_sentences_are_within_their_limit_and_none_is_lost(lengths, character):
    sentences = [
        Sentence(position=n, facet=None, text=character * length) for n, length in enumerate(lengths)
    ]
    start, shown = 0, []
    while start is not None:
        part = fitting(Sentences(title="", sentences=sentences[start:]), "sentences", start)
        assert size_of(part) <= LIMIT
        assert (part.cut is None) is (part.next_start is None)
        shown += part.sentences
        start = part.next_start
    assert shown == sentences


def test_a_hit_of_many_authors_names_the_first():
    shown = Hit.model_validate(
        {
            **RECORD,
            "year": "to appear",
            "authors": [f"Ann Lee {n}" for n in range(3000)],
            "links": {"doi": "https://doi.org/10.1/7", "url": "https://example.org/" + "a" * 300},
        }
    )
    assert shown.authors == [*(f"Ann Lee {n}" for n in range(MOST_AUTHORS)), "et al."]
    assert (shown.year, shown.grades, shown.score) == (None, None, 0.123457)
    assert shown.links == {"doi": "https://doi.org/10.1/7"}


def test_a_hit_is_explained_by_the_closest_pair_of_what_is_liked():
    def match(aspect: int, sentence: str, score: float) -> dict[str, object]:
        pair = {"query_sentence": f"{sentence}?", "sentence": sentence, "facet": "method", "score": score}
        return {"aspect": aspect, "query_position": 0, "position": 0, "offsets": None, **pair}

    matches = [match(0, "a", 0.1), match(0, "b " * 400, 0.3), match(1, "c", 0.9)]
    (pair,) = Hit.model_validate({**RECORD, "matches": matches}).matches
    assert pair.score == 0.3
    assert len(pair.sentence) <= 600
    assert pair.sentence.endswith("b…")


def test_texts_of_papers_are_harmless_lines():
    assert clipped("Fish\x1b[2J\nswim.", 20) == "Fish [2J swim."
    assert clipped("Fish swim.", 10) == "Fish swim."
    assert clipped("Fish swim.", 9) == "Fish swi…"

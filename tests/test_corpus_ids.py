"""Ids of papers, made from the content or twice in a corpus; titles that are nearly the same."""

import hashlib
import json
import re
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from qbe import Reading
from qbe.corpus.identity import MAX_JACCARD, TitleIndex
from qbe.corpus.reading import read_corpus
from qbe.corpus.records import RENAMED, RejectedRecords
from qbe.errors import RecordError

FISH, STONE = "On the fish of the lake", "On the stone of the lake"
FISH_ID, STONE_ID = (
    "sha-" + hashlib.sha256(lines).hexdigest()[:16]  # title, year and first author
    for lines in (b"on the fish of the lake\n\n", b"on the stone of the lake\n\n")
)


def ris(*records: str) -> str:
    return "".join(f"TY  - JOUR\n{record}\nAB  - We count.\nER  - \n" for record in records)


def bib(*entries: tuple[str, str]) -> str:
    return "".join(f"@misc{{{key}, title={{{title}}}, abstract={{We count.}}}}\n" for key, title in entries)


def jsonl(*records: dict) -> str:
    return "".join(json.dumps({"abstract": ["We count."], **record}) + "\n" for record in records)


@pytest.fixture
def ids(tmp_path: Path):
    """A function: the ids of the papers of some files, by their names and texts, and what was reported."""

    def read(**files: str) -> tuple[list[str], dict[str, int]]:
        for name, text in files.items():
            (tmp_path / name.replace("_", ".")).write_text(text)
        sources = [str(tmp_path / name.replace("_", ".")) for name in files]
        left_out = RejectedRecords()
        papers = read_corpus(sources, str.splitlines, Reading(), left_out)
        return [paper.paper_id for paper in papers], left_out.counts()

    return read


def test_a_paper_without_an_id_has_the_same_in_every_file_and_format(ids):
    table = f"title,abstract\n{FISH},We count.\n"
    first = ris(f"TI  - {STONE}", f"TI  - {FISH.upper()}.")
    found = ids(a_ris=first, b_csv=table, c_jsonl=jsonl({"title": FISH}))
    assert found == ([STONE_ID, FISH_ID], {"duplicate": 2})
    assert ids(c_ris=ris(f"TI  - {FISH}"), b_csv=table) == ([FISH_ID], {"duplicate": 1})


def test_a_doi_comes_before_an_arxiv_id(ids):
    both = {"title": FISH, "metadata": {"doi": "10.1000/ABC", "ids": {"arxiv": "2001.00001v3"}}}
    arxiv = {"title": STONE, "metadata": {"ids": {"arxiv": "arXiv:cs/0001001"}}}
    assert ids(a_jsonl=jsonl(both, arxiv)) == (["10.1000/abc", "cs/0001001"], {})


def test_a_chosen_key_of_another_title_gets_a_suffix_and_of_the_same_is_a_duplicate(ids):
    found, counts = ids(a_bib=bib(("a", FISH), ("a", STONE), ("a", FISH.upper()), ("a", STONE)))
    assert found == ["a", f"a-{STONE_ID[4:10]}"]
    assert counts == {"duplicate": 2, RENAMED: 1}


def test_short_titles_of_nobody_are_told_apart_by_their_abstracts(ids):
    same = {"title": "Editorial"}
    found, counts = ids(a_jsonl=jsonl(same, {**same, "abstract": ["We end."]}))
    assert (len(set(found)), counts) == (2, {})


def test_made_ids_are_of_one_paper_unless_first_author_or_title_tell_it_apart(ids):
    names = ("Smith, Anna", "Smith, Bob", "Smith, A. C.", "Smith, Cy", "Smith, B.", "Smith")
    records = [f"TI  - Editorial\nPY  - 2019\nAU  - {name}" for name in names]
    records += map("TI  - C{} for nets of lakes\nPY  - 2019\nAU  - Ek, Bo".format, ("", "++", "#", "++"))
    found, counts = ids(a_ris=ris(*records))
    assert (len(set(found)), counts) == (6, {"duplicate": 4, RENAMED: 4})
    assert ids(b_ris=ris(records[0], records[7])) == ([found[0], found[3]], {})


def test_ids_of_a_database_are_of_one_paper_whatever_its_title(ids):
    work = {"id": "https://openalex.org/W7", "abstract_inverted_index": {"We": [0]}, "referenced_works": []}
    lines = [json.dumps({**work, "title": title, "display_name": title}) for title in (FISH, STONE)]
    assert ids(a_json="\n".join(lines)) == (["W7"], {"duplicate": 1})


def test_own_json_lines_may_not_have_two_papers_of_one_id(ids):
    same = jsonl({"paper_id": "a", "title": FISH}, {"paper_id": "a", "title": FISH})
    assert ids(a_jsonl=same) == (["a"], {"duplicate": 1})
    with pytest.raises(RecordError, match=r"b.jsonl, line 2: expected each paper_id once, found 'a' again"):
        ids(a_jsonl=same, b_jsonl=jsonl({"paper_id": "b", "title": FISH}, {"paper_id": "a", "title": STONE}))


def test_keys_that_a_run_cannot_hold_are_changed_where_people_choose_them(ids):
    table = f'id,title,abstract\n"Lee  2019,\tb",{FISH},We count.\n,{STONE},We count.\n'
    assert ids(a_csv=table) == (["Lee_2019,_b", STONE_ID], {})


TITLES = st.lists(st.sampled_from(["a", "b", "C", "c", "d", "e-f", "(g)", "."]), max_size=9).map(" ".join)


@settings(max_examples=50)
@given(st.lists(TITLES, max_size=6), TITLES)
@example(["one two three four five six seven eight"], "one two three four five six seven nine ten")  # 7 of 10
@example(["", "--"], "")
def test_titles_against_a_plain_comparison(titles, title):
    words, *others = (set(re.findall(r"\w+", each.lower())) for each in (title, *titles))
    jaccards = [len(words & other) / max(1, len(words | other)) for other in others]
    assert TitleIndex(titles).holds(title) is any(jaccard > MAX_JACCARD for jaccard in jaccards)

"""What is taken out of a paper's metadata for a bibliography, names, and keys."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.bibliographies import NAMES, TEXTS, paper_of

from qbe.corpus.bibliography import Bibliography, author_names, reference_of
from qbe.corpus.names import credits, given_first, has_others, person_name, split_authors, split_name
from qbe.search.present import credits_of

# Fields


def test_links_and_a_title_that_stands_for_the_abstract():
    assert reference_of(paper_of("On fish", "On fish")).abstract == ""
    metadata = {"doi": "https://doi.org/10.1145/A<b>#(7)%", "url": "http://x.org/y"}
    metadata |= {"ids": {"arxiv": "1905.01234"}}
    reference = reference_of(paper_of("On fish", **metadata))
    assert reference.links == {
        "arxiv": "https://arxiv.org/abs/1905.01234",
        "doi": "https://doi.org/10.1145/a%3Cb%3E%23(7)%25",
        "url": "http://x.org/y",
    }
    assert reference.link == "https://arxiv.org/abs/1905.01234"


def test_authors_that_a_source_does_not_name_are_told():
    for names, shown in ((["Bo Ray"], "Bo Ray et al."), (["Ann Lee", "Bo Ray"], "Ann Lee, Bo Ray et al.")):
        reference = reference_of(paper_of("On fish", authors=names, et_al=True))
        assert (reference.authors, credits_of(reference)) == ((*names, "et al."), shown)
        assert reference.names == tuple(names)


def test_that_no_author_is_known_is_no_name():
    for value in (["[No author name available]"], "[No author name available]", ["No authors listed"]):
        assert author_names(value) == []


MEMBERS = st.sampled_from(["name", "first", "middle", "last", "suffix", "arxiv"])
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(MEMBERS, inner, max_size=3),
    max_leaves=6,
)
FIELDS = ["authors", "year", "date", "venue", "categories", "doi", "url", "ids", "key", "tags"]


@settings(max_examples=30)
@given(st.dictionaries(st.sampled_from(FIELDS), ANYTHING))
def test_metadata_of_any_types_are_taken_or_left_out(metadata):
    reference = reference_of(paper_of("On fish", **metadata))
    texts = [each for each in reference if isinstance(each, str)]
    texts += [*reference.names, *reference.authors, *reference.tags]
    assert all(isinstance(text, str) and text == " ".join(text.split()) for text in texts)


@pytest.mark.parametrize("key", ["a\\input{x}", "a b", "a,b", "a%", "a{b", "a^^5cb", "a#", "x" * 201, "", 7])
def test_a_key_that_latex_would_not_read_as_one_is_not_kept(key):
    assert reference_of(paper_of("On fish", key=key)).key == ""


@pytest.mark.parametrize(
    ("value", "names"),
    [
        (["Ann Lee", "  Cy\n Doe "], ["Ann Lee", "Cy Doe"]),
        (["Lee, Ann", "van der Berg, Jan, Jr."], ["Ann Lee", "Jan van der Berg Jr."]),
        (["Dept. of A, B, C, and D"], ["Dept. of A, B, C, and D"]),
        ("Z. Akbar, Slamet, L. Handoko", ["Z. Akbar", "Slamet", "L. Handoko"]),
        ("Jos\\'e Mart\\'{\\i}nez", ["José Martínez"]),
        (
            ({"name": "Ann Lee"}, {"first": "Cy", "middle": ["B.", None], "last": "Doe"}),
            ["Ann Lee", "Cy B. Doe"],
        ),
        *(([7, None, [], {}, " "], []), (None, []), (7, [])),
    ],
)
def test_names_of_authors(value, names):
    assert author_names(value) == names


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("A. B. Lee-Doe", ("Lee-Doe", "A. B.", "")),
        *(("Ana de la Cruz Díaz", ("de la Cruz Díaz", "Ana", "")), ("bell hooks", ("hooks", "bell", ""))),
        *(("", None), ("The Fish Team", None), ("Ann and Cy", None), ("Ann Lee (Rome)", None)),
    ],
)
def test_parts_of_names(name, parts):
    assert split_name(name) == parts


@settings(max_examples=40)
@given(NAMES)
def test_parts_of_a_name_are_all_of_it(name):
    parts = split_name(name)
    if parts is not None:
        words = " ".join((parts.given, parts.family, parts.suffix)).split()
        if "," in name:  # "Family, Given" is turned round
            assert sorted(words) == sorted(name.replace(",", " ").split())
        else:
            assert words == name.split()


@pytest.mark.parametrize(
    "text", ["Ann Lee and others", "Lee A., et al", "A Lee, B Ray...", "Lee, A.; 12 more", "et al."]
)
def test_that_there_are_others_is_kept(text: str) -> None:
    assert has_others(text)
    assert credits(text)["et_al"] is True
    assert credits(["Ann Lee", text])["et_al"] is True


@pytest.mark.parametrize(
    ("family", "given", "suffix", "stored"),
    [
        ("van der Berg", "Jan", "Jr.", "Jan van der Berg Jr."),
        ("Hernández Núñez", "José", "", "Hernández Núñez, José"),
        ("De la Cruz", "María", "III", "De la Cruz, María, III"),
    ],
)
def test_no_name_loses_a_part_of_its_family_name(family: str, given: str, suffix: str, stored: str) -> None:
    assert person_name(family, given, suffix) == stored
    assert split_name(stored) == (family, given, suffix)
    assert given_first(stored) == " ".join(filter(None, (given, family, suffix)))
    assert credits([stored])["authors"] == [stored]


@settings(max_examples=50)
@given(st.text() | st.lists(st.sampled_from([*"aA.,;&|\n ", "and ", "Lee", "Jr.", "et al."])).map("".join))
def test_any_text_is_names(text: str) -> None:
    assert all(name and name == " ".join(name.split()) for name in split_authors(text))


def keys(papers):
    bibliography = Bibliography("bibtex")
    for number, paper in enumerate(papers):
        bibliography.add(replace(paper, paper_id=str(number)))
    return list(bibliography.keys.values())


def test_the_library_s_own_key_is_kept_and_given_once():
    given = ["DBLP:conf/acl/Lee20", "lee_2019+b", "LEE_2019+b", "lee_2019+ba", "10.1002/(SICI)7"]
    papers = [paper_of("Fish", authors=["Ann Lee"], key=key) for key in given]
    papers += [paper_of(title, authors=["Ann Lee"]) for title in ("Fish", "Fisha", "FISH", "fish")]
    made = ["Leefish", "Leefisha", "Leefishb", "Leefishc"]
    assert keys(papers) == [*given[:2], "LEE_2019+b-a", *given[3:], *made]
    many = keys([paper_of("Fish")] * 2000)
    assert len(set(many)) == 2000
    assert many[26:29] == ["Anonymousfishz", "Anonymousfishaa", "Anonymousfishab"]

"""What is taken out of a paper's metadata for a bibliography, names, and keys."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.bibliographies import NAMES, TEXTS, paper_of

from qbe.bibliography.reference import author_names, reference_of
from qbe.bibliography.writing import Keys, key_of
from qbe.corpus.authors import split_name

# Fields


def test_a_title_that_stands_for_the_abstract_is_no_abstract():
    assert reference_of(paper_of("On fish", "On fish")).abstract == ""


@pytest.mark.parametrize(
    ("paper_id", "metadata", "arxiv"),
    [
        ("7", {"ids": {"arxiv": "1905.01234"}}, "1905.01234"),
        ("7", {"ids": {"arxiv": "arXiv:1905.01234v2"}}, "1905.01234"),
        ("7", {"ids": {"arxiv": "cs/0701001"}}, "cs/0701001"),
        ("7", {"ids": {"arxiv": "math.GT/0309136"}}, "math.GT/0309136"),
        ("1905.01234", {}, "1905.01234"),
        ("0704.0001v3", {}, "0704.0001"),
        ("1999.01234", {}, ""),  # there is no month 99
        ("190501234", {}, ""),
        ("7", {"doi": "10.48550/arXiv.1905.01234"}, "1905.01234"),
        ("7", {"url": "http://arxiv.org/pdf/1905.01234v1.pdf"}, "1905.01234"),
        ("7", {"url": "https://example.org/abs/1905.01234"}, ""),
        ("7", {"ids": {"arxiv": 1905.01234}}, ""),
        ("7", {"ids": ["1905.01234"]}, ""),
    ],
)
def test_the_id_of_arxiv(paper_id, metadata, arxiv):
    assert reference_of(replace(paper_of("On fish", **metadata), paper_id=paper_id)).arxiv == arxiv


@pytest.mark.parametrize(
    ("categories", "category"),
    [
        (["cs.CL", "cs.IR"], "cs.CL"),
        (["quant-ph"], "quant-ph"),
        (["Computer Science"], ""),
        ("cs.CL", ""),
        ([], ""),
    ],
)
def test_the_category_of_arxiv(categories, category):
    paper = paper_of("On fish", categories=categories, ids={"arxiv": "1905.01234"})
    assert reference_of(paper).category == category


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "file:///etc", "http://a b", "http://a\u202eb", 7, None, "x"]
)
def test_an_address_that_is_none_of_the_web_is_left_out(url):
    assert reference_of(paper_of("On fish", url=url)).links == {}


def test_links():
    metadata = {
        "ids": {"arxiv": "1905.01234"},
        "doi": "https://doi.org/10.1145/A<b>#(7)%",
        "url": "http://x.org/y",
    }
    reference = reference_of(paper_of("On fish", **metadata))
    assert reference.links == {
        "arxiv": "https://arxiv.org/abs/1905.01234",
        "doi": "https://doi.org/10.1145/a%3Cb%3E%23(7)%25",
        "url": "http://x.org/y",
    }
    assert reference.link == "https://arxiv.org/abs/1905.01234"


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "first", "middle", "last", "suffix", "arxiv"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)
FIELDS = ["authors", "year", "date", "venue", "categories", "doi", "url", "ids", "key", "tags"]


@given(st.dictionaries(st.sampled_from(FIELDS), ANYTHING))
def test_metadata_of_any_types_are_taken_or_left_out(metadata):
    reference = reference_of(paper_of("On fish", **metadata))
    texts = [*reference[:2], *reference.authors, *reference[4:-1], *reference.tags]
    assert all(isinstance(text, str) and text == " ".join(text.split()) for text in texts)


@pytest.mark.parametrize("key", ["a\\input{x}", "a b", "a,b", "a%", "a{b", "a^^5cb", "a#", "x" * 201, "", 7])
def test_a_key_that_latex_would_not_read_as_one_is_not_kept(key):
    assert reference_of(paper_of("On fish", key=key)).key == ""


# Names


@pytest.mark.parametrize(
    ("value", "names"),
    [
        (["Ann Lee", "  Cy\n Doe "], ["Ann Lee", "Cy Doe"]),
        (["Lee, Ann", "van der Berg, Jan, Jr."], ["Ann Lee", "Jan van der Berg Jr."]),
        (["Dept. of A, B, C, and D"], ["Dept. of A, B, C, and D"]),
        (["Health and Care Ltd"], ["Health and Care Ltd"]),
        ("Ann Lee, Cy Doe", ["Ann Lee", "Cy Doe"]),
        ("Ann Lee, Cy Doe, and Bo Ek", ["Ann Lee", "Cy Doe", "Bo Ek"]),
        ("Ann Lee and Cy Doe", ["Ann Lee", "Cy Doe"]),
        ("Lee, Ann and Doe, Cy", ["Ann Lee", "Cy Doe"]),
        ("Lee, Ann; Doe, Cy", ["Ann Lee", "Cy Doe"]),
        ("Z. Akbar, Slamet, L. Handoko", ["Z. Akbar", "Slamet", "L. Handoko"]),
        ("Jos\\'e Mart\\'{\\i}nez", ["José Martínez"]),
        (
            ({"name": "Ann Lee"}, {"first": "Cy", "middle": ["B.", None], "last": "Doe"}),
            ["Ann Lee", "Cy B. Doe"],
        ),
        ([{"first": "Cy", "middle": "B.", "last": "Doe", "suffix": "Jr."}], ["Cy B. Doe Jr."]),
        ([7, None, [], {}, " "], []),
        (None, []),
        (7, []),
    ],
)
def test_names_of_authors(value, names):
    assert author_names(value) == names


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("Ann Lee", ("Lee", "Ann", "")),
        ("A. B. Lee-Doe", ("Lee-Doe", "A. B.", "")),
        ("Jan van der Berg", ("van der Berg", "Jan", "")),
        ("Ana de la Cruz Díaz", ("de la Cruz Díaz", "Ana", "")),
        ("Martin L. King Jr.", ("King", "Martin L.", "Jr.")),
        ("Ann Lee III", ("Lee", "Ann", "III")),
        ("bell hooks", ("hooks", "bell", "")),
        ("Xi iv", ("iv", "Xi", "")),
        ("Plato", None),
        ("", None),
        ("The Fish Team", None),
        ("Fish Inc.", None),
        ("Ann and Cy", None),
        ("Ann others", None),
        ("Ann Lee (Rome)", None),
        ("Hernández Núñez, José, Jr.", ("Hernández Núñez", "José", "Jr.")),
        ("Ann 3rd", None),
    ],
)
def test_parts_of_names(name, parts):
    assert split_name(name) == parts


@given(NAMES)
def test_parts_of_a_name_are_all_of_it(name):
    parts = split_name(name)
    if parts is not None:
        words = " ".join((parts.given, parts.family, parts.suffix)).split()
        if "," in name:  # "Family, Given" is turned round
            assert sorted(words) == sorted(name.replace(",", " ").split())
        else:
            assert words == name.split()


# Keys


@pytest.mark.parametrize(
    ("title", "metadata", "key"),
    [
        ("On the Fish", {"authors": ["Ann Lee"], "year": 2019}, "Lee2019fish"),
        ("Über-Fish", {"authors": ["Jan van der Müßig"]}, "Mussiguber"),
        ("$k$-means for all", {"authors": ["Łukasz Øre", "Ann Lee"], "year": 2019}, "Ore2019means"),
        ("A B C", {"authors": ["Ann Lee"]}, "Lee7"),
        ("Fish", {"authors": ["ATLAS Collaboration"]}, "ATLASCollaborationfish"),
        ("Fish", {"authors": ["王 明"]}, "Anonymousfish"),
        ("Fish", {"authors": ["Ann de la"]}, "delafish"),
        ("", {}, "Anonymous7"),
    ],
)
def test_a_key_is_author_year_and_word(title, metadata, key):
    assert key_of(reference_of(paper_of(title, **metadata))) == key


def test_the_library_s_own_key_is_kept_and_given_once():
    keys = Keys()
    given = ["DBLP:conf/acl/Lee20", "lee_2019+b", "LEE_2019+b", "10.1002/(SICI)7"]
    references = [reference_of(paper_of("Fish", authors=["Ann Lee"], key=key)) for key in given]
    assert [keys.add(each) for each in references] == [*given[:2], "LEE_2019+ba", given[3]]


def test_a_key_is_given_once():
    keys = Keys()
    references = [
        reference_of(paper_of(title, authors=["Ann Lee"])) for title in ("Fish", "Fisha", "FISH", "fish")
    ]
    assert [keys.add(each) for each in references] == ["Leefish", "Leefisha", "Leefishb", "Leefishc"]


def test_there_are_keys_for_many_papers_of_a_name():
    keys, reference = Keys(), reference_of(paper_of("Fish"))
    given = [keys.add(reference) for _ in range(2000)]
    assert len(set(given)) == 2000
    assert given[26:29] == ["Anonymousfishz", "Anonymousfishaa", "Anonymousfishab"]

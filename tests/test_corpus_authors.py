"""Lists of authors and the parts of names."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbe.corpus.authors import credits, given_first, has_others, person_name, split_authors, split_name


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Lee A., Ray B.", ["A. Lee", "B. Ray"]),
        ("Lee A, Ray BC, van der Berg J.", ["A Lee", "BC Ray", "J. van der Berg"]),
        ("Lee, A., Ray, B., & Kay, C.", ["A. Lee", "B. Ray", "C. Kay"]),
        ("Lee, A.B., García Márquez, G.", ["A.B. Lee", "García Márquez, G."]),
        ("Lee, A., Ray, B., . . . Kay, C.", ["A. Lee", "B. Ray", "C. Kay"]),
        ("Lee, Ann", ["Ann Lee"]),
        ("Lee, Ann, Jr.", ["Ann Lee Jr."]),
        ("Lee, Ann, PhD", ["Ann Lee PhD"]),
        ("Lee, Ann, Ray, Bob", ["Ann Lee", "Bob Ray"]),
        ("Lee, Ann, Bob Ray, and Cy Doe", ["Ann Lee", "Bob Ray", "Cy Doe"]),
        ("Lee, Ann and Ray, Bob", ["Ann Lee", "Bob Ray"]),
        ("Lee, Jr., Ann and Bob Ray III", ["Ann Lee Jr.", "Bob Ray III"]),
        ("Hernández Núñez, José Luis and Lee, Ann", ["Hernández Núñez, José Luis", "Ann Lee"]),
        ("Ann Lee, Bob Ray", ["Ann Lee", "Bob Ray"]),
        ("Ann Lee, Jan van der Berg and Cy Doe", ["Ann Lee", "Jan van der Berg", "Cy Doe"]),
        ("Ann Lee, Jr., Bob Ray & Cy Doe", ["Ann Lee Jr.", "Bob Ray", "Cy Doe"]),
        ("A Lee, JM Kay…", ["A Lee", "JM Kay"]),
        ("Smith, Jones and Brown", ["Smith", "Jones", "Brown"]),
        ("van der Berg, Jan Peter", ["Jan Peter van der Berg"]),
        ("Smith Jones, Ann B.", ["Smith Jones, Ann B."]),
        ("Ann Lee;;Bob Ray", ["Ann Lee", "Bob Ray"]),
        ("Lee, A.; Ray, B.; and Kay, C.", ["A. Lee", "B. Ray", "C. Kay"]),
        ("Lee, Ann (57193712345); Ray, Bob [1]", ["Ann Lee", "Bob Ray"]),
        ("Smith JA 3rd|Lee, Ann\nBob Ray", ["JA Smith 3rd", "Ann Lee", "Bob Ray"]),
        ("Kim Y.-J., O'Neill S.", ["Y.-J. Kim", "S. O'Neill"]),
        ("Victoria and Albert Museum", ["Victoria and Albert Museum"]),
        ("Centers for Disease Control and Prevention", ["Centers for Disease Control and Prevention"]),
        ("Department of Health and Human Services", ["Department of Health and Human Services"]),
        ("Ann Lee and Lake Institute", ["Ann Lee", "Lake Institute"]),
        ("MIT and Harvard University", ["MIT", "Harvard University"]),
        ("Lee A., Fish Study Group", ["A. Lee", "Fish Study Group"]),
        ("Plato and Aristotle", ["Plato", "Aristotle"]),
        ("Ann Lee and others", ["Ann Lee"]),
        ("Lee A. et al.", ["A. Lee"]),
        ("Ann Others", ["Ann Others"]),
        (" ;, and", []),
        ("A. B.", ["A. B."]),
    ],
)
def test_lists_of_authors(text: str, names: list[str]) -> None:
    assert split_authors(text) == names


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
        ("Lee", "Ann B.", "", "Ann B. Lee"),
        ("van der Berg", "Jan", "Jr.", "Jan van der Berg Jr."),
        ("Hernández Núñez", "José", "", "Hernández Núñez, José"),
        ("De la Cruz", "María", "III", "De la Cruz, María, III"),
        ("García", "María del Carmen", "", "García, María del Carmen"),
    ],
)
def test_no_name_loses_a_part_of_its_family_name(family: str, given: str, suffix: str, stored: str) -> None:
    assert person_name(family, given, suffix) == stored
    assert split_name(stored) == (family, given, suffix)
    assert given_first(stored) == " ".join(filter(None, (given, family, suffix)))
    assert credits([stored])["authors"] == [stored]


@given(st.text() | st.lists(st.sampled_from([*"aA.,;&|\n ", "and ", "Lee", "Jr.", "et al."])).map("".join))
def test_any_text_is_names(text: str) -> None:
    names = split_authors(text)
    assert all(name and name == " ".join(name.split()) for name in names)


@pytest.mark.parametrize("text", ["A. " * 200_000, "Lee, " * 200_000, " and " * 200_000, "(" * 500_000])
def test_hostile_lists_take_a_moment(text: str) -> None:
    start = time.process_time()
    split_authors(text)
    assert time.process_time() - start < 10

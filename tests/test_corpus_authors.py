"""Lists of authors and the parts of names."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbe.corpus.names import credits, given_first, has_others, person_name, split_authors, split_name


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
    names = split_authors(text)
    assert all(name and name == " ".join(name.split()) for name in names)

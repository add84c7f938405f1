"""The ACL Anthology's XML to papers."""

import pytest

from qbe.corpus.acl_anthology import anthology_id
from qbe.errors import RecordError


@pytest.mark.parametrize(
    ("ids", "paper_id"),
    [
        (("2020.acl", "main", "1"), "2020.acl-main.1"),
        (("2021.findings", "acl", "23"), "2021.findings-acl.23"),
        (("P18", "1", "1"), "P18-1001"),
        (("J93", "2", "3"), "J93-2003"),
        (("W02", "1", "18"), "W02-0118"),
        (("W19", "62", "7"), "W19-6207"),
        (("C69", "1", "1"), "C69-0101"),
        (("C00", "1", "1"), "C00-1001"),
        (("D19", "1", "407"), "D19-1407"),
        (("D19", "4", "1"), "D19-4001"),
        (("D19", "5", "1"), "D19-0501"),
        (("D19", "50", "12"), "D19-5012"),
        (("D18", "5", "1"), "D18-5001"),
    ],
)
def test_ids(ids: tuple[str, str, str], paper_id: str) -> None:
    assert anthology_id(*ids, "here") == paper_id


@pytest.mark.parametrize(
    ("ids", "found"),
    [
        (("", "1", "1"), "'', '1', '1'"),
        (("P18", "main", "1"), "'P18', 'main', '1'"),
        (("P18", "1", "²"), "'P18', '1', '\\xb2'"),
        (("2020.acl", "main", " "), "'2020.acl', 'main', ''"),
        (("P18", "1", "12345"), "'P18', '1', '12345'"),
    ],
)
def test_ids_that_are_none(ids: tuple[str, str, str], found: str) -> None:
    with pytest.raises(RecordError) as caught:
        anthology_id(*ids, "here")
    assert str(caught.value) == (
        f"here: expected ids of collection, volume and paper such as P18, 1 and 1, found {found}; "
        "mend or remove the record"
    )
    assert caught.value.reason == "not a record of this format"

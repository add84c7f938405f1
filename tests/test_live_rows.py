"""The arithmetic of rows over several segments, and ties between scores."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbe.errors import IndexFormatError
from qbe.index.papers import PaperLayout
from qbe.index.rows import StackedRows, sentence_rows, starts_of
from qbe.index.snapshot import COMMIT, read_commit
from qbe.index.text_search import break_ties
from qbe.index.views import joined

SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=5)


@settings(max_examples=40)
@given(SIZES, st.data())
def test_rows_are_read_across_arrays_as_if_they_were_one(sizes, data):
    whole = np.arange(3 * sum(sizes), dtype=np.float16).reshape(-1, 3)
    parts = StackedRows(np.split(whole, np.cumsum(sizes)[:-1]))
    places = st.integers(0, len(whole) - 1)
    assert (len(parts), parts.shape, parts.dtype) == (len(whole), whole.shape, whole.dtype)
    rows = np.array(data.draw(st.lists(places, max_size=12)), np.int64)
    assert np.array_equal(parts[rows], whole[rows])
    assert np.array_equal(parts[rows.reshape(-1, 1)], whole[rows.reshape(-1, 1)])
    row = data.draw(places)
    assert np.array_equal(parts[row], whole[row])
    cut = data.draw(st.slices(len(whole)))
    assert np.array_equal(parts[cut], whole[cut])
    assert parts[cut].dtype == np.float16
    assert np.array_equal(np.asarray(parts), whole)
    for outside in (-1, len(whole)):
        with pytest.raises(IndexError, match=f"expected rows from 0 to {len(whole) - 1}, found "):
            parts[np.array([0, outside])]


def test_a_slice_within_one_array_is_not_copied():
    arrays = [np.zeros((4, 2)), np.ones((3, 2))]
    assert np.shares_memory(StackedRows(arrays)[4:6], arrays[1])


def layouts(sizes: list[int], tagged: bool) -> PaperLayout:
    facets = np.arange(sum(sizes), dtype=np.uint8) % 4
    probabilities = np.tile(facets[:, None].astype(np.float16) / 4, 5) if tagged else None
    return PaperLayout(starts_of(sizes), facets, probabilities)


@settings(max_examples=40)
@given(st.lists(st.tuples(SIZES, st.booleans()), min_size=1, max_size=4), st.data())
def test_layouts_are_joined_and_taken_apart(parts, data):
    sizes = [size for counts, _ in parts for size in counts]
    whole = joined([layouts(*part) for part in parts])
    assert whole.starts.tolist() == starts_of(sizes).tolist()
    tagged = any(flag for _, flag in parts)
    assert (whole.probabilities is not None) == tagged
    first = 0
    for counts, flag in parts:
        part, expected = slice(first, first + sum(counts)), layouts(counts, flag)
        assert whole.facets[part].tolist() == expected.facets.tolist()
        if tagged:
            zeros = np.zeros((sum(counts), 5), np.float16)
            assert np.array_equal(whole.probabilities[part], expected.probabilities if flag else zeros)
        first += sum(counts)
    chosen = np.unique(np.array(data.draw(st.lists(st.integers(0, len(sizes) - 1))), np.int64))
    rows = [row for paper in chosen for row in range(whole.starts[paper], whole.starts[paper + 1])]
    assert sentence_rows(whole.starts, chosen).tolist() == rows


def test_ties_are_told_apart_by_millionths():
    """Rounded to four places; in single precision 3 - .000001 and 3 - .000002 are these."""
    scores = np.array([3.00004, 3.0, 2.99998, 2.9, 1.00005])
    expected = np.array([3, 2.999999, 2.999998, 2.9, 1.0001], np.float32)
    assert np.allclose(break_ties(scores), expected, rtol=0, atol=2.4e-7)
    assert break_ties(np.zeros(0)).tolist() == []


GOOD = (
    '{"format_version": 1, "generation": 1, "segments": [{"name": "NAME", "digest": "", "deletions": null}]}'
)


DAMAGED = [
    *("", "{", "[]", "3", "{}", "\udcff"),
    '{"format_version": 1}',
    '{"format_version": 1, "generation": 0, "segments": []}',
    *(GOOD.replace("NAME", name) for name in ("..", "/etc", "segments/../x", "segments/1", "")),
    GOOD.replace("NAME", ".").replace('1, "seg', '"1", "seg'),
    GOOD.replace("1,", "3,", 1),
]


def test_a_damaged_commit_or_one_of_a_later_format_is_told(tmp_path):
    for text in DAMAGED:
        (tmp_path / COMMIT).write_bytes(text.encode(errors="surrogateescape"))
        with pytest.raises(IndexFormatError, match=r"^[^\n]*expected (the )?segments of [^\n]*$"):
            read_commit(tmp_path)

"""Vectors stored as bytes with a scale each: how far off they are, and that scores of them are exact."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from qbe.errors import IndexFormatError, UsageError
from qbe.index import vectors as stored
from qbe.index.source import BuildSettings
from qbe.index.store import Files, resolve_stored

numbers = st.floats(-8, 8, width=16)
matrices = st.tuples(st.integers(1, 6), st.integers(1, 24)).flatmap(
    lambda s: arrays(np.float16, s, elements=numbers)
)


def units(count: int, dimension: int, seed: int) -> np.ndarray:
    vectors = np.random.default_rng(seed).standard_normal((count, dimension))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16)


def test_worked_by_hand():
    """2.54 / 127 is the step; for 127 and -50 the best scale is (127 * 2.54 + 50) / (127 ** 2 + 50 ** 2)."""
    found = stored.quantized(np.array([[2.54, -1.0, 0.009], [0, 0, 0]]), "cosine")
    assert found.codes.tolist() == [[127, -50, 0], [0, 0, 0]]
    assert found.scales.tolist() == [np.float16((127 * 2.54 + 50) / (127**2 + 50**2)), 0]
    assert found.astype(np.float32)[0, 0] == np.float32(127) * np.float32(found.scales[0])
    assert (found[0] == found.astype(np.float64)[0]).all()


@settings(max_examples=40)
@given(matrices)
def test_errors_are_bounded(vectors):
    """Each number is off by half a step at most, and the scale's 11 digits by 2 ** -11 of it; together they
    are no worse than with the scale that gives the largest number its own value.
    """
    found = stored.quantized(vectors, "cosine")
    exact = vectors.astype(np.float64)
    steps = np.abs(exact).max(axis=1) / 127
    off = np.linalg.norm(found.astype(np.float64) - exact, axis=1)
    rounding = np.maximum(2.0**-11 * np.linalg.norm(exact, axis=1), 2.0**-25 * 127 * np.sqrt(exact.shape[1]))
    assert (off <= np.sqrt(exact.shape[1]) * steps / 2 + 1.01 * rounding).all()


@settings(max_examples=40)
@given(matrices)
def test_numbers_lie_on_the_grids_that_exact_sums_need(vectors):
    assert (stored.quantized(vectors, "cosine").astype(np.float64) * 2**24 % 1 == 0).all()
    assert (stored.quantized(vectors, "l2").astype(np.float64) * 2**16 % 1 == 0).all()


MANY = units(9000, 24, 0)  # of more than one block


@pytest.mark.parametrize(
    ("similarity", "vectors"),
    [("cosine", MANY), *((name, stored.quantized(MANY, name)) for name in ("cosine", "l2"))],
    ids=["halves", "bytes", "distances"],
)
def test_scores_are_those_of_exact_sums(similarity, vectors):
    """To the last bit: the exact sum, rounded once; other vectors and other orders change nothing."""
    asked = vectors[[3, 5000]].astype(np.float32)
    found = stored.similarities(asked, vectors, similarity)
    assert found.dtype == np.float32
    exact = vectors.astype(np.float64)
    for i, query in enumerate(asked.astype(np.float64)):
        for j in range(0, 9000, 90):
            near = math.fsum(query * exact[j])
            far = -math.sqrt(math.fsum((query - exact[j]) ** 2))
            assert found[i, j] == np.float32(near if similarity == "cosine" else far)
    rows = np.random.default_rng(1).permutation(9000)
    assert (stored.similarities(asked, vectors[rows], similarity) == found[:, rows]).all()
    halves = isinstance(vectors, np.ndarray)
    backwards = vectors[:, ::-1] if halves else stored.Quantized(vectors.codes[:, ::-1], vectors.scales)
    assert (stored.similarities(asked[:, ::-1], backwards, similarity) == found).all()
    assert stored.similarities(asked, vectors[:0], similarity).shape == (2, 0)
    if similarity == "l2":
        assert (stored.similarities(asked, vectors[[3, 5000]], similarity).diagonal() == 0).all()


def test_every_half_is_read_as_numpy_reads_it():
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16)
    halves = halves[np.isfinite(halves)][:, None]
    found = stored.similarities(np.ones((1, 1), np.float32), halves)[0]
    assert (found == halves[:, 0].astype(np.float32)).all()


@pytest.mark.parametrize("similarity", ["cosine", "l2"])
@pytest.mark.parametrize("form", ["float16", "int8"])
def test_what_was_written_in_parts_is_read(tmp_path, form, similarity):
    vectors = units(90, 12, 2)
    with stored.writing_vectors(tmp_path, "v.npy", (90, 12), form, similarity) as write:
        for part in np.split(vectors, [40, 70]):
            write(part)
    read = stored.open_vectors(Files(tmp_path), "v.npy", form)
    assert (len(read), read.shape) == (90, (90, 12))
    expected = vectors if form == "float16" else stored.quantized(vectors, similarity)
    for rows in (slice(3, 60), np.array([7, 2, 89]), 5):
        assert (read[rows].astype(np.float64) == expected[rows].astype(np.float64)).all()
    assert (np.asarray(read).astype(np.float64) == expected.astype(np.float64)).all()
    with pytest.raises(IndexFormatError, match=r"expected an array of .*, found .*; the index is damaged"):
        stored.open_vectors(Files(tmp_path), "v.npy", {"float16": "int8", "int8": "float16"}[form])


def test_scales_that_do_not_fit_are_told(tmp_path):
    with stored.writing_vectors(tmp_path, "v.npy", (9, 4), "int8", "cosine") as write:
        write(units(9, 4, 3))
    np.save(tmp_path / stored.scales_file("v.npy"), np.ones(8, np.float16))
    with pytest.raises(IndexFormatError, match=r"scales\.npy: expected 9 scales, found 8; the index is dam"):
        stored.open_vectors(Files(tmp_path), "v.npy", "int8")


def test_auto_goes_by_size():
    assert [resolve_stored("auto", count) for count in (200_000, 200_001)] == ["float16", "int8"]
    assert resolve_stored("float16", 10**7) == "float16"
    with pytest.raises(UsageError, match="expected `stored` of auto, float16, int8, found 'int4'"):
        BuildSettings(stored="int4")

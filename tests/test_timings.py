"""Seconds and memory of a build's stages."""

import sys

import pytest

from qbe.index.building.settings import Timings


def test_seconds_of_a_stage_add_up_and_parts_of_it_are_told_apart():
    timings = Timings()
    for _ in range(2):
        with timings.stage("whole"):
            part = timings.timed("part", len)
            assert part([1, 2]) == 2
    assert 0 < timings.seconds["part"] < timings.seconds["whole"]
    assert list(timings.peaks) == ["whole"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts the peak anew")
def test_a_stage_is_not_charged_with_the_memory_of_the_one_before():
    timings, size = Timings(), 200_000_000
    with timings.stage("large"):
        held = bytearray(size)
        held[::4096] = b"x" * len(held[::4096])
        del held
    with timings.stage("small"):
        pass
    assert timings.peaks["large"] - timings.peaks["small"] > 0.9 * size

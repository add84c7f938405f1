"""Searching while an index is built in the same process: neither waits longer than it has to."""

import contextlib
import threading

import pytest

from qbe.index.faiss import ONE_BY_ONE, TOGETHER, building, searching, set_for_searching

faiss = pytest.importorskip("faiss")


def test_a_build_waits_for_unlimited_searches_alone():
    set_for_searching(threads=1)
    began, may_end = threading.Event(), threading.Event()

    def build():
        with building(threads=1):
            began.set()
            may_end.wait(60)

    builder = threading.Thread(target=build)
    with contextlib.ExitStack() as end, contextlib.ExitStack() as later:
        end.callback(may_end.set)
        with searching() as most:
            assert most == ONE_BY_ONE
            builder.start()
            while later.enter_context(searching()) == ONE_BY_ONE:  # until the build waits
                later.close()
            assert not began.is_set()
            assert faiss.cvar.distance_compute_blas_threshold == ONE_BY_ONE
        assert began.wait(10)  # though a search that began meanwhile goes on
        assert faiss.cvar.distance_compute_blas_threshold == TOGETHER
        may_end.set()
        builder.join()
        assert faiss.cvar.distance_compute_blas_threshold == ONE_BY_ONE
    with searching() as most:
        assert most == ONE_BY_ONE

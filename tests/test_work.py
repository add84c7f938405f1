"""Worker pools: order, reuse, errors, nesting, and what workers call as they end."""

import threading
import time

import pytest

from qbe.util.work import Workers


def test_results_are_in_order_and_the_pool_is_reused():
    threads = set()

    def square(number: int) -> int:
        threads.add(threading.current_thread())
        time.sleep(0.001 * (number % 3))
        return number * number

    with Workers(3) as workers:
        for _ in range(3):
            assert list(workers.map(square, range(20))) == [number**2 for number in range(20)]
    assert len(threads) <= 3
    assert threading.current_thread() not in threads


def test_an_error_ends_the_work():
    done = []

    def fail(number: int) -> int:
        if number == 3:
            raise ValueError("three")
        done.append(number)
        return number

    with Workers(2) as workers, pytest.raises(ValueError, match="three"):
        list(workers.map(fail, range(1000)))
    assert len(done) < 100


def test_each_worker_calls_what_it_is_to_call_at_its_end():
    left = []
    meeting = threading.Barrier(3)
    with Workers(3) as workers:
        workers.at_exit(lambda: left.append(threading.current_thread()))
        used = set(workers.map(lambda _: (meeting.wait(10), threading.current_thread())[1], range(3)))
    assert set(left) == used
    assert len(left) == 3

"""Worker pools: order, reuse, errors, nesting, and what workers call as they end."""

import threading
import time

import pytest

from qbe.util.work import AHEAD, Workers


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


@pytest.mark.parametrize(("threads", "items"), [(1, range(5)), (4, [7])])
def test_little_work_is_done_by_the_calling_thread(threads, items):
    with Workers(threads) as workers:
        callers = set(workers.map(lambda _: threading.current_thread(), items))
    assert callers == {threading.current_thread()}


def test_few_items_of_a_stream_are_taken_ahead():
    taken = []

    def stream():
        for number in range(1000):
            taken.append(number)
            yield number

    with Workers(2) as workers:
        results = workers.map(str, stream())
        assert next(results) == "0"
        assert len(taken) <= 2 * AHEAD + 1
        results.close()  # type: ignore[attr-defined]
    assert len(taken) <= 2 * AHEAD + 1


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


def test_a_worker_that_asks_for_workers_does_the_work_itself():
    with Workers(2) as workers:
        nested = workers.map(lambda number: sum(workers.map(abs, range(number))), range(6))
        assert list(nested) == [0, 0, 1, 3, 6, 10]


def test_each_worker_calls_what_it_is_to_call_at_its_end():
    left = []
    meeting = threading.Barrier(3)
    with Workers(3) as workers:
        workers.at_exit(lambda: left.append(threading.current_thread()))
        used = set(workers.map(lambda _: (meeting.wait(10), threading.current_thread())[1], range(3)))
    assert set(left) == used
    assert len(left) == 3


def test_a_closed_pool_starts_again():
    workers = Workers(2)
    assert list(workers.map(abs, [-1, -2])) == [1, 2]
    workers.close()
    assert list(workers.map(abs, [-3, -4])) == [3, 4]
    workers.close()
    workers.close()

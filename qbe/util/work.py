"""Work spread over threads with results in order, child processes, and objects that are closed.

The heavy parts of qbe (ONNX Runtime, FAISS, Lucene, numpy's products) release the interpreter's lock, so that
Python threads run them side by side.
"""

import contextlib
import os
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager as ContextManager
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from qbe.errors import UsageError, check_count

T = TypeVar("T")
R = TypeVar("R")

MOST_THREADS = 1024  # more end in the libraries' own errors
AHEAD = 8  # items a thread that are taken from a stream before their turn comes
Process = subprocess.Popen[bytes]
is_limited = False  # whether `limit` was called in this process
_inside = threading.local()
_CGROUP = "/sys/fs/cgroup/"
_QUOTAS = ((f"{_CGROUP}cpu.max",), (f"{_CGROUP}cpu/cpu.cfs_quota_us", f"{_CGROUP}cpu/cpu.cfs_period_us"))


def available_threads() -> int:
    """Return the processors that this process may run on, by its affinity mask and a container's quota."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for files in _QUOTAS:
        with contextlib.suppress(OSError, ValueError):  # there is none, or it is "max" or -1
            quota, period, *_ = map(int, " ".join(Path(file).read_text() for file in files).split())
            count = min(count, max(1, quota // period)) if quota > 0 else count
    return count


def thread_count(threads: int | None) -> int:
    """Return a number of threads, by default all available; raise UsageError below 1."""
    if threads is None:
        return available_threads()
    check_count("threads", threads)
    if threads > MOST_THREADS:
        raise UsageError(f"expected `threads` of at most {MOST_THREADS}, found {threads}")
    return threads


class Closing(ABC):
    """Base class of objects that are closed at the end of a ``with`` block."""

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Workers(Closing):
    """A thread pool for several threads; a worker that asks for workers does the work alone."""

    def __init__(self, threads: int = 1) -> None:
        self.threads = threads
        self._starting = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._at_exit: dict[Callable[[], object], None] = {}

    def map(self, function: Callable[[T], R], items: Iterable[T], ahead: int = AHEAD) -> Iterator[R]:
        """Yield ``function`` of each item, in order; read at most ``ahead`` items a thread ahead."""
        few = isinstance(items, Sized) and len(items) <= 1
        if self.threads <= 1 or few or getattr(_inside, "worker", False):
            for item in items:
                pause()
                yield function(item)
            return
        if getattr(_inside, "turn", None):
            ahead = min(ahead, 2)  # who goes first finds most threads free
        with self._starting:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self.threads, "qbe", setattr, (_inside, "worker", True))
            pool = self._pool
        begun: deque[Future[R]] = deque()
        try:
            for item in items:
                pause()
                begun.append(pool.submit(function, item))
                if len(begun) >= ahead * self.threads:
                    yield begun.popleft().result()
            while begun:
                yield begun.popleft().result()
        finally:
            wait([future for future in begun if not future.cancel()])

    def at_exit(self, function: Callable[[], object]) -> None:
        """Have each worker call a function before it ends, such as to leave the Java virtual machine."""
        self._at_exit[function] = None

    def close(self) -> None:
        """End the threads; they are started again when there is more to do."""
        with self._starting:
            pool, self._pool = self._pool, None
            if pool is None:
                return
            if self._at_exit:
                meeting = threading.Barrier(self.threads)

                def leave() -> None:
                    meeting.wait()  # so that each worker takes one of these calls
                    for function in self._at_exit:
                        function()

                for future in [pool.submit(leave) for _ in range(self.threads)]:
                    future.result()
            pool.shutdown()


def take_turns(pause: Callable[[], object], idle: Callable[[], ContextManager[None]]) -> None:
    """Have this thread's `pause` and `idle` call these (`qbe.serve.turns`)."""
    _inside.turn = pause, idle


def pause() -> None:
    """Let others go first, if they should, between two pieces of work; holds no lock meanwhile."""
    if turn := getattr(_inside, "turn", None):
        turn[0]()


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Do not `pause`, as where a lock is held."""
    turn, _inside.turn = getattr(_inside, "turn", None), None
    try:
        yield
    finally:
        _inside.turn = turn


def idle() -> ContextManager[None]:
    """Let others work while this thread waits for something else than processors."""
    turn = getattr(_inside, "turn", None)
    idling: ContextManager[None] = turn[1]() if turn else contextlib.nullcontext()
    return idling


def ordered_map(
    function: Callable[[T], R], items: Iterable[T], threads: int, ahead: int = AHEAD
) -> Iterator[R]:
    """Yield ``function`` of each item, in order, by threads that end with the work."""
    with Workers(threads) as workers:
        yield from workers.map(function, items, ahead)


class Memo(Generic[T, R]):
    """A function that remembers its result for each object, by identity, for one piece of work."""

    def __init__(self, function: Callable[[T], R]) -> None:
        self._function, self._known = function, dict[int, R]()

    def __call__(self, item: T) -> R:
        if id(item) not in self._known:
            self._known[id(item)] = self._function(item)
        return self._known[id(item)]


_blas = threading.Lock()
_blas_users = 0
_blas_limit: Any = None


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Compute numpy's products in the calling thread while such blocks run.

    Those of a few query vectors are over before a pool has woken up, which then spins against qbe's threads.
    """
    global _blas_users, _blas_limit
    if os.environ.get("OPENBLAS_NUM_THREADS") == "1" or "numpy" not in sys.modules:
        yield
        return
    from threadpoolctl import threadpool_limits

    with _blas:
        if _blas_users == 0:
            _blas_limit = threadpool_limits(limits=1, user_api="blas")
        _blas_users += 1
    try:
        yield
    finally:
        with _blas:
            _blas_users -= 1
            if _blas_users == 0:
                _blas_limit.restore_original_limits()


# A Python process started with -m or -c imports modules of the working directory first: a qbe.py or numpy.py
# that lies next to a corpus would be run. PYTHONSAFEPATH prevents that, also in processes below.
def run(command: Sequence[object], seconds: float | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command without input until it ends; keep its output and errors as text."""
    return subprocess.run(  # noqa: S603  (no shell; commands are lists that qbe makes)
        [str(part) for part in command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=seconds,
        check=False,
        env={**os.environ, "PYTHONSAFEPATH": "1"},
    )


def limit(most_bytes: int) -> None:
    """Let this process have so much memory, and write no files, since it reads what may be hostile."""
    global is_limited
    import resource

    os.nice(10)  # others wait for what strangers send no longer than for anything else
    is_limited = True
    limits = {resource.RLIMIT_AS: most_bytes, resource.RLIMIT_CORE: 0, resource.RLIMIT_FSIZE: 0}
    for each, value in limits.items():
        with contextlib.suppress(ValueError, OSError):  # where the system has no such limit, or a lower one
            resource.setrlimit(each, (value, value))


def answer_of(process: Process, data: bytes, seconds: float) -> bytes:
    """Send data after their length to a process; return its line, b"" where it ends or takes longer."""
    assert process.stdin is not None and process.stdout is not None
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    try:
        process.stdin.write(len(data).to_bytes(8, "big") + data)
        process.stdin.flush()
        line = process.stdout.readline()
    except BrokenPipeError:
        line = b""
    finally:
        timer.cancel()
    return line if line.endswith(b"\n") else b""


def start(command: Sequence[object]) -> Process:
    """Start a command with pipes for input and output; drop its errors. It ends when its input does."""
    return subprocess.Popen(  # noqa: S603
        [str(part) for part in command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONSAFEPATH": "1"},
    )

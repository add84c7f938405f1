"""Several processes that answer requests on one socket, and the one that starts, replaces and ends them."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.supervisors.multiprocess import Multiprocess, Process

from qbe.serve.network.server import GRACE_SECONDS, Server, config_of
from qbe.util.processes import import_nothing_from_working_directory

log = logging.getLogger("qbe.serve.network")

START_SECONDS = 600.0
"""Within which a worker must have opened what it serves."""

STEADY_SECONDS, LONGEST_WAIT = 60.0, 60.0
"""A worker that lived so long was no failure; what the next one of a row of failures waits for, at most."""


class Worker(Process):
    """A process that serves ``config.app`` on the sockets, and ends with the one that started it.

    ``failures`` workers before it, of those in its place, ended soon after they were started.
    """

    def __init__(self, config: uvicorn.Config, sockets: list[socket.socket], failures: int = 0) -> None:
        super().__init__(config, sockets)
        self.failures, self.began = failures, time.monotonic()
        self.replaced_at: float | None = None
        self.parent = os.getpid()

    def target(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve, in the new process."""
        threading.Thread(target=self._end_with_parent, daemon=True).start()
        super().target(sockets)

    @property
    def server(self) -> Server:
        """The server, in the new process."""
        if self._server is None:
            self._server = Server(self.config, lambda: log.info("ready"))
        assert isinstance(self._server, Server)
        return self._server

    def note_end(self) -> str:
        """Decide when another one may take its place; returns that, and how it ended, in words."""
        code = self.exitcode or 0
        self.failures = 0 if time.monotonic() - self.began > STEADY_SECONDS else self.failures + 1
        wait = 0.0 if self.failures < 2 else min(2.0 ** (self.failures - 2), LONGEST_WAIT)
        self.replaced_at = time.monotonic() + wait
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        return f"worker {self.pid} ended {how}; another one is started in {wait:.0f} s"

    def _end_with_parent(self) -> None:
        while os.getppid() == self.parent:
            time.sleep(1)
        os.kill(os.getpid(), signal.SIGTERM)


class Workers(Multiprocess):
    """Starts as many processes as ``config.workers`` says, each of which serves ``config.app`` on the socket.

    The others are started when the first one answers requests, so that what is wrong for all of them is said
    once. A worker that ends is replaced, at once or, where that happens again and again, after a while.
    SIGHUP replaces all of them one after the other: each finishes the requests that it has once another one
    takes new ones. SIGINT and SIGTERM end all workers so.
    """

    processes: list[Worker]  # type: ignore[assignment]

    def __init__(self, config: uvicorn.Config, listening: socket.socket, started: Callable[[], None]) -> None:
        """``started`` is called once requests are answered."""
        super().__init__(config, [listening])
        self._started = started

    def run(self) -> None:
        """Serve until told to end. Where the first worker does not start, this process ends with its exit
        code; the worker has said why.
        """
        import_nothing_from_working_directory()
        # Read by glibc when a process starts: arenas of many threads would hold what was freed in others.
        os.environ.setdefault("MALLOC_ARENA_MAX", "2")
        first = self._begin()
        self.processes = [first]
        if self._is_ready(first):
            self._started()
            super().run()
            return
        code = first.exitcode
        self.terminate_all()
        self.join_all()
        if not self._is_to_end():
            sys.exit(code if code is not None and code > 0 else 1)

    def init_processes(self) -> None:
        """Start the others."""
        self.processes += [self._begin() for _ in range(self.processes_num - 1)]

    def keep_subprocess_alive(self) -> None:
        """Replace workers that have ended, each when its time has come."""
        for place, worker in enumerate(self.processes):
            if worker.process.is_alive() or self._is_to_end():
                continue
            if worker.replaced_at is None:
                worker.join()
                log.error("%s", worker.note_end())
            if time.monotonic() >= (worker.replaced_at or 0.0):
                worker.kill()  # which closes its pipe
                self.processes[place] = self._begin(worker.failures)

    def restart_all(self) -> None:
        """Replace all workers, one after the other; where one cannot be started, the others stay."""
        for place, former in enumerate(self.processes):
            worker = self._begin()
            if not self._is_ready(worker):
                worker.kill()
                worker.join()
                if not self._is_to_end():
                    log.error(
                        "no worker could be started anew; the %d that remain go on", len(self.processes)
                    )
                return
            self.processes[place] = worker
            former.terminate()
            _end([former])
        log.info("all %d workers were replaced", len(self.processes))

    def join_all(self) -> None:
        """Wait until all workers have ended, for as long as they may take."""
        _end(self.processes)

    def handle_ttin(self) -> None:
        """Do nothing: the number of workers stays."""

    handle_ttou = handle_ttin

    def _begin(self, failures: int = 0) -> Worker:
        worker = Worker(self.config, self.sockets, failures)
        worker.start()
        return worker

    def _is_ready(self, worker: Worker) -> bool:
        """Whether a worker comes to answer requests before it ends, and before all are to end."""
        deadline = time.monotonic() + START_SECONDS
        while worker.process.is_alive() and not self._is_to_end() and time.monotonic() < deadline:
            if worker.is_ready(timeout=1):
                return True
            time.sleep(0.1)
        return False

    def _is_to_end(self) -> bool:
        return self.should_exit.is_set() or not {signal.SIGINT, signal.SIGTERM}.isdisjoint(self.signal_queue)


def _end(workers: list[Worker]) -> None:
    """Wait for workers that were told to end, and kill those that take too long."""
    deadline = time.monotonic() + GRACE_SECONDS + 5
    for worker in workers:
        worker.process.join(max(0.0, deadline - time.monotonic()))
        if worker.process.is_alive():
            worker.kill()
        worker.join()


def serve_with_workers(
    make_app: Callable[[], Any], workers: int, listening: socket.socket, started: Callable[[], None]
) -> None:
    """Answer requests with so many processes until SIGINT or SIGTERM, and then finish those under way.

    ``make_app`` is called in each of them, and must be known by a name of its module.
    """
    config = config_of(make_app, factory=True, workers=workers)
    Workers(config, listening, started).run()

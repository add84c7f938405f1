"""Workers end, the index changes and slow clients hold connections (QBE_HOSTILE_SECONDS=600: ten minutes)."""

import http.client
import json
import os
import re
import shutil
import signal
import socket
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from support.serving import Server, serving, wait_until

from qbe.index.index import open_index

pytestmark = pytest.mark.slow

SECONDS = float(os.environ.get("QBE_HOSTILE_SECONDS", "3"))
PAUSE = 0.05  # seconds between requests of a client
SEARCH = json.dumps({"paper_ids": ["s036"], "k": 5, "rerank": False, "first_stage": "dense"}).encode()


class Asking:
    """An honest client, which asks again and again; a request that breaks is sent once more."""

    def __init__(self, port: int) -> None:
        self.statuses: Counter[int | str] = Counter()
        self.broken = 0
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def end(self) -> None:
        self._done.set()
        self._thread.join()
        self._connection.close()

    def _run(self) -> None:
        while not self._done.is_set():
            try:
                status = self._ask()
            except (OSError, http.client.HTTPException):
                self.broken += 1
                self._connection.close()
                try:
                    status = self._ask()
                except (OSError, http.client.HTTPException) as error:
                    self._connection.close()
                    status = repr(error)
            self.statuses[status] += 1
            time.sleep(PAUSE)

    def _ask(self) -> int | str:
        self._connection.request("POST", "/api/search", SEARCH, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        answer.read()
        return answer.status


def workers_of(server: Server) -> set[int]:
    pid = server.process.pid
    children = set(Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return {int(each) for each in children & set(re.findall(r"\[(\d+)\] ready", server.log.read_text()))}


def counted(server: Server) -> int:
    """How many searches all workers have answered, those that have ended among them."""
    text = server.ask("GET", "/metrics").body.decode()
    return int(float(re.search(r'route="/api/search",status="200"} (\S+)', text)[1]))


def test_workers_end_and_the_index_changes_while_honest_clients_are_answered(light_index, tmp_path):
    folder, log = tmp_path / "index", tmp_path / "log"
    shutil.copytree(light_index, folder)
    kills, options = 0, ("--rerank", "none", "--workers", "2")
    with serving(folder, log, *options) as opened, open_index(folder, threads=1) as index:
        wait_until(lambda: len(workers_of(opened)) == 2)
        held = []
        kept = [index.paper(f"s{number:03}") for number in range(1, 11)]
        clients = [Asking(opened.port) for _ in range(3)]
        end = time.monotonic() + SECONDS
        while not kills or time.monotonic() < end:
            killed = max(workers_of(opened))
            os.kill(killed, signal.SIGSTOP)
            time.sleep(1)  # so that it is killed while it is asked whether it is alive
            os.kill(killed, signal.SIGKILL)
            wait_until(lambda: len(workers_of(opened) - {killed}) == 2)  # noqa: B023

            index.delete([paper.paper_id for paper in kept])
            index.append(kept)
            for _ in range(20):
                held.append(socket.create_connection(("127.0.0.1", opened.port), timeout=2))
                held[-1].sendall(b"POST /api/search HTTP/1.1\r\nHost: localhost\r\nX: ")

            former = workers_of(opened)
            opened.process.send_signal(signal.SIGHUP)
            wait_until(lambda: len(workers_of(opened) - former) == len(workers_of(opened)) == 2)  # noqa: B023
            kills += 3  # a connection may be kept to either worker when that is replaced, too
        for each in held:
            each.close()
        for client in clients:
            client.end()
        statuses = sum((client.statuses for client in clients), Counter())
        broken = sum(client.broken for client in clients)
        assert set(statuses) <= {200, 429}, statuses
        assert broken <= kills * len(clients)
        assert statuses[200] <= counted(opened) <= statuses[200] + broken
        workers = workers_of(opened)
        assert opened.stop() == 0
        assert not any(Path(f"/proc/{pid}").exists() for pid in workers)
    assert "Traceback" not in log.read_text()

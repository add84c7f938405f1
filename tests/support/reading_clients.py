"""Clients that read an index, and a server of it, while it is written to, until a file appears.

Usage: reading_clients.py INDEX PORT EXPECTED STOP. EXPECTED is a file of JSON: for each number of papers that
the index may have, what a search answers. Half of the clients ask the server, the others open the index over
and over, and hold it for a while. To standard output goes how many answers there were, and what was wrong.
"""

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

from qbe.index.index import Index
from qbe.query import Query
from support.searching import first_stage
from support.serving import Server

CLIENTS = 4
QUERY = "s003"
STAGES = ("bm25", "dense", "fused")
HELD_SECONDS = 0.15


def answer(index: Index, stage: str) -> list[Any]:
    """The ids and scores of the best papers by a first stage."""
    with first_stage(index, stage) as pipeline:
        return [[hit.paper_id, hit.score] for hit in pipeline.search(Query(index.paper(QUERY)), 8)]


class Clients:
    """What all clients found."""

    def __init__(self, index: Path, port: int, expected: dict[str, Any], stop: Path) -> None:
        self.index, self.expected, self.stop = index, expected, stop
        self.server = Server(None, port, index)  # which another process started
        self.answers, self.wrong = 0, list[str]()

    def run(self) -> None:
        targets = [self._ask, self._open] * (CLIENTS // 2)
        threads = [threading.Thread(target=self._repeat, args=(target,)) for target in targets]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(json.dumps({"answers": self.answers, "wrong": self.wrong}))

    def _repeat(self, target: Any) -> None:
        while not self.stop.exists():
            try:
                target()
            except Exception as error:
                self.wrong.append(f"{target.__name__}: {error!r}")
            self.answers += 1
            time.sleep(0.01)

    def _ask(self) -> None:
        found = self.server.search(paper_ids=[QUERY], k=8)
        if found.status == 429:  # asked too often
            return
        hits = found.json().get("hits", [])
        known = [each["served"] for each in self.expected.values()]
        ids = [hit["paper_id"] for hit in hits]
        titled = all(hit["title"].endswith(f" {hit['paper_id']}") for hit in hits)
        if found.status != 200 or ids not in known or not titled:
            self.wrong.append(f"{found.status} {found.body.decode()}")

    def _open(self) -> None:
        with Index(self.index, threads=1) as index:
            expected = self.expected[str(len(index))]
            time.sleep(HELD_SECONDS)  # what is opened from now on may be gone
            for stage in STAGES:
                if answer(index, stage) != expected[stage]:
                    self.wrong.append(f"{stage} of {len(index)}: {answer(index, stage)}")
            papers = {paper.paper_id: paper.title for paper in index}
            if not all(title.endswith(f" {paper_id}") for paper_id, title in papers.items()):
                self.wrong.append(f"{papers}")
            if any(index.paper(paper_id).title != title for paper_id, title in papers.items()):
                self.wrong.append("other papers by their ids")


if __name__ == "__main__":
    expected = json.loads(Path(sys.argv[3]).read_text())
    Clients(Path(sys.argv[1]), int(sys.argv[2]), expected, Path(sys.argv[4])).run()

"""``qbe index``, in processes that kill themselves at a chosen moment.

Each line of standard input is a list in JSON of MOMENT, one of MOMENTS, and the command's ARGUMENTs. Each is
a process of its own, forked from this one, which has loaded all. To standard output goes its status, once it
has ended.
"""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import onnxruntime  # noqa: F401  (loaded before there are processes)

from qbe.cli.index import main as index_main
from qbe.index.building import build, shards  # noqa: F401
from qbe.index.dense import faiss_build  # noqa: F401

SHARD_PAPERS = 24
"""Papers a shard, so that sixty make three."""

MOMENTS = {
    # name: (audit event of the interpreter, what one of its arguments ends in, how often it has come)
    "papers begun": ("open", "/papers.jsonl", 1),
    "papers written, not noted": ("os.rename", "/build.json", 1),
    "papers noted": ("shutil.rmtree", "/lucene", 1),
    "lucene ended": ("shutil.rmtree", "/lucene-input", 2),
    "second shard begun": ("os.rename", "/0000000024.npy", 1),
    "vectors begun": ("open", "/vectors.npy", 1),
    "facets begun": ("open", "/facets.npy", 2),  # they were begun with the papers already
    "shards read": ("open", "/0000000000.npy", 1),
    "vectors written": ("shutil.rmtree", "/shards", 1),
    "manifest written": ("os.rename", "/manifest.json", 1),
    "put in place": ("os.rename", "/index", 1),
    "old index exchanged": ("shutil.rmtree", "/.index.building", 2),
    "state left": ("os.remove", "/index/build.json", 1),
}
LUCENE = "lucene begun"
"""A moment inside Java, where no event tells: the index folder has its first file."""


def main(moment: str, arguments: list[str]) -> None:
    if moment == LUCENE:
        output = Path(arguments[arguments.index("--output") + 1])
        folder = output.with_name(f".{output.name}.building") / "lucene"
        threading.Thread(target=_watch, args=(folder,), daemon=True).start()
    else:
        event, ending, count = MOMENTS[moment]
        seen = 0

        def hook(found: str, values: tuple) -> None:
            nonlocal seen
            if found == event and any(str(value).endswith(ending) for value in values):
                seen += 1
                if seen == count:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)

    shards.SHARD_PAPERS = SHARD_PAPERS
    index_main(arguments)


def _watch(folder: Path) -> None:
    while not folder.exists() or not any(folder.iterdir()):
        time.sleep(0.0005)
    os.kill(os.getpid(), signal.SIGKILL)


def serve() -> None:
    for line in sys.stdin:
        moment, *arguments = json.loads(line)
        child = os.fork()
        if not child:
            os.dup2(2, 1)
            try:
                main(moment, arguments)
            finally:
                sys.stderr.flush()
                os._exit(0)
        print(os.waitpid(child, 0)[1], flush=True)


if __name__ == "__main__":
    serve()

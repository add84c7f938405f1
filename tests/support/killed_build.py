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
from qbe.index import build

BLOCK = 24
"""Papers a block, so that sixty make three."""

MOMENTS = {
    # name: (audit event of the interpreter, what one of its arguments ends in, how often it has come)
    "papers begun": ("open", "/papers.jsonl", 1),
    "papers written, not noted": ("os.rename", "/build.json", 1),
    "papers noted": ("shutil.rmtree", "/lucene", 1),
    "lucene ended": ("shutil.rmtree", "/lucene-input", 2),
    "facets begun": ("open", "/facets.npy", 2),  # they were begun with the papers already
    "first block noted": ("os.rename", "/build.json", 2),
    "second block noted": ("os.rename", "/build.json", 3),
    "third block noted": ("os.rename", "/build.json", 4),
    "all encoded": ("open", "/manifest.json", 1),
    "FAISS begun": ("open", "/vectors.npy", 2),  # to be read
    "manifest written": ("os.rename", "/manifest.json", 1),
    "put in place": ("os.rename", "/000001", 1),
    "published, not current": ("os.rename", "/CURRENT", 1),
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

    build.BLOCK = BLOCK
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

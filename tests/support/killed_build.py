"""``qbe index``, in a process that ends or halts itself at a chosen moment.

Usage: killed_build.py SIGNAL MOMENT ARGUMENT...; SIGNAL is KILL or STOP, MOMENT one of MOMENTS.
"""

import os
import signal
import sys
import threading
import time
from pathlib import Path

SHARD_PAPERS = 48
"""Papers a shard, so that the sample makes three."""

MOMENTS = {
    # name: (audit event of the interpreter, what one of its arguments ends in, how often it has come)
    "papers begun": ("open", "/papers.jsonl", 1),
    "papers written, not noted": ("os.rename", "/build.json", 1),
    "papers noted": ("shutil.rmtree", "/lucene", 1),
    "lucene ended, not noted": ("os.rename", "/build.json", 2),
    "lucene ended": ("shutil.rmtree", "/lucene-input", 2),
    "second shard begun": ("os.rename", "/0000000048.npy", 1),
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


def main(name: str, moment: str, arguments: list[str]) -> None:
    number = getattr(signal, f"SIG{name}")
    if moment == LUCENE:
        output = Path(arguments[arguments.index("--output") + 1])
        folder = output.with_name(f".{output.name}.building") / "lucene"
        threading.Thread(target=_watch, args=(folder, number), daemon=True).start()
    else:
        event, ending, count = MOMENTS[moment]
        seen = 0

        def hook(found: str, values: tuple) -> None:
            nonlocal seen
            if found == event and any(str(value).endswith(ending) for value in values):
                seen += 1
                if seen == count:
                    os.kill(os.getpid(), number)

        sys.addaudithook(hook)

    from qbe.index.__main__ import main
    from qbe.index.building import shards

    shards.SHARD_PAPERS = SHARD_PAPERS
    main(arguments)


def _watch(folder: Path, number: int) -> None:
    while not folder.exists() or not any(folder.iterdir()):
        time.sleep(0.0005)
    os.kill(os.getpid(), number)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])

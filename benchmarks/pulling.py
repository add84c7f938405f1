"""Pull a packed index from a server that breaks the connection five times and then sends a wrong byte, then
from a sound one: ``python -m benchmarks.pulling INDEX``.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from benchmarks.faulty_server import Faults, serving
from qbe.errors import PackError
from qbe.index.opening import open_index
from qbe.index.share import pack_index, pull
from qbe.query import Query
from qbe.search.session import Pipeline

T = TypeVar("T")

BREAKS = 5


def main() -> None:
    """Print what each step took and read."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("index", type=Path, help="folder of an index, which is copied")
    parser.add_argument("--folder", type=Path, help="where to work (default: a temporary folder)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pulling-", dir=options.folder) as folder:
        _measure(options.index, Path(folder))


def _measure(index: Path, folder: Path) -> None:
    packed = _timed("packed", lambda: pack_index(index, folder / "index.tar.zst"))
    print(f"  {packed.pack.papers:,} papers, {packed.bytes / 1e6:,.0f} MB of {packed.pack.bytes / 1e6:,.0f}")
    breaks = [packed.bytes * (place + 1) // (BREAKS + 2) for place in range(BREAKS)]
    faults = Faults(breaks=breaks, wrong=packed.bytes - packed.bytes // 10)
    with serving(folder, faults) as address:
        address = f"{address}/index.tar.zst"
        try:
            _timed("refused", lambda: pull(address, folder / "pulled"))
        except PackError as error:
            print(f"  {error}\n  {len(faults.asked)} requests, {faults.sent / 1e6:,.0f} MB sent")
        assert not faults.breaks
        assert not (folder / "pulled").exists()
        faults.wrong = None
        for _ in range(2):  # the second time it is there
            faults.sent = 0
            _timed("pulled", lambda: pull(address, folder / "pulled"))
            print(f"  {faults.sent / 1e6:,.1f} MB sent")
        _search(folder / "pulled", packed.pack.digest)


def _timed(name: str, function: Callable[[], T]) -> T:
    begin = time.perf_counter()
    try:
        return function()
    finally:
        print(f"{name}: {time.perf_counter() - begin:.1f} s")


def _search(folder: Path, digest: str) -> None:
    with open_index(folder) as index:
        assert index.manifest.digest == digest
        with Pipeline(index) as pipeline:
            hits = pipeline.search(Query(next(iter(index))), k=5)
    print(f"  the digest is {digest[:12]}; a search finds {len(hits)} papers")


if __name__ == "__main__":
    main()

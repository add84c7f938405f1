"""What a process of `benchmarks.sides.Side` says and measures; Python's own library alone.

The processes are started with ``-m``, so that a peer's environment needs nothing of qbe's but its folder.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any


def say(**record: object) -> None:
    """One line of JSON, past whatever a library prints."""
    print("\n" + json.dumps(record), flush=True)


def timed(search: Callable[..., Any], queries: Iterable[tuple[Any, ...]]) -> tuple[list[float], list[Any]]:
    """Seconds of each query, one after the other, and what was found."""
    seconds, found = [], []
    for query in queries:
        begin = time.perf_counter()
        hits = search(*query)
        seconds.append(time.perf_counter() - begin)
        found.append(hits)
    return seconds, found


def memory(process: int | str = "self") -> dict[str, float]:
    """Of a process, in 10^9 bytes: the most it held, what it holds, and of that the anonymous part.

    Raises OSError or KeyError where the process has ended.
    """
    lines = (line.split() for line in Path(f"/proc/{process}/status").read_text().splitlines())
    fields = {words[0]: words[1] for words in lines if len(words) > 1}
    names = {"peak": "VmHWM:", "resident": "VmRSS:", "anonymous": "RssAnon:"}
    return {name: int(fields[field]) * 1024 / 1e9 for name, field in names.items()}

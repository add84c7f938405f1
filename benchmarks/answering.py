"""Messages and measurements of a process of `benchmarks.sides.Side`, with the standard library only.

The processes are started with ``-m``, so that an environment of a peer needs only the folder of qbe.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any


def say(**record: object) -> None:
    """Print one line of JSON, which begins on a new line whatever a library has printed before."""
    print("\n" + json.dumps(record), flush=True)


def timed(search: Callable[..., Any], queries: Iterable[tuple[Any, ...]]) -> tuple[list[float], list[Any]]:
    """Run queries one after the other; return the seconds and the result of each."""
    seconds, results = [], []
    for query in queries:
        begin = time.perf_counter()
        hits = search(*query)
        seconds.append(time.perf_counter() - begin)
        results.append(hits)
    return seconds, results


def memory(process: int | str = "self") -> dict[str, float]:
    """Return the memory of a process in 10^9 bytes: its peak, its resident and its anonymous part.

    Raises OSError or KeyError where the process has ended.
    """
    lines = (line.split() for line in Path(f"/proc/{process}/status").read_text().splitlines())
    fields = {words[0]: words[1] for words in lines if len(words) > 1}
    names = {"peak": "VmHWM:", "resident": "VmRSS:", "anonymous": "RssAnon:"}
    return {name: int(fields[field]) * 1024 / 1e9 for name, field in names.items()}

"""How papers best pass through ONNX Runtime: one by one on several workers, or in padded batches."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from benchmarks.common import interleaved, ratio, spread, table
from qbe.encode.encoder import MASK
from qbe.models.session import open_session

if TYPE_CHECKING:
    from qbe.models.encoder_files import EncoderFiles

SIZES = (1, 8, 32)


def compare(files: EncoderFiles, texts: Sequence[str], threads: int, rounds: int) -> None:
    """Print papers a second of the model alone (no tokenizing, no pooling), by batch size and threads.

    Batches are made of papers of like length; ``workers`` run single-threaded calls side by side,
    ``inside`` means that one call at a time uses all threads.
    """
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(files.tokenizer))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    ids = sorted((tokenizer.encode(text).ids for text in texts), key=len)
    single, parallel = open_session(files.model), open_session(files.model, threads)
    actions: dict[str, Callable[[], object]] = {}
    for size in SIZES:
        batches = [_inputs(ids[first : first + size]) for first in range(0, len(ids), size)]
        actions[f"batch {size}, {threads} workers"] = functools.partial(_run, single, batches, threads)
        actions[f"batch {size}, {threads} threads inside"] = functools.partial(_run, parallel, batches, 1)
    times = interleaved(actions, rounds)
    first = next(iter(actions))
    rows = [
        (name, spread([len(texts) / seconds for seconds in runs]), ratio(times, name, first))
        for name, runs in times.items()
    ]
    print(table((f"int8 model, {threads} threads", "papers/s", f"time / {first}"), rows))


def _inputs(batch: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Texts padded to the longest; the padding passes like any token, in a model without a mask."""
    import numpy as np

    ids = np.zeros((len(batch), max(map(len, batch))), np.int64)
    for row, tokens in enumerate(batch):
        ids[row, : len(tokens)] = tokens
    return {"input_ids": ids, MASK: (ids > 0).astype(np.int64)}


def _run(session: Any, batches: Sequence[dict[str, Any]], workers: int) -> None:
    names = {each.name for each in session.get_inputs()}

    def run(batch: dict[str, Any]) -> Any:
        return session.run(None, {name: batch[name] for name in names})[0].shape

    with ThreadPoolExecutor(workers) as pool:
        for _ in pool.map(run, batches):
            pass

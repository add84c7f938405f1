"""How papers best pass through ONNX Runtime: one by one on several workers, or in padded batches."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from benchmarks.common import interleaved, ratio, spread, table
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
    import numpy as np

    longest = max(map(len, batch))
    ids, mask = (np.zeros((len(batch), longest), np.int64) for _ in range(2))
    for row, tokens in enumerate(batch):
        ids[row, : len(tokens)] = tokens
        mask[row, : len(tokens)] = 1
    return {"input_ids": ids, "attention_mask": mask}


def _run(session: Any, batches: Sequence[dict[str, Any]], workers: int) -> None:
    with ThreadPoolExecutor(workers) as pool:
        for _ in pool.map(lambda batch: session.run(None, batch)[0].shape, batches):
            pass

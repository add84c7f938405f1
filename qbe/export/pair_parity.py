"""Whether the exports of a pair cross-encoder score as the original does."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from qbe.errors import ModelError
from qbe.export.loading import load_tokenizer
from qbe.models.exports import model_file
from qbe.models.reranker_files import PAIR_INPUTS, RERANKER_PRECISIONS, SCORE
from qbe.models.session import open_session

FP32_MAX_DIFFERENCE = 1e-3
"""Largest absolute difference of a score that fp32 may show: rounding, no more."""
MAX_SHARE_OF_SPREAD = {"fp16": 0.1, "int8": 1.0}
"""Largest difference of a score, in standard deviations of the original's scores over the built-in pairs.

Scores have no scale of their own and only their order counts, so that a difference is small where it is
small beside the distances between candidates. The largest of 72 differences is two to three times their
root mean square: 1.0 keeps that near 0.4, and the correlation with the original (1 / sqrt(1 + 0.4 ** 2))
above 0.9. Random heads on MiniLM, whose scores spread by nothing that was learned, showed 0.5 to 1.6 in
int8 and 0.01 in fp16.
"""

_TEXTS = (
    "Short.",
    "A cat sat on the mat.",
    "We study how the length of a query changes the order of the papers that a search engine returns.",
    "Long queries in literature search. We ask how many sentences of an abstract a query should have. Three "
    "do better than the whole abstract on two collections; on a third the title alone is enough.",
    "Neural rankers read a query and a document together. That costs time. We ask whether reading each "
    "once, and comparing their sentences afterwards, keeps the order of the first hundred documents. On "
    "two collections it does, at a hundredth of the cost; on a third it does not, and we explain why.",
    "Sätze mit Umlauten, Formeln wie $O(n \\log n)$, URLs (https://example.org) and 3.14 numbers!",
)
_BATCH = 8


def pair_parity(
    original: Callable[[Mapping[str, Any]], Any], folder: Path, max_tokens: int
) -> dict[str, dict[str, float]]:
    """Compare the scores of the ONNX models in ``folder`` with the original's, over built-in pairs of texts.

    ``original`` gives scores (batch,) for inputs by name, each (batch, tokens) int64. Returns, for each
    precision, the ``parity`` of `qbe.models.reranker_files.CrossEncoderMetadata`. Raises ModelError where
    a model is too far from the original, or the original gives all pairs the same score.
    """
    tokenizer = load_tokenizer(folder)
    tokenizer.enable_truncation(max_tokens)
    sessions = {precision: open_session(folder / model_file(precision)) for precision in RERANKER_PRECISIONS}
    inputs = [value.name for value in sessions["fp32"].get_inputs()]
    expected: list[float] = []
    scores: dict[str, list[float]] = {precision: [] for precision in RERANKER_PRECISIONS}
    for batch in _batches(tokenizer, inputs):
        expected.extend(original(batch).tolist())
        for precision, session in sessions.items():
            scores[precision].extend(session.run([SCORE], batch)[0].tolist())
    if np.ptp(expected) == 0:
        raise ModelError("parity check: expected scores that differ between pairs, found one for all pairs")
    parity = {}
    for precision, exported in scores.items():
        difference = float(np.abs(np.subtract(exported, expected)).max())
        share = difference / float(np.std(expected))
        parity[precision] = {"max_abs_difference": difference, "share_of_spread": share}
    _check(parity)
    return parity


def _batches(tokenizer: Any, inputs: Collection[str]) -> Iterator[dict[str, Any]]:
    """Each text with each, first one pair at a time, then batched and padded; (batch, tokens) int64."""
    pairs = list(itertools.product(_TEXTS, repeat=2))
    tokenizer.enable_padding()
    batches = [pairs[start : start + size] for size in (1, _BATCH) for start in range(0, len(pairs), size)]
    for batch in batches:
        encodings = tokenizer.encode_batch(batch)
        columns = zip(*((text.ids, text.attention_mask, text.type_ids) for text in encodings), strict=True)
        arrays = (np.array(column, dtype=np.int64) for column in columns)
        yield {name: array for name, array in zip(PAIR_INPUTS, arrays, strict=True) if name in inputs}


def _check(parity: Mapping[str, Mapping[str, float]]) -> None:
    if not parity["fp32"]["max_abs_difference"] <= FP32_MAX_DIFFERENCE:  # not a number fails, too
        raise ModelError(
            f"parity check: expected fp32 within {FP32_MAX_DIFFERENCE} of PyTorch, found {parity['fp32']}"
        )
    for precision, limit in MAX_SHARE_OF_SPREAD.items():
        if not parity[precision]["share_of_spread"] <= limit:
            raise ModelError(
                f"parity check: expected {precision} within {limit} of the scores' standard deviation, found "
                f"{parity[precision]}"
            )

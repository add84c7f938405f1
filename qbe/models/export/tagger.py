"""Export of a facet tagger's head to ONNX, quantized, and checked against the PyTorch original."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.errors import ModelError
from qbe.models.export.pytorch import to_onnx
from qbe.models.export.quantization import to_int8
from qbe.models.session import open_session

FP32_MAX_DIFFERENCE = 1e-3
"""Largest absolute difference of a label score that fp32 may show: rounding, no more."""
INT8_MAX_DISAGREEMENT = 0.02
"""Largest share of sentences whose best-scored label quantization may change."""


class HeadInputs(NamedTuple):
    """One window: ``states`` (layers, tokens, dimension) float32, ``spans`` (1, sentences, tokens) bool."""

    states: NDArray[np.float32]
    spans: NDArray[np.bool_]


def export_head(head: Any, windows: Iterable[HeadInputs], path: Path) -> dict[str, float]:
    """Write a head (`qbe.train.tagger.network.Head`) as an int8 ONNX model.

    Its inputs are those of `HeadInputs`, its output ``scores`` (1, sentences, labels) float32. Returns the
    differences from the original over the windows: ``fp32_max_abs_difference`` and
    ``int8_max_abs_difference`` of scores, and ``int8_same_label``, the share of sentences on whose best label
    int8 and original agree. Raises ModelError where they are too large.
    """
    import torch

    checks = list(windows)
    dimension = checks[0].states.shape[-1]

    class OneWindow(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = head

        def forward(self, states: torch.Tensor, spans: torch.Tensor) -> torch.Tensor:
            normalized = torch.nn.functional.layer_norm(states, (dimension,))
            flat = normalized.transpose(0, 1).flatten(1).unsqueeze(0)
            present = torch.ones_like(spans[:, :, 0])  # one window: no sentence is padding
            scores: torch.Tensor = self.head(flat, spans, present)
            return scores

    model = OneWindow().eval()
    inputs = {name: torch.from_numpy(array) for name, array in checks[0]._asdict().items()}
    axes = {"states": {1: "tokens"}, "spans": {1: "sentences", 2: "tokens"}}
    with tempfile.TemporaryDirectory() as folder:
        fp32 = Path(folder) / "head.fp32.onnx"
        to_onnx(model, inputs, ["scores"], axes, fp32)
        for reduced in (False, True):  # 7 bits where the processor's sums of products of 8 overflow
            to_int8(fp32, path, reduced=reduced)
            parity = _parity(model, open_session(fp32), open_session(path), checks)
            if parity["int8_same_label"] >= 1 - INT8_MAX_DISAGREEMENT:
                break
    if (
        parity["fp32_max_abs_difference"] > FP32_MAX_DIFFERENCE
        or parity["int8_same_label"] < 1 - INT8_MAX_DISAGREEMENT
    ):
        raise ModelError(
            f"parity check: expected fp32 within {FP32_MAX_DIFFERENCE} and int8 with at most "
            f"{INT8_MAX_DISAGREEMENT:.0%} other labels, found {parity}"
        )
    return parity


def _parity(model: Any, fp32: Any, int8: Any, checks: list[HeadInputs]) -> dict[str, float]:
    import torch

    exact, rounded, agreed = [0.0], [0.0], []
    for states, spans in checks:
        with torch.inference_mode():
            original = model(torch.from_numpy(states), torch.from_numpy(spans)).numpy()
        feed = {"states": states, "spans": spans}
        single, quantized = fp32.run(None, feed)[0], int8.run(None, feed)[0]
        exact.append(float(np.abs(single - original).max()))
        rounded.append(float(np.abs(quantized - original).max()))
        agreed.extend((quantized.argmax(-1) == original.argmax(-1))[0].tolist())
    return {
        "fp32_max_abs_difference": max(exact),
        "int8_max_abs_difference": max(rounded),
        "int8_same_label": sum(agreed) / len(agreed),
    }

"""Export of a cross-encoder that grades pairs to ONNX in int8, checked against PyTorch."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from qbe.errors import ModelError
from qbe.models.export.attention import fuse_attention
from qbe.models.export.encoder import load_encoder, positions
from qbe.models.export.pytorch import TEXTS, load_tokenizer, to_onnx
from qbe.models.export.quantization import channel_ranges, int8_models, sample_texts
from qbe.models.reranker_files import JOINT_INPUTS, JOINT_MODEL, JOINT_OUTPUT, PairInput, pair_input
from qbe.models.session import open_session

if TYPE_CHECKING:
    import torch

FP32_MAX_DIFFERENCE = 1e-3
"""Largest difference of a grade that fp32 may show: rounding, no more."""
INT8_MAX_DIFFERENCE = 0.5
"""Largest difference of a grade in int8 over the built-in pairs of texts, the step between two grades.
These are of all subjects: over pairs of papers those that ship differ by .07 (root mean squared), and err as
fp32 does (docs/lessons.md, "Facets that disagree").
"""


def export_joint(encoder: Path, module: torch.nn.Module, folder: Path) -> dict[str, float]:
    """Write the model JOINT_MODEL into ``folder``: the encoder in the folder ``encoder`` (config.json,
    model.safetensors, tokenizer.json), and ``module``, which makes grades (1, 3) of its states (1, tokens,
    dimension) and of the sides of tokens (1, tokens).

    Matrix products are int8, with smoothed activations or weights of 7 bits where that is needed (as in
    `qbe.models.export.encoder`). Returns the largest and the root mean squared difference of a grade from
    PyTorch's, over built-in pairs of texts. Raises ModelError where a check fails.
    """
    import torch

    class Grades(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model, self.module = load_encoder(encoder), module

        def forward(self, input_ids: torch.Tensor, sides: torch.Tensor) -> torch.Tensor:
            states = self.model(input_ids=input_ids, attention_mask=None).last_hidden_state
            grades: torch.Tensor = self.module(states, sides)
            return grades

    original = Grades().eval()
    tokenizer = load_tokenizer(encoder)
    tokenizer.no_padding()
    tokenizer.enable_truncation((positions(original.model) - 3) // 2)
    pairs = _pairs(tokenizer, itertools.product(TEXTS, TEXTS))
    with torch.inference_mode():
        expected = np.concatenate([original(*map(torch.from_numpy, pair)).numpy() for pair in pairs])
    with tempfile.TemporaryDirectory(prefix="qbe-") as temporary:
        traced, exact = Path(temporary, "traced.onnx"), Path(temporary, "exact.onnx")
        example = dict(zip(JOINT_INPUTS, map(torch.from_numpy, pairs[-1]), strict=True))
        to_onnx(original, example, [JOINT_OUTPUT], {name: {1: "tokens"} for name in JOINT_INPUTS}, traced)
        heads = int(original.model.config.num_attention_heads)
        shutil.copyfile(traced, exact)
        fuse_attention(exact, heads)
        difference = np.abs(_grades(exact, pairs) - expected).max()
        if not difference <= FP32_MAX_DIFFERENCE:  # not a number fails, too
            raise ModelError(
                f"parity check: expected fp32 within {FP32_MAX_DIFFERENCE} of PyTorch, found {difference}"
            )

        def ranges() -> Mapping[str, Any]:
            sample = _pairs(tokenizer, itertools.pairwise(sample_texts()))
            return channel_ranges(traced, (dict(zip(JOINT_INPUTS, pair, strict=True)) for pair in sample))

        for _ in int8_models(traced, folder / JOINT_MODEL, ranges):
            fuse_attention(folder / JOINT_MODEL, heads)
            differences = _grades(folder / JOINT_MODEL, pairs) - expected
            if np.abs(differences).max() <= INT8_MAX_DIFFERENCE:
                root = float(np.sqrt((differences**2).mean()))
                return {"largest": float(np.abs(differences).max()), "root_mean_squared": root}
    raise ModelError(
        f"parity check: expected int8 within {INT8_MAX_DIFFERENCE} grades of PyTorch, found "
        f"{np.abs(differences).max():.2f}"
    )


def _pairs(tokenizer: Any, texts: Iterable[tuple[str, str]]) -> list[PairInput]:
    """Pairs of texts as the model takes them."""
    cls, sep = (tokenizer.token_to_id(name) for name in ("[CLS]", "[SEP]"))
    ids = [[tokenizer.encode(text, add_special_tokens=False).ids for text in pair] for pair in texts]
    return [pair_input(first, second, cls, sep) for first, second in ids]


def _grades(model: Path, pairs: list[PairInput]) -> Any:
    session = open_session(model)
    return np.concatenate(
        [session.run([JOINT_OUTPUT], dict(zip(JOINT_INPUTS, pair, strict=True)))[0] for pair in pairs]
    )

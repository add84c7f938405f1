"""Export of a BERT-family encoder to ONNX in fp32 and int8, checked against the PyTorch original."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from qbe.errors import ModelError
from qbe.export.loading import load_model, load_tokenizer
from qbe.export.onnx_files import to_int8, to_onnx
from qbe.export.staging import staged_folder
from qbe.files import sha256
from qbe.models.encoder_files import ENCODER, EXPORT_FORMAT, PRECISIONS, EncoderCard, state_output, write_card
from qbe.models.exports import check_source, model_file
from qbe.models.session import open_session

FP32_MAX_DIFFERENCE = 1e-3
"""Largest absolute difference of a token state that fp32 may show: rounding, no more."""
INT8_MIN_COSINE = 0.97
"""Smallest cosine between int8 and original mean-pooled vectors, of any layer."""

_TEXTS = (
    "Short.",
    "We study how the length of a query changes the order of the papers that a search engine returns.",
    "Neural rankers read a query and a document together. That costs time. We ask whether reading each "
    "once, and comparing their sentences afterwards, keeps the order of the first hundred documents. On "
    "two collections it does, at a hundredth of the cost; on a third it does not, and we explain why.",
    "Sätze mit Umlauten, Formeln wie $O(n \\log n)$, URLs (https://example.org) and 3.14 numbers!",
)


def export_encoder(folder: Path, name: str, source: str, destination: Path) -> EncoderCard:
    """Export the model in ``folder`` (config.json, model.safetensors, tokenizer.json).

    Writes fp32 and int8 (dynamic, weights per channel) ONNX models with inputs ``input_ids`` and
    ``attention_mask`` (batch, tokens; int64) and outputs ``last_hidden_state``, ``hidden_state_0`` (the
    embeddings), ``hidden_state_1`` (behind the first layer) and so on up to the last layer but one, each
    (batch, tokens, dimension; float32); the tokenizer; and a card, to ``destination``, which appears
    whole or not at all. Only safetensors weights are read and no code of the model's is run. Raises
    ModelError when the model cannot be loaded or a parity check fails, MissingDependencyError without torch.
    """
    check_source(ENCODER, folder)
    with staged_folder(destination) as staged:
        model = _load(folder)
        shutil.copyfile(folder / "tokenizer.json", staged / "tokenizer.json")
        fp32 = staged / model_file("fp32")
        _to_onnx(model, fp32)
        to_int8(fp32, staged / model_file("int8"))
        parity = _parity(model, staged)
        files = ["tokenizer.json", *(model_file(precision) for precision in PRECISIONS)]
        card = EncoderCard(
            format=EXPORT_FORMAT,
            name=name,
            source=source,
            weights_sha256=sha256(folder / "model.safetensors"),
            dimension=int(model.config.hidden_size),
            layers=int(model.config.num_hidden_layers),
            max_tokens=int(model.config.max_position_embeddings),
            files={file: sha256(staged / file) for file in files},
            parity=parity,
        )
        write_card(staged, card)
    return card


def _load(folder: Path) -> Any:
    model, _ = load_model(folder, "AutoModel", "a BERT-family model")
    return model


def _outputs(model: Any) -> list[str]:
    """Names of the outputs: the last layer's first, then the embeddings' and the other layers'."""
    last = int(model.config.num_hidden_layers)
    return [state_output(layer, last) for layer in (last, *range(last))]


def _states(model: Any, ids: Any, mask: Any) -> tuple[Any, ...]:
    """Token states (batch, tokens, dimension) in the order of `_outputs`."""
    output = model(input_ids=ids, attention_mask=mask, output_hidden_states=True)
    return (output.last_hidden_state, *output.hidden_states[:-1])


def _to_onnx(model: Any, path: Path) -> None:
    import torch

    class HiddenStates(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return _states(self.model, input_ids, attention_mask)

    ids = torch.arange(1, 33).reshape(2, 16)
    mask = torch.ones_like(ids)
    mask[1, 10:] = 0
    inputs, outputs = {"input_ids": ids, "attention_mask": mask}, _outputs(model)
    axes = {name: {0: "batch", 1: "tokens"} for name in (*inputs, *outputs)}
    to_onnx(HiddenStates(), inputs, outputs, axes, path)


def _parity(model: Any, folder: Path) -> Mapping[str, Mapping[str, float]]:
    """Compare both ONNX models with the original: all layers' states, on texts of different length, alone
    and batched.
    """
    import torch

    tokenizer = load_tokenizer(folder)
    tokenizer.enable_truncation(int(model.config.max_position_embeddings))
    tokenizer.enable_padding()
    names = _outputs(model)
    sessions = {precision: open_session(folder / model_file(precision)) for precision in PRECISIONS}
    differences: dict[str, list[float]] = {precision: [] for precision in PRECISIONS}
    cosines: dict[str, list[float]] = {precision: [] for precision in PRECISIONS}
    for texts in (*([text] for text in _TEXTS), list(_TEXTS)):
        encodings = tokenizer.encode_batch(texts)
        ids = np.array([encoding.ids for encoding in encodings], dtype=np.int64)
        mask = np.array([encoding.attention_mask for encoding in encodings], dtype=np.int64)
        with torch.inference_mode():
            originals = _states(model, torch.from_numpy(ids), torch.from_numpy(mask))
        for precision, session in sessions.items():
            exports = session.run(names, {"input_ids": ids, "attention_mask": mask})
            for exported, state in zip(exports, originals, strict=True):
                original = state.numpy()
                differences[precision].append(float(np.abs((exported - original) * mask[:, :, None]).max()))
                cosines[precision].append(
                    float(_cosines(_pooled(exported, mask), _pooled(original, mask)).min())
                )
    parity = {
        precision: {"max_abs_difference": max(differences[precision]), "min_cosine": min(cosines[precision])}
        for precision in PRECISIONS
    }
    if parity["fp32"]["max_abs_difference"] > FP32_MAX_DIFFERENCE:
        raise ModelError(
            f"parity check: expected fp32 within {FP32_MAX_DIFFERENCE} of PyTorch, found {parity['fp32']}"
        )
    if parity["int8"]["min_cosine"] < INT8_MIN_COSINE:
        raise ModelError(f"parity check: expected int8 cosine >= {INT8_MIN_COSINE}, found {parity['int8']}")
    return parity


def _pooled(states: Any, mask: Any) -> Any:
    return (states * mask[:, :, None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)


def _cosines(left: Any, right: Any) -> Any:
    return (left * right).sum(axis=1) / (np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1))

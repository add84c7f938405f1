"""Export of a BERT-family encoder to ONNX in fp32 and int8, checked against the PyTorch original."""

from __future__ import annotations

import dataclasses
import logging
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbe.errors import ModelError, UsageError
from qbe.models.encoder_files import EXPORTED, EncoderMetadata, state_output, write_card
from qbe.models.encoder_format import CLS, DEFAULT_FORMAT, EncoderFormat
from qbe.models.export.adapter import apply_adapter
from qbe.models.export.attention import fuse_attention
from qbe.models.export.graph import StoredModel, refuse_adapter
from qbe.models.export.pytorch import TEXTS, load_model, load_tokenizer, to_onnx, write_tokenizer
from qbe.models.export.quantization import channel_ranges, int8_models, sample_texts
from qbe.models.export.staging import staged_folder
from qbe.models.kinds import ENCODER, RANGES, TOKENIZER
from qbe.models.large import read_weights
from qbe.models.session import open_session
from qbe.models.sources import adapter_weights, check_required, model_file, weights_file
from qbe.util.files import sha256

log = logging.getLogger(__name__)

FP32_MAX_DIFFERENCE = 1e-3
"""Largest absolute difference of a token state that fp32 may show: rounding, no more."""
INT8_MIN_COSINE = 0.97
"""Smallest cosine between int8 and original vectors: mean-pooled ones of any layer, [CLS] of the last."""


def export_encoder(
    folder: Path,
    name: str,
    source: str,
    destination: Path,
    encoder_format: EncoderFormat = DEFAULT_FORMAT,
    adapter: Path | None = None,
    graph: Path | None = None,
) -> EncoderMetadata:
    """Export the model in ``folder`` (config.json, model.safetensors or pytorch_model.bin, tokenizer.json or
    vocab.txt), with the adapter in the folder ``adapter``, to be used with ``encoder_format``.

    With ``graph``, a file that `qbe.models.export.graph.store_graph` wrote of this model, no PyTorch is needed, and
    int8 is compared with fp32 in place of PyTorch.

    Writes fp32 and int8 (dynamic, weights per channel) ONNX models with the input ``input_ids`` (batch,
    tokens; int64; texts of a batch are equally long) and outputs ``last_hidden_state``, ``hidden_state_0``
    (the embeddings), ``hidden_state_1`` (after the first layer) and so on up to the last layer but one, each
    (batch, tokens, dimension; float32); the tokenizer; and metadata, to ``destination``, which appears
    whole or not at all. Where nothing but the scale is applied to its logits, attention is one operator
    (`qbe.models.export.attention`). Where int8 is too far from the original (INT8_MIN_COSINE), activations are
    smoothed (`qbe.models.export.quantization.smooth`, as MPNet's), by the ranges in the file RANGES beside
    ``graph``, else by those over the papers of the sample; where that does not help, weights have 7 bits (as
    on a processor without VNNI), first without smoothing; where not even that does, there is no int8 model.
    Of pickled weights only
    tensors are read, and no code of the model's is run. Raises ModelError when the model or adapter cannot be
    loaded or fp32 fails the parity check, UsageError for more tokens than the model has positions,
    MissingDependencyError without torch.
    """
    check_required(ENCODER, folder)
    if graph is not None:
        refuse_adapter(adapter)
    with staged_folder(destination) as staged:
        model = load_encoder(folder) if graph is None else StoredModel(folder, graph)
        encoder_format, max_tokens = _limited(encoder_format, positions(model))
        if adapter is not None:
            apply_adapter(model, adapter)
        write_tokenizer(folder, staged / TOKENIZER)
        traced, fp32, int8 = (staged / name for name in ("traced.onnx", *map(model_file, ("fp32", "int8"))))
        heads = int(model.config.num_attention_heads)
        _to_onnx(model, traced)
        shutil.copyfile(traced, fp32)
        fuse_attention(fp32, heads)
        stored = None if graph is None else graph.with_name(RANGES)

        def ranges() -> Mapping[str, NDArray[Any]]:
            if stored is not None and stored.exists():
                return read_weights(stored)
            passes = _passes(staged, sample_texts(), max_tokens)
            return channel_ranges(traced, ({"input_ids": ids} for ids in passes))

        # before attention is fused, of which quantization knows no type
        for _ in int8_models(traced, int8, ranges):
            fuse_attention(int8, heads)
            parity = _parity(model, staged, encoder_format)
            if parity["int8"]["min_cosine"] >= INT8_MIN_COSINE:
                break
        traced.unlink()
        if not parity["int8"]["min_cosine"] >= INT8_MIN_COSINE:  # not a number fails, too
            log.warning(
                "no int8 model of %s: expected a cosine of %s or more with the original, found %s",
                name,
                INT8_MIN_COSINE,
                parity["int8"]["min_cosine"],
            )
            int8.unlink()
            parity = {"fp32": parity["fp32"]}
        files = [TOKENIZER, *(model_file(precision) for precision in parity)]
        card = EncoderMetadata(
            format=ENCODER.format,
            name=name,
            source=source,
            weights_sha256=sha256(weights_file(ENCODER, folder)),
            dimension=int(model.config.hidden_size),
            layers=int(model.config.num_hidden_layers),
            max_tokens=max_tokens,
            encoder_format=encoder_format,
            adapter=None if adapter is None else sha256(adapter_weights(adapter)),
            files={file: sha256(staged / file) for file in files},
            parity=parity,
        )
        write_card(staged, card)
    return card


def _passes(folder: Path, texts: Iterable[str], max_tokens: int) -> Iterator[NDArray[np.int64]]:
    """The token ids (1, tokens) of each text, cut to ``max_tokens``, by the tokenizer in ``folder``."""
    tokenizer = load_tokenizer(folder)
    tokenizer.enable_truncation(max_tokens)
    tokenizer.no_padding()
    for text in texts:
        yield np.array([tokenizer.encode(text).ids], dtype=np.int64)


def load_encoder(folder: Path, parameter: str = "`folder`") -> Any:
    """The model in ``folder``; raises ModelError, which names ``parameter``, where it cannot be loaded."""
    model, missing = load_model(folder, "AutoModel", "a BERT-family model", parameter)
    lacking = sorted(name for name in missing if "pooler" not in name)  # no vector comes from a pooler
    if lacking:  # transformers would go on with random numbers in their place
        raise ModelError(
            f"{folder}: expected the weights of a BERT-family model, found none for {lacking[0]} and "
            f"{len(lacking) - 1} more; give the folder of a trained encoder"
        )
    return model


def positions(model: Any) -> int:
    """The largest number of tokens in a pass; RoBERTa and MPNet count positions after that of padding.

    >>> from types import SimpleNamespace
    >>> config = SimpleNamespace(max_position_embeddings=514)
    >>> positions(SimpleNamespace(config=config, embeddings=SimpleNamespace(padding_idx=1)))  # RoBERTa
    512
    """
    padding = getattr(getattr(model, "embeddings", None), "padding_idx", None)
    return int(model.config.max_position_embeddings) - (0 if padding is None else padding + 1)


def _limited(encoder_format: EncoderFormat, most: int) -> tuple[EncoderFormat, int]:
    """The format, without a limit where that equals the model's, and the number of tokens of a pass."""
    limit = encoder_format.max_tokens
    if limit is not None and limit > most:
        raise UsageError(
            f"expected `max_tokens` of at most {most}, the positions of the model, found {limit}"
        )
    max_tokens = None if limit == most else limit
    return dataclasses.replace(encoder_format, max_tokens=max_tokens), (limit or most)


def _outputs(model: Any) -> list[str]:
    """Names of the outputs: the last layer's first, then the embeddings' and the other layers'."""
    last = int(model.config.num_hidden_layers)
    return [state_output(layer, last) for layer in (last, *range(last))]


def _states(model: Any, ids: NDArray[np.int64]) -> Sequence[NDArray[np.float32]]:
    """Token states (batch, tokens, dimension) in the order of `_outputs`, of token ids (batch, tokens)."""
    if isinstance(model, StoredModel):
        return model.states(_outputs(model), ids)
    import torch

    with torch.inference_mode():
        return [state.numpy() for state in _tensors(model, torch.from_numpy(ids))]


def _tensors(model: Any, ids: Any) -> tuple[Any, ...]:
    """The same of a PyTorch model, as tensors."""
    output = model(input_ids=ids, attention_mask=None, output_hidden_states=True)
    return (output.last_hidden_state, *output.hidden_states[:-1])


def _to_onnx(model: Any, path: Path) -> None:
    if isinstance(model, StoredModel):
        model.write(path)
        return
    import torch

    class HiddenStates(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return _tensors(self.model, input_ids)

    inputs, outputs = {"input_ids": torch.arange(1, 33).reshape(2, 16)}, _outputs(model)
    axes = {name: {0: "batch", 1: "tokens"} for name in (*inputs, *outputs)}
    to_onnx(HiddenStates(), inputs, outputs, axes, path)


def _parity(model: Any, folder: Path, encoder_format: EncoderFormat) -> Mapping[str, Mapping[str, float]]:
    """Compare both ONNX models with the original: the states of all layers, and [CLS] of the last where that
    is the paper's vector, on texts of different length.
    """
    names = _outputs(model)
    sessions = {precision: open_session(folder / model_file(precision)) for precision in EXPORTED}
    differences: dict[str, list[float]] = {precision: [] for precision in EXPORTED}
    cosines: dict[str, list[float]] = {precision: [] for precision in EXPORTED}
    for ids in _passes(folder, TEXTS, positions(model)):
        originals = _states(model, ids)
        for precision, session in sessions.items():
            exports = session.run(names, {"input_ids": ids})
            if encoder_format.whole == CLS:
                first = _cosines(exports[0][:, 0], originals[0][:, 0])
                cosines[precision].append(float(first.min()))
            for exported, original in zip(exports, originals, strict=True):
                differences[precision].append(float(np.abs(exported - original).max()))
                cosines[precision].append(float(_cosines(exported.mean(axis=1), original.mean(axis=1)).min()))
    parity = {
        precision: {
            "max_abs_difference": max(differences[precision]),
            "min_cosine": float(np.min(cosines[precision])),
        }
        for precision in EXPORTED
    }
    if parity["fp32"]["max_abs_difference"] > FP32_MAX_DIFFERENCE:
        raise ModelError(
            f"parity check: expected fp32 within {FP32_MAX_DIFFERENCE} of PyTorch, found {parity['fp32']}"
        )
    return parity


def _cosines(left: Any, right: Any) -> Any:
    return (left * right).sum(axis=1) / (np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1))

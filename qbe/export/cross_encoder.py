"""Export of a BERT-family pair classifier to ONNX in fp32, fp16 and int8, checked against PyTorch."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qbe.errors import ModelError
from qbe.export.loading import load_model, load_tokenizer
from qbe.export.onnx_files import to_fp16, to_int8, to_onnx
from qbe.export.pair_parity import pair_parity
from qbe.export.staging import staged_folder
from qbe.files import sha256
from qbe.models.exports import model_file
from qbe.models.kinds import CROSS_ENCODER, TOKENIZER
from qbe.models.reranker_files import (
    PAIR_INPUTS,
    RERANKER_PRECISIONS,
    SCORE,
    CrossEncoderMetadata,
    write_reranker_card,
)
from qbe.models.sources import check_required


def export_cross_encoder(folder: Path, name: str, source: str, destination: Path) -> CrossEncoderMetadata:
    """Export the sequence classifier in ``folder`` (config.json, model.safetensors, tokenizer.json).

    Writes fp32, fp16 and int8 (dynamic, weights per channel) ONNX models with inputs ``input_ids``,
    ``attention_mask`` and, where it distinguishes the two texts of a pair by them, ``token_type_ids``
    (batch, tokens; int64), and the output ``score`` (batch,; float32); the tokenizer; and metadata, to
    ``destination``, which appears whole or not at all. With one label the score is its logit; with two it is
    the second's less the first's, the log-odds of "relevant" (the logarithm of s / (1 - s) with s as in
    Nogueira et al., 2020, eq. 1). Raises ModelError when the model cannot be loaded, has no trained
    classifier or another number of labels, or a parity check fails; MissingDependencyError without torch.
    """
    check_required(CROSS_ENCODER, folder)
    with staged_folder(destination) as staged:
        shutil.copyfile(folder / TOKENIZER, staged / TOKENIZER)
        _check_tokenizer(staged)
        model = _load(folder)
        fp32 = staged / model_file("fp32")
        _to_onnx(model, fp32)
        to_fp16(fp32, staged / model_file("fp16"))
        to_int8(fp32, staged / model_file("int8"))
        parity = pair_parity(
            lambda batch: _original_scores(model, batch), staged, model.config.max_position_embeddings
        )
        files = [TOKENIZER, *(model_file(precision) for precision in RERANKER_PRECISIONS)]
        card = CrossEncoderMetadata(
            name=name,
            source=source,
            weights_sha256=sha256(folder / "model.safetensors"),
            max_tokens=int(model.config.max_position_embeddings),
            labels=int(model.config.num_labels),
            token_types=_takes_token_types(model),
            files={file: sha256(staged / file) for file in files},
            parity=parity,
        )
        write_reranker_card(staged, card)
    return card


def _load(folder: Path) -> Any:
    model, missing = load_model(
        folder, "AutoModelForSequenceClassification", "a BERT-family sequence classifier"
    )
    if missing:  # transformers would go on with random numbers in their place
        raise ModelError(
            f"{folder}: expected a trained sequence classifier, found no {', '.join(sorted(missing))} in "
            "model.safetensors; give the folder of a cross-encoder"
        )
    if model.config.num_labels not in (1, 2):
        raise ModelError(
            f"{folder}: expected a classifier of 1 or 2 labels, found {model.config.num_labels}; give a "
            "model that scores the relevance of a pair"
        )
    return model


def _check_tokenizer(folder: Path) -> None:
    tokenizer = load_tokenizer(folder)
    missing = [token for token in ("[CLS]", "[SEP]", "[UNK]") if tokenizer.token_to_id(token) is None]
    if missing:
        raise ModelError(
            f"{folder / TOKENIZER}: expected a BERT-family tokenizer, found no {', '.join(missing)}; give "
            "another model"
        )


def _takes_token_types(model: Any) -> bool:
    return int(getattr(model.config, "type_vocab_size", 0)) > 1


def _scores(model: Any, inputs: Mapping[str, Any]) -> Any:
    """Scores (batch,) from logits (batch, labels)."""
    logits = model(**inputs).logits
    return logits[:, 0] if logits.shape[1] == 1 else logits[:, 1] - logits[:, 0]


def _original_scores(model: Any, batch: Mapping[str, Any]) -> Any:
    """Scores (batch,) from numpy arrays."""
    import torch

    with torch.inference_mode():
        return _scores(model, {name: torch.from_numpy(array) for name, array in batch.items()}).numpy()


def _to_onnx(model: Any, path: Path) -> None:
    import torch

    ids = torch.arange(1, 33).reshape(2, 16)
    mask = torch.ones_like(ids)
    mask[1, 10:] = 0
    types = torch.zeros_like(ids)
    types[:, 6:] = 1
    inputs = dict(zip(PAIR_INPUTS, (ids, mask, types), strict=True))
    if not _takes_token_types(model):
        del inputs["token_type_ids"]

    class Scores(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
            scores: torch.Tensor = _scores(self.model, dict(zip(inputs, tensors, strict=True)))
            return scores

    axes = {name: {0: "batch", 1: "tokens"} for name in inputs}
    to_onnx(Scores(), inputs, [SCORE], {**axes, SCORE: {0: "batch"}}, path)

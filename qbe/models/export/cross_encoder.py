"""Export of a BERT-family pair classifier to ONNX in fp32 and int8, checked against PyTorch."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from qbe.errors import ModelError
from qbe.models.encoder_files import EXPORTED
from qbe.models.export.encoder import positions
from qbe.models.export.pytorch import TEXTS, load_model, load_tokenizer, to_onnx
from qbe.models.export.quantization import channel_ranges, int8_models, sample_texts
from qbe.models.export.staging import staged_folder
from qbe.models.kinds import CROSS_ENCODER, TOKENIZER
from qbe.models.reranker_files import PAIR_INPUTS, SCORE, CrossEncoderMetadata, write_reranker_card
from qbe.models.session import open_session
from qbe.models.sources import check_required, model_file
from qbe.util.files import sha256

FP32_MAX_DIFFERENCE = 1e-3
"""Largest absolute difference of a score that fp32 may show: rounding, no more."""
INT8_MAX_SHARE_OF_SPREAD = 1.0
"""Largest difference of a score in int8, in standard deviations of the original's over the built-in pairs.

Scores have no scale of their own, and only their order counts. The largest of 72 differences is two to three
times their root mean square: 1.0 keeps that near 0.4, and the correlation with the original above 0.9.
"""

SPECIAL_TOKENS = (("[CLS]", "[SEP]", "[UNK]"), ("<s>", "</s>", "[UNK]"))
"""BERT's tokens at the beginning and end of a text and for unknown words, and MPNet's."""

_TEXTS = (
    *TEXTS,
    "A cat sat on the mat.",
    "Long queries in literature search. We ask how many sentences of an abstract a query should have. Three "
    "do better than the whole abstract on two collections; on a third the title alone is enough.",
)
_BATCH = 8


def export_cross_encoder(
    folder: Path, name: str, source: str, destination: Path, **trained: Any
) -> CrossEncoderMetadata:
    """Export the sequence classifier in ``folder`` (config.json, model.safetensors, tokenizer.json).

    Writes fp32 and int8 (dynamic, weights per channel) ONNX models with inputs ``input_ids``,
    ``attention_mask`` and, where it distinguishes the two texts of a pair by them, ``token_type_ids``
    (batch, tokens; int64), and the output ``score`` (batch,; float32); the tokenizer; and metadata, to
    ``destination``, which appears whole or not at all. With one label the score is its logit; with two it is
    the second's less the first's, the log-odds of "relevant" (the logarithm of s / (1 - s) with s as in
    Nogueira et al., 2020, eq. 1). ``trained`` are fields of the metadata that say how it was trained.

    Raises ModelError when the model cannot be loaded, has no trained classifier or another number of labels,
    or a parity check fails; MissingDependencyError without torch.
    """
    check_required(CROSS_ENCODER, folder)
    with staged_folder(destination) as staged:
        shutil.copyfile(folder / TOKENIZER, staged / TOKENIZER)
        _check_tokenizer(staged)
        model = _load(folder)
        fp32 = staged / model_file("fp32")
        _to_onnx(model, fp32)
        parity = _quantized(model, fp32, staged)
        files = [TOKENIZER, *(model_file(precision) for precision in EXPORTED)]
        card = CrossEncoderMetadata(
            name=name,
            source=source,
            weights_sha256=sha256(folder / "model.safetensors"),
            max_tokens=positions(model.base_model),
            labels=int(model.config.num_labels),
            token_types=_takes_token_types(model),
            files={file: sha256(staged / file) for file in files},
            parity=parity,
            **trained,
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
    missing, *others = (
        [token for token in tokens if tokenizer.token_to_id(token) is None] for tokens in SPECIAL_TOKENS
    )
    if missing and all(others):
        raise ModelError(
            f"{folder / TOKENIZER}: expected a BERT-family tokenizer, found no {', '.join(missing)}; give "
            "another model"
        )


def _quantized(model: Any, fp32: Path, folder: Path) -> dict[str, dict[str, float]]:
    """Write the int8 model, activations smoothed where outliers ask for that and weights in 7 bits where the
    processor does; the parity of both.
    """

    def ranges() -> Mapping[str, Any]:
        tokenizer, texts = load_tokenizer(folder), sample_texts()
        tokenizer.enable_truncation(positions(model.base_model))
        pairs = list(itertools.pairwise(texts))
        inputs = [value.name for value in open_session(fp32).get_inputs()]
        return channel_ranges(fp32, _batches(tokenizer, inputs, pairs, sizes=(1,)))

    for _ in int8_models(fp32, folder / model_file("int8"), ranges):
        parity = _parity(model, folder)
        if parity["int8"]["share_of_spread"] <= INT8_MAX_SHARE_OF_SPREAD:
            return parity
    raise ModelError(
        f"parity check: expected int8 within {INT8_MAX_SHARE_OF_SPREAD} of the scores' standard deviation, "
        f"found {parity['int8']}"
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


def _parity(model: Any, folder: Path) -> dict[str, dict[str, float]]:
    """Compare the scores of the ONNX models in ``folder`` with the original's, over built-in pairs of texts.

    Returns, for each precision, the ``parity`` of `qbe.models.reranker_files.CrossEncoderMetadata`. Raises
    ModelError where fp32 is too far from the original, or the original gives all pairs the same score.
    """
    tokenizer = load_tokenizer(folder)
    tokenizer.enable_truncation(positions(model.base_model))
    sessions = {precision: open_session(folder / model_file(precision)) for precision in EXPORTED}
    inputs = [value.name for value in sessions["fp32"].get_inputs()]
    expected: list[float] = []
    scores: dict[str, list[float]] = {precision: [] for precision in EXPORTED}
    pairs = list(itertools.product(_TEXTS, _TEXTS))
    for batch in _batches(tokenizer, inputs, pairs, sizes=(1, _BATCH)):
        expected.extend(_original_scores(model, batch).tolist())
        for precision, session in sessions.items():
            scores[precision].extend(session.run([SCORE], batch)[0].tolist())
    if np.ptp(expected) == 0:
        raise ModelError("parity check: expected scores that differ between pairs, found one for all pairs")
    parity = {}
    for precision, exported in scores.items():
        difference = float(np.abs(np.subtract(exported, expected)).max())
        share = difference / float(np.std(expected))
        parity[precision] = {"max_abs_difference": difference, "share_of_spread": share}
    if not parity["fp32"]["max_abs_difference"] <= FP32_MAX_DIFFERENCE:  # not a number fails, too
        raise ModelError(
            f"parity check: expected fp32 within {FP32_MAX_DIFFERENCE} of PyTorch, found {parity['fp32']}"
        )
    return parity


def _batches(
    tokenizer: Any, inputs: Collection[str], pairs: Sequence[tuple[str, str]], sizes: Sequence[int]
) -> Iterator[dict[str, Any]]:
    """Pairs of texts in batches of each of ``sizes``, padded; (batch, tokens) int64."""
    tokenizer.enable_padding()
    batches = [pairs[start : start + size] for size in sizes for start in range(0, len(pairs), size)]
    for batch in batches:
        encodings = tokenizer.encode_batch(batch)
        columns = zip(*((text.ids, text.attention_mask, text.type_ids) for text in encodings), strict=True)
        arrays = (np.array(column, dtype=np.int64) for column in columns)
        yield {name: array for name, array in zip(PAIR_INPUTS, arrays, strict=True) if name in inputs}

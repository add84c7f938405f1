"""Export to ONNX in fp32 and int8, checked against PyTorch: encoders, cross-encoders, joint grades, taggers.

Every export writes the traced model in fp32, then an int8 model (dynamic, weights per channel) that stays
near enough to the original on built-in texts: as it is, with smoothed activations, or with weights of 7 bits,
as on processors without VNNI (`qbe.models.export.quantize.int8_models`).
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.errors import ModelError, UsageError
from qbe.models.cards import (
    CROSS_ENCODER,
    ENCODER,
    JOINT_INPUTS,
    JOINT_MODEL,
    JOINT_OUTPUT,
    PAIR_INPUTS,
    RANGES,
    SCORE,
    TOKENIZER,
    CrossEncoderMetadata,
    EncoderMetadata,
    model_file,
    staged_folder,
    state_output,
    write_card,
)
from qbe.models.export.graph import StoredModel, fuse_attention
from qbe.models.export.pytorch import (
    TEXTS,
    apply_adapter,
    load_encoder,
    load_model,
    load_tokenizer,
    positions,
    to_onnx,
    write_tokenizer,
)
from qbe.models.export.quantize import channel_ranges, int8_models, sample_texts, to_int8
from qbe.models.folders import adapter_weights, check_required, weights_file
from qbe.models.formats import CLS, DEFAULT_FORMAT, EncoderFormat
from qbe.models.large import read_weights
from qbe.models.session import EXPORTED, open_session
from qbe.models.tokenizer import SPECIAL_TOKENS, PairInput, pair_input
from qbe.util.files import sha256

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)

FP32_MAX_DIFFERENCE = 1e-3
"""Largest absolute difference of a state, score or grade in fp32."""
INT8_MIN_COSINE = 0.97
"""Smallest cosine between int8 and original vectors: of any layer's mean, and of [CLS]."""
INT8_MAX_SHARE_OF_SPREAD = 1.0
"""Largest difference of a cross-encoder's score in int8, in standard deviations over the built-in pairs:
scores have no scale of their own, and this keeps the correlation above 0.9.
"""
INT8_MAX_DIFFERENCE = 0.5
"""Largest difference of a joint grade in int8 over the built-in pairs of texts; over pairs of papers those
that ship differ by .07 (root mean squared; docs/lessons.md, "Facets that disagree").
"""
INT8_MAX_DISAGREEMENT = 0.02
"""Largest share of sentences whose best-scored label quantization of a tagger may change."""

_PAIR_TEXTS = (
    *TEXTS,
    "A cat sat on the mat.",
    "Long queries in literature search. We ask how many sentences of an abstract a query should have. Three "
    "do better than the whole abstract on two collections; on a third the title alone is enough.",
)
_PAIR_BATCH = 8


def _check_fp32(difference: float, found: object) -> None:
    if not difference <= FP32_MAX_DIFFERENCE:  # not a number fails, too
        raise ModelError(
            f"parity check: expected fp32 within {FP32_MAX_DIFFERENCE} of PyTorch, found {found}"
        )


# Encoders


def export_encoder(
    folder: Path,
    name: str,
    source: str,
    destination: Path,
    encoder_format: EncoderFormat = DEFAULT_FORMAT,
    adapter: Path | None = None,
    graph: Path | None = None,
) -> EncoderMetadata:
    """Export the encoder in ``folder``, with an ``adapter``, to ``destination``, and return its card.

    The folder holds config.json, model.safetensors or pytorch_model.bin, and tokenizer.json or vocab.txt.
    With ``graph``, a file of `qbe.models.export.graph.store_graph`, no PyTorch is needed, and int8 is
    compared with fp32. The models take ``input_ids`` (batch, tokens; int64; equally long) and return
    ``last_hidden_state``, ``hidden_state_0`` (the embeddings) and so on, each (batch, tokens, dimension;
    float32). Activations are smoothed by the file RANGES beside ``graph``, else by ranges over the sample's
    papers. Where no int8 model reaches INT8_MIN_COSINE, there is none. Raises ModelError when the model or
    adapter cannot be loaded or fp32 fails the parity check, UsageError for more tokens than the model has
    positions, MissingDependencyError without torch.
    """
    check_required(ENCODER, folder)
    if graph is not None and adapter is not None:  # an adapter is put into a PyTorch model
        raise UsageError("`graph` is of no use with `adapter`; drop one of them")
    with staged_folder(destination) as staged:
        model = load_encoder(folder) if graph is None else StoredModel(folder, graph)
        limit, most = encoder_format.max_tokens, positions(model)
        if limit is not None and limit > most:
            raise UsageError(
                f"expected `max_tokens` of at most {most}, the positions of the model, found {limit}"
            )
        if limit == most:
            encoder_format = dataclasses.replace(encoder_format, max_tokens=None)
        if adapter is not None:
            apply_adapter(model, adapter)
        write_tokenizer(folder, staged / TOKENIZER)
        traced, fp32, int8 = (staged / name for name in ("traced.onnx", *map(model_file, ("fp32", "int8"))))
        heads = int(model.config.num_attention_heads)
        _trace_encoder(model, traced)
        shutil.copyfile(traced, fp32)
        fuse_attention(fp32, heads)

        def ranges() -> Mapping[str, NDArray[Any]]:
            if graph is not None and graph.with_name(RANGES).exists():
                return read_weights(graph.with_name(RANGES))
            passes = _passes(staged, sample_texts(), limit or most)
            return channel_ranges(traced, ({"input_ids": ids} for ids in passes))

        # before attention is fused, of which quantization knows no type
        for _ in int8_models(traced, int8, ranges):
            fuse_attention(int8, heads)
            parity = _encoder_parity(model, staged, encoder_format)
            if parity["int8"]["min_cosine"] >= INT8_MIN_COSINE:
                break
        traced.unlink()
        if not parity["int8"]["min_cosine"] >= INT8_MIN_COSINE:  # not a number fails, too
            log.warning(
                "no int8 model of %s: expected a cosine of %s or more with the original, found %s",
                *(name, INT8_MIN_COSINE, parity["int8"]["min_cosine"]),
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
            max_tokens=limit or most,
            encoder_format=encoder_format,
            adapter=None if adapter is None else sha256(adapter_weights(adapter)),
            files={file: sha256(staged / file) for file in files},
            parity=parity,
        )
        write_card(staged, card)
    return card


def _passes(folder: Path, texts: Iterable[str], max_tokens: int) -> Iterator[NDArray[np.int64]]:
    tokenizer = load_tokenizer(folder)
    tokenizer.enable_truncation(max_tokens)
    tokenizer.no_padding()
    for text in texts:
        yield np.array([tokenizer.encode(text).ids], dtype=np.int64)


def _outputs(model: Any) -> list[str]:
    last = int(model.config.num_hidden_layers)
    return [state_output(layer, last) for layer in (last, *range(last))]


def _tensors(model: Any, ids: Any) -> tuple[Any, ...]:
    output = model(input_ids=ids, attention_mask=None, output_hidden_states=True)
    return (output.last_hidden_state, *output.hidden_states[:-1])


def _states(model: Any, ids: NDArray[np.int64]) -> Sequence[NDArray[np.float32]]:
    if isinstance(model, StoredModel):
        return model.states(_outputs(model), ids)
    import torch

    with torch.inference_mode():
        return [state.numpy() for state in _tensors(model, torch.from_numpy(ids))]


def _trace_encoder(model: Any, path: Path) -> None:
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


def _encoder_parity(
    model: Any, folder: Path, encoder_format: EncoderFormat
) -> Mapping[str, Mapping[str, float]]:
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
    _check_fp32(parity["fp32"]["max_abs_difference"], parity["fp32"])
    return parity


def _cosines(left: Any, right: Any) -> Any:
    return (left * right).sum(axis=1) / (np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1))


# Cross-encoders of pairs


def export_cross_encoder(
    folder: Path, name: str, source: str, destination: Path, **trained: Any
) -> CrossEncoderMetadata:
    """Export the sequence classifier in ``folder`` (config.json, model.safetensors, tokenizer.json).

    The models take ``input_ids``, ``attention_mask`` and, where the classifier uses it, ``token_type_ids``
    (batch, tokens; int64) and return ``score`` (batch,; float32): the logit of one label, or the second's
    less the first's, the log-odds of "relevant" (Nogueira et al., 2020, eq. 1). ``trained`` are fields of the
    card. Raises ModelError when the model cannot be loaded, has no trained classifier or another number of
    labels, or a parity check fails; MissingDependencyError without torch.
    """
    check_required(CROSS_ENCODER, folder)
    with staged_folder(destination) as staged:
        shutil.copyfile(folder / TOKENIZER, staged / TOKENIZER)
        tokenizer = load_tokenizer(staged)
        absent = [
            [token for token in names if tokenizer.token_to_id(token) is None] for names in SPECIAL_TOKENS
        ]
        if all(absent):
            raise ModelError(
                f"{staged / TOKENIZER}: expected a BERT-family tokenizer, found no {', '.join(absent[-1])}; "
                "give another model"
            )
        model = _load_classifier(folder)
        token_types = int(getattr(model.config, "type_vocab_size", 0)) > 1
        inputs = PAIR_INPUTS if token_types else PAIR_INPUTS[:-1]
        fp32 = staged / model_file("fp32")
        _trace_classifier(model, inputs, fp32)

        def ranges() -> Mapping[str, Any]:
            tokenizer = load_tokenizer(staged)
            tokenizer.enable_truncation(positions(model.base_model))
            pairs = list(itertools.pairwise(sample_texts()))
            return channel_ranges(fp32, _batches(tokenizer, inputs, pairs, sizes=(1,)))

        for _ in int8_models(fp32, staged / model_file("int8"), ranges):
            parity = _classifier_parity(model, staged, inputs)
            if parity["int8"]["share_of_spread"] <= INT8_MAX_SHARE_OF_SPREAD:
                break
        else:
            raise ModelError(
                f"parity check: expected int8 within {INT8_MAX_SHARE_OF_SPREAD} of the scores' standard "
                f"deviation, found {parity['int8']}"
            )
        files = [TOKENIZER, *(model_file(precision) for precision in EXPORTED)]
        card = CrossEncoderMetadata(
            name=name,
            source=source,
            weights_sha256=sha256(folder / "model.safetensors"),
            max_tokens=positions(model.base_model),
            labels=int(model.config.num_labels),
            token_types=token_types,
            files={file: sha256(staged / file) for file in files},
            parity=parity,
            **trained,
        )
        write_card(staged, card)
    return card


def _load_classifier(folder: Path) -> Any:
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


def _scores(model: Any, inputs: Mapping[str, Any]) -> Any:
    logits = model(**inputs).logits
    return logits[:, 0] if logits.shape[1] == 1 else logits[:, 1] - logits[:, 0]


def _trace_classifier(model: Any, names: Sequence[str], path: Path) -> None:
    import torch

    ids = torch.arange(1, 33).reshape(2, 16)
    mask = torch.ones_like(ids)
    mask[1, 10:] = 0
    types = torch.zeros_like(ids)
    types[:, 6:] = 1
    inputs = dict(zip(names, (ids, mask, types), strict=False))

    class Scores(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
            scores: torch.Tensor = _scores(self.model, dict(zip(inputs, tensors, strict=True)))
            return scores

    axes = {name: {0: "batch", 1: "tokens"} for name in inputs}
    to_onnx(Scores(), inputs, [SCORE], {**axes, SCORE: {0: "batch"}}, path)


def _classifier_parity(model: Any, folder: Path, inputs: Collection[str]) -> dict[str, dict[str, float]]:
    import torch

    tokenizer = load_tokenizer(folder)
    tokenizer.enable_truncation(positions(model.base_model))
    sessions = {precision: open_session(folder / model_file(precision)) for precision in EXPORTED}
    expected: list[float] = []
    scores: dict[str, list[float]] = {precision: [] for precision in EXPORTED}
    pairs = list(itertools.product(_PAIR_TEXTS, _PAIR_TEXTS))
    for batch in _batches(tokenizer, inputs, pairs, sizes=(1, _PAIR_BATCH)):
        with torch.inference_mode():
            tensors = {name: torch.from_numpy(array) for name, array in batch.items()}
            expected.extend(_scores(model, tensors).tolist())
        for precision, session in sessions.items():
            scores[precision].extend(session.run([SCORE], batch)[0].tolist())
    if np.ptp(expected) == 0:
        raise ModelError("parity check: expected scores that differ between pairs, found one for all pairs")
    parity = {}
    for precision, exported in scores.items():
        difference = float(np.abs(np.subtract(exported, expected)).max())
        share = difference / float(np.std(expected))
        parity[precision] = {"max_abs_difference": difference, "share_of_spread": share}
    _check_fp32(parity["fp32"]["max_abs_difference"], parity["fp32"])
    return parity


def _batches(
    tokenizer: Any, inputs: Collection[str], pairs: Sequence[tuple[str, str]], sizes: Sequence[int]
) -> Iterator[dict[str, Any]]:
    tokenizer.enable_padding()
    batches = [pairs[start : start + size] for size in sizes for start in range(0, len(pairs), size)]
    for batch in batches:
        encodings = tokenizer.encode_batch(batch)
        columns = zip(*((text.ids, text.attention_mask, text.type_ids) for text in encodings), strict=True)
        arrays = (np.array(column, dtype=np.int64) for column in columns)
        yield {name: array for name, array in zip(PAIR_INPUTS, arrays, strict=True) if name in inputs}


# Joint grades


def export_joint(encoder: Path, module: torch.nn.Module, folder: Path) -> dict[str, float]:
    """Write JOINT_MODEL in int8 into ``folder``; return the grades' largest and root mean squared
    differences.

    ``module`` turns states (1, tokens, dimension) of the encoder in the folder ``encoder`` and sides of
    tokens (1, tokens) into grades (1, 3). Raises ModelError where a parity check fails.
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
    cls, sep = (tokenizer.token_to_id(name) for name in ("[CLS]", "[SEP]"))

    def inputs_of(texts: Iterable[tuple[str, str]]) -> list[PairInput]:
        ids = [[tokenizer.encode(text, add_special_tokens=False).ids for text in pair] for pair in texts]
        return [pair_input(first, second, cls, sep) for first, second in ids]

    pairs = inputs_of(itertools.product(TEXTS, TEXTS))
    with torch.inference_mode():
        expected = np.concatenate([original(*map(torch.from_numpy, pair)).numpy() for pair in pairs])

    def differences(model: Path) -> Any:
        session = open_session(model)
        feeds = (dict(zip(JOINT_INPUTS, pair, strict=True)) for pair in pairs)
        return np.concatenate([session.run([JOINT_OUTPUT], feed)[0] for feed in feeds]) - expected

    with tempfile.TemporaryDirectory(prefix="qbe-") as temporary:
        traced, exact = Path(temporary, "traced.onnx"), Path(temporary, "exact.onnx")
        example = dict(zip(JOINT_INPUTS, map(torch.from_numpy, pairs[-1]), strict=True))
        to_onnx(original, example, [JOINT_OUTPUT], {name: {1: "tokens"} for name in JOINT_INPUTS}, traced)
        heads = int(original.model.config.num_attention_heads)
        shutil.copyfile(traced, exact)
        fuse_attention(exact, heads)
        largest = np.abs(differences(exact)).max()
        _check_fp32(largest, largest)

        def ranges() -> Mapping[str, Any]:
            sample = inputs_of(itertools.pairwise(sample_texts()))
            return channel_ranges(traced, (dict(zip(JOINT_INPUTS, pair, strict=True)) for pair in sample))

        for _ in int8_models(traced, folder / JOINT_MODEL, ranges):
            fuse_attention(folder / JOINT_MODEL, heads)
            rounded = differences(folder / JOINT_MODEL)
            if np.abs(rounded).max() <= INT8_MAX_DIFFERENCE:
                root = float(np.sqrt((rounded**2).mean()))
                return {"largest": float(np.abs(rounded).max()), "root_mean_squared": root}
    raise ModelError(
        f"parity check: expected int8 within {INT8_MAX_DIFFERENCE} grades of PyTorch, found "
        f"{np.abs(rounded).max():.2f}"
    )


# Heads of taggers


class HeadInputs(NamedTuple):
    """One window: ``states`` (layers, tokens, dimension) float32, ``spans`` (1, sentences, tokens) bool."""

    states: NDArray[np.float32]
    spans: NDArray[np.bool_]


def export_head(head: Any, windows: Iterable[HeadInputs], path: Path) -> dict[str, float]:
    """Write the head of a tagger as an int8 ONNX model, of `HeadInputs` to ``scores`` (1, sentences, labels).

    Returns, over the windows, ``fp32_max_abs_difference`` and ``int8_max_abs_difference`` of scores from the
    original, and ``int8_same_label``, the share of equal best labels. Raises ModelError where they are too
    large.
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
            parity = _head_parity(model, open_session(fp32), open_session(path), checks)
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


def _head_parity(model: Any, fp32: Any, int8: Any, checks: list[HeadInputs]) -> dict[str, float]:
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

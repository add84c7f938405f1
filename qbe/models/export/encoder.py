"""Encoders, cross-encoders, joint grades, taggers to ONNX in fp32 and int8, checked against PyTorch."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.errors import ModelError, UsageError
from qbe.models import cards
from qbe.models.export.graph import fill_graph, fuse_attention, stored_model
from qbe.models.export.pytorch import (
    TEXTS,
    apply_adapter,
    load_encoder,
    load_model,
    positions,
    to_onnx,
    write_tokenizer,
)
from qbe.models.export.quantize import channel_ranges, int8_models, sample_texts
from qbe.models.folders import adapter_weights, check_required, weights_file
from qbe.models.formats import CLS, DEFAULT_FORMAT, EncoderFormat
from qbe.models.large import read_weights
from qbe.models.session import open_session
from qbe.models.tokenizer import PaperTokenizer, open_tokenizer, pair_input
from qbe.util.files import sha256

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)
Feed = Mapping[str, NDArray[Any]]
Figures = dict[str, float]

FP32_MAX_DIFFERENCE = 1e-3  # of a state, score or grade
INT8_MIN_COSINE = 0.97  # between int8 and original vectors: of any layer's mean, and of [CLS]
# Of a cross-encoder's score, in standard deviations over the built-in pairs: scores have no scale of their
# own, and this keeps the correlation above 0.9.
INT8_MAX_SHARE_OF_SPREAD = 1.0
# Of a joint grade over the built-in pairs of texts; over pairs of papers those that ship differ by .07 (root
# mean squared; docs/lessons.md, "Facets that disagree").
INT8_MAX_DIFFERENCE = 0.5
INT8_MAX_DISAGREEMENT = 0.02  # share of sentences whose best-scored label a tagger in int8 may change

_PAIR_TEXTS = (
    *TEXTS,
    "A cat sat on the mat.",
    "Long queries in literature search. We ask how many sentences of an abstract a query should have. Three "
    "do better than the whole abstract on two collections; on a third the title alone is enough.",
)


def _write_models(
    traced: Path,
    fp32: Path,
    int8: Path,
    measure: Callable[[Any], Figures],
    is_near: Callable[[Figures], bool],
    ranges: Callable[[], Mapping[str, NDArray[Any]]] | None = None,
    heads: int = 0,
) -> tuple[Figures, Figures, bool]:
    """Write the ``traced`` model in fp32, and the first of `int8_models` that ``is_near`` by its figures.

    Returns the figures of both, by ``measure`` of their sessions, and whether int8 is near. Attention of so
    many ``heads`` (0: none) becomes one operator. Raises ModelError where fp32 is not what was traced.
    """

    def finished(path: Path) -> Figures:
        if heads:  # after quantization, which knows no type of the operator
            fuse_attention(path, heads)
        return measure(open_session(path))

    if fp32 != traced:
        shutil.copyfile(traced, fp32)
    exact = finished(fp32)
    if not exact["max_abs_difference"] <= FP32_MAX_DIFFERENCE:  # not a number fails, too
        raise ModelError(
            f"parity check: expected fp32 within {FP32_MAX_DIFFERENCE} of PyTorch, found {exact}"
        )
    for _ in int8_models(traced, int8, ranges):
        rounded = finished(int8)
        if near := is_near(rounded):
            break
    return exact, rounded, near


def _traceable(compute: Callable[..., Any], **parts: Any) -> Any:
    """Return a module of ``parts``, under their names, that computes a function of its inputs."""
    import torch

    class Traced(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, part in parts.items():
                setattr(self, name, part)

        def forward(self, *inputs: torch.Tensor) -> Any:
            return compute(*inputs)

    return Traced().eval()


def _original(compute: Callable[..., Any], feed: Feed) -> list[NDArray[Any]]:
    import torch

    with torch.inference_mode():
        results = compute(*map(torch.from_numpy, feed.values()))
    return [each.numpy() for each in (results if isinstance(results, tuple) else (results,))]


def export_encoder(
    folder: Path,
    name: str,
    source: str,
    destination: Path,
    encoder_format: EncoderFormat = DEFAULT_FORMAT,
    adapter: Path | None = None,
    graph: Path | None = None,
) -> cards.EncoderMetadata:
    """Export the encoder in ``folder``, with an ``adapter``, to ``destination``, and return its card.

    The folder holds config.json, model.safetensors or pytorch_model.bin, and tokenizer.json or vocab.txt.
    With ``graph``, a file of `qbe.models.export.graph.store_graph`, no PyTorch is needed, and int8 is
    compared with fp32. The models take ``input_ids`` (batch, tokens; int64; equally long) and return
    ``last_hidden_state``, ``hidden_state_0`` (the embeddings) and so on, each (batch, tokens, dimension;
    float32). Activations are smoothed by the file RANGES beside ``graph``, else by ranges over the sample's
    papers. Where no int8 model reaches INT8_MIN_COSINE, there is none.
    """
    check_required(cards.ENCODER, folder)
    if graph is not None and adapter is not None:  # an adapter is put into a PyTorch model
        raise UsageError("`graph` is of no use with `adapter`; drop one of them")
    with cards.staged_folder(destination) as staged:
        model = load_encoder(folder) if graph is None else stored_model(folder)
        limit, most = encoder_format.max_tokens, positions(model)
        if limit is not None and limit > most:
            raise UsageError(
                f"expected `max_tokens` of at most {most}, the positions of the model, found {limit}"
            )
        if limit == most:
            encoder_format = dataclasses.replace(encoder_format, max_tokens=None)
        if adapter is not None:
            apply_adapter(model, adapter)
        write_tokenizer(folder, staged / cards.TOKENIZER)
        traced, fp32, int8 = (
            staged / name for name in ("traced.onnx", *map(cards.model_file, ("fp32", "int8")))
        )
        last = int(model.config.num_hidden_layers)
        outputs = [cards.state_output(layer, last) for layer in (last, *range(last))]

        def states(ids: Any) -> tuple[Any, ...]:
            output = model(input_ids=ids, attention_mask=None, output_hidden_states=True)
            return (output.last_hidden_state, *output.hidden_states[:-1])

        feeds = list(_passes(staged, TEXTS, most))
        if graph is not None:
            fill_graph(graph, read_weights(weights_file(cards.ENCODER, folder)), traced)
            session = open_session(traced)
            expected = [session.run(outputs, feed) for feed in feeds]
        else:
            import torch

            inputs = {"input_ids": torch.arange(1, 33).reshape(2, 16)}
            axes = {name: {0: "batch", 1: "tokens"} for name in (*inputs, *outputs)}
            to_onnx(_traceable(states, model=model), inputs, outputs, axes, traced)
            expected = [_original(states, feed) for feed in feeds]

        def ranges() -> Mapping[str, NDArray[Any]]:
            if graph is not None and graph.with_name(cards.RANGES).exists():
                return read_weights(graph.with_name(cards.RANGES))
            return channel_ranges(traced, _passes(staged, sample_texts(), limit or most))

        def measure(session: Any) -> Figures:
            differences: list[float] = []
            cosines: list[float] = []
            for feed, originals in zip(feeds, expected, strict=True):
                exports = session.run(outputs, feed)
                if encoder_format.whole == CLS:
                    cosines.append(_least_cosine(exports[0][:, 0], originals[0][:, 0]))
                for export, original in zip(exports, originals, strict=True):
                    differences.append(float(np.abs(export - original).max()))
                    cosines.append(_least_cosine(export.mean(axis=1), original.mean(axis=1)))
            return {"max_abs_difference": float(np.max(differences)), "min_cosine": float(np.min(cosines))}

        heads = int(model.config.num_attention_heads)
        exact, rounded, near = _write_models(
            *(traced, fp32, int8, measure),
            lambda figures: figures["min_cosine"] >= INT8_MIN_COSINE,
            ranges,
            heads,
        )
        parity = {"int8": rounded, "fp32": exact}
        traced.unlink()
        if not near:
            log.warning(
                "no int8 model of %s: expected a cosine of %s or more with the original, found %s",
                *(name, INT8_MIN_COSINE, rounded["min_cosine"]),
            )
            int8.unlink()
            del parity["int8"]
        files = [cards.TOKENIZER, *map(cards.model_file, parity)]
        card = cards.EncoderMetadata(
            format=cards.ENCODER.format,
            name=name,
            source=source,
            weights_sha256=sha256(weights_file(cards.ENCODER, folder)),
            dimension=int(model.config.hidden_size),
            layers=last,
            max_tokens=limit or most,
            encoder_format=encoder_format,
            adapter=None if adapter is None else sha256(adapter_weights(adapter)),
            files={file: sha256(staged / file) for file in files},
            parity=parity,
        )
        cards.write_card(staged, card)
    return card


def _passes(folder: Path, texts: Iterable[str], max_tokens: int) -> Iterator[Feed]:
    tokenizer = open_tokenizer(folder / cards.TOKENIZER)
    tokenizer.enable_truncation(max_tokens)
    tokenizer.no_padding()
    for text in texts:
        yield {"input_ids": np.array([tokenizer.encode(text).ids], dtype=np.int64)}


def _least_cosine(left: Any, right: Any) -> float:
    norms = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    return float(((left * right).sum(axis=1) / norms).min())


def export_cross_encoder(
    folder: Path, name: str, source: str, destination: Path, **trained: Any
) -> cards.CrossEncoderMetadata:
    """Export the sequence classifier in ``folder`` (config.json, model.safetensors, tokenizer.json).

    The models take ``input_ids``, ``attention_mask`` and, where the classifier uses it, ``token_type_ids``
    (batch, tokens; int64) and return ``score`` (batch,; float32): the logit of one label, or the second's
    less the first's, the log-odds of "relevant" (Nogueira et al., 2020, eq. 1). ``trained`` are fields of the
    card.
    """
    check_required(cards.CROSS_ENCODER, folder)
    with cards.staged_folder(destination) as staged:
        shutil.copyfile(folder / cards.TOKENIZER, staged / cards.TOKENIZER)
        PaperTokenizer(folder / cards.TOKENIZER)  # for its error
        tokenizer = open_tokenizer(staged / cards.TOKENIZER)
        model, missing = load_model(
            folder, "AutoModelForSequenceClassification", "a BERT-family sequence classifier"
        )
        if missing:  # transformers would go on with random numbers in their place
            raise ModelError(
                f"{folder}: expected a trained sequence classifier, found no {', '.join(sorted(missing))} in "
                "model.safetensors; give the folder of a cross-encoder"
            )
        labels, most = int(model.config.num_labels), positions(model.base_model)
        if labels not in (1, 2):
            raise ModelError(
                f"{folder}: expected a classifier of 1 or 2 labels, found {labels}; give a model that scores "
                "the relevance of a pair"
            )
        token_types = int(getattr(model.config, "type_vocab_size", 0)) > 1
        inputs = cards.PAIR_INPUTS if token_types else cards.PAIR_INPUTS[:-1]
        fp32, int8 = (staged / cards.model_file(precision) for precision in ("fp32", "int8"))
        scores = _traced_scores(model, inputs, fp32)

        def batches(pairs: Sequence[tuple[str, str]], size: int) -> Iterator[Feed]:
            tokenizer.enable_truncation(most)
            tokenizer.enable_padding()
            for start in range(0, len(pairs), size):
                texts = tokenizer.encode_batch(pairs[start : start + size])
                columns = zip(
                    *((text.ids, text.attention_mask, text.type_ids) for text in texts), strict=True
                )
                arrays = (np.array(column, dtype=np.int64) for column in columns)
                yield dict(zip(inputs, arrays, strict=False))

        pairs = list(itertools.product(_PAIR_TEXTS, _PAIR_TEXTS))
        feeds = [*batches(pairs, 1), *batches(pairs, 8)]
        expected = np.concatenate([_original(scores, feed)[0] for feed in feeds]).astype(np.float64)
        if np.ptp(expected) == 0:
            raise ModelError(
                "parity check: expected scores that differ between pairs, found one for all pairs"
            )

        def measure(session: Any) -> Figures:
            exported = np.concatenate([session.run([cards.SCORE], feed)[0] for feed in feeds])
            difference = float(np.abs(exported - expected).max())
            return {"max_abs_difference": difference, "share_of_spread": difference / float(expected.std())}

        exact, rounded, near = _write_models(
            *(fp32, fp32, int8, measure),
            lambda figures: figures["share_of_spread"] <= INT8_MAX_SHARE_OF_SPREAD,
            lambda: channel_ranges(fp32, batches(list(itertools.pairwise(sample_texts())), 1)),
        )
        if not near:
            raise ModelError(
                f"parity check: expected int8 within {INT8_MAX_SHARE_OF_SPREAD} of the scores' standard "
                f"deviation, found {rounded}"
            )
        card = cards.CrossEncoderMetadata(
            name=name,
            source=source,
            weights_sha256=sha256(folder / "model.safetensors"),
            max_tokens=most,
            labels=labels,
            token_types=token_types,
            files={file: sha256(staged / file) for file in (cards.TOKENIZER, int8.name, fp32.name)},
            parity={"int8": rounded, "fp32": exact},
            **trained,
        )
        cards.write_card(staged, card)
    return card


def _traced_scores(model: Any, names: Sequence[str], path: Path) -> Callable[..., Any]:
    """Trace the scores of a sequence classifier; return the function of its inputs that computes them."""
    import torch

    def scores(*tensors: Any) -> Any:
        logits = model(**dict(zip(names, tensors, strict=True))).logits
        return logits[:, 0] if logits.shape[1] == 1 else logits[:, 1] - logits[:, 0]

    ids = torch.arange(1, 33).reshape(2, 16)
    mask, types = torch.ones_like(ids), torch.zeros_like(ids)
    mask[1, 10:] = 0
    types[:, 6:] = 1
    inputs = dict(zip(names, (ids, mask, types), strict=False))
    axes = {name: {0: "batch", 1: "tokens"} for name in inputs} | {cards.SCORE: {0: "batch"}}
    to_onnx(_traceable(scores, model=model), inputs, [cards.SCORE], axes, path)
    return scores


def export_joint(encoder: Path, module: torch.nn.Module, folder: Path) -> Figures:
    """Write JOINT_MODEL in int8; return the grades' largest and root mean squared differences.

    ``module`` turns states (1, tokens, dimension) of the encoder and sides (1, tokens) into grades (1, 3).
    """
    import torch

    model, tokenizer = load_encoder(encoder), open_tokenizer(encoder / cards.TOKENIZER)
    tokenizer.no_padding()
    tokenizer.enable_truncation((positions(model) - 3) // 2)
    special = [tokenizer.token_to_id(name) for name in ("[CLS]", "[SEP]")]

    def grades(ids: Any, sides: Any) -> Any:
        return module(model(input_ids=ids, attention_mask=None).last_hidden_state, sides)

    def feeds_of(texts: Iterable[tuple[str, str]]) -> Iterator[Feed]:
        for pair in texts:
            ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in pair]
            yield dict(zip(cards.JOINT_INPUTS, pair_input(*ids, *special), strict=True))

    feeds = list(feeds_of(itertools.product(TEXTS, TEXTS)))

    def measure(session: Any) -> Figures:
        differences = (
            np.concatenate([session.run([cards.JOINT_OUTPUT], feed)[0] for feed in feeds]) - expected
        )
        root = float(np.sqrt((differences**2).mean()))
        return {"max_abs_difference": float(np.abs(differences).max()), "root_mean_squared": root}

    with tempfile.TemporaryDirectory(prefix="qbe-") as temporary:
        traced, fp32 = Path(temporary, "traced.onnx"), Path(temporary, "fp32.onnx")
        example = {name: torch.from_numpy(array) for name, array in feeds[-1].items()}
        axes = {name: {1: "tokens"} for name in cards.JOINT_INPUTS}
        to_onnx(_traceable(grades, model=model, module=module), example, [cards.JOINT_OUTPUT], axes, traced)
        expected = np.concatenate([_original(grades, feed)[0] for feed in feeds])
        _, rounded, near = _write_models(
            *(traced, fp32, folder / cards.JOINT_MODEL, measure),
            lambda figures: figures["max_abs_difference"] <= INT8_MAX_DIFFERENCE,
            lambda: channel_ranges(traced, feeds_of(itertools.pairwise(sample_texts()))),
            int(model.config.num_attention_heads),
        )
    if not near:
        raise ModelError(
            f"parity check: expected int8 within {INT8_MAX_DIFFERENCE} grades of PyTorch, found "
            f"{rounded['max_abs_difference']:.2f}"
        )
    return {"largest": rounded["max_abs_difference"], "root_mean_squared": rounded["root_mean_squared"]}


class HeadInputs(NamedTuple):
    """One window: ``states`` (layers, tokens, dimension) float32, ``spans`` (1, sentences, tokens) bool."""

    states: NDArray[np.float32]
    spans: NDArray[np.bool_]


def export_head(head: Any, windows: Iterable[HeadInputs], path: Path) -> Figures:
    """Write the head of a tagger as an int8 ONNX model, of `HeadInputs` to ``scores`` (1, sentences, labels).

    Returns the differences of scores from the original, and the share of equal best labels.
    """
    import torch

    feeds = [window._asdict() for window in windows]
    dimension = feeds[0]["states"].shape[-1]

    def scores(states: torch.Tensor, spans: torch.Tensor) -> Any:
        normalized = torch.nn.functional.layer_norm(states, (dimension,))
        flat = normalized.transpose(0, 1).flatten(1).unsqueeze(0)
        present = torch.ones_like(spans[:, :, 0])  # one window: no sentence is padding
        return head(flat, spans, present)

    def measure(session: Any) -> Figures:
        differences, agreed = [0.0], list[bool]()
        for feed, original in zip(feeds, expected, strict=True):
            exported = session.run(None, feed)[0]
            differences.append(float(np.abs(exported - original).max()))
            agreed.extend((exported.argmax(-1) == original.argmax(-1))[0].tolist())
        return {"max_abs_difference": max(differences), "same_label": sum(agreed) / len(agreed)}

    inputs = {name: torch.from_numpy(array) for name, array in feeds[0].items()}
    axes = {"states": {1: "tokens"}, "spans": {1: "sentences", 2: "tokens"}}
    with tempfile.TemporaryDirectory(prefix="qbe-") as temporary:
        fp32 = Path(temporary, "head.fp32.onnx")
        to_onnx(_traceable(scores, head=head), inputs, ["scores"], axes, fp32)
        expected = [_original(scores, feed)[0] for feed in feeds]
        exact, rounded, near = _write_models(
            *(fp32, fp32, path, measure), lambda figures: figures["same_label"] >= 1 - INT8_MAX_DISAGREEMENT
        )
    if not near:
        raise ModelError(
            f"parity check: expected int8 with at most {INT8_MAX_DISAGREEMENT:.0%} other labels than "
            f"PyTorch, found {rounded}"
        )
    return {
        "fp32_max_abs_difference": exact["max_abs_difference"],
        "int8_max_abs_difference": rounded["max_abs_difference"],
        "int8_same_label": rounded["same_label"],
    }

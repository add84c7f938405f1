"""Encoders, cross-encoders, joint grades, taggers to ONNX in fp32 and int8, checked against PyTorch."""

import dataclasses
import itertools
import json
import logging
import lzma
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbe.errors import ModelError, UsageError
from qbe.models import cards
from qbe.models.encoding import PaperTokenizer, open_tokenizer, pair_input
from qbe.models.export.graph import channel_ranges, fill_graph, fuse_attention, int8_models, stored_model
from qbe.models.export.pytorch import apply_adapter, load_encoder, load_model, positions, write_tokenizer
from qbe.models.folders import adapter_weights, check_required, read_weights, weights_file
from qbe.models.formats import CLS, DEFAULT_FORMAT, EncoderFormat
from qbe.models.gpu import half_pairs
from qbe.models.session import open_session
from qbe.types import Facet
from qbe.util.files import sha256

log = logging.getLogger(__name__)
Feed = Mapping[str, NDArray[Any]]
Results = list[list[NDArray[Any]]]  # the outputs of a model for each feed
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

# On which exported models are compared with their originals.
TEXTS = (
    "Short.",
    "We study how the length of a query changes the order of the papers that a search engine returns.",
    "Neural rankers read a query and a document together. That costs time. We ask whether reading each "
    "once, and comparing their sentences afterwards, keeps the order of the first hundred documents. On "
    "two collections it does, at a hundredth of the cost; on a third it does not, and we explain why.",
    "Sätze mit Umlauten, Formeln wie $O(n \\log n)$, URLs (https://example.org) and 3.14 numbers!",
)
_PAIR_TEXTS = (
    *TEXTS,
    "A cat sat on the mat.",
    "Long queries in literature search. We ask how many sentences of an abstract a query should have. Three "
    "do better than the whole abstract on two collections; on a third the title alone is enough.",
)


def sample_texts() -> list[str]:
    """Return the texts of 125 papers of the collection in the package, of all years."""
    papers = resources.files("qbe").joinpath("datasets", "mini", "papers.jsonl.xz").read_bytes()
    records = map(json.loads, lzma.decompress(papers).splitlines()[::24])
    return [f"{record['title']} {record['abstract']}" for record in records]


def _trace(
    compute: Callable[..., Any],
    parts: Mapping[str, Any],
    example: Feed,
    axes: Mapping[str, Mapping[int, str]],
    path: Path,
    feeds: Sequence[Feed],
) -> Results:
    """Trace a function of modules to fp32, with ``axes`` of inputs, then outputs; apply it to feeds."""
    import torch

    class Traced(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, part in parts.items():
                setattr(self, name, part)

        def forward(self, *inputs: torch.Tensor) -> Any:
            return compute(*inputs)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the tracer's notes on constants; a parity check decides
        torch.onnx.export(
            Traced().eval(),  # the exporter would switch a module in training mode, and so dropout, back on
            tuple(map(torch.from_numpy, example.values())),
            str(path),
            input_names=list(example),
            output_names=[name for name in axes if name not in example],
            dynamic_axes=axes,
            opset_version=17,
            dynamo=False,
        )
    results = []
    with torch.inference_mode():
        for feed in feeds:
            found = compute(*map(torch.from_numpy, feed.values()))
            results.append([each.numpy() for each in (found if isinstance(found, tuple) else (found,))])
    return results


def _write_models(
    traced: Path,
    fp32: Path,
    int8: Path,
    feeds: Sequence[Feed],
    figures: Callable[[Results], Figures],
    is_near: Callable[[Figures], bool],
    bound: str,
    ranges: Callable[[], Mapping[str, NDArray[Any]]] | None = None,
    heads: int = 0,
    *,
    optional: bool = False,
) -> dict[str, Figures]:
    def finished(path: Path) -> Figures:
        if heads:  # after quantization, which knows no type of the operator
            fuse_attention(path, heads)
        session = open_session(path)
        return figures([session.run(None, feed) for feed in feeds])

    if fp32 != traced:
        shutil.copyfile(traced, fp32)
    exact = finished(fp32)
    if not exact["max_abs_difference"] <= FP32_MAX_DIFFERENCE:  # not a number fails, too
        raise ModelError(
            f"parity check: expected fp32 within {FP32_MAX_DIFFERENCE} of PyTorch, found {exact}"
        )
    for _ in int8_models(traced, int8, ranges):
        if is_near(rounded := finished(int8)):
            return {"int8": rounded, "fp32": exact}
    if not optional:
        raise ModelError(f"parity check: expected int8 {bound}, found {rounded}")
    log.warning("no int8 model: expected one %s, found %s", bound, rounded)
    int8.unlink()
    return {"fp32": exact}


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

    With ``graph``, a file of `qbe.models.export.graph.store_graph`, no PyTorch is needed, and int8 is
    compared with fp32. The models take ``input_ids`` (batch, tokens; int64; equally long) and return
    ``last_hidden_state``, ``hidden_state_0`` (the embeddings) and so on, each (batch, tokens, dimension;
    float32). Activations are smoothed by the file RANGES beside ``graph``, else by papers of the package.
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
        tokenizer = open_tokenizer(staged / cards.TOKENIZER)
        tokenizer.no_padding()

        def passes(texts: Iterable[str], max_tokens: int) -> Iterator[Feed]:
            tokenizer.enable_truncation(max_tokens)
            for text in texts:
                yield {"input_ids": np.array([tokenizer.encode(text).ids], dtype=np.int64)}

        traced = staged / "traced.onnx"
        fp32, int8 = (staged / cards.model_file(precision) for precision in ("fp32", "int8"))
        last = int(model.config.num_hidden_layers)
        outputs = [cards.state_output(layer, last) for layer in (last, *range(last))]
        feeds = list(passes(TEXTS, most))
        if graph is not None:
            fill_graph(graph, read_weights(weights_file(cards.ENCODER, folder)), traced)
            session = open_session(traced)
            expected = [session.run(outputs, feed) for feed in feeds]
        else:

            def states(ids: Any) -> tuple[Any, ...]:
                output = model(input_ids=ids, attention_mask=None, output_hidden_states=True)
                return (output.last_hidden_state, *output.hidden_states[:-1])

            example = {"input_ids": np.arange(1, 33).reshape(2, 16)}
            axes = {name: {0: "batch", 1: "tokens"} for name in (*example, *outputs)}
            expected = _trace(states, {"model": model}, example, axes, traced, feeds)

        def ranges() -> Mapping[str, NDArray[Any]]:
            if graph is not None and graph.with_name(cards.RANGES).exists():
                return read_weights(graph.with_name(cards.RANGES))
            return channel_ranges(traced, passes(sample_texts(), limit or most))

        def figures(exported: Results) -> Figures:
            differences: list[float] = []
            cosines: list[float] = []
            for exports, originals in zip(exported, expected, strict=True):
                pairs = list(zip(exports, originals, strict=True))
                vectors = [(export.mean(axis=1), original.mean(axis=1)) for export, original in pairs]
                if encoder_format.whole == CLS:
                    vectors.append((exports[0][:, 0], originals[0][:, 0]))
                for left, right in vectors:
                    norms = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
                    cosines.append(float(((left * right).sum(axis=1) / norms).min()))
                differences += [float(np.abs(export - original).max()) for export, original in pairs]
            return {"max_abs_difference": float(np.max(differences)), "min_cosine": float(np.min(cosines))}

        parity = _write_models(
            *(traced, fp32, int8, feeds, figures),
            lambda figures: figures["min_cosine"] >= INT8_MIN_COSINE,
            f"with a cosine of {INT8_MIN_COSINE} or more with the original",
            ranges,
            int(model.config.num_attention_heads),
            optional=True,
        )
        traced.unlink()
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
            files={file: sha256(staged / file) for file in (cards.TOKENIZER, *map(cards.model_file, parity))},
            parity=parity,
        )
        cards.write_card(staged, card)
    return card


def export_cross_encoder(
    folder: Path, name: str, source: str, destination: Path, **trained: Any
) -> cards.CrossEncoderMetadata:
    """Export the sequence classifier in ``folder``.

    The models take ``input_ids``, ``attention_mask`` and, where the classifier uses it, ``token_type_ids``
    (batch, tokens; int64) and return ``score`` (batch,; float32): the logit of one label, or the second's
    less the first's, the log-odds of "relevant" (Nogueira et al., 2020, eq. 1); or those of the facets
    (batch, 3). ``trained`` are fields of the card. A model in int8 or fp16 that is too far from PyTorch's is
    left out, with a warning.
    """
    check_required(cards.CROSS_ENCODER, folder)
    with cards.staged_folder(destination) as staged:
        shutil.copyfile(folder / cards.TOKENIZER, staged / cards.TOKENIZER)
        PaperTokenizer(folder / cards.TOKENIZER)  # for its error
        tokenizer = open_tokenizer(staged / cards.TOKENIZER)
        expected_model = "a BERT-family sequence classifier"
        model, missing = load_model(folder, "AutoModelForSequenceClassification", expected_model)
        if missing:  # transformers would go on with random numbers in their place
            raise ModelError(
                f"{folder}: expected a trained sequence classifier, found no {', '.join(sorted(missing))} in "
                "model.safetensors; give the folder of a cross-encoder"
            )
        labels, most = int(model.config.num_labels), positions(model.base_model)
        facets = [*map(str, Facet)]
        if labels not in (1, 2) and [*model.config.id2label.values()] != facets:
            raise ModelError(
                f"{folder}: expected a classifier of 1 or 2 labels, or of {', '.join(facets)}, found {labels}"
                "; give a model that scores the relevance of a pair"
            )
        token_types = int(getattr(model.config, "type_vocab_size", 0)) > 1
        inputs = cards.PAIR_INPUTS if token_types else cards.PAIR_INPUTS[:-1]
        fp32, int8, fp16 = (staged / cards.model_file(precision) for precision in ("fp32", "int8", "fp16"))

        def scores(*tensors: Any) -> Any:
            logits = model(**dict(zip(inputs, tensors, strict=True))).logits
            return logits[:, 1] - logits[:, 0] if labels == 2 else logits[:, 0] if labels == 1 else logits

        def batches(pairs: Sequence[tuple[str, str]], size: int) -> Iterator[Feed]:
            tokenizer.enable_truncation(most)
            tokenizer.enable_padding()
            for start in range(0, len(pairs), size):
                texts = tokenizer.encode_batch(pairs[start : start + size])
                sides = zip(*((each.ids, each.attention_mask, each.type_ids) for each in texts), strict=True)
                yield dict(zip(inputs, (np.array(side, np.int64) for side in sides), strict=False))

        axes = {name: {0: "batch", 1: "tokens"} for name in inputs} | {cards.SCORE: {0: "batch"}}
        pairs = list(itertools.product(_PAIR_TEXTS, _PAIR_TEXTS))
        feeds = [*batches(pairs, 1), *batches(pairs, 8)]
        results = _trace(scores, {"model": model}, feeds[-1], axes, fp32, feeds)
        expected = np.concatenate([score for (score,) in results]).astype(np.float64)
        if not np.ptp(expected, axis=0).all():
            raise ModelError(
                "parity check: expected scores that differ between pairs, found one for all pairs"
            )

        def figures(exported: Results) -> Figures:
            differences = np.abs(np.concatenate([score for (score,) in exported]) - expected).max(axis=0)
            share = float((differences / expected.std(axis=0)).max())
            return {"max_abs_difference": float(differences.max()), "share_of_spread": share}

        def is_near(figures: Figures) -> bool:
            return figures["share_of_spread"] <= INT8_MAX_SHARE_OF_SPREAD

        bound = f"within {INT8_MAX_SHARE_OF_SPREAD} of the scores' standard deviation"
        parity = _write_models(
            *(fp32, fp32, int8, feeds, figures, is_near, bound),
            lambda: channel_ranges(fp32, batches(list(itertools.pairwise(sample_texts())), 1)),
            optional=True,
        )
        fp16.write_bytes(half_pairs(fp32).serialized())
        session = open_session(fp16)
        rounded = figures([session.run(None, feed) for feed in feeds])
        if is_near(rounded):
            parity["fp16"] = rounded
        else:
            log.warning("no fp16 model: expected one %s, found %s", bound, rounded)
            fp16.unlink()
        card = cards.CrossEncoderMetadata(
            name=name,
            source=source,
            weights_sha256=sha256(folder / "model.safetensors"),
            max_tokens=most,
            labels=labels,
            token_types=token_types,
            files={file: sha256(staged / file) for file in (cards.TOKENIZER, *map(cards.model_file, parity))},
            parity=parity,
            **trained,
        )
        cards.write_card(staged, card)
    return card


def export_joint(encoder: Path, module: Any, folder: Path) -> Figures:
    """Write JOINT_MODEL in int8; return the grades' largest and root mean squared differences.

    ``module`` turns states (1, tokens, dimension) of the encoder and sides (1, tokens) into grades (1, 3).
    """
    model, tokenizer = load_encoder(encoder), PaperTokenizer(encoder / cards.TOKENIZER)
    most = (positions(model) - 3) // 2

    def feeds_of(texts: Iterable[tuple[str, str]]) -> Iterator[Feed]:
        for pair in texts:
            first, second = (tokenizer.ids(text)[:most] for text in pair)
            inputs = pair_input(first, second, tokenizer.special.cls, tokenizer.special.sep)
            yield dict(zip(cards.JOINT_INPUTS, inputs, strict=True))

    def figures(exported: Results) -> Figures:
        differences = np.concatenate([each for (each,) in exported]) - expected
        root = float(np.sqrt((differences**2).mean()))
        return {"max_abs_difference": float(np.abs(differences).max()), "root_mean_squared": root}

    with tempfile.TemporaryDirectory(prefix="qbe-") as temporary:
        traced, feeds = Path(temporary, "traced.onnx"), list(feeds_of(itertools.product(TEXTS, TEXTS)))
        axes = {**{name: {1: "tokens"} for name in cards.JOINT_INPUTS}, cards.JOINT_OUTPUT: {}}
        results = _trace(
            lambda ids, sides: module(model(input_ids=ids, attention_mask=None).last_hidden_state, sides),
            *({"model": model, "module": module}, feeds[-1], axes, traced, feeds),
        )
        expected = np.concatenate([each for (each,) in results])
        rounded = _write_models(
            *(traced, Path(temporary, "fp32.onnx"), folder / cards.JOINT_MODEL, feeds, figures),
            lambda figures: figures["max_abs_difference"] <= INT8_MAX_DIFFERENCE,
            f"within {INT8_MAX_DIFFERENCE} grades of PyTorch",
            lambda: channel_ranges(traced, feeds_of(itertools.pairwise(sample_texts()))),
            int(model.config.num_attention_heads),
        )["int8"]
    return {"largest": rounded["max_abs_difference"], "root_mean_squared": rounded["root_mean_squared"]}


def export_head(head: Any, feeds: Sequence[Feed], path: Path) -> Figures:
    """Write the head of a tagger as an int8 ONNX model; return how its scores and best labels differ.

    It is fed windows of ``states`` (layers, tokens, dimension) float32 and ``spans`` (1, sentences, tokens)
    bool, and returns ``scores`` (1, sentences, labels).
    """
    import torch

    def scores(states: torch.Tensor, spans: torch.Tensor) -> Any:
        normalized = torch.nn.functional.layer_norm(states, (feeds[0]["states"].shape[-1],))
        flat = normalized.transpose(0, 1).flatten(1).unsqueeze(0)
        return head(flat, spans, torch.ones_like(spans[:, :, 0]))  # one window: no sentence is padding

    def figures(results: Results) -> Figures:
        exported, original = (np.concatenate([each[0] for (each,) in found]) for found in (results, expected))
        same = exported.argmax(-1) == original.argmax(-1)
        difference = float(np.abs(exported - original).max())
        return {"max_abs_difference": difference, "same_label": int(same.sum()) / len(same)}

    axes = {"states": {1: "tokens"}, "spans": {1: "sentences", 2: "tokens"}, "scores": {}}
    with tempfile.TemporaryDirectory(prefix="qbe-") as temporary:
        fp32 = Path(temporary, "head.fp32.onnx")
        expected = _trace(scores, {"head": head}, feeds[0], axes, fp32, feeds)
        parity = _write_models(
            *(fp32, fp32, path, feeds, figures),
            lambda figures: figures["same_label"] >= 1 - INT8_MAX_DISAGREEMENT,
            f"with at most {INT8_MAX_DISAGREEMENT:.0%} other labels than PyTorch",
        )
    return {
        **{f"{name}_max_abs_difference": parity[name]["max_abs_difference"] for name in ("fp32", "int8")},
        "int8_same_label": parity["int8"]["same_label"],
    }

"""The card of a trained encoder, in Markdown, written from what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from qbe.models.encoder_files import EncoderMetadata
from qbe.models.encoder_format import L2
from qbe.train.encoder.recipe import OBJECTIVES, Recipe
from qbe.train.markdown import joined, sources


def describe(card: EncoderMetadata, training: Mapping[str, Any], recipe: Recipe) -> str:
    """The card's text; ``training`` is what `qbe.train.encoder.training.train_encoder` found."""
    objective = OBJECTIVES[recipe.objective]
    settings, schedule = recipe.settings, recipe.schedule
    transport = (
        f"transport with a lambda of {settings.regularization:g} and a tau of {settings.temperature:g}, "
        if objective.transports
        else ""
    )
    aligner = training["aligner"]
    told = f" Sentences that belong together were told by {_told(aligner)}." if objective.aligned else ""
    parts = [
        f"# {card.name}",
        f"A sentence encoder ({card.dimension} dimensions, {card.layers} layers, {card.max_tokens} tokens), "
        f"trained on co-citations with the objective `{recipe.objective}` ({objective.name}; Mysore et al., "
        "2022). PyTorch weights as Hugging Face lays them out, and ONNX models in fp32 and int8.",
        "Written by `python -m qbe.train encoder`.",
        "## Loss on dev",
        "Mean loss of pairs of sets that nothing was learned from, after each epoch, without dropout. "
        f"Untrained: {training['untrained']:.4f}. Published: {training['published']}, the least.",
        _losses(training["dev"]),
        "## Recipe",
        f"Started from {training['start']['name']} (weights {training['start']['weights_sha256'][:12]}). "
        f"Triplets with negatives from the batch, margin {settings.margin:g} on L2 distances of vectors "
        f"{_vectors(settings.similarity)}, {transport}{schedule.batch} x {schedule.accumulate} pairs a "
        f"step, AdamW at {schedule.learning_rate:g} (warm-up over {schedule.warm_up:g} of the steps, then "
        f"linearly down; weight decay {schedule.weight_decay:g}, gradients clipped to {schedule.clip:g}), "
        f"matrix products in {training['kind']}, {schedule.epochs} epochs at most, of which the best on dev. "
        f"{training['pairs']['train']:,} pairs to learn from, {training['pairs']['dev']:,} to choose on."
        f"{told}",
        "## Difference from PyTorch",
        _parity(card.parity),
        "## Data",
        sources(training["data"]),
        f"Papers with a title like that of one in the last file are left out. Seeds: "
        f"{', '.join(map(str, training['seeds']))}.",
    ]
    return joined(parts)


def _vectors(similarity: str) -> str:
    return "as they are" if similarity == L2 else "of unit length"


def _told(aligner: Mapping[str, str] | None) -> str:
    if aligner is None:
        return "the files"
    name = f"`{aligner['name']}` (weights {aligner['weights_sha256'][:12]}, {aligner['precision']})"
    return f"{name}, where the files did not" if aligner["given"] else name


def _losses(rows: Mapping[str, Sequence[float]]) -> str:
    epochs = max(len(row) for row in rows.values())
    lines = [
        "| weights | " + " | ".join(f"epoch {number + 1}" for number in range(epochs)) + " |",
        "|---|" + "---:|" * epochs,
    ]
    for name, row in rows.items():
        cells = [f"{value:.4f}" for value in row] + [""] * (epochs - len(row))
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _parity(parity: Mapping[str, Mapping[str, float]]) -> str:
    lines = ["| | largest difference of a state | smallest cosine of a mean |", "|---|---:|---:|"]
    for precision, found in parity.items():
        lines.append(f"| {precision} | {found['max_abs_difference']:.2g} | {found['min_cosine']:.5f} |")
    return "\n".join(lines)

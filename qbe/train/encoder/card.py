"""The card of a trained encoder, in Markdown, written from what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from qbe.models.encoder_files import EncoderMetadata
from qbe.models.encoder_format import L2
from qbe.train.encoder.recipe import OBJECTIVES, Recipe
from qbe.train.markdown import decimals, document, file_list, table


def describe(metadata: EncoderMetadata, training: Mapping[str, Any], recipe: Recipe) -> str:
    """The card's text; ``training`` is collected by `qbe.train.encoder.training.train_encoder`."""
    objective = OBJECTIVES[recipe.objective]
    settings, schedule = recipe.settings, recipe.schedule
    transport = (
        f"transport with a lambda of {settings.regularization:g} and a tau of {settings.temperature:g}, "
        if objective.transports
        else ""
    )
    aligner = training["aligner"]
    alignment = f" Sentences were aligned by {_aligner(aligner)}." if objective.alignment else ""
    parts = [
        f"# {metadata.name}",
        f"A sentence encoder ({metadata.dimension} dimensions, {metadata.layers} layers, "
        f"{metadata.max_tokens} tokens), trained on co-citations with the objective `{recipe.objective}` "
        f"({objective.name}; Mysore et al., 2022). PyTorch weights in the format of Hugging Face, and "
        "ONNX models in fp32 and int8.",
        "Written by `qbe train encoder`.",
        "## Loss on dev",
        "Mean loss on pairs of sets that are not in the training data, after each epoch, without dropout. "
        f"Untrained: {training['untrained']:.4f}. Published: {training['published']}, the lowest.",
        _losses(training["dev"]),
        "## Recipe",
        f"Started from {training['start']['name']} (weights {training['start']['weights_sha256'][:12]}). "
        f"Triplets with negatives from the batch, margin {settings.margin:g} on L2 distances of vectors "
        f"{_vectors(settings.similarity)}, {transport}{schedule.batch} x {schedule.accumulate} pairs per "
        f"step, AdamW at {schedule.learning_rate:g} (warm-up over {schedule.warm_up:g} of the steps, then "
        f"linear decay to 0; weight decay {schedule.weight_decay:g}, gradients clipped to "
        f"{schedule.clip:g}), "
        f"matrix products in {training['kind']}, at most {schedule.epochs} epochs, the best on dev. "
        f"{training['pairs']['train']:,} pairs in training, {training['pairs']['dev']:,} in dev."
        f"{alignment}",
        "## Difference from PyTorch",
        table(
            ["", "largest difference of a state", "smallest cosine of a mean"],
            (
                [precision, f"{row['max_abs_difference']:.2g}", f"{row['min_cosine']:.5f}"]
                for precision, row in metadata.parity.items()
            ),
        ),
        "## Data",
        file_list(training["data"]),
        f"Papers with a title like that of one in the last file are left out. Seeds: "
        f"{', '.join(map(str, training['seeds']))}.",
    ]
    return document(parts)


def _vectors(similarity: str) -> str:
    return "as they are" if similarity == L2 else "of unit length"


def _aligner(aligner: Mapping[str, str] | None) -> str:
    if aligner is None:
        return "the files"
    name = f"`{aligner['name']}` (weights {aligner['weights_sha256'][:12]}, {aligner['precision']})"
    return f"{name}, where the files had no alignment" if aligner["given"] else name


def _losses(rows: Mapping[str, Sequence[float]]) -> str:
    epochs = max(len(row) for row in rows.values())
    header = ["weights", *(f"epoch {number + 1}" for number in range(epochs))]
    return table(
        header, ([name, *decimals(row, 4), *[""] * (epochs - len(row))] for name, row in rows.items())
    )

"""The model card of a tagger, in Markdown, written from what was measured."""

from __future__ import annotations

from typing import Any

from qbe.models.tagger_files import HEAD, TaggerMetadata
from qbe.train.markdown import joined, sources
from qbe.train.tagger.csabstruct import LABELS
from qbe.train.tagger.scores import Scores


def describe(card: TaggerMetadata, measured: Scores, size: int) -> str:
    """The card's text; ``measured`` is the exported model on CSAbstruct's test split, ``size`` its bytes."""
    training = card.training
    parts = [
        f"# {card.name}",
        _what(card, size),
        "Written by `python -m qbe.train tagger`.",
        "## Figures on CSAbstruct's test split",
        f"The exported int8 model: micro-F1 {measured.micro_f1:.2f} over five labels, {measured.folded:.2f} "
        "with objective folded into background. Cohan et al. (2019) report 83.1 over five labels with "
        "SciBERT-base.",
        _table(measured),
        "Confusion (rows: annotators, columns: model):",
        _confusion(measured),
        "## Seeds",
        f"Students that differ in their seed alone, in PyTorch. Seed {training['seed']} ships: it is the "
        "best on dev, sentences weighted by their annotators' confidence. Standard deviation on test: "
        f"micro-F1 {training['spread']['micro_f1']:.2f}, folded {training['spread']['folded']:.2f}. Dev's "
        "labels are less sure than test's (mean confidence 0.63 and 0.83), hence its lower figures.",
        _seeds(training["seeds"]),
        "## Recipe",
        *_recipe(training["recipe"]),
        "The seed was chosen on CSAbstruct's dev split, by confidence. That the teachers' encoder learns "
        "too, instead of heads alone, was planned beforehand, but settled with trial figures of both on "
        "test in sight (dev does not tell them apart): to that extent the figures on test flatter. "
        f"Quantization: fp32 ONNX within {training['parity']['fp32_max_abs_difference']:.1g} of PyTorch's "
        f"scores; int8 gives {training['parity']['int8_same_label']:.1%} of the checked sentences (from "
        "dev) the same best-scored label.",
        "## Data",
        sources(training["data"]),
        "## Limits",
        "English abstracts of computer science; elsewhere untested. Sentences are read in the context of one "
        "window of the encoder (512 tokens): of a very long abstract later windows are read apart, and only "
        "the chain of labels connects them.",
    ]
    return joined(parts)


def _what(card: TaggerMetadata, size: int) -> str:
    labels = f"{', '.join(LABELS[:-1])} or {LABELS[-1]}"
    layers = ", ".join(map(str, card.layers))
    return (
        f"Labels each sentence of an abstract {labels}, from the token states (layers {layers}; 0 is the "
        f"embeddings) of `{card.trunk['name']}` (weights {card.trunk['weights_sha256'][:12]}), which stays "
        f"as it is: what is encoded anyway is tagged in the same pass. `{HEAD}`: {size / 1e6:.1f} MB, "
        f"SHA-256 {card.files[HEAD]}."
    )


def _recipe(recipe: Any) -> list[str]:
    teacher, soft, gold = recipe["teacher"], recipe["soft"], recipe["gold"]
    return [
        f"1. {recipe['teachers']} teachers, in which the encoder's layers learn too, are fitted to "
        "CSAbstruct's train split, each sentence weighted by its annotators' confidence (cross-entropy of "
        f"the label chain's marginals, AdamW, {teacher['epochs']} epochs at {teacher['learning_rate']}, a "
        "tenth of that for the encoder).",
        f"2. Together they label {recipe['unlabelled']:,} arXiv abstracts softly. Papers with a title like "
        f"that of one in CSFCube are left out; {recipe['untitled']:.0%} are read without their title, as "
        "CSAbstruct has none.",
        f"3. Students, on the frozen encoder, are fitted to these and to train ({soft['epochs']} epochs at "
        f"{soft['learning_rate']}), then to train alone ({gold['epochs']} epochs at "
        f"{gold['learning_rate']}).",
    ]


def _table(scores: Scores) -> str:
    lines = ["| label | precision | recall | F1 | sentences |", "|---|---:|---:|---:|---:|"]
    for label, row in scores.by_label().items():
        figures = " | ".join(f"{row[name]:.1f}" for name in ("precision", "recall", "f1"))
        lines.append(f"| {label} | {figures} | {row['sentences']} |")
    return "\n".join(lines)


def _confusion(scores: Scores) -> str:
    lines = ["| | " + " | ".join(LABELS) + " |", "|---|" + "---:|" * len(LABELS)]
    for label, row in zip(LABELS, scores.confusion.tolist(), strict=True):
        lines.append(f"| {label} | " + " | ".join(map(str, row)) + " |")
    return "\n".join(lines)


def _seeds(seeds: Any) -> str:
    lines = [
        "| seed | dev micro-F1 | dev by confidence | test micro-F1 | test folded |",
        "|---:|---:|---:|---:|---:|",
    ]
    for seed, found in seeds.items():
        dev, test = found["dev"], found["test"]
        figures = (dev["micro_f1"], dev["confident"], test["micro_f1"], test["folded"])
        lines.append(f"| {seed} | " + " | ".join(f"{figure:.2f}" for figure in figures) + " |")
    return "\n".join(lines)

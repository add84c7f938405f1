"""The model card of a tagger, in Markdown, written from what was measured."""

from __future__ import annotations

from typing import Any

from qbe.models.tagger_files import HEAD, TaggerMetadata
from qbe.train.markdown import decimals, document, file_list, table
from qbe.train.tagger.csabstruct import LABELS
from qbe.train.tagger.scores import Scores


def describe(metadata: TaggerMetadata, scores: Scores, size: int) -> str:
    """The card's text; ``scores`` are the exported model's on CSAbstruct's test split, ``size`` its bytes."""
    training = metadata.training
    parts = [
        f"# {metadata.name}",
        _summary(metadata, size),
        "Written by `qbe train tagger`.",
        "## Figures on CSAbstruct's test split",
        f"The exported int8 model: micro-F1 {scores.micro_f1:.2f} over five labels, {scores.folded:.2f} "
        "with objective folded into background. Cohan et al. (2019) report 83.1 over five labels with "
        "SciBERT-base.",
        _by_label(scores),
        "Confusion (rows: annotators, columns: model):",
        table(
            ["", *LABELS],
            ([label, *map(str, row)] for label, row in zip(LABELS, scores.confusion.tolist(), strict=True)),
        ),
        "## Seeds",
        f"Students trained with different seeds, in PyTorch. Seed {training['seed']} ships: it is the "
        "best on dev, sentences weighted by their annotators' confidence. Standard deviation on test: "
        f"micro-F1 {training['spread']['micro_f1']:.2f}, folded {training['spread']['folded']:.2f}. Dev's "
        "labels are less certain than test's (mean confidence 0.63 and 0.83), hence its lower figures.",
        _seeds(training["seeds"]),
        "## Recipe",
        *_recipe(training["recipe"]),
        "The seed was chosen on CSAbstruct's dev split, by confidence. Fine-tuning the teachers' encoder, "
        "instead of training heads alone, was planned beforehand, but decided after trial figures of both on "
        "test were known (dev does not distinguish them): to that extent the figures on test are optimistic. "
        f"Quantization: fp32 ONNX within {training['parity']['fp32_max_abs_difference']:.1g} of PyTorch's "
        f"scores; int8 gives {training['parity']['int8_same_label']:.1%} of the checked sentences (from "
        "dev) the same best-scored label.",
        "## Data",
        file_list(training["data"]),
        "## Limits",
        "Trained on English abstracts of computer science; not tested elsewhere. Sentences are read in the "
        "context of one window of the encoder (512 tokens): the later windows of a very long abstract are "
        "read separately, and only the chain of labels connects them.",
    ]
    return document(parts)


def _summary(metadata: TaggerMetadata, size: int) -> str:
    labels = f"{', '.join(LABELS[:-1])} or {LABELS[-1]}"
    layers = ", ".join(map(str, metadata.layers))
    return (
        f"Labels each sentence of an abstract {labels}, from the token states (layers {layers}; 0 is the "
        f"embeddings) of `{metadata.trunk['name']}` (weights {metadata.trunk['weights_sha256'][:12]}), which "
        f"is frozen: papers are tagged in the same pass that encodes them. `{HEAD}`: {size / 1e6:.1f} MB, "
        f"SHA-256 {metadata.files[HEAD]}."
    )


def _recipe(recipe: Any) -> list[str]:
    teacher, soft, gold = recipe["teacher"], recipe["soft"], recipe["gold"]
    return [
        f"1. {recipe['teachers']} teachers, in which the encoder's layers are fine-tuned too, are fitted to "
        "CSAbstruct's train split, each sentence weighted by its annotators' confidence (cross-entropy of "
        f"the label chain's marginals, AdamW, {teacher['epochs']} epochs at {teacher['learning_rate']}, a "
        "tenth of that for the encoder).",
        f"2. The mean of their probabilities labels {recipe['unlabelled']:,} arXiv abstracts. Papers with a "
        f"title like that of one in CSFCube are left out; {recipe['untitled']:.0%} are read without their "
        "title, as CSAbstruct has none.",
        f"3. Students, on the frozen encoder, are fitted to these and to train ({soft['epochs']} epochs at "
        f"{soft['learning_rate']}), then to train alone ({gold['epochs']} epochs at "
        f"{gold['learning_rate']}).",
    ]


def _by_label(scores: Scores) -> str:
    names = ("precision", "recall", "f1")
    return table(
        ["label", "precision", "recall", "F1", "sentences"],
        (
            [label, *decimals((row[name] for name in names), 1), str(row["sentences"])]
            for label, row in scores.by_label().items()
        ),
    )


def _seeds(seeds: Any) -> str:
    header = ["seed", "dev micro-F1", "dev by confidence", "test micro-F1", "test folded"]
    rows = []
    for seed, splits in seeds.items():
        dev, test = splits["dev"], splits["test"]
        figures = (dev["micro_f1"], dev["confident"], test["micro_f1"], test["folded"])
        rows.append([str(seed), *decimals(figures, 2)])
    return table(header, rows, labels=0)

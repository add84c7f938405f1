"""The model card of the facet encoder, in Markdown, written from what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qbe.models.encoder_files import EncoderMetadata
from qbe.models.registry import BASE_ENCODER
from qbe.train.markdown import joined, sources
from qbe.types import Facet


def describe(card: EncoderMetadata, training: Mapping[str, Any], size: int) -> str:
    """The card's text; ``training`` is what `qbe.train.facet_encoder.training.make_facet_encoder` found,
    ``size`` the bytes of the files.
    """
    ps = ", ".join(f"{name} {p:.2g}" for name, p in training["p"].items())
    seeds = ", ".join(map(str, training["seeds"]))
    parts = [
        f"# {card.name}",
        f"A sentence encoder for papers ({card.dimension} dimensions, {card.layers} layers, int8, "
        f"{size / 1e6:.1f} MB): {BASE_ENCODER} after the training of the facet rerankers, half-way back. "
        "Read as that one is: title and abstract in one pass, a vector is the mean of its sentence's tokens.",
        "Written by `python -m qbe.train facet-encoder`.",
        "## Figures on the dev split of facet-judgments",
        f"Mean over {training['queries']} queries of Spearman's correlation with the grades, for each way of "
        "matching the query's sentences of a facet with all sentences of a candidate. All are int8 ONNX "
        "models. The seeds are mixtures of one seed's weights each; the mean of the seeds ships.",
        _figures(training["dev"]),
        f"Difference to {BASE_ENCODER} by mean-max, mean of the facets by query, two-sided p of the paired "
        f"randomization test: {ps}.",
        "## Recipe",
        f"The weights of the rerankers' trunks (seeds {seeds}), averaged (Wortsman et al., ICML 2022) and "
        f"mixed with those of {BASE_ENCODER}, share {training['share']:g} (Wortsman et al., CVPR 2022). The "
        "share is what that paper advises where there is nothing to choose it on; it was not tuned. "
        "Embeddings and lower layers are those of the beginning.",
        "## Data",
        "Measured on:",
        sources(training["data"]),
        *_learned_from(training["made_from"]),
        "## Difference from PyTorch",
        f"Smallest cosine of a mean, over all layers: {card.parity['int8']['min_cosine']:.5f}.",
        "## Limits",
        "English abstracts of computer science; elsewhere untested.",
    ]
    return joined(parts)


def _learned_from(made_from: Mapping[str, Any]) -> list[str]:
    """What the rerankers had learned from, the latest first."""
    parts: list[str] = []
    step: Mapping[str, Any] | None = made_from
    while step is not None:
        parts.append("The rerankers learned from:" if not parts else "and before that from:")
        parts.append(sources(step["data"]))
        step = step.get("start")
    return parts


def _figures(dev: Mapping[str, Mapping[str, Any]]) -> str:
    lines = [
        "| matching | weights | " + " | ".join(map(str, Facet)) + " | mean |",
        "|---|---|" + "---:|" * (len(Facet) + 1),
    ]
    matchings = next(iter(dev.values()))
    for matching in matchings:
        for name, rows in dev.items():
            cells = [*rows[matching], sum(rows[matching]) / len(rows[matching])]
            shown = " | ".join(f"{value:.3f}" for value in cells)
            lines.append(f"| {matching} | {name} | {shown} |")
    return "\n".join(lines)

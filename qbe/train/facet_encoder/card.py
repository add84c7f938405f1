"""The model card of the facet encoder, in Markdown, written from what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qbe.models.encoder_files import EncoderMetadata
from qbe.models.registry import BASE_ENCODER
from qbe.train.markdown import decimals, document, file_list, table
from qbe.types import Facet


def describe(metadata: EncoderMetadata, training: Mapping[str, Any], size: int) -> str:
    """The card's text.

    ``training`` is collected by `qbe.train.facet_encoder.training.make_facet_encoder`, ``size`` the bytes of
    the files.
    """
    ps = ", ".join(f"{name} {p:.2g}" for name, p in training["p"].items())
    seeds = ", ".join(map(str, training["seeds"]))
    parts = [
        f"# {metadata.name}",
        f"A sentence encoder for papers ({metadata.dimension} dimensions, {metadata.layers} layers, int8, "
        f"{size / 1e6:.1f} MB): {BASE_ENCODER} with the weights of the trained facet rerankers, averaged "
        f"{_percent(training['share'])} with the original weights. It reads papers as that encoder does: "
        "title and abstract in one pass, a vector is the mean of its sentence's tokens.",
        "Written by `qbe train facet-encoder`.",
        "## Figures on the dev split of facet-judgments",
        f"Mean over {training['queries']} queries of Spearman's correlation with the grades, for each "
        "matching of the query's sentences of a facet with all sentences of a candidate. All are int8 ONNX "
        "models. The rows of a seed use the weights of that seed alone; the mean of the seeds ships.",
        figures_table(training["dev"]),
        f"Difference to {BASE_ENCODER} by mean-max, mean of the facets by query, two-sided p of the paired "
        f"randomization test: {ps}.",
        "## Recipe",
        f"The weights of the rerankers' encoders (seeds {seeds}), averaged (Wortsman et al., ICML 2022) and "
        f"interpolated with those of {BASE_ENCODER}, with a share of {training['share']:g} (Wortsman et al., "
        "CVPR 2022). The share is what that paper advises where there is no data to choose it on; it was not "
        f"tuned. Embeddings and lower layers are those of {BASE_ENCODER}.",
        "## Data",
        "Measured on:",
        file_list(training["data"]),
        *_trained_on(training["made_from"]),
        "## Difference from PyTorch",
        f"Smallest cosine of a mean, over all layers: {metadata.parity['int8']['min_cosine']:.5f}.",
        "## Limits",
        "Trained on English abstracts of computer science; not tested elsewhere.",
    ]
    return document(parts)


def _percent(share: float) -> str:
    return f"{100 * share:g}/{100 - 100 * share:g}"


def _trained_on(made_from: Mapping[str, Any]) -> list[str]:
    """The data that the rerankers were trained on, the latest first."""
    parts: list[str] = []
    step: Mapping[str, Any] | None = made_from
    while step is not None:
        parts.append("The rerankers were trained on:" if not parts else "and before that on:")
        parts.append(file_list(step["data"]))
        step = step.get("start")
    return parts


def figures_table(dev: Mapping[str, Mapping[str, Any]]) -> str:
    """A table of correlations by matching, weights and facet."""
    matchings = next(iter(dev.values()))
    return table(
        ["matching", "weights", *map(str, Facet), "mean"],
        (
            [matching, name, *decimals([*rows[matching], sum(rows[matching]) / len(rows[matching])], 3)]
            for matching in matchings
            for name, rows in dev.items()
        ),
        labels=2,
    )

"""The model card of the facet encoder, in Markdown, written from what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qbe.models.encoder_files import EncoderMetadata
from qbe.models.registry import BASE_ENCODER
from qbe.train.markdown import decimals, document, file_list, table, trained_on
from qbe.train.weights import INTERPOLATED
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
        f"{size / 1e6:.1f} MB): {BASE_ENCODER} with the weights of the trained facet rerankers"
        f"{_averaged(training['share'])}. It reads papers as that encoder does: "
        "title and abstract in one pass, a vector is the mean of its sentence's tokens.",
        "Written by `qbe train facet-encoder`.",
        "## Figures on the dev split of facet-judgments",
        f"Mean over {training['queries']} queries of Spearman's correlation with the grades, for each "
        "matching of the query's sentences of a facet with all sentences of a candidate. All are int8 ONNX "
        f"models. The rows of a seed use the weights of that seed alone; {_SHIPPED[training['shipped']]}.",
        figures_table(training["dev"]),
        f"Difference to {BASE_ENCODER} by mean-max, mean of the facets by query, two-sided p of the paired "
        f"randomization test: {ps}.",
        "## Recipe",
        f"The weights of the rerankers' encoders (seeds {seeds}; {training['shipped']}; Wortsman et al., "
        f"ICML 2022), interpolated with those of {BASE_ENCODER} (Wortsman et al., CVPR 2022): their share is "
        f"{training['share']:g}. Embeddings and lower layers are those of {BASE_ENCODER}.",
        "## Data",
        "Measured on:",
        file_list(training["data"]),
        *trained_on(training["made_from"], "The rerankers were trained", "Before that they were trained"),
        "## Difference from PyTorch",
        f"Smallest cosine of a mean, over all layers: {metadata.parity['int8']['min_cosine']:.5f}.",
        "## Limits",
        "Trained on English abstracts of computer science; not tested elsewhere.",
    ]
    return document(parts)


_SHIPPED = {
    "mean": "the mean of the seeds ships",
    INTERPOLATED: "interpolated ships: weights between the mean of the seeds and those that their training "
    "started from",
}


def _averaged(share: float) -> str:
    return "" if share == 1 else f", averaged {100 * share:g}/{100 - 100 * share:g} with the original weights"


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

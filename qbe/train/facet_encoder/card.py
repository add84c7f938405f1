"""The model card of the facet encoder."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from qbe.models.encoder_files import EncoderMetadata
from qbe.models.registry import BASE_ENCODER
from qbe.train.card import APACHE, Card, all_data, facet_table
from qbe.train.correlation import FIRST_STAGE


def describe(metadata: EncoderMetadata, training: Mapping[str, Any], size: int) -> str:
    """The card's text.

    ``training`` is collected by `qbe.train.facet_encoder.training.make_facet_encoder`, ``size`` the bytes of
    the files.
    """
    share, shipped = training["share"], training["shipped"]
    return Card(
        name=metadata.name,
        purpose=f"A sentence encoder for papers ({metadata.dimension} dimensions, {metadata.layers} layers, "
        f"int8): {share:g} of the weights of the trained facet rerankers and {1 - share:g} of those of "
        f"{BASE_ENCODER}.",
        input="title and abstract in one pass; a vector is the mean of its sentence's tokens",
        figures=f"Spearman's correlation with the grades of dev, mean over {training['queries']} queries, by "
        f"matching of sentences; int8. Published: {shipped}. Difference to {BASE_ENCODER} by mean-max, "
        f"two-sided p of the paired randomization test: {training['p'][shipped]:.2g}. Smallest cosine with "
        f"PyTorch {metadata.parity['int8']['min_cosine']:.3f}.",
        table=matching_table(training["dev"], (BASE_ENCODER, shipped)),
        data={**training["data"], **all_data(training["made_from"])},
        command="facet-encoder --rerankers DIR",
        options="--output DIR",
        licence=f"{APACHE}; derived from {BASE_ENCODER} (same licence)",
    ).markdown(size)


def matching_table(dev: Mapping[str, Mapping[str, Any]], compared: Collection[str]) -> str:
    """A table of correlations by matching, weights and facet.

    It has the ``compared`` weights by each matching, and the others by that of the dense first stage.
    """
    rows = (
        [matching, name, *figures]
        for name, by_matching in dev.items()
        for matching, figures in by_matching.items()
        if name in compared or matching == FIRST_STAGE
    )
    return facet_table(["matching", "weights"], sorted(rows, key=lambda row: row[0]))

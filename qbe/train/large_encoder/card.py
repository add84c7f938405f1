"""The model card of the large facet encoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qbe.models.encoder_files import EncoderMetadata
from qbe.models.large import MPNET
from qbe.train.card import APACHE, GRADES_LIMITS, Card
from qbe.train.facet_encoder.card import matching_table


def describe(metadata: EncoderMetadata, training: Mapping[str, Any], size: int) -> str:
    """The card's text.

    ``training`` is collected by `qbe.train.large_encoder.training.train_large_encoder`, ``size`` the bytes of
    the difference.
    """
    return Card(
        name=metadata.name,
        purpose=f"A sentence encoder for papers ({metadata.dimension} dimensions, {metadata.layers} layers): "
        f"{MPNET.name} with its last {training['recipe']['joint']} layers trained on {training['lists']:,} "
        f"graded lists and averaged with the original weights, share {training['share']:g}. The folder holds "
        f"the difference from the base (weights {training['base'][:12]}), which is downloaded and verified; "
        f"the weights that come out are {training['weights_sha256'][:12]}.",
        input="title and abstract in one pass; a vector is the mean of its sentence's tokens",
        figures=f"Spearman's correlation with the grades of dev, mean over {training['queries']} queries, by "
        f"matching of sentences; int8 (smallest cosine with PyTorch "
        f"{metadata.parity['int8']['min_cosine']:.3f}). Difference to {MPNET.name} by mean-max: two-sided p "
        f"of the paired randomization test {training['p']:.2g}.",
        table=matching_table(training["dev"], training["dev"]),
        data=training["data"],
        command="large-encoder",
        limits=GRADES_LIMITS,
        licence=f"{APACHE}; derived from {MPNET.source} (same licence)",
    ).markdown(size)

"""The model card of the large facet encoder, in Markdown, written from what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qbe.models.encoder_files import EncoderMetadata
from qbe.models.large import MPNET
from qbe.train.facet_encoder.card import figures_table
from qbe.train.markdown import document, file_list


def describe(metadata: EncoderMetadata, training: Mapping[str, Any], size: int) -> str:
    """The card's text.

    ``training`` is collected by `qbe.train.large_encoder.training.train_large_encoder`, ``size`` the bytes of
    the difference.
    """
    recipe = training["recipe"]
    seeds = ", ".join(map(str, training["seeds"]))
    parts = [
        f"# {metadata.name}",
        f"A sentence encoder for papers ({metadata.dimension} dimensions, {metadata.layers} layers): "
        f"{MPNET.name} with its last {recipe['joint']} layers trained on graded pairs, averaged with the "
        f"original weights. This folder holds the difference from {MPNET.name} in int8 with a scale a row "
        f"({size / 1e6:.1f} MB); the base is downloaded when the encoder is first used, and verified "
        f"(SHA-256 {training['base']}). The weights that come out have SHA-256 {training['weights_sha256']}.",
        "Written by `qbe train large-encoder`.",
        "## Figures on the dev split of facet-judgments",
        f"Mean over {training['queries']} queries of Spearman's correlation with the grades, for each "
        "matching of the query's sentences of a facet with all sentences of a candidate; int8 ONNX models.",
        figures_table(training["dev"]),
        f"Difference to {MPNET.name} by mean-max, mean of the facets by query: two-sided p of the paired "
        f"randomization test {training['p']:.2g}.",
        "## Recipe",
        f"{training['lists']:,} graded lists ({training['pairs']:,} pairs), drawn at random; late "
        "interaction of sentences, sentences of the facet, whole papers, the facet's mean and tokens, each "
        f"paper encoded by itself; logistic loss; AdamW at {recipe['learning_rate']:g} (facet "
        f"projections {recipe['head_rate']:g}, weights of similarities {recipe['weight_rate']:g}), "
        f"{recipe['queries']} lists a step, {recipe['epochs']} epoch, running mean of weights "
        f"({recipe['ema_decay']:g}); seeds {seeds}. Then interpolated with the original weights, share "
        f"{training['share']:g} (Wortsman et al., CVPR 2022, who recommend it where there are no data to "
        "choose it on; it was not tuned).",
        "## Data",
        file_list(training["data"]),
        "Papers with a title like that of one in CSFCube are left out, and so are the queries of dev.",
        "## Difference from PyTorch",
        f"Smallest cosine of a mean, over all layers, in int8: {metadata.parity['int8']['min_cosine']:.5f} "
        "(feed-forward products stay in fp32).",
        "## Limits",
        "English abstracts of computer science; elsewhere untested. The grades are those of large language "
        "models that followed CSFCube's published definitions.",
        "## Licence",
        f"Apache License, Version 2.0; derived from {MPNET.source} (Apache License, Version 2.0).",
    ]
    return document(parts)

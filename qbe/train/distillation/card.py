"""The model card of distilled facet rerankers, in Markdown, written from what was measured."""

from __future__ import annotations

from qbe.models.reranker_files import FacetRerankersMetadata
from qbe.rerank.facet_cross_encoder import FEATURES
from qbe.train.markdown import decimals, document, file_list, table
from qbe.train.reranker.card import (
    INTRODUCTION,
    LIMITS,
    crossed_figures,
    earlier_trainings,
    figures_table,
    share_of_start,
)


def describe(metadata: FacetRerankersMetadata, size: int) -> str:
    """The card's text; ``size`` is the bytes of all files together."""
    training = metadata.training
    recipe, teacher = training["recipe"], training["teacher"]
    parts = [
        f"# {metadata.name}",
        INTRODUCTION.format(precision=metadata.precision, megabytes=size / 1e6),
        "Written by `qbe train distillation`.",
        "## Figures on the dev split of facet-judgments",
        "Mean over queries of Spearman's correlation with the grades. Start: the weights that training "
        "starts from; fp32 and int8: the exported models, as used in a search. Published: interpolated.",
        figures_table(training["dev"] | training["exported"]),
        *crossed_figures(training["crossed"]),
        "## Recipe",
        f"The last {recipe['joint']} layers of the encoder are trained, the others are frozen. The teacher "
        f"is {teacher['encoder']['name']} with its facet projections, by the vectors of "
        f"{training['papers']:,} papers without labels. {recipe['steps']:,} steps; each has "
        f"{recipe['anchors']} papers and {recipe['others']} neighbours of each, of the "
        f"{recipe['neighbours']} that the teacher finds most similar by a facet; all are scored for all. The "
        "loss is the divergence of the probabilities that one candidate is better than another (RankNet with "
        f"soft targets; Burges et al., 2005), plus {recipe['relational']:g} times the squared difference of "
        f"the cosines of sentences (Park et al., 2019). AdamW at {recipe['learning_rate']} (facet "
        f"projections {recipe['head_rate']}, weights of similarities {recipe['weight_rate']}), exponential "
        f"moving average of the weights ({recipe['ema_decay']}). Candidates do not attend to the query while "
        "training. `mean` averages the weights of the seeds (Wortsman et al., 2022)."
        f"{share_of_start(training)}",
        "Weights of the similarities:",
        table(["facet", *FEATURES], ([facet, *decimals(row, 2)] for facet, row in metadata.heads.items())),
        "## Data",
        f"Teacher: weights {teacher['encoder']['weights_sha256'][:12]}, projections "
        f"{teacher['projections'][:12]}, index {teacher['index'][:12]}. Measured on, and left out:",
        file_list(training["data"]),
        *earlier_trainings(training),
        "Papers with a title like that of one in CSFCube are left out, and so are the queries of dev.",
        "## Limits",
        LIMITS,
    ]
    return document(parts)

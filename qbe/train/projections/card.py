"""The model card of the facet projections, in Markdown, written from what was measured."""

from __future__ import annotations

from collections.abc import Mapping

from qbe.rerank.projection_model import ProjectionModel
from qbe.rerank.projections import TERMS
from qbe.train.markdown import decimals, document, file_list, table
from qbe.train.projections.network import Correlations


def describe(model: ProjectionModel, figures: Mapping[str, Mapping[str, Correlations]], size: int) -> str:
    """The card's text; ``figures`` by weights and file of pairs, ``size`` the bytes of the model."""
    recipe = model.training["recipe"]
    rows = [
        [name, weights, *decimals([*each.values(), sum(each.values()) / len(each)], 3)]
        for weights, by_file in figures.items()
        for name, each in by_file.items()
    ]
    weights = [
        [str(facet), *decimals(projection.weights.tolist(), 2)]
        for facet, projection in model.projections.items()
    ]
    return document(
        [
            "# facet-projections" + model.encoder["name"].removeprefix("facet-encoder"),
            f"Reranks candidates by stored vectors of {model.encoder['name']} alone: a linear projection for "
            f"each facet, and late interaction of the projected vectors ({size / 1e6:.1f} MB). Written by "
            "`qbe train facet-projections`.",
            "## Figures",
            "Mean over queries of Spearman's correlation with the grades, by stored vectors as a search has "
            "them. Untrained: the published weights of the terms, but the vectors as they are. The mean is "
            "published.",
            table(["pairs", "weights", "background", "method", "result", "mean"], sorted(rows), labels=2),
            "Weights of the terms:",
            table(["facet", *TERMS], weights),
            "## Recipe",
            f"{model.training['pairs']:,} pairs; logistic loss over pairs of candidates of different grades "
            f"(RankNet; Burges et al., 2005), all facets at once, {recipe['queries']} lists a step, "
            f"{recipe['epochs']} epochs, of which dev chooses; AdamW at {recipe['learning_rate']:g} (weights "
            f"{recipe['weight_rate']:g}); matrices begin as the identity and are held near it "
            f"({recipe['anchor']:g}). The published model is the mean of the seeds'.",
            "## Data",
            file_list(model.training["data"]),
            f"Index: digest {model.training['index']}; pairs of papers that it lacks were left out, and so "
            "were queries of the files that are measured on, and papers with a title like that of one in "
            "CSFCube.",
            "## Limits",
            "English abstracts of computer science; elsewhere untested. The grades are those of large "
            "language models that followed CSFCube's published definitions.",
            "## Licence",
            "Apache License, Version 2.0.",
        ]
    )

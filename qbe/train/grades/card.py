"""The model card of the grade model, in Markdown, written from what was measured."""

from __future__ import annotations

from collections.abc import Mapping

from qbe.grade.features import RERANKED, VECTORS
from qbe.grade.model import GradeModel
from qbe.train.grades.figures import UNLIKE_WEIGHTS, GradeFigures
from qbe.train.markdown import decimals, document, file_list, table

_KNOWN = {VECTORS: "stored vectors alone", RERANKED: "and the rerankers' scores"}


def describe(model: GradeModel, figures: Mapping[str, Mapping[str, GradeFigures]], size: int) -> str:
    """The card's text; ``figures`` by what is known and file of pairs, ``size`` the bytes of the model."""
    recipe = model.training["recipe"]
    errors = [
        [_KNOWN[known], name, *decimals(each.errors.values(), 2)]
        for known, by_file in figures.items()
        for name, each in by_file.items()
    ]
    scopes = [
        [name, scope, *decimals(by_weight.values(), 3)]
        for name, each in figures[RERANKED].items()
        for scope, by_weight in each.ndcg.items()
    ]
    return document(
        [
            "# grades",
            "Says how similar a candidate is to a paper in background, method and result, from 0 (unrelated) "
            "to 3 (near identical): small networks over matches of stored vectors of "
            f"{model.encoder['name']} and scores of the facet rerankers ({size / 1e6:.2f} MB). Written by "
            "`qbe train grades`.",
            "## Errors",
            "Root mean squared errors, in grades:",
            table(["known", "pairs", "background", "method", "result"], errors, labels=2),
            "## One facet liked, another disliked",
            "nDCG@10 of `qbe evaluate --protocol exploration`, ranked by the liked facet's grade less the "
            "disliked facet's times a weight (columns; 0 is the liked facet alone):",
            table(["pairs", "scope", *(f"{weight:g}" for weight in UNLIKE_WEIGHTS)], scopes, labels=2),
            "## Recipe",
            f"{model.training['pairs']} pairs: at most {recipe['sampled']} lists of each file, drawn at "
            f"random. One hidden layer of {recipe['hidden']} units for each of "
            f"{len(model.training['seeds'])} seeds, {recipe['epochs']} epochs; squared errors of the grades "
            f"and, with the weight {recipe['differences']:g}, of the differences of two facets' grades. The "
            "published model is the mean of the seeds'. The rerankers learned from the same pairs, so that "
            "their scores promise a little too much there.",
            "## Data",
            file_list(model.training["data"]),
            f"Index: digest {model.training['index']}. Papers with a title like that of one in CSFCube "
            "were left out.",
            "## Licence",
            "Apache License, Version 2.0.",
        ]
    )

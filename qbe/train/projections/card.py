"""The model card of the facet projections."""

from __future__ import annotations

from collections.abc import Mapping

from qbe.rerank.projection_model import ProjectionModel
from qbe.train.card import GRADES_LIMITS, Card, facet_table
from qbe.train.projections.network import Correlations


def describe(model: ProjectionModel, figures: Mapping[str, Mapping[str, Correlations]], size: int) -> str:
    """The card's text; ``figures`` by weights and file of pairs, ``size`` the bytes of the model."""
    rows: list[list[str | float]] = sorted(
        [name, weights, *each.values()]
        for weights, by_file in figures.items()
        for name, each in by_file.items()
    )
    return Card(
        name="facet-projections" + model.encoder["name"].removeprefix("facet-encoder"),
        purpose=f"Reranks candidates by stored vectors of {model.encoder['name']} alone: a linear projection "
        f"for each facet and late interaction of the projected vectors, learned from "
        f"{model.training['pairs']:,} graded pairs.",
        input=f"the vectors that an index stores of {model.encoder['name']} "
        f"(weights {model.encoder['weights_sha256'][:12]})",
        figures="Spearman's correlation with the grades, mean over queries. Untrained: the published weights "
        "of the terms, but the vectors as they are. The mean is published.",
        table=facet_table(["pairs", "weights"], rows),
        data=model.training["data"],
        command="facet-projections --index DIR",
        limits=GRADES_LIMITS,
    ).markdown(size)

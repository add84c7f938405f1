"""The model card of the facet rerankers, in Markdown, written from what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from qbe.models.reranker_files import FacetRerankersMetadata
from qbe.rerank.facet_cross_encoder import FEATURES
from qbe.train.markdown import decimals, document, file_list, table, trained_on
from qbe.types import Facet

INTRODUCTION = (
    "A cross-encoder for each facet (background, method, result): one ONNX graph each, over weights that "
    "they share ({precision}, {megabytes:.1f} MB in all). In the upper layers a candidate's tokens attend to "
    "the query's tokens; candidates are scored by late interaction between sentences, tokens and whole "
    "papers."
)
LIMITS = (
    "Trained on English abstracts of computer science; not tested elsewhere. The grades are those of large "
    "language models that followed CSFCube's published definitions."
)


def describe(metadata: FacetRerankersMetadata, size: int) -> str:
    """The card's text; ``size`` is the bytes of all files together."""
    training = metadata.training
    recipe = training["recipe"]
    schedule = recipe["schedule"]
    parts = [
        f"# {metadata.name}",
        INTRODUCTION.format(precision=metadata.precision, megabytes=size / 1e6),
        "Written by `qbe train reranker`.",
        "## Figures on the dev split of facet-judgments",
        "Mean over queries of Spearman's correlation with the grades. Untrained: the late interaction of the "
        "encoder's own states, from which training starts; fp32 and int8: the exported models, as used in "
        f"a search. Published: {training['shipped']}{'' if 'share' in training else ', the best on dev'}.",
        figures_table(training["dev"] | training["exported"]),
        *crossed_figures(training.get("crossed", {})),
        "## Recipe",
        f"The last {recipe['joint']} layers of the encoder are trained, the others are frozen; "
        f"{training['queries']['train']:,} graded lists ({training['pairs']['train']:,} pairs)"
        f"{_chosen(recipe)}, all facets at once{_blended(recipe)}; loss {schedule['loss']}"
        f"{_crossed(schedule)}; AdamW at {schedule['learning_rate']} (facet projections "
        f"{schedule['head_rate']}, weights of similarities {schedule['weight_rate']}), "
        f"{schedule['queries']} lists per step, at most {schedule['epochs']} epochs, exponential moving "
        f"average of the weights ({schedule['memory']}), best epoch on dev; of a list's candidates without a "
        f"grade of 1 or more at most {schedule['unrelated']} are used in an epoch. `mean` averages the "
        f"weights of the seeds (Wortsman et al., 2022).{share_of_start(training)}",
        "Weights of the similarities:",
        table(["facet", *FEATURES], ([facet, *decimals(row, 2)] for facet, row in metadata.heads.items())),
        "## Data",
        file_list(training["data"]),
        *earlier_trainings(training),
        "Papers with a title like that of one in CSFCube are left out, and so are the queries of dev.",
        "## Limits",
        LIMITS,
    ]
    return document(parts)


def crossed_figures(crossed: Mapping[str, Mapping[str, Sequence[float]]]) -> list[str]:
    """What shares of crossed pairs each of the weights ranks right, where there are any."""
    scopes = list(dict.fromkeys(scope for shares in crossed.values() for scope in shares))
    if not scopes:
        return []
    counts = ", ".join(f"{int(next(iter(crossed.values()))[scope][3]):,} {scope}" for scope in scopes)
    rows = (
        [name, *(" / ".join(decimals(shares[scope][:3], 2)) for scope in scopes)]
        for name, shares in crossed.items()
    )
    return [
        "Crossed pairs of dev (of two candidates one is better by a grade for the first facet, the other for "
        f"the second; {counts}): shares ranked right by the first facet, by the second, and by both.",
        table(["weights", *scopes], rows),
    ]


def share_of_start(training: Mapping[str, Any]) -> str:
    """How the published weights were interpolated with those that training started from, if they were."""
    if "share" not in training:
        return ""
    return (
        f" `interpolated`: {training['share']:g} of it, the rest the weights that training started from "
        "(Wortsman et al., 2022)."
    )


def _chosen(recipe: Mapping[str, Any]) -> str:
    return ", those with the most crossed pairs" if recipe.get("lists") else ""


def _blended(recipe: Mapping[str, Any]) -> str:
    if not recipe.get("blended"):
        return ""
    return f", {100 * recipe['blended']:g} % of the lists with blended candidates"


def _crossed(schedule: Mapping[str, Any]) -> str:
    if not schedule.get("crossed"):
        return ""
    return f", pairs that are crossed for two facets {1 + schedule['crossed']:g} times"


def earlier_trainings(training: Mapping[str, Any]) -> list[str]:
    """The data of the trainings before this one, the latest first, where it started from other weights."""
    if "start" not in training:
        return []
    subjects = ("Each seed started from weights that were trained", "Before that they were trained")
    return trained_on(training["start"], *subjects)


def figures_table(rows: Mapping[str, Sequence[float]]) -> str:
    """Correlations by facet of each of the weights, and their means."""
    return table(
        ["weights", *map(str, Facet), "mean"],
        ([name, *decimals([*row, sum(row) / len(row)], 3)] for name, row in rows.items()),
    )

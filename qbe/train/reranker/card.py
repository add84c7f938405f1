"""The model card of the facet rerankers, in Markdown, written from what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from qbe.models.reranker_files import FacetRerankersMetadata
from qbe.rerank.late_interaction import FEATURES
from qbe.train.markdown import joined, sources
from qbe.types import Facet


def describe(card: FacetRerankersMetadata, size: int) -> str:
    """The card's text; ``size`` is the bytes of all files together."""
    training = card.training
    recipe = training["recipe"]
    schedule = recipe["schedule"]
    parts = [
        f"# {card.name}",
        "A cross-encoder for each facet (background, method, result): one ONNX graph each, over weights "
        f"that they share ({card.precision}, {size / 1e6:.1f} MB in all). A candidate is read with the query "
        "before its eyes (its tokens attend to the query's in the upper layers), and scored by late "
        "interaction between sentences, tokens and whole papers.",
        "Written by `python -m qbe.train reranker`.",
        "## Figures on the dev split of facet-judgments",
        "Mean over queries of Spearman's correlation with the grades. Untrained is the encoder's own late "
        "interaction, from which training starts; fp32 and int8 are the exported models, read and scored as "
        f"a search does. Published: {training['shipped']}, the best on dev.",
        _figures(training["dev"] | training["exported"]),
        "## Recipe",
        f"The last {recipe['joint']} layers of the encoder learn, the others stay; "
        f"{training['queries']['train']:,} graded lists ({training['pairs']['train']:,} pairs), "
        f"all facets at once; loss {schedule['loss']}; AdamW at {schedule['learning_rate']} (facet "
        f"projections {schedule['head_rate']}, weights of similarities {schedule['weight_rate']}), "
        f"{schedule['queries']} lists a step, at most {schedule['epochs']} epochs, running mean of weights "
        f"({schedule['memory']}), best epoch on dev; of a list's candidates that no facet finds related at "
        f"most {schedule['unrelated']} are read in an epoch. `mean` averages the weights of the seeds "
        "(Wortsman et al., 2022).",
        "Weights of the similarities:",
        _weights(card.heads),
        "## Data",
        sources(training["data"]),
        *_start(training),
        "Papers with a title like that of one in CSFCube are left out, and so are the queries of dev.",
        "## Limits",
        "English abstracts of computer science; elsewhere untested. The grades are those of large language "
        "models that followed CSFCube's published definitions.",
    ]
    return joined(parts)


def _start(training: Mapping[str, Any]) -> list[str]:
    """What the weights had learned before, the latest first, where training went on from others."""
    parts: list[str] = []
    while "start" in training:
        before = "These" if parts else "Each seed"
        training = training["start"]
        parts += [f"{before} went on from weights of an earlier training, of:", sources(training["data"])]
    return parts


def _figures(rows: Mapping[str, Sequence[float]]) -> str:
    lines = [
        "| weights | " + " | ".join(map(str, Facet)) + " | mean |",
        "|---|" + "---:|" * (len(Facet) + 1),
    ]
    for name, row in rows.items():
        cells = [*row, sum(row) / len(row)]
        lines.append(f"| {name} | " + " | ".join(f"{value:.3f}" for value in cells) + " |")
    return "\n".join(lines)


def _weights(heads: Mapping[str, Any]) -> str:
    lines = ["| facet | " + " | ".join(FEATURES) + " |", "|---|" + "---:|" * len(FEATURES)]
    for facet, row in heads.items():
        lines.append(f"| {facet} | " + " | ".join(f"{value:.2f}" for value in row) + " |")
    return "\n".join(lines)

"""Training of the facet projections, from an index of graded pairs' papers to the published folder."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import torch

from qbe.export.staging import staged_folder
from qbe.graded_pairs import read_graded_pairs
from qbe.index.opening import open_index
from qbe.rerank.projections import ProjectionModel, write_model
from qbe.train.artifacts import Folders, RunOptions, Sources, begin
from qbe.train.card import GRADES_LIMITS, Card, facet_table
from qbe.train.correlation import check_dev
from qbe.train.pairs import held_by, joined_lists, papers_of, within, without, without_evaluated
from qbe.train.projections.network import ProjectionTask, Recipe, projections_of, read_lists
from qbe.train.trainer import fit_seeds
from qbe.train.weights import Weights, with_weights

log = logging.getLogger(__name__)
DEFAULT_RECIPE = Recipe()

Figures = Mapping[str, Mapping[str, Sequence[float]]]
"""Spearman's correlations by facet, by weights and name of the file of pairs."""


def train(sources: Sources, folders: Folders, run: RunOptions, *, recipe: Recipe = DEFAULT_RECIPE) -> Figures:
    """Train the facet projections, measure them on each file of dev, and publish their mean with a card.

    ``sources`` are files of graded pairs, an index of their papers, and papers to leave out; the first file
    of dev chooses the epochs. Queries of dev are not trained on. Returns Spearman's correlations, also of the
    ``untrained`` vectors. Raises CorpusError for pairs that cannot be read or that the index lacks, and for
    those of dev that no correlation can be computed with, IndexFormatError for an index without vectors,
    ModelError for a file in the work folder that is damaged, OutputError where nothing can be written.
    """
    pairs, dev = joined_lists(sources.train), [read_graded_pairs(file) for file in sources.dev]
    pairs = without(pairs, frozenset(query for lists in dev for query in lists))
    with open_index(sources.index, threads=run.threads) as index, index.reading() as reader:
        reader.require_vectors()
        assert reader.manifest.dense is not None
        encoder = reader.manifest.dense["encoder"]
        provenance = begin(sources, folders, run, recipe, index=reader.manifest.digest)
        pairs = without_evaluated(pairs, reader, sources.leave_out)
        held = held_by(reader, papers_of(pairs, *dev))
        sets = [within(each, held) for each in (pairs, *dev)]
        for file, lists in zip(sources.dev, sets[1:], strict=True):
            check_dev(lists, file)
        stored = read_lists(reader, sets)
    log.info("fitting to %d lists, %d papers", len(stored.sets[0]), len(papers_of(sets[0])))
    fitted = fit_seeds(lambda _: ProjectionTask(stored, recipe), recipe.schedule(), run.seeds, folders.work)
    published = list(fitted.values())[-1]
    untrained = {**published, "matrices": torch.eye(stored.vectors.whole.shape[1]).repeat(3, 1, 1)}
    network = ProjectionTask(stored, recipe).network
    names = [f"{file.parent.name}/{file.name}" for file in sources.dev]

    def measured(weights: Weights) -> dict[str, Sequence[float]]:
        figures = with_weights(network, weights, lambda: list(map(network.correlations, stored.sets[1:])))
        return dict(zip(names, figures, strict=True))

    figures = {name: measured(weights) for name, weights in {"untrained": untrained, **fitted}.items()}
    count = sum(len(each.candidates) for each in stored.sets[0])
    model = ProjectionModel(
        projections_of(published), encoder, {**provenance, "seeds": list(run.seeds), "pairs": count}
    )
    with staged_folder(folders.output) as staged:
        write_model(staged, model)
        _card(model, figures).write(staged)
    return figures


def _card(model: ProjectionModel, figures: Figures) -> Card:
    rows: list[list[str | float]] = sorted(
        [name, weights, *each] for weights, by_file in figures.items() for name, each in by_file.items()
    )
    return Card(
        name="facet-projections" + model.encoder["name"].removeprefix("facet-encoder"),
        purpose=f"Reranks candidates by stored vectors of {model.encoder['name']} alone: a linear projection "
        f"for each facet and late interaction of the projected vectors, learned from "
        f"{model.training['pairs']:,} graded pairs.",
        input=f"the vectors that an index stores of {model.encoder['name']} "
        f"(weights {model.encoder['weights_sha256'][:12]})",
        figures="Spearman's correlation with the grades, mean over queries. Untrained: the published weights "
        "of the terms, but the vectors as they are. The mean of the seeds is published.",
        table=facet_table(["pairs", "weights"], rows),
        data=model.training["data"],
        command="facet-projections --index DIR",
        limits=GRADES_LIMITS,
    )

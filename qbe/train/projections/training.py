"""Training of the facet projections, from an index of graded pairs' papers to the published folder."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from qbe.export.staging import staged_folder
from qbe.graded_pairs import read_graded_pairs
from qbe.index.opening import open_index
from qbe.rerank.projections import ProjectionModel, write_model
from qbe.train.artifacts import Folders, RunOptions, as_record, check_provenance, file_digests
from qbe.train.card import GRADES_LIMITS, Card, facet_table
from qbe.train.correlation import check_grades
from qbe.train.pairs import joined_lists, papers_of, without, without_evaluated
from qbe.train.projections.network import (
    Correlations,
    ProjectionNetwork,
    ProjectionTask,
    Recipe,
    StoredLists,
    projections_of,
    read_lists,
)
from qbe.train.trainer import fit_seeds
from qbe.train.weights import Weights, mean

log = logging.getLogger(__name__)
DEFAULT_RECIPE = Recipe()


@dataclass(frozen=True, slots=True)
class Sources:
    """An index of the papers, files of graded pairs to train on, and files to measure on, the first of which
    chooses the epochs; ``leave_out`` holds papers that models are evaluated on.
    """

    index: Path
    train: tuple[Path, ...]
    dev: tuple[Path, ...]
    leave_out: Path


def train_projections(
    sources: Sources, folders: Folders, run: RunOptions, *, recipe: Recipe = DEFAULT_RECIPE
) -> Mapping[str, Mapping[str, Correlations]]:
    """Train the facet projections, measure them on each file of dev, and publish their mean with a card.

    Each seed's projections are kept in the work folder, from which the same call continues. Queries of dev
    are not trained on, and neither are papers with a title like that of one in ``leave_out``. Returns
    Spearman's correlations by weights (``untrained``, each seed, ``mean``) and name of the file. Raises
    CorpusError for pairs that cannot be read or that the index lacks, and for those of dev that no
    correlation can be computed with, IndexFormatError for an index without vectors, ModelError for a file in
    the work folder that is damaged, OutputError where nothing can be written.
    """
    torch.set_num_threads(run.threads)
    train, dev = joined_lists(sources.train), [read_graded_pairs(file) for file in sources.dev]
    train = without(train, frozenset(query for lists in dev for query in lists))
    with open_index(sources.index, threads=run.threads) as index, index.reading() as reader:
        reader.require_vectors()
        assert reader.manifest.dense is not None
        encoder = reader.manifest.dense["encoder"]
        provenance = {
            "recipe": as_record(recipe),
            "index": reader.manifest.digest,
            "data": file_digests(*sources.train, *sources.dev, sources.leave_out),
        }
        check_provenance(folders.work, provenance)
        train = without_evaluated(train, reader, sources.leave_out)
        lists = read_lists(reader, [train, *dev])
    for file, some in zip(sources.dev, lists.sets[1:], strict=True):
        check_grades((graded.grades.tolist() for graded in some), file)
    log.info("fitting to %d lists, %d papers", len(lists.sets[0]), len(papers_of(train)))
    fitted = fit_seeds(lambda _: ProjectionTask(lists, recipe), recipe.schedule(), run.seeds, folders.work)
    double = [{name: part.double() for name, part in each.items()} for each in fitted.values()]
    fitted["mean"] = mean(double)
    untrained = {**fitted["mean"], "matrices": torch.eye(lists.vectors.whole.shape[1]).repeat(3, 1, 1)}
    networks = {
        name: _network_of(lists, each, recipe) for name, each in {"untrained": untrained, **fitted}.items()
    }
    names = [f"{file.parent.name}/{file.name}" for file in sources.dev]
    figures = {
        weights: {name: network.correlations(some) for name, some in zip(names, lists.sets[1:], strict=True)}
        for weights, network in networks.items()
    }
    training = {
        **provenance,
        "seeds": list(run.seeds),
        "pairs": sum(len(each.candidates) for each in lists.sets[0]),
    }
    model = ProjectionModel(projections_of(fitted["mean"]), encoder, training)
    with staged_folder(folders.output) as staged:
        write_model(staged, model)
        _card(model, figures).write(staged)
    return figures


def _network_of(lists: StoredLists, weights: Weights, recipe: Recipe) -> ProjectionNetwork:
    network = ProjectionNetwork(lists, recipe.start_weight)
    network.load_state_dict(dict(weights))
    return network


def _card(model: ProjectionModel, figures: Mapping[str, Mapping[str, Correlations]]) -> Card:
    """The card; ``figures`` by weights and file of pairs."""
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
    )

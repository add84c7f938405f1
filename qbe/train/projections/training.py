"""Training of the facet projections, from an index of graded pairs' papers to the published folder."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from qbe.export.staging import staged_folder
from qbe.graded_pairs import GradedLists, GradedPair, read_graded_pairs
from qbe.index.opening import open_index
from qbe.rerank.projection_model import ProjectionModel, write_model
from qbe.rerank.projections import FacetProjection
from qbe.train.evaluated import without_evaluated
from qbe.train.graded_pairs import papers_of, without
from qbe.train.kept import checked, load_arrays, save_arrays
from qbe.train.projections.card import describe
from qbe.train.projections.data import read_lists
from qbe.train.projections.fit import Correlations, correlations, fit, mean_projections, network_of
from qbe.train.projections.recipe import Recipe
from qbe.train.reranker.correlation import check_grades
from qbe.train.work_folder import Folders, RunOptions, as_record, check_provenance, file_digests
from qbe.types import Facet

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
    train, dev = _joined(sources.train), [read_graded_pairs(file) for file in sources.dev]
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
    fitted: dict[str, Mapping[Facet, FacetProjection]] = {}
    for seed in run.seeds:
        kept = folders.work / f"seed-{seed}.npz"
        if not kept.exists():
            _save(kept, fit(lists, recipe, seed))
        fitted[f"seed {seed}"] = _load(kept)
    fitted["mean"] = mean_projections(list(fitted.values()))
    measured = {
        "untrained": network_of(lists, fitted["mean"], recipe),
        **{name: network_of(lists, each, recipe) for name, each in fitted.items()},
    }
    with torch.no_grad():
        measured["untrained"].matrices[:] = torch.eye(lists.vectors.whole.shape[1])
    names = [f"{file.parent.name}/{file.name}" for file in sources.dev]
    figures = {
        weights: {name: correlations(network, some) for name, some in zip(names, lists.sets[1:], strict=True)}
        for weights, network in measured.items()
    }
    training = {
        **provenance,
        "seeds": list(run.seeds),
        "pairs": sum(len(each.candidates) for each in lists.sets[0]),
    }
    model = ProjectionModel(fitted["mean"], encoder, training)
    with staged_folder(folders.output) as staged:
        write_model(staged, model)
        size = sum(file.stat().st_size for file in staged.iterdir())
        (staged / "README.md").write_text(describe(model, figures, size))
    return figures


def _save(file: Path, projections: Mapping[Facet, FacetProjection]) -> None:
    parts = zip(*(projections[facet] for facet in Facet), strict=True)
    save_arrays(file, dict(zip(FacetProjection._fields, map(np.stack, parts), strict=True)))


def _load(file: Path) -> dict[Facet, FacetProjection]:
    stored = load_arrays(file, "the projections", *FacetProjection._fields)
    with checked(file, "the projections of this training"):
        rows = zip(*(stored[name] for name in FacetProjection._fields), strict=True)
        return {facet: FacetProjection(*row) for facet, row in zip(Facet, rows, strict=True)}


def _joined(files: tuple[Path, ...]) -> GradedLists:
    """The lists of several files; those of one query are joined, of a pair the last file's grades count."""
    pairs: dict[str, dict[str, GradedPair]] = {}
    for file in files:
        for query, some in read_graded_pairs(file).items():
            pairs.setdefault(query, {}).update({pair.paper_id: pair for pair in some})
    return {query: list(some.values()) for query, some in pairs.items()}

"""Training of the grade model, from an index of graded pairs' papers to the published folder."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from qbe.export.staging import staged_folder
from qbe.files import sha256
from qbe.grade.features import NAMES, RERANKED
from qbe.grade.head import Head, mean_head
from qbe.grade.model import GradeModel, write_model
from qbe.graded_pairs import GradedLists, read_graded_pairs
from qbe.index.opening import open_index
from qbe.models.registry import DEFAULT_RERANKER
from qbe.parallel import Workers
from qbe.rerank.open import describe_reranker, open_reranker
from qbe.search.grading import GradeFeatures
from qbe.train.artifacts import Folders, RunOptions, as_record, check_provenance, file_digests
from qbe.train.grades.card import describe
from qbe.train.grades.data import GradedFeatures, joined, measured, sampled
from qbe.train.grades.figures import GradeFigures, grade_figures
from qbe.train.grades.fitting import fit_heads
from qbe.train.grades.recipe import Recipe
from qbe.train.pairs import without_evaluated
from qbe.types import Facet

log = logging.getLogger(__name__)
DEFAULT_RECIPE = Recipe()
SAMPLE_SEED = 7


@dataclass(frozen=True, slots=True)
class Sources:
    """An index of the papers, files of graded pairs to train on, and files to measure on; ``leave_out`` holds
    papers that models are evaluated on.
    """

    index: Path
    train: tuple[Path, ...]
    dev: tuple[Path, ...]
    leave_out: Path


def train_grades(
    sources: Sources, folders: Folders, run: RunOptions, *, recipe: Recipe = DEFAULT_RECIPE
) -> Mapping[str, GradeFigures]:
    """Train the grade model, measure it on each file of dev, and publish it with a card.

    Papers with a title like that of one in ``leave_out`` are not trained on. What was measured of pairs is
    kept in the work folder, from which the same call continues. Returns the figures by the name of the file,
    of all that is known. Raises FileFormatError for pairs that cannot be read, IndexFormatError for an
    index without vectors, OutputError where nothing can be written.
    """
    torch.set_num_threads(run.threads)
    with (
        open_index(sources.index, threads=run.threads) as index,
        index.reading() as reader,
        Workers(run.threads) as workers,
    ):
        reader.require_vectors()
        assert reader.manifest.dense is not None
        provenance = {
            "recipe": as_record(recipe),
            "index": reader.manifest.digest,
            "data": file_digests(*sources.train, *sources.dev, sources.leave_out),
        }
        reranker = describe_reranker(DEFAULT_RERANKER)
        check_provenance(folders.work, {**provenance, "reranker": reranker})
        features = GradeFeatures(reader, workers, open_reranker(DEFAULT_RERANKER, workers=workers))

        def read(file: Path, count: int | None) -> GradedFeatures:
            lists: GradedLists = read_graded_pairs(file)
            if count is not None:
                lists = without_evaluated(lists, reader, sources.leave_out)
                lists = sampled(lists, count, SAMPLE_SEED)
            # By content: files of one name differ, and of a file to train on only a sample is measured.
            part = "dev" if count is None else "train"
            kept = folders.work / f"{part}-{file.stem}-{sha256(file)[:12]}.npz"
            return measured(reader, features, lists, kept)

        dev = {f"{file.parent.name}/{file.name}": read(file, None) for file in sources.dev}
        train = joined([read(file, recipe.sampled) for file in sources.train])
        encoder = reader.manifest.dense["encoder"]
    log.info("fitting to %d pairs", len(train.grades))
    heads = {known: _fitted(train, known, recipe, run) for known in NAMES}
    training = {**provenance, "seeds": list(run.seeds), "pairs": len(train.grades)}
    model = GradeModel(heads, encoder, reranker, training)
    by_known = {known: {name: _figures(model, each, known) for name, each in dev.items()} for known in NAMES}
    with staged_folder(folders.output) as staged:
        write_model(staged, model)
        size = sum(file.stat().st_size for file in staged.iterdir())
        (staged / "README.md").write_text(describe(model, by_known, size))
    return by_known[RERANKED]


def _fitted(train: GradedFeatures, known: str, recipe: Recipe, run: RunOptions) -> dict[Facet, Head]:
    """The mean of the seeds' heads, by facet."""
    width = len(NAMES[known])
    by_seed = [fit_heads(train.features[:, :width], train.grades, recipe, seed) for seed in run.seeds]
    return {facet: mean_head([heads[facet] for heads in by_seed]) for facet in Facet}


def _figures(model: GradeModel, pairs: GradedFeatures, known: str) -> GradeFigures:
    lists = []
    for features, grades, _ in pairs.lists():
        named = dict(zip(NAMES[RERANKED], features.T, strict=True))
        lists.append((model.grades(named, known, len(grades)), grades))
    return grade_figures(lists)

"""Training of the grade model, from an index of graded pairs' papers to the published folder."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.index.opening import open_index
from qbe.index.reader import IndexReader
from qbe.models.export.staging import staged_folder
from qbe.models.grade.head import mean_head
from qbe.models.grade.model import GradeModel, on_scale, write_model
from qbe.models.grade.words import FILE, SHIPPED, shipped_words
from qbe.runs import GradedLists, GradedPair, read_graded_pairs
from qbe.search.grading import FEATURES, Features, GradedQuery, stored_vectors
from qbe.search.projections import WEIGHTS, find_model, read_model
from qbe.train.artifacts import Folders, RunOptions, Sources, begin, load_arrays, save_arrays
from qbe.train.card import GRADES_LIMITS, Card, facet_table, reader_name
from qbe.train.heads import GradeRecipe, calibrated, fit_grade_head
from qbe.train.pairs import encoder_of, held_by, papers_of, within, without_evaluated
from qbe.util.files import sha256
from qbe.util.parallel import Workers

log = logging.getLogger(__name__)


class GradedFeatures(NamedTuple):
    """Candidates of several lists: their ``features`` (pairs, F) and ``grades`` (pairs, 3)."""

    features: NDArray[np.float64]
    grades: NDArray[np.float64]


def joined(parts: Sequence[GradedFeatures]) -> GradedFeatures:
    """Several as one."""
    return GradedFeatures(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def load_or_measure(
    reader: IndexReader, source: Features, lists: GradedLists, file: Path, workers: Workers
) -> GradedFeatures:
    """The features of lists, out of ``file`` if it is there, else computed and kept there. Raises CorpusError
    where the index lacks the papers of all, and ModelError where the file cannot be read.
    """
    if not file.exists():
        held = within(lists, held_by(reader, papers_of(lists)))
        measured = _measured(reader, source, held, workers)
        log.info("%s: %d lists", file.stem, len(held))
        save_arrays(file, measured._asdict())
    return GradedFeatures(**load_arrays(file, "the features of graded pairs", *GradedFeatures._fields))


def _measured(reader: IndexReader, source: Features, lists: GradedLists, workers: Workers) -> GradedFeatures:
    def measure(item: tuple[str, Sequence[GradedPair]]) -> GradedFeatures:
        query, pairs = item
        paper = reader.paper(query)
        vectors = reader.stored_vectors(paper)
        assert vectors is not None
        others = [pair for pair in pairs if pair.paper_id != query]
        candidates = [reader.paper(pair.paper_id) for pair in others]
        features = source.compare(GradedQuery(paper, vectors), candidates).values
        return GradedFeatures(features, np.array([pair.grades for pair in others], np.float64).reshape(-1, 3))

    return joined(list(workers.map(measure, lists.items())))


DEFAULT_RECIPE = GradeRecipe()


def train(
    sources: Sources, folders: Folders, run: RunOptions, *, recipe: GradeRecipe = DEFAULT_RECIPE
) -> Mapping[str, Sequence[float]]:
    """Train the grade model, calibrate its chances on the last file of dev, measure its grades on each, and
    publish it with a card.

    ``sources`` are files of graded pairs, an index of their papers, and papers to leave out. What was
    measured of pairs is kept in the work folder. Returns the root mean squared errors of the grades by facet,
    by the name of the file. Raises FileFormatError for pairs that cannot be read, IndexFormatError for an
    index without vectors, OutputError where nothing can be written.
    """
    with (
        open_index(sources.index, threads=run.threads) as index,
        index.reading() as reader,
        Workers(run.threads) as workers,
    ):
        encoder = encoder_of(reader)
        reads = {"words": sha256(SHIPPED / FILE), "projections": sha256(find_model(encoder) / WEIGHTS)}
        provenance = begin(sources, folders, run, recipe, index=reader.manifest.digest, reads=reads)
        projections = read_model(find_model(encoder)).projections
        source = Features(projections, shipped_words(), stored_vectors(index))

        def read(file: Path, *, leave_out: bool) -> GradedFeatures:
            lists: GradedLists = read_graded_pairs(file)
            if leave_out:
                lists = without_evaluated(lists, reader, sources.leave_out)
            # By content: files of one name differ, and some lists of a file to train on are left out.
            kept = folders.work / f"{'train' if leave_out else 'dev'}-{file.stem}-{sha256(file)[:12]}.npz"
            return load_or_measure(reader, source, lists, kept, workers)

        dev = {f"{file.parent.name}/{file.name}": read(file, leave_out=False) for file in sources.dev}
        train = joined([read(file, leave_out=True) for file in sources.train])
    log.info("fitting to %d pairs", len(train.grades))
    head = mean_head(
        [
            fit_grade_head(train.features, train.grades, recipe, seed, folders.work / f"{seed}.pt")
            for seed in run.seeds
        ]
    )
    calibrating, pairs = list(dev.items())[-1]
    training = {**provenance, "seeds": list(run.seeds), "pairs": len(train.grades), "calibrated": calibrating}
    model = GradeModel(calibrated(head, pairs.features, pairs.grades), encoder, training)
    errors = {name: _errors(model, each) for name, each in dev.items()}
    with staged_folder(folders.output) as staged:
        write_model(staged, model, FEATURES)
        _card(model, errors).write(staged)
    return errors


def _card(model: GradeModel, errors: Mapping[str, Sequence[float]]) -> Card:
    return Card(
        name=reader_name("grades", model.encoder["name"]),
        purpose="Says how similar a candidate is to a paper in background, method and result, from 0 "
        f"(unrelated) to 3 (near identical); learned from {model.training['pairs']:,} graded pairs.",
        input=f"{len(FEATURES)} comparisons of a paper and a candidate: stored vectors of "
        f"{model.encoder['name']} (weights {model.encoder['weights_sha256'][:12]}), plain and by "
        f"{reader_name('facet-projections', model.encoder['name'])}, and technique-words",
        figures="Root mean squared errors, in grades. Chances are calibrated on "
        f"{model.training['calibrated']}.",
        table=facet_table(["pairs"], ([name, *each] for name, each in errors.items()), places=2),
        data=model.training["data"],
        command="grades --index DIR",
        limits=GRADES_LIMITS,
    )


def _errors(model: GradeModel, pairs: GradedFeatures) -> list[float]:
    """Root mean squared errors of the grades of the pairs, by facet."""
    predicted = on_scale(model.estimates(pairs.features).grades)
    errors: list[float] = np.sqrt(((predicted - pairs.grades) ** 2).mean(axis=0)).tolist()
    return errors

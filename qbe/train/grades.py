"""Training of the grade model, from an index of graded pairs' papers to the published folder."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.encode.aspect import EncodedAspect
from qbe.export.staging import staged_folder
from qbe.files import sha256
from qbe.grade.head import Head, mean_head
from qbe.grade.model import NAMES, RERANKED, GradeModel, columns, on_scale, write_model
from qbe.graded_pairs import GradedLists, GradedPair, read_graded_pairs
from qbe.index.opening import open_index
from qbe.index.reader import IndexReader
from qbe.models.registry import DEFAULT_RERANKER
from qbe.parallel import Workers
from qbe.query import Aspect
from qbe.rerank.open import describe_reranker, open_reranker
from qbe.search.grading import GradeFeatures, GradeRequest
from qbe.train.artifacts import Folders, RunOptions, Sources, begin, load_arrays, save_arrays
from qbe.train.card import GRADES_LIMITS, Card, facet_table
from qbe.train.heads import GradeRecipe, fit_grade_heads
from qbe.train.pairs import held_by, papers_of, within, without_evaluated
from qbe.types import Facet

log = logging.getLogger(__name__)


BLOCK = 10
"""Lists that are measured at a time."""


class GradedFeatures(NamedTuple):
    """Candidates of several lists: their ``features`` (pairs, F), those of RERANKED, and ``grades``
    (pairs, 3).
    """

    features: NDArray[np.float64]
    grades: NDArray[np.float64]


def joined(parts: Sequence[GradedFeatures]) -> GradedFeatures:
    """Several as one."""
    return GradedFeatures(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def sampled(lists: GradedLists, count: int, seed: int) -> dict[str, Sequence[GradedPair]]:
    """So many of the lists, drawn at random; all if there are no more.

    >>> sorted(sampled({"a": [], "b": []}, 5, 0))
    ['a', 'b']
    """
    order = np.random.default_rng(seed).permutation(sorted(lists))[:count]
    return {query: lists[query] for query in order.tolist()}


def load_or_measure(
    reader: IndexReader, source: GradeFeatures, lists: GradedLists, file: Path
) -> GradedFeatures:
    """The features of lists, out of ``file`` if it is there, else computed and kept there. Raises CorpusError
    where the index lacks the papers of all, and ModelError where the file cannot be read.
    """
    if not file.exists():
        held = list(within(lists, held_by(reader, papers_of(lists))).items())
        parts: list[GradedFeatures] = []
        for first in range(0, len(held), BLOCK):
            parts += _measured(reader, source, dict(held[first : first + BLOCK]))
            log.info("%s: %d of %d lists", file.stem, min(first + BLOCK, len(held)), len(held))
        save_arrays(file, joined(parts)._asdict())
    return GradedFeatures(**load_arrays(file, "the features of graded pairs", *GradedFeatures._fields))


def _measured(reader: IndexReader, source: GradeFeatures, lists: GradedLists) -> list[GradedFeatures]:
    requests, grades = [], []
    for query, pairs in lists.items():
        paper = reader.paper(query)
        vectors = reader.stored_vectors(paper)
        facets = {
            facet: EncodedAspect.of(Aspect(paper, facet), vectors)
            for facet in Facet
            if paper.facet_positions(facet)[0]
        }
        by_row = {reader.papers.row(pair.paper_id): pair.grades for pair in pairs if pair.paper_id != query}
        if by_row and facets:
            rows = np.array(sorted(by_row), np.int64)
            requests.append(GradeRequest(facets, rows))
            grades.append(np.array([by_row[row] for row in rows.tolist()], np.float64))
    return [
        GradedFeatures(columns(features, RERANKED, len(of_list)), of_list)
        for (features, _), of_list in zip(source.batch(requests), grades, strict=True)
    ]


DEFAULT_RECIPE = GradeRecipe()
SAMPLE_SEED = 7


def train(
    sources: Sources, folders: Folders, run: RunOptions, *, recipe: GradeRecipe = DEFAULT_RECIPE
) -> Mapping[str, Sequence[float]]:
    """Train the grade model, measure it on each file of dev, and publish it with a card.

    ``sources`` are files of graded pairs, an index of their papers, and papers to leave out. What was
    measured of pairs is kept in the work folder. Returns the root mean squared errors of the grades by facet,
    by the name of the file, with the rerankers' scores. Raises FileFormatError for pairs that cannot be read,
    IndexFormatError for an index without vectors, OutputError where nothing can be written.
    """
    with (
        open_index(sources.index, threads=run.threads) as index,
        index.reading() as reader,
        Workers(run.threads) as workers,
    ):
        reader.require_vectors()
        assert reader.manifest.dense is not None
        reranker, encoder = describe_reranker(DEFAULT_RERANKER), reader.manifest.dense["encoder"]
        provenance = begin(sources, folders, run, recipe, index=reader.manifest.digest, reranker=reranker)
        opened = open_reranker(DEFAULT_RERANKER, workers=workers)
        features = GradeFeatures(reader, workers, lambda: opened)

        def read(file: Path, count: int | None) -> GradedFeatures:
            lists: GradedLists = read_graded_pairs(file)
            if count is not None:
                lists = without_evaluated(lists, reader, sources.leave_out)
                lists = sampled(lists, count, SAMPLE_SEED)
            # By content: files of one name differ, and of a file to train on only a sample is measured.
            part = "dev" if count is None else "train"
            kept = folders.work / f"{part}-{file.stem}-{sha256(file)[:12]}.npz"
            return load_or_measure(reader, features, lists, kept)

        dev = {f"{file.parent.name}/{file.name}": read(file, None) for file in sources.dev}
        train = joined([read(file, recipe.sampled) for file in sources.train])
    log.info("fitting to %d pairs", len(train.grades))
    heads = {known: _fitted(train, known, recipe, run.seeds, folders.work) for known in NAMES}
    provenance.pop("reranker")
    training = {**provenance, "seeds": list(run.seeds), "pairs": len(train.grades)}
    model = GradeModel(heads, encoder, reranker, training)
    errors = {known: {name: _errors(model, each, known) for name, each in dev.items()} for known in NAMES}
    with staged_folder(folders.output) as staged:
        write_model(staged, model)
        _card(model, errors).write(staged)
    return errors[RERANKED]


def _card(model: GradeModel, errors: Mapping[str, Mapping[str, Sequence[float]]]) -> Card:
    return Card(
        name="grades",
        purpose="Says how similar a candidate is to a paper in background, method and result, from 0 "
        f"(unrelated) to 3 (near identical); learned from {model.training['pairs']:,} graded pairs.",
        input=f"matches of stored vectors of {model.encoder['name']} (weights "
        f"{model.encoder['weights_sha256'][:12]}) and, if there are any, scores of the facet rerankers",
        figures="Root mean squared errors, in grades, by stored vectors alone and with the rerankers' "
        "scores, which promise a little too much: the rerankers learned from the same pairs.",
        table=facet_table(
            ["known", "pairs"],
            ([known, name, *each] for known, by_file in errors.items() for name, each in by_file.items()),
            places=2,
        ),
        data=model.training["data"],
        command="grades --index DIR",
        limits=GRADES_LIMITS,
    )


def _fitted(
    train: GradedFeatures, known: str, recipe: GradeRecipe, seeds: Sequence[int], work: Path
) -> dict[Facet, Head]:
    """The mean of the seeds' heads, by facet."""
    features = train.features[:, : len(NAMES[known])]
    by_seed = [
        fit_grade_heads(features, train.grades, recipe, seed, work / f"{known}-{seed}.pt") for seed in seeds
    ]
    return {facet: mean_head([heads[facet] for heads in by_seed]) for facet in Facet}


def _errors(model: GradeModel, pairs: GradedFeatures, known: str) -> list[float]:
    """Root mean squared errors of the grades of the pairs, by facet."""
    named = dict(zip(NAMES[RERANKED], pairs.features.T, strict=True))
    predicted = on_scale(model.grades(named, known, len(pairs.grades)))
    errors: list[float] = np.sqrt(((predicted - pairs.grades) ** 2).mean(axis=0)).tolist()
    return errors
